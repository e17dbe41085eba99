"""Products with weights: as arguments, and as constants, which are packed when the program is compiled.

    python -m benchmarks.weights [--threads 2] [--dtype f32|bf16|f64] [MxKxN ...]

GF/s of `x @ w`, for one product whose weights stay in the caches, and for so many products in one program that their
weights come from beyond the caches each time. The four alternate; a figure is that of the median block.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import shlo_jit
from benchmarks.timing import interleave

SHAPES = ("1x784x512", "1x768x3072", "4x768x3072", "16x768x768", "49x512x2048", "64x784x512", "128x768x768",
          "128x3072x768", "128x768x3072", "512x768x768")  # fmt: skip
DTYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}
FAR_BYTES, MOST_PRODUCTS = 48_000_000, 24
"""Bytes of all weights of the program whose weights come from beyond the caches, and its maximum number of products."""


def program(m: int, k: int, n: int, dtype: str, weights: list[np.ndarray], are_constants: bool) -> str:
    """The sum of the products of one left operand with each of the weights."""
    x, w, y = (f"tensor<{a}x{b}x{dtype}>" for a, b in ((m, k), (k, n), (m, n)))
    names = [f"%w{i}" for i in range(len(weights))]
    given = "" if are_constants else "".join(f", {name}: {w}" for name in names)
    lines = [f"func.func @main(%x: {x}{given}) -> {y} {{", f"  %s0 = stablehlo.constant dense<0.0> : {y}"]
    for i, (name, array) in enumerate(zip(names, weights, strict=True)):
        if are_constants:
            lines.append(f'  {name} = stablehlo.constant dense<"0x{array.tobytes().hex()}"> : {w}')
        product = f"stablehlo.dot_general %x, {name}, contracting_dims = [1] x [0] : ({x}, {w}) -> {y}"
        lines += [f"  %y{i} = {product}", f"  %s{i + 1} = stablehlo.add %s{i}, %y{i} : {y}"]
    return "\n".join([*lines, f"  return %s{len(weights)} : {y}", "}"])


def call_of(compiled: Any, arrays: list[np.ndarray]) -> Callable[[], Any]:
    return lambda: compiled(*arrays)


def measure(shape: str, dtype: str, threads: int, budget: float) -> list[float]:
    """GF/s: weights as arguments, from the caches and from beyond; then as constants."""
    m, k, n = map(int, shape.split("x"))
    random, kind = np.random.default_rng(0), DTYPES[dtype]
    many = max(2, min(MOST_PRODUCTS, FAR_BYTES // (k * n * np.dtype(kind).itemsize)))
    weights = [(random.standard_normal((k, n)) * 0.05).astype(kind) for _ in range(many)]
    x = random.standard_normal((m, k)).astype(kind)
    calls, counts = {}, []
    for are_constants in (False, True):
        for count in (1, many):
            text = program(m, k, n, dtype, weights[:count], are_constants)
            compiled = shlo_jit.compile(text, threads=threads, cache=False)
            calls[f"{are_constants} {count}"] = call_of(compiled, [x, *(() if are_constants else weights[:count])])
            counts.append(count)
    times = interleave(calls, budget).values()
    return [2e-9 * m * k * n * count / t.median for count, t in zip(counts, times, strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", default=SHAPES, metavar="MxKxN")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--budget", type=float, default=0.5, help="seconds a program")
    args = parser.parse_args()
    table = Table("m x k x n", title=f"{args.dtype}, {args.threads} threads: GF/s")
    for column in ("argument", "from far", "constant", "from far"):
        table.add_column(column, justify="right")
    for shape in track(args.shapes, "measuring", transient=True):
        found = measure(shape, args.dtype, args.threads, args.budget)
        table.add_row(shape.replace("x", " x "), *(f"{x:.1f}" for x in found))
    Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
