"""Scheduling: decides how every step of a plan runs, before any code is written or memory assigned.

A kernel's scheduler looks at its op, the target and the uses of its results, and returns a `KernelSchedule`, which
memory planning (scratch), lowering (everything) and users (`exe.text("schedule")`) read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import (
    ControlStep,
    LineTilesStep,
    NestStep,
    OpStep,
    PlanBlock,
    RowBlocksStep,
    StagedStep,
    Step,
    all_steps,
    labels_of,
    read_inside,
    stages_of,
)
from shlo_jit.kernels.routine import Routine
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.loop_panels import loops_of
from shlo_jit.schedule.moves import IllegalMove
from shlo_jit.schedule.nest import NestSchedule, schedule_nest
from shlo_jit.schedule.panels import PanelsSchedule
from shlo_jit.schedule.regions import NO_REGIONS, Regions, find_regions
from shlo_jit.schedule.scratch import ScratchBytes
from shlo_jit.schedule.temporal_tiling import Tiling, tile_loop
from shlo_jit.schedule.weight_prefetch import link
from shlo_jit.sizes import NotSymbolic, Size

SCHEDULERS: dict[str, tuple[str, str]] = {
    "stablehlo.dot_general": ("products", "schedule_dot"),
    "segments": ("segments", "schedule_segments"),
    "computed_operand": ("computed_operands", "schedule_computed_operand"),
    "row_blocks": ("row_blocks", "schedule_row_blocks"),
    "line_tiles": ("line_tiles", "schedule_line_tiles"),
    "stablehlo.convolution": ("convolution", "schedule_convolution"),
    "stablehlo.custom_call": ("custom_call", "schedule_custom_call"),
    "stablehlo.fft": ("fft", "schedule_fft"),
    "stablehlo.cholesky": ("linalg", "schedule_cholesky"),
    "stablehlo.triangular_solve": ("linalg", "schedule_triangular_solve"),
    "stablehlo.scatter": ("scatter", "schedule_scatter"),
    "stablehlo.reduce_window": ("window", "schedule_window"),
    "stablehlo.select_and_scatter": ("select_and_scatter", "schedule_select_and_scatter"),
    "stablehlo.sort": ("sort", "schedule_sort"),
    "chlo.top_k": ("sort", "schedule_top_k"),
    "func.call": ("kernel", "schedule_call"),
    "stablehlo.replica_id": ("collective", "schedule_rank"),
    **{
        f"stablehlo.{name}": ("collective", "schedule_collective")
        for name in (
            *("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute"),
            *("collective_reduce", "reduce_scatter"),
        )
    },
    "stablehlo.after_all": ("kernel", "schedule_token"),
    "stablehlo.create_token": ("kernel", "schedule_token"),
}
"""Maps an op name to the module of this package and the function in it; imported when a program has such an op."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """The schedules of a plan's steps."""

    steps: dict[int, KernelSchedule]
    """Schedules by id() of the step."""
    regions: Regions = NO_REGIONS
    """The steps that share parallel regions."""

    def __getitem__(self, step: Step) -> KernelSchedule:
        return self.steps[id(step)]

    def scratch(self, step: Step) -> ScratchBytes:
        """The bytes of a step's scratch memory."""
        found = self.steps.get(id(step))
        return ScratchBytes() if found is None else found.scratch.bytes

    def lasts(self, step: Step) -> bool:
        """Whether that memory is reserved for the step until the program ends."""
        found = self.steps.get(id(step))
        return found is not None and found.lasting

    @property
    def routines(self) -> dict[str, Routine]:
        """The shared objects that steps call, by name."""
        return {r.name: r for s in self.steps.values() for r in s.routines}


