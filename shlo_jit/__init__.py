"""shlo_jit."""
