"""Schedules products that compute an operand where they read it (see `fuse/computed_operands.py`): not at all if it is
a view, in registers if few rows are multiplied by it, else while it is packed into panels."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.computed_operands import CONVOLUTION, reads_floats_once
from shlo_jit.fuse.operand_views import View, view_of
from shlo_jit.fuse.plan import ComputedOperandStep
from shlo_jit.ops.grouped import grouped_of
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.convolution import schedule_convolution
from shlo_jit.schedule.grouped import schedule_grouped
from shlo_jit.schedule.groups_in_registers import schedule_groups
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.operand_in_panels import schedule_in_panels
from shlo_jit.schedule.operand_in_registers import schedule_in_registers
from shlo_jit.schedule.product_layout import Viewed, layout_of, viewed_operand
from shlo_jit.schedule.products import schedule_dot
from shlo_jit.schedule.register_dots import byte_dots


def schedule_computed_operand(step: ComputedOperandStep, context: Context) -> KernelSchedule:
    """Returns the schedule of a product that computes an operand."""
    if grouped_of(step.product.op) is not None:
        return schedule_grouped(step.product, context, step)
    if step.product.op.name == CONVOLUTION:
        if view_of(step.producer.nest, step.operand) is None:
            return schedule_convolution(step.product, context, computing=step)
        return schedule_convolution(step.product, context, _viewed(step, context))
    layout = layout_of(step.product.op)
    rows = layout.result.m if step.operand.side else layout.result.n
    view = view_of(step.producer.nest, step.operand)
    passes = tuning.COMPUTED_OPERAND_PASSES if view is None else int(_is_read_in_registers(step, view, context))
    found = schedule_groups(step, layout, context)
    if found is not None:
        return found
    if rows <= passes * tuning.COMPUTED_OPERAND_ROWS:
        found = schedule_in_registers(step, layout, context)
        if found is not None:
            return found
    if not step.producer.writes and step.summed is None:
        return schedule_dot(step.product, context)
    if view is not None and step.producer.writes and step.summed is None:
        return schedule_dot(step.product, context, _viewed(step, context))
    return schedule_in_panels(step, layout, context)


def _viewed(step: ComputedOperandStep, context: Context) -> Viewed:
    """The operand that is read where it lies."""
    return viewed_operand(step.producer.nest, step.operand, context.target)


def _is_read_in_registers(step: ComputedOperandStep, view: View, context: Context) -> bool:
    """Whether a product of a few vectors with a matrix in memory reads it in registers."""
    op, side = step.product.op, step.operand.side
    return byte_dots(op, side, context.target) is not None or reads_floats_once(step.product, side, view.value)
