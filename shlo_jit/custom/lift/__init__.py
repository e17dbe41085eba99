"""From a function of numbers in LLVM's language to StableHLO ops over whole tensors.

`read.py` has LLVM simplify the function and reads it, `loops.py` finds its loops and where its branches meet,
`masks.py` says under which conditions a block is reached, `instructions.py` and `calls.py` have an op for every
instruction, and `lift.py` writes them: both sides of a branch and a selection from them, and a `while` for a loop.
"""