def schedule(plan: PlanBlock, context: Context) -> Schedule:
    """Schedules each step of a plan, including those inside control flow. Raises UnsupportedError at the line of an op
    that no kernel computes."""
    context = context._replace(read=read_inside(plan), matrices=_matrices(plan), loops=loops_of(plan))
    steps: dict[int, KernelSchedule] = {}
    for step in all_steps(plan):
        steps[id(step)] = found = schedule_step(step, context)
        for routine in found.routines:
            context.on_routine(routine)
    link(plan, steps)
    wanted = [s.loop for s in steps.values() if isinstance(s, PanelsSchedule) and s.loop is not None]
    if wanted:
        from shlo_jit.schedule.packing import schedule_loops

        found = schedule_loops(wanted, context.target)
        steps.update(found)
        for routine in (r for s in found.values() for r in s.routines):
            context.on_routine(routine)

    def is_tiled(step: ControlStep) -> bool:
        return isinstance(tile_loop(step, steps), Tiling)

    return Schedule(steps, find_regions(plan, steps, is_tiled))


def _matrices(plan: PlanBlock) -> int:
    steps = (part for step in all_steps(plan) for part in (step, *step.parts))
    products = (s.op for s in steps if isinstance(s, OpStep) and s.op.name == "stablehlo.dot_general")
    tensors = [value.tensor for value in dict.fromkeys(op.operands[1] for op in products)]
    return sum(t.nbytes for t in tensors if not isinstance(t.nbytes, Size))


def has_moves(step: Step) -> bool:
    """Whether the schedule of a step is moves, which a caller may give."""
    is_kernel = isinstance(step, OpStep) and step.kind in ("stablehlo.dot_general", "stablehlo.convolution")
    return is_kernel or isinstance(step, NestStep | RowBlocksStep | LineTilesStep)


def steps_with_moves(plan: PlanBlock) -> dict[str, Step]:
    """Returns the steps whose schedule is moves by label, and their stages: `2/0` is the first stage of step 2.
    Products have no moves of their own if they are stages."""
    found: dict[str, Step] = {}
    labels = labels_of(plan)
    for step in filter(has_moves, all_steps(plan)):
        found[labels[id(step)]] = step
        stages = stages_of(step, labels[id(step)])
        found |= {label: stage for label, stage in stages if isinstance(stage, NestStep | RowBlocksStep)}
    return found


def schedules_with_moves(plan: PlanBlock, schedule: Schedule) -> Iterator[tuple[str, Step, KernelSchedule]]:
    """Yields the label of each of those steps and stages, the step, and its schedule."""
    labels = labels_of(plan)
    for step in filter(has_moves, all_steps(plan)):
        yield from _with_stages(labels[id(step)], step, schedule[step])


def _with_stages(label: str, step: Step, found: KernelSchedule) -> Iterator[tuple[str, Step, KernelSchedule]]:
    yield label, step, found
    for i, (stage, inner) in enumerate(zip(step.parts, found.stage_schedules, strict=False)):
        if inner is not None:
            yield from _with_stages(f"{label}/{i}", stage, inner)


def schedule_step(step: Step, context: Context) -> KernelSchedule:
    try:
        return _schedule_step(step, context)
    except NotSymbolic as refusal:
        refusal.asked_by(step.place)
        raise
    except IllegalMove as error:
        raise error.at(step.place) from None


def _schedule_step(step: Step, context: Context) -> KernelSchedule:
    if isinstance(step, NestStep):
        return schedule_nest(step.nest, context.target, moves=context.given.get(id(step)))
    if not isinstance(step, OpStep | StagedStep):
        return NOTHING
    place = SCHEDULERS.get(step.kind)
    if place is None and isinstance(step, OpStep):
        raise UnsupportedError(diagnose(f"{step.op.name} has no lowering yet", step.op.span, label="no-lowering"))
    assert place is not None
    module, name = place
    return getattr(import_module(f"shlo_jit.schedule.{module}"), name)(step, context)


__all__ = ["Context", "KernelSchedule", "NestSchedule", "Schedule", "schedule", "schedule_step"]
