"""Models as they are deployed, on shlo_jit and on what people run them with: `python -m benchmarks.deployed`."""
