"""Programs with unknown dimensions, made static for the shapes of their arguments: before all passes.

`refine` does it; `meet` is what two types say together, `foreign`, `known_sizes` evaluates shape computations in MLIR's own dialects,
and `prelude` is what computes sizes that follow from data.
"""
