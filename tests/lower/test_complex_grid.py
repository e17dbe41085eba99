"""Complex functions at parts of every size, against mpmath: each part within 4 ULP of the exact one."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

mp = pytest.importorskip("mpmath")
BITS = 2400
"""Precision of the exact values: sums of the largest and the smallest numbers of f64 need as many bits."""
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "stablehlo.exponential": mp.exp,
    "stablehlo.exponential_minus_one": mp.expm1,
    "stablehlo.log": mp.log,
    "stablehlo.log_plus_one": lambda z: mp.log(1 + z),
    "stablehlo.sqrt": mp.sqrt,
    "stablehlo.rsqrt": lambda z: 1 / mp.sqrt(z),
    "stablehlo.cbrt": lambda z: mp.exp(mp.log(z) / 3),
    "stablehlo.sine": mp.sin,
    "stablehlo.cosine": mp.cos,
    "stablehlo.tan": mp.tan,
    "stablehlo.tanh": mp.tanh,
    "stablehlo.sign": lambda z: z / abs(z),
    "chlo.tan": mp.tan,
    "chlo.sinh": mp.sinh,
    "chlo.cosh": mp.cosh,
    "chlo.asin": mp.asin,
    "chlo.acos": mp.acos,
    "chlo.atan": mp.atan,
    "chlo.asinh": mp.asinh,
    "chlo.acosh": mp.acosh,
    "chlo.atanh": mp.atanh,
    "chlo.square": lambda z: z * z,
}


def grid(dtype: type[np.floating], dense: bool) -> np.ndarray:
    limits = np.finfo(dtype)
    smallest, tiny, largest = float(limits.smallest_subnormal), float(limits.tiny), float(limits.max)
    parts = [smallest, 0.3 * tiny, float(limits.eps) / 3, 0.3, 1.0, 1.7, 40.0, 1.3 * math.sqrt(largest), 0.6 * largest]
    parts += [tiny**0.4, 2.01 * math.log(largest)]  # sqrt of tiny beside huge; e^a overflows while a product does not
    if not dense:
        parts = [parts[i] for i in (0, 2, 4, 7, 8, 9, 10)]
    signed = [*parts, *(-p for p in parts[::2])]
    return np.array([complex(a, b) for a in signed for b in (signed if dense else parts)]).astype(
        np.dtype(f"c{2 * limits.bits // 8}")
    )


def program(names: list[str], count: int, element: str) -> str:
    t = f"tensor<{count}x{element}>"
    lines = [f'%{i} = "{name}"(%a) : ({t}) -> {t}' for i, name in enumerate(names)]
    values, types = ", ".join(f"%{i}" for i in range(len(names))), ", ".join([t] * len(names))
    body = "\n".join(lines)
    return f"func.func @main(%a: {t}) -> ({types}) {{\n{body}\nreturn {values} : {types}\n}}"


def ulps(got: np.floating, want: Any, limits: np.finfo) -> float:
    """Returns the distance in units of the exact value's last place."""
    if not np.isfinite(got):
        overflows = abs(want) > mp.mpf(float(limits.max)) * (1 - mp.mpf(2) ** -limits.nmant)
        return 0.0 if overflows and (got > 0) == (want > 0) else math.inf
    exponent = max(mp.frexp(want)[1] - 1, limits.minexp) if want else limits.minexp
    return float(abs(mp.mpf(float(got)) - want) / mp.mpf(2) ** (exponent - limits.nmant))


def worst(z: Any, names: list[str], limit: float) -> list[tuple[Any, ...]]:
    """Returns function, argument, result and error for each part that is off by more than `limit` ULP."""
    limits = np.finfo(z.dtype)
    results = shlo_jit.compile(program(names, len(z), f"complex<f{limits.bits}>"), cache=False, threads=1)(z)
    bad = []
    with mp.workprec(BITS):
        for name, values in zip(names, results, strict=True):
            for x, got in zip(z, values, strict=True):
                want = mp.mpc(FUNCTIONS[name](mp.mpc(float(x.real), float(x.imag))))
                error = max(ulps(got.real, want.real, limits), ulps(got.imag, want.imag, limits))
                if not error <= limit:
                    bad.append((name, x, got, error))
    return bad


@pytest.mark.parametrize("dense", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_of_every_size(dtype: type[np.floating], dense: bool) -> None:
    assert not worst(grid(dtype, dense), list(FUNCTIONS), 4)


def random_parts(dtype: type[np.floating], count: int, rng: np.random.Generator) -> np.ndarray:
    """Returns parts of all magnitudes, near the ends of the range, near 1, and such that e^a overflows or nearly
    does."""
    limits = np.finfo(dtype)
    low, high = math.log2(float(limits.smallest_subnormal)), math.log2(float(limits.max)) - 0.001
    edge = math.log(float(limits.max))

    def part() -> np.ndarray:
        kinds = [
            rng.normal(size=count),
            2.0 ** rng.uniform(low, high, count),
            1 + 2.0 ** rng.uniform(-50, 1, count) * rng.choice([-1.0, 1.0], count),
            2.0 ** rng.uniform(high - 4, high, count),
            2.0 ** rng.uniform(low, low + 60, count),
            rng.uniform(0.8 * edge, 2.1 * edge, count),
            2.0 ** rng.uniform(-30, 10, count),
        ]
        return np.choose(rng.integers(0, len(kinds), count), kinds) * rng.choice([-1.0, 1.0], count)

    z = np.empty(count, np.dtype(f"c{2 * limits.bits // 8}"))
    z.real, z.imag = part(), part()
    return z


# The real part of expm1 has zeros near which its terms cancel.
RANDOM = [name for name in FUNCTIONS if name != "stablehlo.exponential_minus_one"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_random_parts(dtype: type[np.floating]) -> None:
    """Tests SHLO_JIT_TEST_COMPLEX numbers per function (300 if not set), from seed SHLO_JIT_TEST_SEED."""
    count, seed = (int(os.environ.get(f"SHLO_JIT_TEST_{k}", v)) for k, v in (("COMPLEX", "300"), ("SEED", "0")))
    assert not worst(random_parts(dtype, count, np.random.default_rng(seed)), RANDOM, 4)


def bits(x: Any) -> np.ndarray:
    """Returns the parts with their signs; one NaN for all."""
    parts = np.stack([x.real, x.imag], -1)
    return np.where(np.isnan(parts), np.nan, parts)


def test_square_of_large_numbers() -> None:
    z = np.array(
        [complex(2e19, 2e19), complex(-2e19, 2e19), complex(3e38, 3e38), complex(2e19, 1e19), complex(0.0, 1e30)]
    ).astype(np.complex64)
    text = program(["chlo.square"], len(z), "complex<f32>")
    (meant,) = evaluate(shlo_jit.parse(text), z)
    got = shlo_jit.compile(text, cache=False)(z)
    assert np.array_equal(bits(got), bits(meant))
    a, b = np.float32(2e19), np.float32(1e19)
    assert np.array_equal(got.real, np.array([0, 0, 0, (a - b) * (a + b), -np.inf], np.float32))
    assert not np.isnan(got).any()
