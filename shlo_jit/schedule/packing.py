"""Schedules of loops that pack matrices before their first iteration: the fields of their panels in scratch memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shlo_jit.fuse.plan import ControlStep
from shlo_jit.kernels.gemm.precision import gemm_plan
from shlo_jit.kernels.gemm.prepacked import prepacked_bytes
from shlo_jit.kernels.gemm.prepacking import SPARE, prepack_routine
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.panels import LoopSchedule, Matrices
from shlo_jit.schedule.scratch import Field, Scratch


def schedule_loops(wanted: Iterable[tuple[ControlStep, Matrices]], target: Target) -> dict[int, LoopSchedule]:
    """The schedules, by id() of the loop's step, of the loops before which products want matrices packed."""
    found: dict[int, LoopSchedule] = {}
    for loop, matrices in wanted:
        known = found.get(id(loop), LoopSchedule(fields={}))
        if matrices in known.fields:
            continue
        plan = gemm_plan(matrices.types, target)
        size = matrices.batch * prepacked_bytes(plan, matrices.n, matrices.k) + SPARE
        field = Field(f"panels {len(known.fields)}", size)
        routine = prepack_routine(matrices.types, target)
        found[id(loop)] = replace(
            known,
            fields=known.fields | {matrices: field.name},
            scratch=Scratch((*known.scratch.shared, field)),
            routines=tuple(dict.fromkeys((*known.routines, routine))),
        )
    return found
