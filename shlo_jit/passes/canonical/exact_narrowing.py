"""Find narrower numbers that hold an array of f32 exactly: floats of 16 bits, or integers of at most 8 bits with a
scale for each group of terms. Weights are often such numbers that a frontend has widened: it loads bf16 weights as f32,
or computes `q * s` of constants while it traces.

    [0.5, -1.5, 3.5, ...]   ->   0.5 * [1, -3, 7, ...]

A scale is found from the smallest magnitude of a group, which is a small multiple of it, and made exact with the
largest: all products with the integers, rounded to f32, must be the numbers as they were given. A few rows are tried
first, since most arrays hold no such numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shlo_jit.ir.types import BF16, DTYPES, F16, DType, storage_range

SAMPLED = 8
"""Rows that are tried first."""
LEAST_GROUP, MOST_GROUP = 16, 1024
"""Terms with a scale of their own, if not all terms share one: powers of two."""
LEAST_MULTIPLE = 32
"""The smallest magnitude of a group is at most so many times its scale."""
LARGEST = 255
"""The largest magnitude of an integer."""
TOLERANCE = 1e-4
"""Distance of a ratio from an integer: three roundings of a number below LARGEST change it by less."""
NEIGHBOURS = (1, -1, 2, -2)
"""Distances of an exact scale from the quotient of a rounded product and its integer, in the last place."""
SLAB = 1 << 18
"""Numbers that are looked at together, so that temporary arrays stay in a cache."""
LINE = 64
"""Minimum columns that are looked at together: rows are read in lines of the cache."""
INTEGERS = tuple(DTYPES[name] for name in ("i4", "ui4", "i8", "ui8"))
"""The narrowest first."""


class Narrowed(NamedTuple):
    """Numbers that an array holds exactly."""

    numbers: np.ndarray
    """They have the shape of the array, in which the dimension of terms is split into groups and their terms if there
    are scales."""
    dtype: DType
    scales: np.ndarray | None = None
    """f32 factors of the groups of integers, in the shape without the terms of a group."""


def narrowed(array: np.ndarray, terms: int | None) -> Narrowed | None:
    """Returns the narrowest numbers found for an array of f32, or None. `terms`: the dimension along which scales are
    shared; None: integers are not looked for."""
    found = None if terms is None else _as_multiples(array, terms)
    return found or _as_halves(array)


def _as_halves(array: np.ndarray) -> Narrowed | None:
    """The array as floats of 16 bits."""
    flat = array.reshape(-1)
    for dtype in (BF16, F16):
        if all(_is_exact(part, dtype) for part in _parts(flat, SLAB)):
            return Narrowed(array.astype(dtype.numpy), dtype)
    return None


def _parts(flat: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Yields the first numbers of an array, which decide most cases, then all of them, in parts."""
    yield flat[: 1 << 12]
    for start in range(0, flat.size, most):
        yield flat[start : start + most]


def _is_exact(part: np.ndarray, dtype: DType) -> bool:
    if dtype == BF16:
        return not np.any(part.view(np.uint32) & 0xFFFF)
    with np.errstate(over="ignore"):
        return np.array_equal(part.astype(np.float16).astype(np.float32).view(np.uint32), part.view(np.uint32))


