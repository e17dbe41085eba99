"""Lifts a function of scalars in LLVM's language to StableHLO ops over whole tensors.

`read.py` has LLVM simplify the function and reads it. `loops.py` finds its loops and where its branches join.
`masks.py` computes the conditions under which a block is reached. `instructions.py` and `calls.py` have an op for every
instruction. `lift.py` writes them: both sides of a branch and a select, and a `while` for a loop.
"""
