"""Tests of elementary functions: errors in ULP, special values, equal bits for any number of lanes, other targets."""

from __future__ import annotations

import re

import mpmath as mp
import numpy as np
import pytest
from jit_util import Body, Compiled, arity_of, compile_text, evaluate, loop_text
from math_reference import BINARY, UNARY, away_from_zero, edges, in_f64, samples, ulps, ulps_exact
from scipy import special

from shlo_jit.codegen.target import resolve
from shlo_jit.kernels import math
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V
from shlo_jit.kernels.math import expr, fit_pieces
from shlo_jit.kernels.math.piece_coefficients import PIECES

COUNT = 300_000
EXACT = 250
"""Numbers checked with mpmath."""
NOT_ZERO_AT_ZERO = ("cos", "cosh", "acos", "acosh", "exp", "erfc", "logistic")


def worst(name: str, error: np.ndarray, *args: np.ndarray) -> str:
    i = int(error.argmax())
    return f"{name}({', '.join(repr(a.ravel()[i]) for a in args)}): {error.max():.3f} ULP"


def checked_exactly(name: str, dtype: type, count: int) -> None:
    """Compares with mpmath, at the edges and at random numbers."""
    _, exact, f32, f64 = UNARY[name]
    bound = f32 if dtype is np.float32 else f64
    x = samples(dtype, count, seed=1)
    y = evaluate(name, x)
    reference = in_f64(UNARY[name][0])(x)
    for a, got, near in zip(x, y, reference, strict=True):
        if not np.isfinite(near) or not np.isfinite(a) or near == 0 or abs(a) > 1e300:
            continue
        truth = exact(mp.mpf(float(a)))
        error = float(ulps(np.array([got]), np.array([float(truth)]))[0]) if dtype is np.float32 else 0.0
        if dtype is np.float64:
            error = ulps_exact(got, truth)
        assert error <= bound, (name, float(a).hex(), got, error)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.sampled(4)
def test_f32_against_f64(name: str) -> None:
    reference, _, bound, _ = UNARY[name]
    x = samples(np.float32, COUNT)
    error = ulps(evaluate(name, x), in_f64(reference)(x))
    assert error.max() <= bound, worst(name, error, x)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.sampled(4)
def test_f64_against_mpmath(name: str) -> None:
    checked_exactly(name, np.float64, EXACT)


@pytest.mark.parametrize("name", UNARY)
def test_f64_near_reference(name: str) -> None:
    """Compares many numbers with numpy or scipy, whose own error is a few ULP, and special values exactly."""
    reference, _, _, bound = UNARY[name]
    x = samples(np.float64, COUNT // 3)
    y, r = evaluate(name, x), in_f64(reference)(x)
    assert np.array_equal(np.isnan(y), np.isnan(r))
    special_values = (~np.isfinite(r) | (r == 0)) & ~((y > 0) & (y < 1e-300))  # where scipy flushes to zero
    assert np.array_equal(y[special_values], r[special_values], equal_nan=True)
    finite = np.isfinite(r) & (r != 0)
    # The errors of scipy itself; the test with mpmath is the strict one.
    slack = {"bessel_i1e": 64, "erfc": 4096, "erf_inv": 64}.get(name, 6)
    error = np.abs(y[finite] - r[finite]) / np.spacing(np.abs(r[finite]))
    assert error.max() <= bound + slack, worst(name, error, x[finite])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [n for n in UNARY if n not in NOT_ZERO_AT_ZERO])
