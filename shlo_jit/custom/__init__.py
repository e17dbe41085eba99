"""Code that users bring: functions of Numba and of LLVM that are compiled into programs, in the place of custom calls.

`functions.py` has the values that users hand over, `replace.py` what a call of one becomes: ops, where an elementwise
function can be said in them (`lift/`), and else a kernel (`code_routine.py`).
`numba_text.py` asks Numba for LLVM text, `given_text.py` reads what is given as such, and `defined.py`
leaves nothing open in either.
"""
