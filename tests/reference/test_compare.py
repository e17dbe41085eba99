"""Differences of results from the expected ones."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from shlo_jit.reference.compare import difference

FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_neighbours_are_a_unit_in_the_last_place_apart(dtype: type) -> None:
    for value in (0.0, 1.0, 1.5, 2.0, 1.75, -16.0):
        want = np.array([64, value]).astype(dtype)
        got = want.copy()
        got[1] = np.nextafter(want[1], dtype(448))
        found = difference(got, want)
        assert (found.ulps, found.at, found.same_bits) == (0.5 if value == -16 else 1, (1,), False), value
        assert found.relative == abs(float(got[1]) - float(want[1])) / 64


def test_the_largest_difference_is_found() -> None:
    want = np.full((3, 4), 8, np.float32)
    got = want.copy()
    got[1, 2], got[2, 3] = 8.5, 7
    found = difference(got, want)
    assert (found.at, found.relative, found.verdict) == ((2, 3), 1 / 8, "DIFFERS")


def test_infinities_and_nan() -> None:
    want = np.array([1, np.inf, np.nan, 0], np.float32)
    assert difference(want, want).verdict == "same bits"
    assert difference(np.array([1, np.inf, -np.nan, -0.0], np.float32), want).verdict == "equal"
    for i, other in ((0, np.nan), (1, -np.inf), (1, np.nan), (1, 3e38), (2, 0)):
        got = want.copy()
        got[i] = other
        found = difference(got, want)
        assert (found.at, found.relative, found.verdict) == ((i,), np.inf, "DIFFERS"), (i, other)


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.uint64, ml_dtypes.int4, ml_dtypes.uint2])
def test_integers_are_equal_or_differ(dtype: type) -> None:
    want = np.array([0, 1, 1]).astype(dtype)
    assert difference(want, want).verdict == "same bits"
    assert difference(np.array([0, 1, 0]).astype(dtype), want).verdict == "DIFFERS"


def test_long_integers_that_f64_does_not_tell_apart() -> None:
    want = np.array([2**62], np.int64)
    assert difference(want + 1, want).verdict == "DIFFERS"


def test_the_bound_is_half_of_the_digits() -> None:
    want = np.array([4, 0], np.float32)
    bound = difference(want, want).bound
    assert bound == np.sqrt(np.finfo(np.float32).eps)
    for factor, verdict in ((0.9, "close"), (1.1, "DIFFERS")):
        assert difference(want + np.float32([0, 4 * bound * factor]), want).verdict == verdict


def test_complex_numbers_differ_by_parts() -> None:
    want = np.array([[1 + 2j, 3 - 4j]], np.complex64)
    found = difference(want + np.array([[0, 1j]], np.complex64), want)
    assert (found.at, found.relative) == ((0, 1), 0.25)


def test_scalars_and_nothing() -> None:
    assert difference(np.float32(2) * np.ones(()), np.ones((), np.float64)).at == ()
    assert difference(np.ones((0, 3), np.float16), np.ones((0, 3), np.float16)).verdict == "same bits"


def test_what_does_not_compare() -> None:
    for got in (np.ones(3, np.float32), np.ones((3, 1))):
        with pytest.raises(ValueError, match="expected float64"):
            difference(got, np.ones(3))
