"""References of arithmetic, exhaustively on narrow types where possible."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from shlo_jit.ir.types import DTYPES
from shlo_jit.ops.chlo import mulhi, next_after
from shlo_jit.ops.conversion import reduce_precision
from shlo_jit.ops.numeric import (
    convert,
    divide_int,
    narrow,
    power_float,
    power_int,
    remainder_int,
    total_order_key,
    wrap,
)

INTEGERS = [d.numpy for d in DTYPES.values() if d.is_integer]
NARROW = [d.numpy for d in DTYPES.values() if d.is_float and d.bits <= 16]


def every(dtype: np.dtype) -> np.ndarray:
    """Returns every value of a narrow float."""
    bits = DTYPES_BITS[dtype]
    return np.arange(1 << bits, dtype=f"u{dtype.itemsize}").view(dtype)


DTYPES_BITS = {d.numpy: d.bits for d in DTYPES.values()}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_wrap_is_modulo_a_power_of_two(dtype):
    bits, signed = DTYPES_BITS[dtype], "u" not in dtype.name
    values = np.asarray([0, 1, -1, 5, 100, -100, 2**40 + 3, -(2**50) + 7], np.int64)
    for x, y in zip(values.tolist(), wrap(values, dtype).tolist(), strict=True):
        want = x % (1 << bits)
        if signed and want >= 1 << (bits - 1):
            want -= 1 << bits
        assert int(y) == want


def test_division_truncates_and_never_traps():
    x = np.arange(-128, 128, dtype=np.int8)
    a, b = (m.reshape(-1) for m in np.meshgrid(x, x))
    q, r = divide_int(a, b).astype(int), remainder_int(a, b).astype(int)
    for i, j, m, n in zip(a.tolist(), b.tolist(), q.tolist(), r.tolist(), strict=True):
        if j == 0:
            assert (m, n) == (-1, i)
        elif (i, j) == (-128, -1):
            assert (m, n) == (-128, 0)
        else:
            assert m == int(i / j) and n == i - j * m


def test_unsigned_division():
    x = np.arange(256, dtype=np.uint8)
    assert (divide_int(x, np.zeros_like(x)) == 255).all()
    assert (remainder_int(x, np.zeros_like(x)) == x).all()
    assert (divide_int(x, np.full_like(x, 7)) == x // 7).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_power_of_one_half(dtype):
    """The same whether the exponents are separate numbers in memory or one: not the square root for -inf and -0."""
    x, half = np.array([-np.inf, -0.0, 0.0, np.inf, 4, np.nan, -1], dtype), dtype(0.5)
    with np.errstate(invalid="ignore"):
        for y in (np.full(x.shape, half), np.broadcast_to(half, x.shape), half):
            got = power_float(x, y)
            np.testing.assert_array_equal(got, [np.inf, 0, 0, np.inf, 2, np.nan, np.nan])
            assert got.dtype == dtype and not np.signbit(got[:5]).any()


def test_integer_power():
    base, exponent = np.asarray([3, -1, -1, 1, 2, 0, -2], np.int32), np.asarray([5, -3, -2, -9, -1, 0, 31], np.int32)
    assert power_int(base, exponent).tolist() == [243, -1, 1, 1, 0, 1, -(2**31)]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrowing_rounds_once(dtype):
    """Tests halfway cases, and values so close to them that f32 cannot distinguish them."""
    values = every(dtype)
    values = np.unique(values[np.isfinite(values.astype(np.float64))].astype(np.float64))
    below, above = values[:-1], values[1:]
    middle = (below + above) / 2
    kept = np.abs(middle) >= np.finfo(np.float32).smallest_normal  # ml_dtypes rounds f8E8M0FNU oddly below
    step = np.spacing(np.abs(middle)) * 4
    assert (narrow(middle + step, dtype).astype(np.float64) >= above)[kept].all()
    assert (narrow(middle - step, dtype).astype(np.float64) <= below)[kept].all()


@pytest.mark.parametrize("target", [d for d in INTEGERS if DTYPES_BITS[d] <= 32], ids=str)
def test_float_to_integer_saturates(target):
    bits, signed = DTYPES_BITS[target], "u" not in target.name
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    x = np.asarray([np.nan, np.inf, -np.inf, 0.9, -0.9, high + 0.5, low - 0.5, 1e30, high + 1, low - 1])
    want = [0, high, low, 0, 0, high, low, high, high, low]
    assert [int(v) for v in convert(x, target)] == want


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)], ids=str)
def test_total_order_is_the_order_of_the_numbers(dtype):
    x = every(dtype)
    order = x[np.argsort(total_order_key(x), kind="stable")].astype(np.float64)
    numbers = order[~np.isnan(order)]
    assert (np.diff(numbers[np.isfinite(numbers)]) >= 0).all()
    zeros = np.flatnonzero(numbers == 0)
    assert np.signbit(numbers[zeros]).tolist() == [True, False]


@pytest.mark.parametrize(("dtype", "format"), [(np.float16, (5, 10)), (ml_dtypes.bfloat16, (8, 7)),
                                               (ml_dtypes.float8_e5m2, (5, 2))])  # fmt: skip
def test_reduce_precision_is_a_round_trip(dtype, format):
    rng = np.random.default_rng(1)
    x = (rng.normal(size=4000) * 2.0 ** rng.integers(-14, 15, 4000)).astype(np.float32)
    normal = np.abs(x) >= float(ml_dtypes.finfo(dtype).smallest_normal)  # subnormal results are flushed to zero
    got = reduce_precision(x, *format)
    np.testing.assert_array_equal(got[normal], x.astype(dtype).astype(np.float32)[normal])
    assert np.isnan(reduce_precision(np.float32([np.nan]), *format)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_next_after(dtype):
    x = np.asarray([0.0, -0.0, 1.0, -1.0, 1.0, np.inf, 6e-8, np.nan, 2.0], dtype)
    y = np.asarray([1.0, -1.0, 2.0, -2.0, 0.0, 0.0, 0.0, 1.0, 2.0], dtype)
    np.testing.assert_array_equal(next_after(x, y), np.nextafter(x, y))


def test_mulhi():
    x = np.asarray([2**31 - 1, -(2**31), 5], np.int32)
    assert mulhi(x, x).tolist() == [(int(v) * int(v)) >> 32 for v in x]
    u = np.asarray([2**64 - 1, 3], np.uint64)
    assert mulhi(u, u).tolist() == [2**64 - 2, 0]


@pytest.mark.parametrize("source", DTYPES.values(), ids=str)
def test_one_converts_to_every_type(source) -> None:
    """Every type has the number 1."""
    for target in DTYPES.values():
        one = convert(np.ones(3).astype(source.numpy), target.numpy)
        assert one.dtype == target.numpy
        assert np.array_equal(convert(one, np.dtype(np.float64)), np.ones(3))
