"""Products with low-bit weights: exact, with rounded activations, and as programs write them that round activations.

    python -m benchmarks.rounded_activations [--threads 2] [--size 4096] [--rows 1,8,64] [--arguments]

Milliseconds of `x @ w` for a square matrix of weights, which is constant unless `--arguments` is given. The three
alternate; a figure is the lower quartile. `own` is a program that rounds activations by row or group itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import shlo_jit
from benchmarks.timing import interleave

FORMS: dict[str, tuple[Any, int]] = {
    "i8 by column": (np.int8, 0),
    "i4 by column": (ml_dtypes.int4, 0),
    "i4 in groups of 128": (ml_dtypes.int4, 128),
    "i4 in groups of 32": (ml_dtypes.int4, 32),
}
"""Type of the weights, and terms of a group; 0: all."""


def exact(x: Any, w: Any, scales: Any) -> Any:
    """The product with dequantized weights [group, term, column]."""
    return x @ (w.astype(x.dtype) * scales[:, None, :]).reshape(-1, w.shape[-1])


def own(x: Any, w: Any, scales: Any) -> Any:
    """The same with activations that the program rounds."""
    groups, terms, _ = w.shape
    x = x.reshape(x.shape[0], groups, terms)
    step = jnp.max(jnp.abs(x), -1, keepdims=True) / 127
    rounded = jnp.clip(jnp.round(x / step), -127, 127).astype(jnp.int8)
    dims = ((2,), (1,)), ((1,), (0,))
    sums = jax.lax.dot_general(rounded, w.astype(jnp.int8), dims, preferred_element_type=jnp.int32)
    return jnp.sum(sums.astype(jnp.float32) * step.transpose(1, 0, 2) * scales[:, None, :], 0)


def measure(form: str, rows: int, size: int, threads: int, are_arguments: bool, budget: float) -> list[float]:
    """Milliseconds of a call: exact, rounded, rounded by the program."""
    dtype, terms = FORMS[form]
    rng, terms = np.random.default_rng(0), terms or size
    x = rng.standard_normal((rows, size), np.float32)
    low, high = (-128, 127) if dtype is np.int8 else (-8, 7)
    w = rng.integers(low, high + 1, (size // terms, terms, size)).astype(dtype)
    arrays = [x, w, rng.random((size // terms, size), np.float32)]
    given = {} if are_arguments else {i: array for i, array in enumerate(arrays) if i}
    calls: dict[str, Callable[[], Any]] = {}
    for name, function, rounded in (("exact", exact, None), ("rounded", exact, "int8"), ("own", own, None)):
        text = jax.jit(function).lower(*arrays).as_text()
        options = {"threads": threads, "cache": False, "round_activations": rounded, "constants": given}
        executable: Any = shlo_jit.compile(text, **options)
        calls[name] = partial(executable, *(arrays if are_arguments else [x]))
    return [1e3 * times.low for times in interleave(calls, budget).values()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--rows", default="1,8,64")
    parser.add_argument("--arguments", action="store_true", help="weights are arguments, one byte each")
    parser.add_argument("--budget", type=float, default=0.5, help="seconds a program")
    args = parser.parse_args()
    table = Table("weights", "rows", "exact ms", "rounded ms", "own ms")
    cases = [(form, int(rows)) for form in FORMS for rows in args.rows.split(",")]
    for form, rows in track(cases, "measuring", transient=True):
        found = measure(form, rows, args.size, args.threads, args.arguments, args.budget)
        table.add_row(form, str(rows), *(f"{x:.3f}" for x in found))
    Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
