"""Names that the parts without JAX need too."""

OURS, REFERENCE = "shlo_jit", "XLA"
