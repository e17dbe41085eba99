"""Programs with unknown dimensions, made static for the shapes of their arguments. Runs before all passes.

`refine` is the entry point. `meet` combines two types of one value. `known_sizes` evaluates shape computations on sizes
that are known only at the call, `foreign` those in MLIR's own dialects. `prelude` is a program that computes sizes that
depend on data. `origins` names, in refusals, the arguments whose sizes an op depends on. `loop_sizes` handles sizes
that loops change.

`bounded` replaces values whose sizes are still unknown, but have bounds, by pairs: `padded` emits ops on these,
`bounded_rules` and `bounded_moves` have a rule for each op. `elementwise_calls` marks, before refinement, the custom
calls whose results have their operands' shape.
"""
