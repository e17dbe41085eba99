"""Programs with unknown dimensions, made static for the shapes of their arguments: before all passes.

`refine` does it; `meet` is what two types say together, `known_sizes` evaluates shape computations on sizes that are
known at the call only, `foreign` those in MLIR's own dialects; `prelude` is what computes sizes that follow from
data, and `origins` says in refusals which arguments' sizes an op follows from.
"""
