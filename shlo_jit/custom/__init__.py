"""Code that users bring: Numba and LLVM functions that are compiled into programs in place of custom calls.

`functions.py` has the values that users pass. `replace.py` replaces a custom call by StableHLO ops if an elementwise
function can be expressed in them (`lift/`), and otherwise by a call of a kernel (`code_routine.py`). `numba_text.py`
asks Numba for LLVM text, and `given_text.py` reads LLVM code that the user supplies. `defined.py` removes undefined
behavior from both.
"""
