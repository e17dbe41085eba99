"""Parallel regions: consecutive steps that do not depend on each other run at the same time.

A step of little work cannot keep many threads busy: some have no task, and all wait at its end. If the next steps do
not read what it writes, their tasks are handed out together with its own, and there is one wait for all of them. Each
step keeps its tasks, so its results have the same bits as alone.

The steps of a region are in memory at the same time. Memory planning gives their values lifetimes to the end of the
region, and none of them overwrites an operand that another one reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, PlanBlock, StagedStep, Step, ViewStep, all_blocks
from shlo_jit.ir.core import Value
from shlo_jit.ir.types import TensorType
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.traffic import step_operations
from shlo_jit.schedule.work import step_work
from shlo_jit.sizes import Size


class Region(NamedTuple):
    """Consecutive steps of a block, of which no one depends on another."""

    steps: tuple[Step, ...]
    """All of them, in order. Views and very small steps run before the tasks of the others begin."""
    shared: tuple[Step, ...]
    """Those whose tasks run together."""


class Regions:
    """The parallel regions of a plan that several steps share."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self.all = tuple(regions)
        self._of = {id(step): region for region in self.all for step in region.steps}

    def of(self, step: Step) -> Region | None:
        """The region of a step, if it shares one."""
        return self._of.get(id(step))

    def grouped(self, steps: Sequence[Step]) -> Iterator[tuple[Region | None, Sequence[Step]]]:
        """Yields consecutive steps in order: those of a region together, each other step by itself."""
        at = 0
        while at < len(steps):
            region = self.of(steps[at])
            count = 1 if region is None else len(region.steps)
            yield region, steps[at : at + count]
            at += count

    def note(self, step: Step, labels: Mapping[int, str]) -> list[Note]:
        """The line of the printed schedule about a step that shares a region; `labels` by id() of the step."""
        region = self.of(step)
        if region is None or step not in region.shared:
            return []
        others = " and ".join(labels[id(s)] for s in region.shared if s is not step)
        return [Note("runs with", f"step{'s' if len(region.shared) > 2 else ''} {others}", WHY)]


WHY = Reason("independent-steps", "they do not depend on each other, and alone have little work for many threads")
NO_REGIONS = Regions(())


def find_regions(
    plan: PlanBlock, schedules: Mapping[int, KernelSchedule], is_tiled: Callable[[ControlStep], bool]
) -> Regions:
    """Finds steps that can share a region and gain from it, in every block of the plan. `is_tiled`: whether the steps
    of a loop may run for a part of their arrays at a time."""
    controls = [step for block in all_blocks(plan) for step in block.steps if isinstance(step, ControlStep)]
    tiled = {id(step.blocks[-1]) for step in controls if is_tiled(step)}
    return Regions(r for block in all_blocks(plan) if id(block) not in tiled for r in _regions(block, schedules))


def _regions(block: PlanBlock, schedules: Mapping[int, KernelSchedule]) -> Iterator[Region]:
    members = _Members(schedules)
    for step in block.steps:
        if not members.takes(step):
            yield from members.region()
            members = _Members(schedules)
            members.takes(step)
    yield from members.region()


class _Members:
    """The steps of a region so far."""

    def __init__(self, schedules: Mapping[int, KernelSchedule]) -> None:
        self.schedules = schedules
        self.steps: list[Step] = []
        self.shared: list[Step] = []
        self.work = 0
        self.roots: dict[Value, Value] = {}
        """For each view that was made here, the value that it shows."""
        self.written: set[Value] = set()

    def takes(self, step: Step) -> bool:
        """Adds a step if the region may have it. The first one has tasks."""
        if isinstance(step, ViewStep):
            self.roots[step.op.results[0]] = self.root(step.op.operands[0])
            self.steps += [step] if self.steps else []
            return True
        if self._is_full or not self._fits(step) or self._depends(step):
            return False
        work = weight(step)
        if work >= tuning.REGION_TASK_WORK and self.schedules[id(step)].is_tasks:
            self.shared.append(step)
            self.work += work
        elif work >= tuning.REGION_TASK_WORK or not isinstance(step, NestStep) or not self.steps:
            return False
        self.steps.append(step)
        self.written.update(step.writes)
        return True

    def root(self, value: Value) -> Value:
        return self.roots.get(value, value)

    @property
    def _is_full(self) -> bool:
        return len(self.shared) == tuning.REGION_STEPS or len(self.steps) >= tuning.PART_STEPS // 2

    def _fits(self, step: Step) -> bool:
        """Whether a step is a kernel of moderate work, whose sizes are known, and that updates nothing in place."""
        if not isinstance(step, NestStep | OpStep | StagedStep):
            return False
        if isinstance(step, NestStep) and step.nest.overwrites is not None:
            return False
        types = [v.type for v in (*step.reads, *step.writes)]
        if any(not isinstance(t, TensorType) or isinstance(t.size, Size) for t in types):
            return False
        return weight(step) <= tuning.REGION_WORK

    def _depends(self, step: Step) -> bool:
        """Whether a step has to wait for one of the others."""
        return any(self.root(v) in self.written for v in step.reads) or any(s in self.steps for s in step.after)

    def region(self) -> Iterator[Region]:
        """Yields the region, without the steps after the last one with tasks, if several steps share it."""
        if len(self.shared) > 1 and self.work >= tuning.PARALLEL_WORK:
            end = self.steps.index(self.shared[-1]) + 1
            yield Region(tuple(self.steps[:end]), tuple(self.shared))


def weight(step: Step) -> int:
    """Returns the work of a step in element operations of loops. A kernel multiplies and adds several in that time, if
    it does not have to wait for the elements."""
    if isinstance(step, NestStep):
        return step_work(step)
    operations = step_operations(step)
    products = step_work(step) if operations is None else operations.total // 2
    elements = sum(v.tensor.size for v in (*step.reads, *step.writes))
    return max(products // tuning.KERNEL_SPEED, elements)
