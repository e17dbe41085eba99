"""Schedule of a product on register tiles that computes an operand while it packs it into panels.

The loop that computes the operand runs on boxes: some rows or columns by some terms, in memory of the worker. Lanes run
along the variable along which the arrays are contiguous that it reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from shlo_jit import tuning
from shlo_jit.fuse.nest import Key, Nest, Store, is_wide
from shlo_jit.fuse.plan import ComputedOperandStep
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import Expr
from shlo_jit.ir.types import tensor
from shlo_jit.kernels.gemm.computed import box_bytes, box_of
from shlo_jit.kernels.gemm.forms import Form
from shlo_jit.kernels.gemm.gemm import GemmStrategy, GemmTypes, gemm_routine, gemm_symbol
from shlo_jit.kernels.gemm.given import given_scratch_bytes
from shlo_jit.kernels.gemm.known_sizes import blocking_of, describe, extents_of
from shlo_jit.kernels.gemm.policy import IN_PLACE, PRIVATE, SHARED, Blocking
from shlo_jit.kernels.gemm.precision import GemmPlan, gemm_plan
from shlo_jit.kernels.gemm.staged_numbers import Reasoned
from shlo_jit.kernels.target import Target
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.epilogue import WithEpilogue, Written, finish
from shlo_jit.schedule.nest import NestSchedule, schedule_nest
from shlo_jit.schedule.product_layout import ProductLayout, gemm_types
from shlo_jit.schedule.run_time_offsets import bits_in_memory, is_run
from shlo_jit.schedule.scratch import Scratch
from shlo_jit.schedule.space import Tile, linear
from shlo_jit.schedule.summed_products import SUMMED, Totals, schedule_totals
from shlo_jit.schedule.tasks import cut

WHOLE = Reason("whole-words", "a pass has all elements of the words that it reads")
WORD = 64
"""Bits of the largest words that elements share."""
WHY = Reason("computed-operand", "the product computes its elements where it packs them")


@dataclass(frozen=True, kw_only=True)
class InPanelsSchedule(WithEpilogue):
    """Schedule of a product with an operand that is computed while it is packed."""

    types: GemmTypes
    side: int
    producer: NestSchedule
    """The schedule of the loop on boxes."""
    box: Value
    """A value of a box's layout, which the loop writes."""
    by_terms: bool
    """Whether the terms are adjacent in a box, not its rows or columns."""
    interleaved: int | None
    """A short variable whose iterations are adjacent in a box, between the lanes of the next one."""
    layout: ProductLayout
    blocking: Blocking
    lines: tuple[Note, ...]
    written: Written | None
    is_serial: bool
    """Whether one thread runs all tasks."""
    totals: Totals | None

    @property
    def form(self) -> Form:
        return Form.COMPUTES_B if self.side else Form.COMPUTES_A

    @property
    def symbol(self) -> str:
        """The routine's symbol."""
        return gemm_symbol(self.types, GemmStrategy.TILES, self.form)

    @property
    def is_tasks(self) -> bool:
        return not self.is_serial and (self.epilogue is None or not self.epilogue.is_late)

    @property
    def notes(self) -> list[Note]:
        after = self.epilogue.notes if self.epilogue else [self.written.note] if self.written else []
        inner = [Note(f"  {n.what}", n.value, n.why) for n in self.producer.notes]
        sums = [self.totals.note] if self.totals is not None else []
        return [Note("operand", "computed while it is packed", WHY), *inner, *self.lines, *after, *sums]


