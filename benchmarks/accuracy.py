"""Errors of the elementary functions in ULP, as a markdown table (the content of docs/accuracy.md).

    python benchmarks/accuracy.py [--stride 61] [--f64 4000] [--no-xla] [name ...]

f32: every stride-th bit pattern against f64 functions (1: all of them, a minute or two for each function). f64: random
numbers and edge cases against mpmath. XLA:CPU is measured through jax on the same numbers, but only where argument and
result are normal numbers or zero, because it flushes subnormals.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kernels"))
reference: Any = importlib.import_module("math_reference")
evaluate: Callable[..., np.ndarray] = importlib.import_module("jit_util").evaluate

Evaluate = Callable[..., np.ndarray]
TINY = {32: 2.0**-126, 64: 2.0**-1022}


class Worst(NamedTuple):
    ulp: float = 0.0
    at: tuple[float, ...] = ()

    def text(self) -> str:
        return f"{self.ulp:.2f}" if self.ulp < 1000 else f"{self.ulp:.1e}"

    def where(self) -> str:
        return ", ".join(f"{v:.9g}" for v in self.at)


def worst_of(error: np.ndarray, args: tuple[np.ndarray, ...], so_far: Worst) -> Worst:
    i = int(error.argmax())
    if error[i] <= so_far.ulp:
        return so_far
    return Worst(float(error[i]), tuple(float(a[i]) for a in args))


def normal(values: np.ndarray, bits: int) -> np.ndarray:
    return (np.abs(values) >= TINY[bits]) | (values == 0)


def measure_f32(functions: list[Evaluate], name: str, stride: int) -> list[Worst]:
    """The worst error of each function. The first one is ours; the others are not measured on subnormals."""
    worst = [Worst() for _ in functions]
    step = 1 << 22
    if name in reference.BINARY:
        truth = reference.in_f64(reference.BINARY[name][0])
        chunks = pairs(np.float32, max(1, (1 << 28) // stride), step)
    else:
        truth = reference.in_f64(reference.UNARY[name][0])
        starts = range(0, 1 << 32, step * stride)
        patterns = (np.arange(s, min(s + step * stride, 1 << 32), stride) for s in starts)
        chunks = ((p.astype(np.uint32).view(np.float32),) for p in patterns)
    for args in chunks:
        expected = truth(*args)
        plain = np.logical_and.reduce([normal(a, 32) for a in (*args, expected)])
        for k, function in enumerate(functions):
            error = reference.ulps(np.asarray(function(*args)), expected)
            worst[k] = worst_of(np.where(plain, error, 0) if k else error, args, worst[k])
    return worst


def pairs(dtype: type, count: int, step: int) -> Any:
    """Arguments of binary functions: bases near and far from 1, exponents of all sizes, random bit patterns."""
    rng = np.random.default_rng(0)
    for seed in range(0, max(1, count // step)):
        x = np.exp(rng.standard_normal(step) * rng.choice([0.01, 0.5, 5, 15], step)).astype(dtype)
        y = (rng.standard_normal(step) * rng.choice([0.1, 3, 30], step)).astype(dtype)
        yield x, y
        yield reference.samples(dtype, step // 4, seed), reference.samples(dtype, step // 4, seed + 1000)


def measure_f64(functions: list[Evaluate], name: str, count: int) -> list[Worst]:
    worst = [Worst() for _ in functions]
    if name in reference.BINARY:
        exact, args = reference.BINARY[name][1], next(iter(pairs(np.float64, 1, count)))
        near = reference.in_f64(reference.BINARY[name][0])(*args)
    else:
        exact, args = reference.UNARY[name][1], (reference.samples(np.float64, count // 3),)
        near = reference.in_f64(reference.UNARY[name][0])(*args)
    results = [np.asarray(f(*args)) for f in functions]
    for i in range(args[0].size):
        values = [float(a[i]) for a in args]
        if not np.isfinite([*values, near[i]]).all() or near[i] == 0 or max(map(abs, values)) > 1e300:
            continue
        truth = exact(*[mp.mpf(v) for v in values])
        plain = normal(np.array([*values, near[i]]), 64).all()
        for k, result in enumerate(results):
            error = reference.ulps_exact(float(result[i]), truth)
            if error > worst[k].ulp and (plain or not k):
                worst[k] = Worst(error, tuple(values))
    return worst


def xla(name: str) -> Evaluate:
    """The function of XLA:CPU."""
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    function = {"log2": jax.numpy.log2}.get(name) or getattr(jax.lax, name)
    return jax.jit(function)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*reference.UNARY, *reference.BINARY], help="functions")
    parser.add_argument("--stride", type=int, default=61, help="f32: stride of bit patterns")
    parser.add_argument("--f64", type=int, default=4000, help="number of f64 arguments")
    parser.add_argument("--no-xla", action="store_true")
    options = parser.parse_args()
    print("| function | type | bound | max ULP | at | XLA:CPU | at |")
    print("|---|---|---|---|---|---|---|")
    for name in options.names:
        bounds = (reference.UNARY.get(name) or reference.BINARY[name])[2:]

        def ours(*args: np.ndarray, name: str = name) -> np.ndarray:
            return evaluate(name, *args)

        functions = [ours] if options.no_xla else [ours, xla(name)]
        for dtype, bound, worst in (
            ("f32", bounds[0], measure_f32(functions, name, options.stride)),
            ("f64", bounds[1], measure_f64(functions, name, options.f64)),
        ):
            cells = [f"{w.text()} | {w.where()}" for w in worst] + ["- | -"] * (2 - len(worst))
            print(f"| {name} | {dtype} | {bound:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
