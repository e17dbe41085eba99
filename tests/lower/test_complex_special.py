"""Complex functions at infinities, NaNs, zeros and the ends of the range: C's Annex G, and the reference's values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate
from tests.lower import annex_g

Array = Any  # numpy's stubs give `real` and `imag` to some dtypes only

INF, NAN = math.inf, math.nan
DTYPES = [np.complex64, np.complex128]
CASES = {
    "stablehlo.exponential": annex_g.cases("exp"),
    "stablehlo.log": annex_g.cases("log"),
    "stablehlo.sqrt": annex_g.cases("sqrt"),
    "stablehlo.tanh": annex_g.cases("tanh"),
    "stablehlo.sine": annex_g.rotated("sin"),
    "stablehlo.cosine": annex_g.cosine(),
    "stablehlo.tan": annex_g.rotated("tan"),
    **{f"chlo.{name}": annex_g.cases(name) for name in ("sinh", "cosh", "acos", "acosh", "asinh", "atanh")},
    **{f"chlo.{name}": annex_g.rotated(name) for name in ("tan", "asin", "atan")},
}
OTHERS = [
    "stablehlo.exponential_minus_one", "stablehlo.log_plus_one", "stablehlo.rsqrt", "stablehlo.cbrt",
    "stablehlo.logistic", "stablehlo.sign", "chlo.square", "stablehlo.negate", "chlo.conj",
]  # fmt: skip


def text(name: str, shape: tuple[int, ...], dtype: type, arity: int = 1) -> str:
    t = f"tensor<{shape[0]}xcomplex<f{np.dtype(dtype).itemsize * 4}>>"
    arguments = ", ".join(f"%{i}: {t}" for i in range(arity))
    names, types = ", ".join(f"%{i}" for i in range(arity)), ", ".join([t] * arity)
    return f'func.func @main({arguments}) -> {t} {{\n%r = "{name}"({names}) : ({types}) -> {t}\nreturn %r : {t}\n}}'


def both(name: str, dtype: type, *xs: Array) -> dict[str, Array]:
    """Returns the results of machine code and of the reference."""
    program = text(name, xs[0].shape, dtype, len(xs))
    with np.errstate(all="ignore"):
        (meant,) = evaluate(shlo_jit.parse(program), *xs)
    return {"machine code": shlo_jit.compile(program, cache=False, threads=1)(*xs), "reference": np.asarray(meant)}


def numbers(parts: list[float], dtype: type) -> Array:
    """Returns all pairs of parts, with both signs."""
    signed = np.array([*parts, *(-x for x in parts), NAN])
    z = np.empty(len(signed) ** 2, dtype)
    z.real, z.imag = np.repeat(signed, len(signed)), np.tile(signed, len(signed))
    return z


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", list(CASES))
def test_annex_g(name: str, dtype: type) -> None:
    cases = CASES[name]
    z = np.array([x for x, _, _ in cases], dtype)
    z.real, z.imag = [x.real for x, _, _ in cases], [x.imag for x, _, _ in cases]
    for what, values in both(name, dtype, z).items():
        bad = [
            (what, x, got)
            for (x, re, im), got in zip(cases, values, strict=True)
            if not (re.holds(got.real, 1e-6) and im.holds(got.imag, 1e-6))
        ]
        assert not bad


def test_rows_cover_all_infinities_and_nans() -> None:
    kinds = (0.0, 1.0, INF, NAN)
    for name in annex_g.ROWS:
        have = {(repr(z.real), repr(z.imag)) for z, _, _ in annex_g.cases(name)}
        assert {(repr(a), repr(b)) for a in kinds for b in kinds if not (math.isfinite(a) and math.isfinite(b))} <= have


def same_part(x: Array, y: Array, tolerance: float, least: float) -> Array:
    """Compares parts: NaN or not, infinities, signs of zeros, and numbers up to roundings."""
    with np.errstate(all="ignore"):
        near = np.abs(x - y) <= tolerance * np.abs(y) + least
    exact = (x == y) & ((x != 0) | (np.signbit(x) == np.signbit(y)))
    return exact | (np.isnan(x) & np.isnan(y)) | (near & (x != 0) & (y != 0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*CASES, *OTHERS])
def test_reference_means_the_same(name: str, dtype: type) -> None:
    """Signs that Annex G leaves open are not compared: those of results whose other part is a NaN."""
    limits = np.finfo(dtype)
    ends = [float(limits.smallest_subnormal), float(limits.tiny), float(limits.max) / 1024, float(limits.max)]
    z = numbers([0.0, 1.0, 3.0, *ends, INF], dtype)
    got, want = both(name, dtype, z).values()
    least = 4 * float(limits.smallest_subnormal)
    same = [
        same_part(x, y, 8 * float(limits.eps), least) | (np.isnan(other) & (np.abs(x) == np.abs(y)))
        for x, y, other in ((got.real, want.real, want.imag), (got.imag, want.imag, want.real))
    ]
    bad = ~(same[0] & same[1])
    assert not bad.any(), list(zip(z[bad], got[bad], want[bad], strict=True))[:20]


def test_functions_that_c_has_not() -> None:
    rows: dict[str, list[tuple[complex, complex]]] = {
        "stablehlo.exponential_minus_one": [
            (complex(-INF, 2.0), complex(-1, 0.0)), (complex(-INF, NAN), complex(-1, 0.0)),
            (complex(INF, NAN), complex(INF, NAN)), (complex(INF, 1.0), complex(INF, INF)),
            (complex(NAN, 0.0), complex(NAN, 0.0)), (complex(-0.0, -0.0), complex(-0.0, -0.0)),
        ],
        "stablehlo.log_plus_one": [
            (complex(-1.0, 0.0), complex(-INF, 0.0)), (complex(-2.0, -0.0), complex(0.0, -math.pi)),
            (complex(NAN, INF), complex(INF, NAN)), (complex(-INF, INF), complex(INF, 3 * math.pi / 4)),
        ],
        "stablehlo.rsqrt": [
            (complex(INF, NAN), 0j), (complex(0.0, 0.0), complex(INF, -0.0)), (complex(-1.0, -0.0), complex(0, 1)),
            (complex(NAN, 1.0), complex(NAN, NAN)),
        ],
        "stablehlo.cbrt": [
            (complex(INF, NAN), complex(INF, NAN)), (complex(INF, -1.0), complex(INF, -0.0)),
            (complex(-INF, 0.0), complex(INF, INF)), (complex(0.0, -0.0), complex(0.0, -0.0)),
        ],
        "stablehlo.logistic": [
            (complex(INF, NAN), complex(1, 0)), (complex(-INF, 5.0), complex(0, 0)), (complex(0.0, -0.0), 0.5 - 0j),
            (complex(1.0, INF), complex(NAN, NAN)),
        ],
    }  # fmt: skip
    for name, cases in rows.items():
        z = np.array([x for x, _ in cases])
        for what, values in both(name, np.complex128, z).items():
            for (x, want), got in zip(cases, values, strict=True):
                for part, meant in ((got.real, want.real), (got.imag, want.imag)):
                    assert np.isclose(part, meant, rtol=1e-15, atol=0, equal_nan=True), (name, what, x, got)


# Powers

POWERS = [
    (1, INF, 1), (1, complex(-INF, NAN), 1), (1, NAN, 1), (INF, 1, INF), (INF, 2, INF), (INF, 0.5, INF), (INF, -1, 0),
    (INF, INF, INF), (INF, -INF, 0), (0.5, INF, 0), (0.5, -INF, INF), (2, INF, INF), (2, -INF, 0), (INF, 0, 1),
    (complex(NAN, NAN), 0, 1), (complex(-INF, NAN), 0, 1), (0, 2, 0), (0, complex(1, -3), 0), (0, INF, 0), (0, 0, 1),
    (0, -1, INF), (complex(-0.0, 0.0), -3, INF), (-2, 2, 4), (-2, 3, -8), (-4, 0.5, 2j), (complex(-4, -0.0), 0.5, -2j),
    (2j, 2, -4), (2j, -1, -0.5j), (-INF, 2, INF), (-INF, 3, -INF), (-INF, -1, 0), (-INF, 0.5, complex(0, INF)),
    (complex(0, INF), 2, -INF), (complex(7, INF), 1, complex(0, INF)), (complex(INF, 7), 1, INF), (2, 10, 1024),
    (complex(0.3, 0.4), INF, 0), (complex(3, 4), complex(-INF, 5), 0), (complex(3, 4), INF, complex(INF, NAN)),
    (complex(INF, NAN), -1, 0), (complex(INF, NAN), 1, complex(INF, NAN)), (0, complex(-1, 1), complex(INF, NAN)),
    (-1, INF, complex(NAN, NAN)), (0, 1j, complex(NAN, NAN)), (NAN, 1, complex(NAN, NAN)), (2j, NAN, complex(NAN, NAN)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_power_has_plain_answers(dtype: type) -> None:
    x, y = (np.array([row[i] for row in POWERS], dtype) for i in (0, 1))
    for what, values in both("stablehlo.power", dtype, x, y).items():
        for (a, b, want), got in zip(POWERS, values, strict=True):
            parts = (got.real, complex(want).real), (got.imag, complex(want).imag)
            assert all(g == w or (np.isnan(g) and np.isnan(w)) for g, w in parts), (what, a, b, got)


@pytest.mark.parametrize("dtype", DTYPES)
def test_power_means_the_same_everywhere(dtype: type) -> None:
    """Excludes directions of infinite results, which near an axis or a diagonal are a matter of rounding. Also excludes
    numbers next to the unit circle, where rounding decides whether an infinite power overflows."""
    limits = np.finfo(dtype)
    tiny = float(limits.tiny)
    z = numbers([0.0, tiny, 0.5, 1.0, 3.0, 20.0, INF], dtype)
    x: Array = np.repeat(z, len(z))
    sizes = np.abs(x.real), np.abs(x.imag)
    on_circle = (np.minimum(*sizes) == tiny) & (np.maximum(*sizes) == 1)
    x, y = x[~on_circle], np.tile(z, len(z))[~on_circle]
    got, want = both("stablehlo.power", dtype, x, y).values()
    infinite = [np.isinf(v.real) | np.isinf(v.imag) for v in (got, want)]
    bad = infinite[0] != infinite[1]
    for g, w in ((got.real, want.real), (got.imag, want.imag)):
        bad |= np.isnan(g) != np.isnan(w)
    size = np.abs(want.astype(np.complex128))
    with np.errstate(all="ignore"):
        far = np.abs(got.astype(np.complex128) - want) > 2e4 * limits.eps * size
    bad |= np.isfinite(size) & far & (size > 1e4 * tiny)
    assert not bad.any(), list(zip(x[bad], y[bad], got[bad], want[bad], strict=True))[:20]


def test_powers_keep_their_bits_beside_special_ones() -> None:
    rng = np.random.default_rng(3)
    x, y = ((rng.normal(size=64) + 1j * rng.normal(size=64)) for _ in range(2))
    program = shlo_jit.compile(text("stablehlo.power", x.shape, np.complex128, 2), cache=False, threads=1)
    plain = program(x, y)
    mixed_x, mixed_y = x.copy(), y.copy()
    mixed_x[::5], mixed_y[::7] = 0, INF
    kept = (np.arange(64) % 5 != 0) & (np.arange(64) % 7 != 0)
    assert np.array_equal(program(mixed_x, mixed_y)[kept], plain[kept])


@pytest.mark.parametrize("name", list(CASES) + OTHERS[:5])
def test_functions_keep_their_bits_beside_special_ones(name: str) -> None:
    rng = np.random.default_rng(4)
    z = rng.normal(size=64) + 1j * rng.normal(size=64)
    program = shlo_jit.compile(text(name, z.shape, np.complex128), cache=False, threads=1)
    mixed: Any = z.copy()
    mixed[::5], mixed[::7] = complex(INF, 1), complex(800.0, NAN)
    kept = (np.arange(64) % 5 != 0) & (np.arange(64) % 7 != 0)
    assert np.array_equal(program(mixed)[kept], program(z)[kept])
