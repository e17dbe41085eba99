"""Complex functions against mpmath, on random numbers of many magnitudes, near the unit circle and near branch points;
special values against C's Annex G; multiplication and division against their definitions."""

from __future__ import annotations

import functools

import mpmath
import numpy as np
import pytest
from mpmath import mpc

import shlo_jit

DTYPES = {"complex<f32>": np.complex64, "complex<f64>": np.complex128}
N = 300
# name of the op, meaning, largest error in ulps of each part in complex<f64>
FUNCTIONS = {
    "stablehlo.sqrt": (mpmath.sqrt, 2),
    "stablehlo.rsqrt": (lambda z: 1 / mpmath.sqrt(z), 3),
    "stablehlo.cbrt": (lambda z: mpmath.exp(mpmath.log(z) / 3), 6),
    "stablehlo.exponential": (mpmath.exp, 3),
    "stablehlo.exponential_minus_one": (lambda z: mpmath.exp(z) - 1, 300),
    "stablehlo.log": (mpmath.log, 16),
    "stablehlo.log_plus_one": (lambda z: mpmath.log(1 + z), 16),
    "stablehlo.logistic": (lambda z: 1 / (1 + mpmath.exp(-z)), 300),
    "stablehlo.sine": (mpmath.sin, 3),
    "stablehlo.cosine": (mpmath.cos, 3),
    "stablehlo.tan": (mpmath.tan, 5),
    "stablehlo.tanh": (mpmath.tanh, 5),
    "stablehlo.sign": (lambda z: z / abs(z), 2),
    "chlo.sinh": (mpmath.sinh, 3),
    "chlo.cosh": (mpmath.cosh, 3),
    "chlo.asin": (mpmath.asin, 4),
    "chlo.acos": (mpmath.acos, 4),
    "chlo.atan": (mpmath.atan, 4),
    "chlo.asinh": (mpmath.asinh, 4),
    "chlo.acosh": (mpmath.acosh, 4),
    "chlo.atanh": (mpmath.atanh, 4),
}


@functools.cache
def compiled(op: str, dtype: str, n: int, arity: int = 1, result: str = ""):
    t, r = f"tensor<{n}x{dtype}>", f"tensor<{n}x{result or dtype}>"
    names = ", ".join(f"%a{k}" for k in range(arity))
    arguments = ", ".join(f"%a{k}: {t}" for k in range(arity))
    body = f'%0 = "{op}"({names}) : ({", ".join([t] * arity)}) -> {r}\nreturn %0 : {r}'
    return shlo_jit.compile(f"func.func @main({arguments}) -> {r} {{\n{body}\n}}", cache=False)


