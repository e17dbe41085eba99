"""Schedule of a product on register tiles that computes an operand while it packs it into panels.

The loop that computes the operand runs on boxes (`boxes.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shlo_jit import tuning
from shlo_jit.fuse.plan import ComputedOperandStep
from shlo_jit.kernels.gemm.computed import box_bytes, box_of
from shlo_jit.kernels.gemm.forms import Form
from shlo_jit.kernels.gemm.gemm import GemmStrategy, GemmTypes, gemm_routine, gemm_symbol
from shlo_jit.kernels.gemm.given import given_scratch_bytes
from shlo_jit.kernels.gemm.known_sizes import blocking_of, describe, extents_of
from shlo_jit.kernels.gemm.policy import IN_PLACE, PRIVATE, SHARED, Blocking
from shlo_jit.kernels.gemm.precision import GemmPlan, gemm_plan
from shlo_jit.kernels.gemm.staged_numbers import Reasoned
from shlo_jit.reasons import Reason
from shlo_jit.schedule.boxes import Boxes, BoxSize, boxes_of
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.epilogue import WithEpilogue, Written, finish
from shlo_jit.schedule.product_layout import ProductLayout, gemm_types
from shlo_jit.schedule.scratch import Scratch
from shlo_jit.schedule.summed_products import SUMMED, Totals, schedule_totals
from shlo_jit.schedule.tasks import cut

WHOLE = Reason("whole-words", "a pass has all elements of the words that it reads")
WHY = Reason("computed-operand", "the product computes its elements where it packs them")


@dataclass(frozen=True, kw_only=True)
class InPanelsSchedule(WithEpilogue):
    """Schedule of a product with an operand that is computed while it is packed."""

    types: GemmTypes
    side: int
    boxes: Boxes
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
        inner = [Note(f"  {n.what}", n.value, n.why) for n in self.boxes.producer.notes]
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
    widths, terms = box_of(plan, side)
    # Boxes begin at multiples of a panel's width, and of the terms of a pass, which are rounded for that.
    size = BoxSize(widths, terms, (plan.nr if side else plan.mr, terms))
    boxes = boxes_of(step.producer.nest, step.operand.parts, size, target, prefetches=True)
    if boxes.interleaved is not None and boxes.by_terms:
        blocking = blocking._replace(kc=_whole(blocking.kc, step.producer.nest.extents[boxes.interleaved], plan))
    form = Form.COMPUTES_B if side else Form.COMPUTES_A

    def scratch(threads: int) -> int:
        own = given_scratch_bytes(plan, shape, blocking, threads) + max(threads, 1) * box_bytes(plan, side)
        return own + (totals.nbytes if totals is not None else 0)

    lines = describe(plan, batch, m, n, k, layout.operands, False, given=blocking)
    return InPanelsSchedule(
        types=types,
        side=side,
        boxes=boxes,
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
