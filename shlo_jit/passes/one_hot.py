"""Matrices of zeros with at most one number in each row, whose column an index says.

    convert(compare EQ, iota along d, index)         1 at position `index` along d, 0 elsewhere
    one_hot(e)[t, e, 1] * one_hot(c)[t, 1, c] * scale[t, 1, 1]        a number at (e, c) for each t

This is how programs write selections of rows as products: `jax.nn.one_hot`, and mixtures of experts whose tokens are
dispatched to places of experts.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.ir.core import Op, Value
from shlo_jit.passes.intervals import (
    BROADCAST,
    DEPTH,
    MOST_OFFSET,
    RESHAPE,
    TRANSPOSE,
    Place,
    inner_dim,
    is_i64,
    position,
    through,
    varying,
)
from shlo_jit.passes.masked_weights import is_truth


class Index(NamedTuple):
    """The position along a dimension where a row has its number: the elements of `place` and `added`."""

    place: Place
    added: int


class Factor(NamedTuple):
    """A factor of the number of each row."""

    place: Place
    is_sum: bool
    """Whether it is the sum of a row of `place`, whose other elements are zeros; otherwise `place` does not vary along
    a row."""


class OneHot(NamedTuple):
    """A value of zeros with at most one number for each index of the dimensions that are not in `hot`."""

    hot: dict[int, Index]
    """Dimension of the value -> position along it."""
    factors: tuple[Factor, ...]
    """Factors of the numbers; without any, they are 1."""


def one_hot_of(value: Value) -> OneHot | None:
    """Returns what a value is as a one-hot value; None if it is not known to be one."""
    if not value.tensor.is_fixed:
        return None
    return _one_hot(Place(value, tuple(range(value.tensor.rank))), DEPTH, {})


Known = dict[Place, "OneHot | None"]
"""Values that have been looked at: operands that ops share are looked at once."""


def _one_hot(place: Place, depth: int, known: Known) -> OneHot | None:
    if place not in known:
        known[place] = _one_hot_by_op(place, depth, known)
    return known[place]


def _one_hot_by_op(place: Place, depth: int, known: Known) -> OneHot | None:
    op = place.value.op
    if op is None or not depth:
        return None
    if op.name == "stablehlo.convert":
        found = _one_hot(Place(op.operands[0], place.dims), depth - 1, known)
        return found if found is not None and not found.factors else None  # 0 and 1 are exact in every type
    if op.name == "stablehlo.compare":
        return _compared(op, place)
    if op.name in (BROADCAST, TRANSPOSE, RESHAPE):
        inner = through(op, place)
        found = None if inner is None else _one_hot(inner, depth - 1, known)
        keeps = found is not None and all(inner_dim(op, place.dims.index(d)) is not None for d in found.hot)
        return found if keeps else None
    return _multiplied(op, place, depth, known) if op.name == "stablehlo.multiply" else None


def _compared(op: Op, place: Place) -> OneHot | None:
    if op.attributes["comparison_direction"].value != "EQ":
        return None
    for own, dim in enumerate(place.dims):
        if dim < 0 or op.result.tensor.extents[own] == 1:
            continue
        for x, y in (op.operands, op.operands[::-1]):
            first = position(x, own)
            if first is not None and abs(first) < MOST_OFFSET and own not in varying(y) and is_i64(y):
                return OneHot({dim: Index(Place(y, place.dims), -first)}, ())
    return None


def _multiplied(op: Op, place: Place, depth: int, known: Known) -> OneHot | None:
    x, y = op.operands
    one, other = (_one_hot(Place(v, place.dims), depth - 1, known) for v in (x, y))
    if one is not None and other is not None and not one.hot.keys() & other.hot.keys():
        is_separate = not (_along(one, y, place) or _along(other, x, place))
        return OneHot(one.hot | other.hot, one.factors + other.factors) if is_separate else None
    for found, factor in ((one, y), (other, x)):
        if found is None:
            continue
        if not _along(found, factor, place):
            return OneHot(found.hot, (*found.factors, Factor(Place(factor, place.dims), False)))
        if is_truth(factor):  # zeros times finite numbers
            return OneHot(found.hot, (Factor(place, True),))
    return None


def _along(found: OneHot, value: Value, place: Place) -> bool:
    """Whether a value varies along a row of a one-hot value."""
    return any(place.dims[d] in found.hot for d in varying(value))