def test_zero_keeps_its_sign(name: str, dtype: type) -> None:
    x = np.array([0.0, -0.0], dtype)
    y = evaluate(name, x)
    assert np.isinf(y).all() if name in ("log", "log2", "rsqrt") else np.array_equal(y, x)
    assert np.array_equal(np.signbit(y), [name in ("log", "log2"), True])


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_binary(name: str, dtype: type) -> None:
    reference, exact, bound, _ = BINARY[name]
    rng = np.random.default_rng(5)
    e = edges(dtype)
    x, y = (a.ravel() for a in np.meshgrid(e, e))
    size = np.exp(rng.standard_normal(COUNT) * rng.choice([0.01, 0.5, 5, 20], COUNT)).astype(dtype)
    other = (rng.standard_normal(COUNT) * rng.choice([0.1, 3, 30], COUNT)).astype(dtype)
    x = np.concatenate([x, size, samples(dtype, COUNT, 1)])
    y = np.concatenate([y, other, samples(dtype, COUNT, 2)])
    got, r = evaluate(name, x, y), in_f64(reference)(x, y)
    zeros = r == 0
    assert np.array_equal(np.signbit(got[zeros]), np.signbit(r[zeros]))
    if dtype is np.float32:
        error = ulps(got, r)
        assert error.max() <= bound, worst(name, error, x, y)
        return
    unusual = ~np.isfinite(r) | zeros
    assert np.array_equal(got[unusual], r[unusual], equal_nan=True)
    usual = np.flatnonzero(~unusual & np.isfinite(x) & np.isfinite(y))
    for i in usual[:: max(1, usual.size // 4000)]:
        error = ulps_exact(got[i], exact(mp.mpf(float(x[i])), mp.mpf(float(y[i]))))
        assert error <= bound, (name, x[i], y[i], got[i], error)


def pow_of_integers(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.meshgrid(np.arange(-9, 10).astype(dtype), np.arange(-12, 13).astype(dtype))
    return x.ravel(), y.ravel()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pow_of_integers_is_exact(dtype: type) -> None:
    x, y = pow_of_integers(dtype)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    whole = (np.abs(expected) < 2 ** np.finfo(dtype).nmant) & (expected == np.rint(expected))
    assert np.array_equal(evaluate("pow", x, y)[whole], expected[whole])


def bits_of(a: np.ndarray) -> np.ndarray:
    return a.view({1: np.uint8, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize])


def assert_same(got: np.ndarray, expected: np.ndarray, *args: np.ndarray) -> None:
    """Asserts equal bits, except that all NaNs are equal."""
    nan = np.isnan(got) & np.isnan(expected)
    wrong = (bits_of(got) != bits_of(expected)) & ~nan
    assert not wrong.any(), [(a[wrong][:3], got[wrong][:3], expected[wrong][:3]) for a in args]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "reference"),
    [("floor", np.floor), ("ceil", np.ceil), ("round_nearest_even", np.rint), ("round_nearest_afz", away_from_zero)],
)
def test_rounding(name: str, reference: np.ufunc, dtype: type) -> None:
    halves = np.arange(-40, 40, 0.25).astype(dtype)
    beside = [np.nextafter(halves, dtype(0)), np.nextafter(halves, dtype(99))]
    x = np.concatenate([samples(dtype, 20_000), halves, *beside])
    assert_same(evaluate(name, x), reference(x), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_is_finite(dtype: type) -> None:
    x = samples(dtype, 10_000)
    assert np.array_equal(evaluate("is_finite", x), np.isfinite(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "reference"), [("next_after", np.nextafter), ("remainder", np.fmod)])
def test_exact_binary(name: str, reference: np.ufunc, dtype: type) -> None:
    rng = np.random.default_rng(2)
    x, y = (a.ravel() for a in np.meshgrid(edges(dtype), edges(dtype)))
    x = np.concatenate([x, samples(dtype, 50_000, 1), rng.uniform(-100, 100, 50_000).astype(dtype)])
    y = np.concatenate([y, samples(dtype, 50_000, 2), rng.uniform(-3, 3, 50_000).astype(dtype)])
    with np.errstate(all="ignore"):
        assert_same(evaluate(name, x, y), reference(x, y), x, y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lgamma(dtype: type) -> None:
    """The error is a few ULP for x > 0; near the zeros at negative numbers the absolute error is small."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0, 20, COUNT), np.exp(rng.uniform(-80, 80, COUNT)), np.arange(1, 40)]).astype(dtype)
    r = special.gammaln(x.astype(np.float64))
    y = evaluate("lgamma", x).astype(np.float64)
    eps = np.finfo(dtype).eps
    assert (np.abs(y - r) <= 8 * eps * np.abs(r) + 1e-15).all()
    x = rng.uniform(-50, 0, COUNT).astype(dtype)
    x = x[x != np.rint(x)]
    r = special.gammaln(x.astype(np.float64))
    assert (np.abs(evaluate("lgamma", x) - r) <= 8 * eps * (np.abs(r) + 10)).all()
    poles = np.array([0.0, -0.0, -1, -2, -170, -1e20, np.inf, -np.inf], dtype)
    assert (evaluate("lgamma", poles) == np.inf).all()
    assert np.array_equal(evaluate("lgamma", np.array([1, 2], dtype)), [0, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_digamma(dtype: type) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0, 20, COUNT), np.exp(rng.uniform(-80, 80, COUNT))]).astype(dtype)
    r = special.digamma(x.astype(np.float64))
    eps = np.finfo(dtype).eps
    assert (np.abs(evaluate("digamma", x) - r) <= 8 * eps * (np.abs(r) + 1)).all()
    x = rng.uniform(-9, 0, 1000).astype(dtype)
    r = np.array([float(mp.digamma(mp.mpf(float(v)))) for v in x])
    assert (np.abs(evaluate("digamma", x) - r) <= 8 * eps * (np.abs(r) + 1)).all()
    assert np.isnan(evaluate("digamma", np.array([0.0, -0.0, -1, -2, -np.inf, np.nan], dtype))).all()
    assert evaluate("digamma", np.array([np.inf], dtype))[0] == np.inf


def check_zeta_below_zero(dtype: type) -> None:
    """Also far below, where most of the sum's terms are those of negative numbers."""
    rng = np.random.default_rng(1)
    x = rng.integers(2, 9, 300).astype(dtype)
    q = -np.exp(rng.uniform(-4, 7, 300)).astype(dtype)
    q = q[(near := np.abs(q - np.round(q))) > 1e-3]
    x = x[near > 1e-3]
    pairs = [(int(a), float(b)) for a, b in zip(x, q, strict=True)]
    with mp.workdps(40):
        size = np.array([float(sum(abs(b + mp.mpf(k)) ** -a for k in range(int(-b) + 20))) for a, b in pairs])
        exact = np.array([float(_zeta_below_zero(a, b)) for a, b in pairs])
    assert (np.abs(evaluate("zeta", x, q) - exact) <= 16 * np.finfo(dtype).eps * size).all()
    n = x - 1
    factor = np.array([(-1.0) ** (int(k) + 1) * float(mp.factorial(int(k))) for k in n])
    error = np.abs(evaluate("polygamma", n, q) - factor * exact)
    assert (error <= 16 * np.finfo(dtype).eps * np.abs(factor) * size).all()


def _zeta_below_zero(x: int, q: float) -> mp.mpf:
    """Adds the terms below zero one by one."""
    terms = int(-q) + 1
    return sum((mp.mpf(q) + k) ** -x for k in range(terms)) + mp.zeta(x, mp.mpf(q) + terms)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeta_and_polygamma(dtype: type) -> None:
    rng = np.random.default_rng(0)
    x = (1 + np.exp(rng.uniform(-4, 4, 20_000))).astype(dtype)
    q = np.exp(rng.uniform(-3, 5, 20_000)).astype(dtype)
    eps = np.finfo(dtype).eps
    expected = special.zeta(x.astype(np.float64), q.astype(np.float64))
    with np.errstate(over="ignore"):
        rounded = expected.astype(dtype)
    got = evaluate("zeta", x, q)
    fine = (rounded > np.finfo(dtype).tiny) & np.isfinite(rounded)
    assert (np.abs(got - expected)[fine] <= 16 * eps * expected[fine]).all()
    n = rng.integers(0, 8, 20_000).astype(dtype)
    expected = special.polygamma(n.astype(np.int64), q.astype(np.float64))
    assert (np.abs(evaluate("polygamma", n, q) - expected) <= 16 * eps * (np.abs(expected) + (n == 0))).all()
    check_zeta_below_zero(dtype)
    x = np.array([1, 0.5, 2, 3, 2.5, 2, 2], dtype)
    q = np.array([2, 2, 0, -1, -0.5, np.nan, np.inf], dtype)
    expected = np.array([np.inf, np.nan, np.inf, np.nan, np.nan, np.nan, 0], dtype)
    assert np.array_equal(evaluate("zeta", x, q), expected, equal_nan=True)
    assert np.isnan(evaluate("polygamma", np.array([-1, 1.5], dtype), np.array([2, 2], dtype))).all()


@pytest.mark.parametrize("name", math.FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.sampled(5)
def test_bits_do_not_depend_on_lanes(name: str, dtype: type) -> None:
    arity = math.ARITY.get(name, 1)
    args = [samples(dtype, 300, seed)[np.random.default_rng(seed).permutation(1000)] for seed in range(arity)]
    wide = evaluate(name, *args, n=16)
    for n in (1, 2, 4, 8, 32):
        assert_same(evaluate(name, *args, n=n), wide, *args)


X86_WITH_FMA = pytest.mark.skipif(not resolve().is_x86 or not resolve().has_fma, reason="needs an x86 with AVX2")
PIECEWISE = ("tanh", "erf", "erfc")
"""Functions whose f32 formulas with AVX-512 differ from those without."""


@X86_WITH_FMA
@pytest.mark.parametrize("name", math.FUNCTIONS)
def test_bits_do_not_depend_on_the_instructions(name: str) -> None:
    """AVX2 and AVX-512 code give the same bits, though they scale by powers of two differently."""
    for dtype in (np.float32, np.float64):
        if dtype is np.float32 and name in PIECEWISE:
            continue
        order = np.random.default_rng(0).permutation(3000)
        args = [np.roll(samples(dtype, 1000, seed)[order], seed) for seed in range(arity_of(name))]
        assert_same(evaluate(name, *args, target="x86-64-v3", n=8), evaluate(name, *args), *args)


@X86_WITH_FMA
@pytest.mark.parametrize("name", PIECEWISE)
def test_f32_without_pieces(name: str) -> None:
    reference, _, bound, _ = UNARY[name]
    x = samples(np.float32, COUNT)
    error = ulps(evaluate(name, x, target="x86-64-v3", n=8), in_f64(reference)(x))
    assert error.max() <= bound, worst(name, error, x)


@pytest.mark.parametrize(("name", "one_from"), [("tanh", 9.02), ("erf", 3.93)])
def test_f32_saturates(name: str, one_from: float) -> None:
    """The result is exactly 1 where the rounded value is, never above, and never decreases by more than an ULP."""
    x = np.linspace(0, one_from + 1, 1_000_000, dtype=np.float32)
    y = evaluate(name, x)
    assert (y[x >= one_from] == 1).all()
    assert y.max() == 1
    assert (y[1:] >= np.nextafter(y[:-1], np.float32(0))).all()
    large = np.array([100, 1e30, np.finfo(np.float32).max, np.inf], np.float32)
    assert np.array_equal(evaluate(name, np.concatenate([large, -large])), [1] * 4 + [-1] * 4)


@pytest.mark.parametrize("function", fit_pieces.FUNCTIONS, ids=lambda f: f.name)
def test_pieces_are_what_fit_pieces_derives(function: fit_pieces.Function) -> None:
    """Tests one piece, which does not begin a binade; fitting the whole file takes half a minute."""
    table = PIECES[function.name]
    low, high = ((u - function.offset) / function.scale for u in function.bounds[13:15])
    expected = fit_pieces.other_piece(function, low, high)
    i = table.centers.index(expected.center)
    assert [c[i] for c in table.coefficients] == expected.coefficients
    u = np.float32(expected.center * table.scale + table.offset)
    assert (u.view(np.uint32) >> (23 - table.leading)) % 32 == i


@pytest.mark.skipif(not resolve().is_x86, reason="runs x86 code")
@pytest.mark.parametrize("name", UNARY)
def test_f32_without_fma(name: str) -> None:
    """Products in f64 are precise enough for f32 on a machine without fused multiply-adds."""
    reference, _, bound, _ = UNARY[name]
    x = samples(np.float32, 20_000)
    error = ulps(evaluate(name, x, target="x86-64-v2", n=4), in_f64(reference)(x))
    assert error.max() <= bound, worst(name, error, x)


@pytest.mark.skipif(not resolve().is_x86, reason="runs x86 code")
@pytest.mark.parametrize("name", math.FUNCTIONS)
@pytest.mark.sampled(4)
def test_f64_without_fma(name: str) -> None:
    """Multiply-adds composed of products and sums give the same bits."""
    args = [samples(np.float64, 1000, seed) for seed in range(arity_of(name))]
    assert_same(evaluate(name, *args, target="x86-64-v2", n=2), evaluate(name, *args), *args)


def multiply_adds(target: str) -> Compiled:
    def body(b: Builder, *args: V) -> V:
        return expr.fma(*(expr.X(b, v) for v in args)).v

    return Compiled(loop_text(body, "double", 3, 2, target), 3)


def of_exponents(rng: np.random.Generator, low: int, high: int) -> np.ndarray:
    n = 100_000
    return np.ldexp(rng.uniform(1, 2, n) * rng.choice([-1, 1], n), rng.integers(low, high, n))


@X86_WITH_FMA
@pytest.mark.parametrize(("low", "high"), [(-3, 3), (-60, 60), (-500, 500), (-1074, 1024), (-1074, -900), (400, 600)])
def test_multiply_add_without_the_instruction(low: int, high: int) -> None:
    """The function gives the bits of the instruction, for any size of the summand and nearly cancelling sums."""
    rng = np.random.default_rng(low + 2000)
    a, c = of_exponents(rng, low, high), of_exponents(rng, low, high)
    with np.errstate(all="ignore"):
        p = a * c
        sums = [of_exponents(rng, low, high), -p, np.nextafter(-p, 0), of_exponents(rng, -60, -50) * p]
        sums += [-p * (1 + rng.integers(-3, 3, p.size) * 2.0**-53), np.zeros(p.size), -np.zeros(p.size)]
    for d in sums:
        args = a, c, d
        expected = multiply_adds("native").into(np.empty(p.size), *args)
        assert_same(multiply_adds("x86-64-v2").into(np.empty(p.size), *args), expected, *args)


@X86_WITH_FMA
def test_multiply_add_of_extremes_and_ties_without_the_instruction() -> None:
    special = [0.0, 1.0, np.inf, np.nan, 5e-324, 2.2e-308, 1.7e308, 2.0**-600, 2.0**600, 2.0**991, 1e-300]
    special += [1 + 2.0**-30, 1 - 2.0**-30, 1 + 2.0**-23, 1 - 2.0**-24, 2.0**53, 2.0**-53, 1.5 * 2.0**-53, 2.0**-107]
    values = np.array([*special, *(-x for x in special)])
    grid = [np.ascontiguousarray(x) for x in np.array(np.meshgrid(values, values, values)).reshape(3, -1)]
    expected = multiply_adds("native").into(np.empty(grid[0].size), *grid)
    assert_same(multiply_adds("x86-64-v2").into(np.empty(grid[0].size), *grid), expected, *grid)


@pytest.mark.parametrize("element", ["float", "double"])
@pytest.mark.parametrize(
    ("target", "allowed"), [("x86-64-v2", {"fma"}), ("x86-64", {"fma", "roundeven", "floor", "ceil", "trunc"})]
)
@pytest.mark.sampled(8)
def test_objects_without_fma_need_libm_alone(target: str, allowed: set[str], element: str) -> None:
    for name in math.FUNCTIONS:
        module = loop_text(body_of(name), element, arity_of(name), 2, target)
        optimized, machine = compile_text(module.text(f'target triple = "{resolve(target).triple}"'), target)
        called = set(re.findall(r"(\w+)@PLT", machine.emit_assembly(optimized)))
        assert called <= allowed | {f + "f" for f in allowed - {"fma"}}, (name, called)
        assert machine.emit_object(optimized)[:4] == b"\x7fELF"


def body_of(name: str) -> Body:
    def body(b: Builder, *args: V) -> V:
        y = math.call(b, name, *args)
        return b.cast("zext", y, "i8") if name == "is_finite" else y

    return body


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64:generic"])
@pytest.mark.parametrize("element", ["float", "double"])
@pytest.mark.sampled(3)
def test_compiles_for_other_targets(target: str, element: str) -> None:
    """The code for other targets compiles and calls no library function."""
    for name in math.FUNCTIONS:
        lanes = resolve(target).lanes(32 if element == "float" else 64)
        module = loop_text(body_of(name), element, arity_of(name), lanes, target)
        optimized, machine = compile_text(module.text(f'target triple = "{resolve(target).triple}"'), target)
        assembly = machine.emit_assembly(optimized)
        undefined = {f.name for f in optimized.functions if f.is_declaration and not f.name.startswith("llvm.")}
        assert not undefined
        for library in ("@PLT", "bl\tfma", "bl\troundeven", "bl\tldexp"):
            assert library not in assembly, (name, library)


EXHAUSTIVE = [n for n in UNARY if n not in ("bessel_i1e", "erf_inv", "log2")]


ODD = ("tanh", "cbrt", "sin", "tan", "erf", "atan", "asin", "sinh", "asinh", "atanh")
EVEN = ("cos", "cosh")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXHAUSTIVE)
def test_every_f32(name: str) -> None:
    """The negative half of odd and even functions must have the same bits as the positive one."""
    reference, _, bound, _ = UNARY[name]
    step, symmetric = 1 << 21, name in ODD + EVEN
    for start in range(0, 1 << 31 if symmetric else 1 << 32, step):
        x = np.arange(start, start + step, dtype=np.uint64).astype(np.uint32).view(np.float32)
        y = evaluate(name, x)
        error = ulps(y, in_f64(reference)(x))
        assert error.max() <= bound, worst(name, error, x)
        if symmetric:
            assert_same(evaluate(name, -x), -y if name in ODD else y, x)


@pytest.mark.parametrize("name", EXHAUSTIVE)
@pytest.mark.parametrize("dtype_name", ["float16", "bfloat16"])
def test_every_16_bit_number(name: str, dtype_name: str) -> None:
    """An f16 or bf16 result is the rounded f32 result: at most one unit in the last place off."""
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, dtype_name, dtype_name))
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    with np.errstate(all="ignore"):
        got = evaluate(name, x.astype(np.float32)).astype(dtype)
        expected = in_f64(UNARY[name][0])(x.astype(np.float64)).astype(dtype)
    nan = np.isnan(got.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    difference = np.abs(got.view(np.uint16).astype(np.int32) - expected.view(np.uint16).astype(np.int32))
    difference[nan | (got == expected)] = 0
    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3
