"""Costs of paths that do not run as plain vectors: nanoseconds per element on one thread, the fastest of many runs.

    python -m benchmarks.slow_paths

It generates the table in docs/slow_paths.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shlo_jit

N = 1 << 16
RNG = np.random.default_rng(0)
FLOATS = RNG.standard_normal(N).astype(np.float32)
ROWS = FLOATS.reshape(64, 1024)
INTEGERS = RNG.integers(1, 1000, N).astype(np.int32)
PLACES = RNG.integers(0, N, N).astype(np.int32)

CASES: dict[str, tuple[Callable, tuple]] = {
    "add f32 (a plain vector loop, for comparison)": (lambda x: x + x, (FLOATS,)),
    "divide i32": (jax.lax.div, (INTEGERS, INTEGERS[::-1].copy())),
    "remainder i32": (jax.lax.rem, (INTEGERS, INTEGERS[::-1].copy())),
    "gather of single elements": (lambda x, i: x[i], (FLOATS, PLACES)),
    "a reducer of several ops along rows": (
        lambda x: jax.lax.reduce((x, x), (0.0, 0.0), lambda a, b: (a[0] + b[0], jnp.maximum(a[1], b[1])), (1,)),
        (ROWS,),
    ),
    "scatter-add of single elements": (lambda x, i, u: x.at[i].add(u), (FLOATS, PLACES, FLOATS)),
    "sort f32 by an unusual comparator": (
        lambda x, y: jax.lax.sort((x * y, x), num_keys=2),
        (ROWS, ROWS[::-1].copy()),
    ),
    "power f32": (lambda x: jnp.power(jnp.abs(x), 1.7), (FLOATS,)),
    "lgamma f32": (jax.lax.lgamma, (FLOATS,)),
    "exponential c64": (lambda x: jnp.exp(x * np.complex64(1 + 1j)), (FLOATS,)),
}


def best(function: Any, arguments: tuple, runs: int = 40) -> float:
    """Seconds of the fastest run of a callable."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    print("| path | ns an element |\n|---|--:|")
    for name, (function, arguments) in CASES.items():
        text = jax.jit(function, keep_unused=True).lower(*arguments).as_text()
        exe = shlo_jit.compile(text, threads=1)
        print(f"| {name} | {best(exe, arguments) / N * 1e9:.2f} |")


if __name__ == "__main__":
    main()
