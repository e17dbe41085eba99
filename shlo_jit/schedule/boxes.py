"""The loop that computes an operand, on boxes: some rows or columns by some terms, in memory of the worker, which are
multiplied or packed while they are in the first-level cache. Lanes run along the variable along which the arrays are
contiguous that the loop reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from shlo_jit import tuning
from shlo_jit.fuse.nest import Key, Nest, Store, is_wide
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import Expr
from shlo_jit.ir.types import tensor
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.nest import NestSchedule, schedule_nest
from shlo_jit.schedule.run_time_offsets import bits_in_memory, is_run
from shlo_jit.schedule.space import Tile, linear

WORD = 64
"""Bits of the largest words that elements share."""


@dataclass(frozen=True)
class Boxes:
    """Schedule of a loop that computes an operand box by box."""

    producer: NestSchedule
    box: Value
    """A value of a box's layout, which the loop writes."""
    by_terms: bool
    """Whether the terms are adjacent in a box, not its rows or columns."""
    interleaved: int | None
    """A short variable whose iterations are adjacent in a box, between the lanes of the next one."""
    terms: int
    """The terms of a box."""

    @property
    def strides(self) -> tuple[int, int]:
        """Elements from one term to the next, and from one row or column to the next."""
        stride = self.box.tensor.extents[1]
        return (1, stride) if self.by_terms else (stride, 1)


class BoxSize(NamedTuple):
    """How large boxes are, and where they begin."""

    widths: int
    """Rows or columns."""
    terms: int
    begins: tuple[int, int]
    """Numbers of which the first row or column, and the first term, are multiples."""


Parts: TypeAlias = Sequence[dict[int, int]]
"""The variables of a loop that number products, terms, and rows or columns, with their coefficients in the number."""


def boxes_of(
    nest: Nest,
    parts: Parts,
    size: BoxSize,
    target: Target,
    *,
    prefetches: bool = False,
    by_terms: bool | None = None,
) -> Boxes:
    """Returns the schedule of a loop on boxes. `prefetches`: whether the loop fetches what the box with the following
    terms reads. `by_terms`: whether the terms are adjacent in a box, if that is decided."""
    batch, along, free = parts
    if by_terms is None:
        by_terms = _contiguous(nest, along) > _contiguous(nest, free)
    rows, columns = (free, along) if by_terms else (along, free)
    (store,) = nest.stores
    layout = (size.widths, size.terms) if by_terms else (size.terms, size.widths)
    box = Value(tensor(layout, store.target.tensor.dtype), None, 0, store.target.name)
    written = Store(store.value, store.at, box, (_number(nest, rows), _number(nest, columns)))
    tile = Tile(*(_outermost_first(nest, part) for part in (batch, rows, columns)))
    on_boxes = replace(nest, stores=[written])
    interleaved, tile = _interleaved_variable(on_boxes, tile, size.begins[int(by_terms)])
    later = _later_box(on_boxes, along, size.terms) if prefetches else {}
    return Boxes(_schedule(on_boxes, target, tile, interleaved, later), box, by_terms, interleaved, size.terms)


def _outermost_first(nest: Nest, part: dict[int, int]) -> tuple[int, ...]:
    return tuple(sorted((v for v in part if is_wide(nest.extents[v])), key=lambda v: -part[v]))


def _later_box(nest: Nest, along: Mapping[int, int], terms: int) -> dict[Key, int]:
    """The bytes from an element of each array to that of the box with the following terms. A box has a line of each of
    many rows, so the hardware does not see what comes next."""
    steps = {v: terms // c for v, c in along.items() if is_wide(nest.extents[v]) and terms % c == 0}
    found: dict[Key, int] = {}
    for key in nest.loads:
        offset = linear(key)
        moves = {v: n * offset.coefficient(v) for v, n in steps.items() if offset.coefficient(v)}
        if moves and not offset.syms:
            found[key] = moves[max(moves, key=lambda v: along[v])] * bits_in_memory(key[0]) // 8
    return found


def _schedule(
    nest: Nest, target: Target, tile: Tile, interleaved: int | None, prefetches: dict[Key, int]
) -> NestSchedule:
    """The schedule of the loop on boxes."""
    found = replace(schedule_nest(nest, target, tile), prefetches=prefetches)
    if interleaved is None:
        return found
    extents = {**found.space.extents, interleaved: nest.extents[interleaved]}
    return replace(found, space=found.space._replace(extents=extents))


def _interleaved_variable(nest: Nest, tile: Tile, width: int) -> tuple[int | None, Tile]:
    """The innermost variable of a box's columns if lanes run along the next one, since the arrays are contiguous along
    that; and the tile without it. `width`: boxes begin at multiples of it."""
    if len(tile.columns) < 2:
        return None, tile
    *outer, inner = tile.columns
    short = nest.extents[inner]
    if short > tuning.UNPACKED_SEGMENTS or width % short or _contiguous(nest, [inner]) >= _contiguous(nest, outer[-1:]):
        return None, tile
    return inner, tile._replace(columns=tuple(outer))


def _contiguous(nest: Nest, part: Iterable[int]) -> int:
    """Bytes of the arrays that are contiguous along one of the variables. Packed elements are if bytes or words of them
    are, but not if all are in one."""

    def is_contiguous(key: Key, v: int) -> bool:
        moves, bits = linear(key).coefficient(v), bits_in_memory(key[0])
        if not key[0].tensor.is_packed:
            return moves == 1
        return is_run(key[0], moves) or (moves == 1 and nest.extents[v] * bits > WORD)

    variables = list(part)
    return sum(k[0].tensor.nbytes for k in nest.loads if any(is_contiguous(k, v) for v in variables))


def _number(nest: Nest, part: dict[int, int]) -> Expr:
    return Expr(0, tuple(sorted((v, c) for v, c in part.items() if is_wide(nest.extents[v]))))
