"""Affine places: linear offsets, reshapes, splitting."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shlo_jit.ir import index as ix
from shlo_jit.ir.index import At, Expr, NotAffine, Split


def value_of(e: Expr, variables: dict[int, int]) -> int:
    return e.const + sum(c * variables[v] for v, c in e.terms)


def test_linearize_is_row_major() -> None:
    index = (ix.variable(0, 4), ix.ZERO, ix.shift(ix.variable(1, 5), 2))
    assert ix.linearize(index, (4, 3, 7)) == Expr(2, ((0, 21), (1, 1)))


def test_a_variable_over_two_dimensions_asks_to_be_split() -> None:
    with pytest.raises(Split) as caught:
        ix.delinearize(Expr(0, ((0, 1),)), (12, 64), [768])
    assert (caught.value.var, caught.value.factor) == (0, 64)


def test_dimensions_that_do_not_nest_are_refused() -> None:
    with pytest.raises(NotAffine):
        ix.delinearize(Expr(0, ((0, 6), (1, 1))), (6, 4), [4, 6])


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_delinearize_inverts_linearize(shape: list[int]) -> None:
    place = tuple(ix.variable(v, n) for v, n in enumerate(shape))
    back = ix.delinearize(ix.linearize(place, tuple(shape)), tuple(shape), shape)
    for point in itertools.product(*(range(n) for n in shape)):
        assert [value_of(e, dict(enumerate(point))) for e in back] == list(point)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_delinearize_of_reversed_dimensions(shape: list[int], data: st.DataObject) -> None:
    """Variables may count from the other end, whatever the shape that they are moved to."""
    turned = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    place = tuple(
        Expr(n - 1, ((v, -1),)) if back and n > 1 else ix.variable(v, n)
        for v, (n, back) in enumerate(zip(shape, turned, strict=True))
    )
    offset = ix.linearize(place, tuple(shape))
    for target in (tuple(shape), (math.prod(shape),)):
        found = ix.linearize(ix.delinearize(offset, target, shape), target)
        for point in itertools.product(*(range(n) for n in shape)):
            where = dict(enumerate(point))
            assert value_of(found, where) == value_of(offset, where)


@given(st.integers(2, 6), st.integers(2, 6), st.integers(0, 3))
def test_substitution_keeps_the_place(outer: int, inner: int, shift: int) -> None:
    at = At((Expr(shift, ((0, 2),)),))
    table = {0: ix.add(Expr(0, ((0, inner),)), Expr(0, ((1, 1),)))}
    moved = ix.substitute(at, table).index[0]
    for i, j in np.ndindex(outer, inner):
        assert value_of(moved, {0: i, 1: j}) == shift + 2 * (i * inner + j)
