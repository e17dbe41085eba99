"""Panels that a loop packs once for the products in it, as `schedule/loop_panels.py` has decided."""

from __future__ import annotations

from shlo_jit.fuse.plan import ControlStep
from shlo_jit.kernels.gemm.prepacking import prepack_symbol
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.scratch import shared_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.panels import LoopSchedule, Matrices


def pack_before(low: Services, loop: ControlStep) -> None:
    """Packs the matrices that products in a loop read as panels."""
    b = low.b
    found = low.schedule[loop]
    for m in found.fields if isinstance(found, LoopSchedule) else {}:
        args = [low.pointer(m.value), *map(i64, m.strides), i64(m.batch), i64(m.n), i64(m.k)]
        b.call("void", prepack_symbol(m.types), [*args, packed(low, loop, m)])


def packed(low: Services, loop: ControlStep, matrices: Matrices) -> V:
    """Address of the panels that a loop packs from some matrices."""
    found = low.schedule[loop]
    assert isinstance(found, LoopSchedule)
    return shared_fields(low.b, found.scratch, low.scratch(loop))[found.fields[matrices]]