def numbers(dtype: type, seed: int) -> np.ndarray:
    """Returns numbers: a quarter on the unit circle; parts of many magnitudes, some within 1e-4 of 1."""
    rng = np.random.default_rng(seed)

    def part() -> np.ndarray:
        choice = rng.integers(0, 4, N)
        x = rng.normal(size=N)
        scaled = x * 10.0 ** rng.uniform(-10, 2.2, N)
        return np.choose(choice, [x, scaled, np.sign(x) * (1 + 1e-4 * scaled), x * 10.0 ** rng.uniform(-12, 12, N)])

    z = np.empty(N, dtype)
    z.real, z.imag = part(), part()
    z[: N // 4] = np.exp(1j * rng.uniform(0, 2 * np.pi, N // 4))
    return z


def errors(got: np.ndarray, want: list[mpc]) -> np.ndarray:
    """Returns the error of each part in ulps of the exact one; infinite if only one of them is a number."""
    part = np.float32 if got.dtype == np.complex64 else np.float64
    out = []
    for g, w in zip(got, want, strict=True):
        for x, exact in ((g.real, mpc(w).real), (g.imag, mpc(w).imag)):
            with np.errstate(over="ignore"):
                near = part(float(exact))
            if not np.isfinite(near) or not np.isfinite(x):
                out.append(0.0 if near == x else np.inf)
            else:
                out.append(float(abs(mpmath.mpf(float(x)) - exact) / float(np.spacing(abs(near)))))
    return np.array(out)


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("op", list(FUNCTIONS))
@pytest.mark.sampled(4)
def test_accuracy(op: str, dtype: str) -> None:
    meaning, limit = FUNCTIONS[op]
    z = numbers(DTYPES[dtype], 1)
    got = compiled(op, dtype, N)(z)
    with mpmath.workprec(400):
        want = [meaning(mpc(float(x.real), float(x.imag))) for x in z]
        error = errors(got, want)
    worst = int(error.argmax())
    assert error.max() <= (0.51 if dtype == "complex<f32>" else limit), (
        z[worst // 2],
        got[worst // 2],
        want[worst // 2],
    )


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_abs(dtype: str) -> None:
    z = numbers(DTYPES[dtype], 2)
    part = "f32" if dtype == "complex<f32>" else "f64"
    got = compiled("stablehlo.abs", dtype, N, 1, part)(z)
    with mpmath.workprec(400):
        want = [mpc(abs(mpc(float(x.real), float(x.imag))), 0) for x in z]
        assert errors(got.astype(z.dtype), want).max() <= 0.51


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_divide(dtype: str) -> None:
    x, y = numbers(DTYPES[dtype], 3), numbers(DTYPES[dtype], 4)
    got = compiled("stablehlo.divide", dtype, N, 2)(x, y)
    with mpmath.workprec(400):
        want = [
            mpc(float(a.real), float(a.imag)) / mpc(float(b.real), float(b.imag)) for a, b in zip(x, y, strict=True)
        ]
        assert errors(got, want).max() <= (0.51 if dtype == "complex<f32>" else 4)


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_power(dtype: str) -> None:
    """Errors of e^(y log x) grow with |y log x|, which stays small here; y = 2 and y = 0 are exact enough."""
    rng = np.random.default_rng(5)
    x, y = ((rng.normal(size=N) + 1j * rng.normal(size=N)).astype(DTYPES[dtype]) for _ in range(2))
    y[:20], y[20:40] = 2, 0
    got = compiled("stablehlo.power", dtype, N, 2)(x, y)
    with mpmath.workprec(400):
        want = [
            mpc(float(a.real), float(a.imag)) ** mpc(float(b.real), float(b.imag)) for a, b in zip(x, y, strict=True)
        ]
    size = np.array([float(abs(w)) for w in want])
    error = np.array([float(abs(mpc(complex(g)) - w)) for g, w in zip(got, want, strict=True)]) / size
    assert error.max() <= (1e-7 if dtype == "complex<f32>" else 4e-15)
    zero = np.zeros(N, DTYPES[dtype])
    assert np.array_equal(compiled("stablehlo.power", dtype, N, 2)(zero, zero), np.ones(N))
    assert np.array_equal(compiled("stablehlo.power", dtype, N, 2)(zero, zero + 2), zero)


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_multiply_rounds_each_operation(dtype: str) -> None:
    x, y = numbers(DTYPES[dtype], 6), numbers(DTYPES[dtype], 7)
    with np.errstate(all="ignore"):
        re = x.real * y.real - x.imag * y.imag
        im = x.real * y.imag + x.imag * y.real
    got = compiled("stablehlo.multiply", dtype, N, 2)(x, y)
    assert np.array_equal(got.real, re) and np.array_equal(got.imag, im)


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_large_and_small_numbers_do_not_overflow_on_the_way(dtype: str) -> None:
    big = 2.0**127 if dtype == "complex<f32>" else 2.0**1023
    tiny = 2.0**-149 if dtype == "complex<f32>" else 2.0**-1074
    z = np.array(
        [complex(big, big), complex(tiny, tiny), complex(big, tiny), complex(3 * tiny, 4 * tiny)] * 4, DTYPES[dtype]
    )
    part = "f32" if dtype == "complex<f32>" else "f64"
    size = compiled("stablehlo.abs", dtype, 16, 1, part)(z)
    assert np.isfinite(size[0]) and size[3] == 5 * tiny
    unit = compiled("stablehlo.divide", dtype, 16, 2)(z, z)
    assert np.allclose(unit, 1, rtol=1e-6)
    root = compiled("stablehlo.sqrt", dtype, 16)(z)
    assert np.allclose(np.log(root.astype(np.complex128)) * 2, np.log(z.astype(np.complex128)), rtol=1e-6)
    logs = compiled("stablehlo.log", dtype, 16)(z)
    assert np.allclose(logs, np.log(z.astype(np.complex128)), rtol=1e-6)


INF, NAN = np.inf, np.nan
# op, argument, result (from Annex G if it states one; NaN matches any NaN)
SPECIAL = [
    ("stablehlo.exponential", complex(-INF, 3), complex(-0.0, 0.0)),
    ("stablehlo.exponential", complex(INF, 0.0), complex(INF, 0.0)),
    ("stablehlo.exponential", complex(0.0, -0.0), complex(1, -0.0)),
    ("stablehlo.exponential", complex(0.0, INF), complex(NAN, NAN)),
    ("stablehlo.log", complex(0.0, 0.0), complex(-INF, 0.0)),
    ("stablehlo.log", complex(-0.0, 0.0), complex(-INF, np.pi)),
    ("stablehlo.log", complex(-1.0, -0.0), complex(0.0, -np.pi)),
    ("stablehlo.log", complex(INF, NAN), complex(INF, NAN)),
    ("stablehlo.sqrt", complex(-0.0, -0.0), complex(0.0, -0.0)),
    ("stablehlo.sqrt", complex(-4.0, -0.0), complex(0.0, -2.0)),
    ("stablehlo.sqrt", complex(-INF, 1.0), complex(0.0, INF)),
    ("stablehlo.sqrt", complex(NAN, INF), complex(INF, INF)),
    ("stablehlo.rsqrt", complex(0.0, 0.0), complex(INF, -0.0)),
    ("stablehlo.tanh", complex(INF, 1.0), complex(1.0, 0.0)),
    ("stablehlo.tanh", complex(-0.0, 0.0), complex(-0.0, 0.0)),
    ("chlo.sinh", complex(INF, 0.0), complex(INF, 0.0)),
    ("chlo.cosh", complex(-INF, 0.0), complex(INF, -0.0)),
    ("chlo.asin", complex(2.0, -0.0), complex(np.pi / 2, -np.arccosh(2.0))),
    ("chlo.acos", complex(-2.0, 0.0), complex(np.pi, -np.arccosh(2.0))),
    ("chlo.acos", complex(-INF, INF), complex(3 * np.pi / 4, -INF)),
    ("chlo.acosh", complex(0.0, INF), complex(INF, np.pi / 2)),
    ("chlo.atanh", complex(1.0, 0.0), complex(INF, 0.0)),
    ("chlo.atanh", complex(2.0, -0.0), complex(np.arctanh(0.5), -np.pi / 2)),
    ("chlo.asin", complex(-0.0, NAN), complex(-0.0, NAN)),
    ("chlo.acos", complex(-0.0, NAN), complex(np.pi / 2, NAN)),
    ("chlo.asinh", complex(NAN, -0.0), complex(NAN, -0.0)),
    ("chlo.atanh", complex(NAN, INF), complex(0.0, np.pi / 2)),
    ("chlo.atanh", complex(NAN, -INF), complex(0.0, -np.pi / 2)),
    ("chlo.atanh", complex(-INF, NAN), complex(-0.0, NAN)),
    ("chlo.atanh", complex(-0.0, NAN), complex(-0.0, NAN)),
    ("chlo.atanh", complex(1.0, NAN), complex(NAN, NAN)),
    ("chlo.atan", complex(0.0, 1.0), complex(0.0, INF)),
    ("chlo.atan", complex(-INF, NAN), complex(-np.pi / 2, 0.0)),
    ("chlo.atan", complex(NAN, INF), complex(NAN, 0.0)),
    ("stablehlo.logistic", complex(INF, 1.0), complex(1.0, 0.0)),
    ("stablehlo.sign", complex(0.0, 0.0), complex(0.0, 0.0)),
]


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize(("op", "z", "want"), SPECIAL)
def test_special_values(op: str, z: complex, want: complex, dtype: str) -> None:
    got = compiled(op, dtype, 4)(np.full(4, z, DTYPES[dtype]))[0]
    for g, w in ((got.real, want.real), (got.imag, want.imag)):
        if np.isnan(w):
            assert np.isnan(g)
        else:
            assert g == pytest.approx(w, rel=1e-6) and np.signbit(g) == np.signbit(w), (got, want)


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_division_by_zero_and_infinity(dtype: str) -> None:
    top = np.array([1 + 1j, complex(INF, 1), 1 + 1j, 0j], DTYPES[dtype])
    below = np.array([0j, 1 + 1j, complex(INF, INF), 0j], DTYPES[dtype])
    got = compiled("stablehlo.divide", dtype, 4, 2)(top, below)
    assert np.isinf(got[0].real) and np.isinf(got[0].imag)
    assert np.isinf(got[1].real) or np.isinf(got[1].imag)
    assert got[2] == 0
    assert np.isnan(got[3].real) and np.isnan(got[3].imag)


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_order_is_lexicographic(dtype: str) -> None:
    x = np.array([1 + 2j, 1 + 2j, 1 + 2j, 1 + 2j], DTYPES[dtype])
    y = np.array([1 + 3j, 2 - 1j, 1 + 2j, 0 + 9j], DTYPES[dtype])
    assert np.array_equal(compiled("stablehlo.maximum", dtype, 4, 2)(x, y), [1 + 3j, 2 - 1j, 1 + 2j, 1 + 2j])
    assert np.array_equal(compiled("stablehlo.minimum", dtype, 4, 2)(x, y), [1 + 2j, 1 + 2j, 1 + 2j, 9j])
