"""Programs with unknown dimensions, made static for the shapes of their arguments: before all passes.

`refine` does it; `meet` is what two types say together, `known_sizes` evaluates shape computations on sizes that are
known at the call only, `foreign` those in MLIR's own dialects; `prelude` is what computes sizes that follow from
data, and `origins` says in refusals which arguments' sizes an op follows from. `loop_sizes` is about sizes that loops
change. What is still unknown then and has bounds, `bounded` makes pairs of: `padded` has the words for that,
`bounded_rules` and `bounded_moves` say what each op does with them. `elementwise_calls` notes which custom calls have
results of their operands' shape, before.
"""
