"""Names that modules without JAX also need."""

OURS, REFERENCE = "shlo_jit", "XLA"