def schedule_in_panels(step: ComputedOperandStep, layout: ProductLayout, context: Context) -> InPanelsSchedule:
    op, side, target = step.product.op, step.operand.side, context.target
    types = gemm_types(op)
    plan = gemm_plan(types, target)
    batch, m, n, k = layout.extents
    shape = extents_of(plan, batch, m, n, k, layout.operands)
    own = blocking_of(plan, shape)
    if side:
        few = m <= tuning.COMPUTED_PRIVATE_ROWS
        mode_a, mode_b = own.mode_a, Reasoned.of(PRIVATE, WHY) if few else _packed(own.mode_b)
    else:
        mode_a, mode_b = _packed(own.mode_a), own.mode_b
    blocking = blocking_of(plan, shape, mode_b, mode_a)
    epilogue, written = (None, None) if step.summed else finish(step.product, target, layout, None)
    totals = schedule_totals(step, layout, target)
    if totals is not None:
        whole = extents_of(plan, 1, m, n, k * batch, layout.operands)
        mode_a = Reasoned.of(PRIVATE, WHY) if mode_a == SHARED else mode_a
        blocking = blocking_of(plan, whole, Reasoned.of(PRIVATE, WHY), mode_a)._replace(
            kc=blocking.kc, group=Reasoned.of(batch, SUMMED)
        )
    nest, tile, box, by_terms = on_boxes(step, *box_of(plan, side))
    # Boxes begin at multiples of a panel's width, and of the terms of a pass, which are rounded for that.
    begins = box_of(plan, side)[1] if by_terms else (plan.nr if side else plan.mr)
    interleaved, tile = interleaved_variable(nest, tile, begins)
    if interleaved is not None and by_terms:
        blocking = blocking._replace(kc=_whole(blocking.kc, nest.extents[interleaved], plan))
    form = Form.COMPUTES_B if side else Form.COMPUTES_A
    later = later_box(nest, step.operand.along, box_of(plan, side)[1])

    def scratch(threads: int) -> int:
        own = given_scratch_bytes(plan, shape, blocking, threads) + max(threads, 1) * box_bytes(plan, side)
        return own + (totals.nbytes if totals is not None else 0)

    lines = describe(plan, batch, m, n, k, layout.operands, False, given=blocking)
    return InPanelsSchedule(
        types=types,
        side=side,
        producer=schedule_producer(nest, target, tile, interleaved, later),
        box=box,
        by_terms=by_terms,
        interleaved=interleaved,
        layout=layout,
        blocking=blocking,
        lines=tuple(Note(*line) for line in lines),
        written=written,
        is_serial=cut(batch * m * n, batch * m * n * k).is_one,
        totals=totals,
        epilogue=epilogue,
        scratch=Scratch.of(scratch),
        routines=(gemm_routine(types.a, types.b, types.acc, target, GemmStrategy.TILES, form),),
    )


def _whole(kc: int, count: int, plan: GemmPlan) -> int:
    """The terms of a pass as a multiple of `count`."""
    unit = math.lcm(count, plan.k_unit)
    more = -(-kc // unit) * unit
    return Reasoned.of(more if more <= plan.kc else max(unit, kc // unit * unit), WHOLE)


def _packed(mode: int) -> int:
    """The mode of an operand that has to be packed."""
    return Reasoned.of(PRIVATE, WHY) if mode == IN_PLACE else mode


def on_boxes(step: ComputedOperandStep, widths: int, terms: int) -> tuple[Nest, Tile, Value, bool]:
    """The loop with a box as its target, the variables of its rows and columns, the box, and whether its columns are
    terms. A box has `widths` rows or columns of the operand, and `terms`."""
    nest, (batch, along, free) = step.producer.nest, step.operand.parts
    by_terms = _contiguous(nest, along) > _contiguous(nest, free)
    rows, columns = (free, along) if by_terms else (along, free)
    (store,) = nest.stores
    box = Value(tensor((1, terms if by_terms else widths), store.target.tensor.dtype), None, 0, store.target.name)
    target = Store(store.value, store.at, box, (_number(nest, rows), _number(nest, columns)))
    parts = (
        tuple(sorted((v for v in p if is_wide(nest.extents[v])), key=lambda v: -p[v])) for p in (batch, rows, columns)
    )
    return replace(nest, stores=[target]), Tile(*parts), box, by_terms


def later_box(nest: Nest, along: Mapping[int, int], terms: int) -> dict[Key, int]:
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


def schedule_producer(
    nest: Nest, target: Target, tile: Tile, interleaved: int | None, prefetches: dict[Key, int]
) -> NestSchedule:
    """The schedule of the loop on boxes."""
    found = replace(schedule_nest(nest, target, tile), prefetches=prefetches)
    if interleaved is None:
        return found
    extents = {**found.space.extents, interleaved: nest.extents[interleaved]}
    return replace(found, space=found.space._replace(extents=extents))


def interleaved_variable(nest: Nest, tile: Tile, width: int) -> tuple[int | None, Tile]:
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
