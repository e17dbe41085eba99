"""Lowers products that compute an operand where they read it."""

from __future__ import annotations

from shlo_jit.fuse.plan import ComputedOperandStep
from shlo_jit.lower.kernels import grouped
from shlo_jit.lower.kernels.convolution import lower_convolution
from shlo_jit.lower.kernels.dot import lower_product
from shlo_jit.lower.kernels.dots_in_registers import DotOutputs, DotTerms
from shlo_jit.lower.kernels.groups_in_registers import lower_groups
from shlo_jit.lower.kernels.operand_in_panels import lower_in_panels, producer
from shlo_jit.lower.kernels.operand_in_registers import lower_in_registers
from shlo_jit.lower.kernels.outputs_in_registers import Outputs
from shlo_jit.lower.kernels.short_sums import ShortOutputs, ShortTerms
from shlo_jit.lower.kernels.terms_in_registers import Terms
from shlo_jit.lower.kernels.units_in_registers import MakeChunkWriter
from shlo_jit.lower.services import Services
from shlo_jit.schedule.convolution import ConvolutionSchedule
from shlo_jit.schedule.grouped import GroupedSchedule
from shlo_jit.schedule.groups_in_registers import GroupsSchedule
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.operand_in_panels import InPanelsSchedule
from shlo_jit.schedule.operand_in_registers import InRegistersSchedule
from shlo_jit.schedule.products import ProductSchedule


def lower(low: Services, step: ComputedOperandStep, schedule: KernelSchedule) -> None:
    if isinstance(schedule, InRegistersSchedule):
        lower_in_registers(low, step, schedule, _chunk_writer(schedule))
    elif isinstance(schedule, GroupsSchedule):
        lower_groups(low, step, schedule)
    elif isinstance(schedule, InPanelsSchedule):
        lower_in_panels(low, step, schedule)
    elif isinstance(schedule, GroupedSchedule):
        grouped.lower_computing(low, step, schedule)
    elif isinstance(schedule, ConvolutionSchedule):
        computed = () if schedule.computed is None else producer(low, step, schedule.computed)
        lower_convolution(low, step.product, schedule, low.scratch(step), computed)
    elif isinstance(schedule, ProductSchedule):
        lower_product(low, step.product, schedule, low.scratch(step))


def _chunk_writer(s: InRegistersSchedule) -> MakeChunkWriter:
    """What writes the chunks of a product, by what its lanes are and by its instructions."""
    if s.dots is None:
        return Outputs if s.are_outputs else Terms
    if s.dots.short:
        return ShortOutputs if s.are_outputs else ShortTerms
    return DotOutputs if s.are_outputs else DotTerms