def _as_multiples(array: np.ndarray, terms: int) -> Narrowed | None:
    """The array as integers with scales."""
    before, k, after = array.shape[:terms], array.shape[terms], array.shape[terms + 1 :]
    columns = array.reshape(math.prod(before), k, math.prod(after))
    sample = _sample(columns)
    for group in _group_sizes(k):
        if _multiples(sample.reshape(-1, group, 1)) is None:
            continue
        found = _in_groups(columns.reshape(-1, group, columns.shape[-1]))
        if found is None:
            continue
        integers, scales = found
        low, high = int(integers.min()), int(integers.max())
        for dtype in INTEGERS:
            least, most = storage_range(dtype)
            if least <= low and high <= most:
                numbers = integers.astype(dtype.numpy)
                if np.all(scales == 1):
                    return Narrowed(numbers.reshape(array.shape), dtype)
                split = numbers.reshape(*before, k // group, group, *after)
                return Narrowed(split, dtype, scales.reshape(*before, k // group, *after))
        return None
    return None


def _sample(columns: np.ndarray) -> np.ndarray:
    """Some sums' terms, one row each. `columns`: [m, terms, n]."""
    m, _, n = columns.shape
    some = np.linspace(0, m * n - 1, SAMPLED).astype(int)
    return columns[some // n, :, some % n]


def _group_sizes(k: int) -> Iterator[int]:
    if k >= LEAST_GROUP:
        yield k
    group = MOST_GROUP
    while group >= LEAST_GROUP:
        if group < k and k % group == 0:
            yield group
        group //= 2


def _in_groups(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The integers of [m, terms of a group, n], in 16 bits, and the scales: [m, n]."""
    m, size, n = groups.shape
    integers, scales = np.empty(groups.shape, np.int16), np.empty((m, n), np.float32)
    wide = min(n, max(LINE, SLAB // size))
    high = max(1, SLAB // (size * wide))
    for i in range(0, m, high):
        for j in range(0, n, wide):
            found = _multiples(np.ascontiguousarray(groups[i : i + high, :, j : j + wide]))
            if found is None:
                return None
            integers[i : i + high, :, j : j + wide], scales[i : i + high, j : j + wide] = found
    return integers, scales


def _multiples(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Groups as integers, and the scale of each: [m, terms, n] and [m, n]. None if one is no such product."""
    magnitudes = np.abs(numbers)
    largest = magnitudes.max(1)
    if not np.all(np.isfinite(largest)):
        return None
    magnitudes[magnitudes == 0] = np.inf
    least = magnitudes.min(1)
    least[largest == 0] = largest[largest == 0] = 1
    if np.any(largest > least * (LARGEST + 1)):
        return None
    units = _units(numbers, least)
    if units is None:
        return None
    count = np.rint(largest / units)
    if count.max() > LARGEST:
        return None
    integers = np.rint(numbers / units[:, None])
    scales = _exact_scales(numbers, integers, largest / count)
    if scales is None:
        return None
    top = integers.max(1)
    flipped = ((top == 8) | (top == 128)) & (integers.min(1) > -top)  # -8 is a number of 4 bits, 8 is not
    signs = np.where(flipped, np.float32(-1), np.float32(1))
    return (integers * signs[:, None]).astype(np.int16), scales * signs


def _units(numbers: np.ndarray, least: np.ndarray) -> np.ndarray | None:
    """An approximate scale of each group: the smallest magnitude, or a small part of it."""
    units = least.copy()
    i, j = np.nonzero(_are_apart(numbers / units[:, None]).any(1))
    rest = numbers[i, :, j]
    for times in range(2, LEAST_MULTIPLE + 1):
        if not i.size:
            return units
        units[i, j] = least[i, j] / np.float32(times)
        left = _are_apart(rest / units[i, j, None]).any(1)
        i, j, rest = i[left], j[left], rest[left]
    return None if i.size else units


def _are_apart(ratios: np.ndarray) -> np.ndarray:
    """Whether numbers are no integers."""
    return np.abs(ratios - np.rint(ratios)) > TOLERANCE


def _exact_scales(numbers: np.ndarray, integers: np.ndarray, near: np.ndarray) -> np.ndarray | None:
    """The scales near those given whose products with the integers are the numbers."""
    scales = near.astype(np.float32)
    i, j = np.nonzero((integers * scales[:, None] != numbers).any(1))
    bits, wanted, factors = scales.view(np.int32)[i, j], numbers[i, :, j], integers[i, :, j]
    for distance in NEIGHBOURS:
        if not i.size:
            return scales
        scales[i, j] = (bits + np.int32(distance)).view(np.float32)
        left = (factors * scales[i, j, None] != wanted).any(1)
        i, j, bits, wanted, factors = i[left], j[left], bits[left], wanted[left], factors[left]
    return None if i.size else scales
