"""Benchmarks: `python -m benchmarks` times shlo_jit against its peers; the other files measure one part each."""
