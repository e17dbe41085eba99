"""Bounds by rows: which row of a matrix a loop nest reads and writes in each iteration.

The values between products are matrices of `units` rows in a dense layout, whatever their shapes are. A nest can run
for a block of rows if each iteration touches one row of each of them, and the same row of all:

    v0 over rows, v1 over columns:    offset v0 * 64 + v1 in a value with rows of 64    ->    row v0, column v1
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from shlo_jit.fuse.nest import Nest, covers, is_wide
from shlo_jit.fuse.plan import Step
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import At, Expr
from shlo_jit.ops.runs import roles_of
from shlo_jit.sizes import Size, equal


class Place(NamedTuple):
    """An element's place in a matrix."""

    row: Expr
    column: Expr


class Rows(NamedTuple):
    """How the variables of a nest number the rows."""

    unit: Expr
    """The row of an iteration."""
    variables: tuple[int, ...]
    """The variables in it, outermost first."""


def width_of(value: Value, units: int) -> int | None:
    """Returns the elements in each of `units` rows of a value; None if that is no known number."""
    shape = value.tensor.extents
    for d in range(len(shape) + 1):
        if equal(math.prod(shape[:d]), units):
            width = math.prod(shape[d:])
            return None if isinstance(width, Size) or width == 0 else width
    size = value.tensor.size
    if isinstance(size, Size) or isinstance(units, Size) or size % units:
        return None
    return size // units or None


def place_of(index: tuple[Expr, ...], value: Value, width: int, extents: list[int]) -> Place | None:
    """Returns the row and column of an index of a value with rows of `width` elements; None if a variable spans rows
    and columns."""
    offset = ix.linearize(index, value.tensor.extents)
    if offset.syms or any(isinstance(c, Size) for _, c in offset.terms) or isinstance(offset.const, Size):
        return None
    terms = [(v, c) for v, c in offset.terms if is_wide(extents[v])]
    columns = [(v, c) for v, c in terms if c % width]
    rows = tuple((v, c // width) for v, c in terms if c % width == 0)
    row, first = divmod(offset.const, width)
    if any(isinstance(extents[v], Size) for v, _ in columns):
        return None
    steps = [c * (extents[v] - 1) for v, c in columns]
    low, high = (first + sum(pick(0, s) for s in steps) for pick in (min, max))
    if low < 0 or high >= width:
        return None
    return Place(Expr(row, rows), Expr(first, tuple(columns)))


def shared_widths(
    nest: Nest, stages: Iterable[Step], source: Callable[[Value], Value], units: int
) -> dict[Value, int | None]:
    """Returns the widths of the rows of the values that a nest shares with other stages, or else of those that it
    writes. `source` maps a view to the value whose memory it is."""
    stages = list(stages)
    written = {v for s in stages for v in s.writes}
    read = {source(v) for s in stages for v in s.reads}
    values = [v for v, _ in nest.loads if source(v) in written]
    values += [s.target for s in nest.stores if s.target in read]
    return {v: width_of(v, units) for v in values or [s.target for s in nest.stores]}


def rows_of(nest: Nest, shared: dict[Value, int], units: int) -> Rows | Refusal:
    """Returns how a nest numbers the rows of the `shared` values, which it reads from other stages or writes for them.
    `shared` maps each of them to the width of its rows."""
    if nest.interchange is not None or nest.overwrites is not None or nest.after is not None:
        return Refusal("writes-part", "the loop writes only a part of a buffer, or runs the iterations of a `while`")
    if any(s.value in shared for _, at in (*nest.nodes, *nest.loads) for e in at.index for s in e.syms):
        return Refusal("read-at-several-indices", "the loop reads it at indices that it computes from it")
    found: set[Expr] = set()
    places = [(v, at.index) for v, at in nest.loads if v in shared]
    places += [(s.target, s.index) for s in nest.stores if s.target in shared]
    for value, index in places:
        place = place_of(index, value, shared[value], nest.extents)
        if place is None:
            return Refusal("loop-spans-rows-and-columns", "one of its loops spans rows and columns of the product")
        found.add(place.row)
    if len(found) != 1:
        return Refusal("not-each-element-once", "the loop does not visit the same row of each value once")
    (unit,) = found
    used = covers(nest, At((unit,)), (units,))
    if used is None or used & set(nest.reduce_vars):
        return Refusal("not-each-element-once", "the loop does not visit each row once")
    own = {v for v, n in enumerate(nest.extents) if is_wide(n) and v not in nest.reduce_vars}
    if nest.reduce_vars and own != used:
        return Refusal("rows-differ", "the row program's rows are not those of the product")
    order = tuple(sorted(used, key=lambda v: -unit.coefficient(v)))
    if nest.reduce_vars and leading_store(nest, order) is None:
        return Refusal("transposes-dimensions", "the row program changes the order of dimensions")
    return Rows(unit, order)


def leading_store(nest: Nest, order: tuple[int, ...]) -> int | None:
    """Returns the number of a store whose target has the rows in the order of these variables, outermost first."""
    for i, s in enumerate(nest.stores):
        offset = ix.linearize(s.index, s.target.tensor.extents)
        steps = [offset.coefficient(v) for v in order]
        if not any(isinstance(c, Size) for c in steps) and all(steps) and steps == sorted(steps, key=lambda c: -abs(c)):
            return i
    return None


def in_row_order(op: Op) -> bool:
    """Whether the left operand of a product has the rows of its result, one after the other, each along k."""
    r, shape = roles_of(op), op.operands[0].tensor.extents
    order = [d for d in (*r.lhs_batch, *r.lhs_free, *r.lhs_contracting) if is_wide(shape[d])]
    return order == sorted(order)


def column_variables(nest: Nest, rows: Rows) -> tuple[int, ...]:
    """Returns the variables of a loop within a row, outermost first in the order of its first store."""
    weight = ix.linearize(nest.stores[0].index, nest.stores[0].target.tensor.extents)
    inner = [v for v, n in enumerate(nest.extents) if is_wide(n) and v not in rows.variables]
    return tuple(sorted(inner, key=lambda v: -abs(weight.coefficient(v))))
