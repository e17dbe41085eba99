"""Lowers products that compute an operand where they read it."""

from __future__ import annotations

from shlo_jit.fuse.plan import ComputedOperandStep
from shlo_jit.lower.kernels.bytes_in_registers import ByteOutputs, ByteTerms
from shlo_jit.lower.kernels.dot import lower_product
from shlo_jit.lower.kernels.operand_in_panels import lower_in_panels
from shlo_jit.lower.kernels.operand_in_registers import Units, lower_in_registers
from shlo_jit.lower.kernels.short_sums import ShortOutputs, ShortTerms
from shlo_jit.lower.services import Services
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.operand_in_panels import InPanelsSchedule
from shlo_jit.schedule.operand_in_registers import InRegistersSchedule
from shlo_jit.schedule.products import ProductSchedule


def lower(low: Services, step: ComputedOperandStep, schedule: KernelSchedule) -> None:
    if isinstance(schedule, InRegistersSchedule):
        lower_in_registers(low, step, schedule, _units(schedule))
    elif isinstance(schedule, InPanelsSchedule):
        lower_in_panels(low, step, schedule)
    elif isinstance(schedule, ProductSchedule):
        lower_product(low, step.product, schedule, low.scratch(step))


def _units(schedule: InRegistersSchedule) -> Units | None:
    """What writes the units, if it is not what writes those of other types."""
    if schedule.dots is None:
        return None
    return Units(ShortOutputs, ShortTerms) if schedule.dots.short else Units(ByteOutputs, ByteTerms)
