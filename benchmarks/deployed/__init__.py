"""Deployed models on shlo_jit and on the engines that are commonly used: `python -m benchmarks.deployed`."""
