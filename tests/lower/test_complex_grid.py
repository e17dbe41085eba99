"""Complex functions at parts of every size, against mpmath: each part within 4 ULP of the exact one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

mp = pytest.importorskip("mpmath")
BITS = 2400
"""Of the exact values: sums of the largest and the smallest numbers of f64 need so many."""
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
    "stablehlo.tanh": mp.tanh,
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
    if not dense:
        parts = [parts[i] for i in (0, 2, 4, 7, 8)]
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
    """Distance in units of the exact value's last place."""
    if not np.isfinite(got):
        overflows = abs(want) > mp.mpf(float(limits.max)) * (1 - mp.mpf(2) ** -limits.nmant)
        return 0.0 if overflows and (got > 0) == (want > 0) else math.inf
    exponent = max(mp.frexp(want)[1] - 1, limits.minexp) if want else limits.minexp
    return float(abs(mp.mpf(float(got)) - want) / mp.mpf(2) ** (exponent - limits.nmant))


@pytest.mark.parametrize("dense", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_of_every_size(dtype: type[np.floating], dense: bool) -> None:
    z, limits = grid(dtype, dense), np.finfo(dtype)
    element = f"complex<f{limits.bits}>"
    results = shlo_jit.compile(program(list(FUNCTIONS), len(z), element), cache=False)(z)
    bad = []
    with mp.workprec(BITS):
        for (name, function), values in zip(FUNCTIONS.items(), results, strict=True):
            for x, got in zip(z, values, strict=True):
                want = mp.mpc(function(mp.mpc(float(x.real), float(x.imag))))
                error = max(ulps(got.real, want.real, limits), ulps(got.imag, want.imag, limits))
                if not error <= 4:
                    bad.append((name, x, got, error))
    assert not bad


def bits(x: Any) -> np.ndarray:
    """Parts with their signs; one NaN for all."""
    parts = np.stack([x.real, x.imag], -1)
    return np.where(np.isnan(parts), np.nan, parts)


def test_exponential_at_infinities() -> None:
    """As in C's Annex G, but that zeros have no sign where the real part is -inf."""
    inf, nan = math.inf, math.nan
    cases = [
        (complex(inf, inf), (inf, nan)), (complex(inf, nan), (inf, nan)), (complex(inf, 0.0), (inf, 0.0)),
        (complex(inf, -0.0), (inf, -0.0)), (complex(inf, 2.0), (-inf, inf)), (complex(-inf, 2.0), (0.0, 0.0)),
        (complex(-inf, -1.0), (0.0, 0.0)), (complex(-inf, inf), (0.0, 0.0)), (complex(-inf, nan), (0.0, 0.0)),
        (complex(1.0, inf), (nan, nan)), (complex(nan, 0.0), (nan, 0.0)), (complex(nan, 1.0), (nan, nan)),
        (complex(710.0, 1.0), (math.exp(709) * math.cos(1.0) * math.e, math.exp(709) * math.sin(1.0) * math.e)),
    ]  # fmt: skip
    z = np.array([x for x, _ in cases])
    text = program(["stablehlo.exponential"], len(z), "complex<f64>")
    got = shlo_jit.compile(text, cache=False)(z)
    (meant,) = evaluate(shlo_jit.parse(text), z)
    for values in (got, meant):
        for x, value, (real, imag) in zip(z, values, (w for _, w in cases), strict=True):
            for part, want in ((value.real, real), (value.imag, imag)):
                assert np.isclose(part, want, rtol=1e-14, atol=0, equal_nan=True), (x, value)
                assert np.isnan(want) or np.signbit(part) == np.signbit(want), (x, value)


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
