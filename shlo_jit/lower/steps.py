"""The walk over a function's plan: writes the code of each step in order, and the copies between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from shlo_jit.codegen import abi
from shlo_jit.forking import pause
from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, PlanBlock, StagedStep, Step, ViewStep
from shlo_jit.kernels.llvm_values import i32
from shlo_jit.kernels.threads import jobs
from shlo_jit.lower import interrupts
from shlo_jit.lower.control import lower_control
from shlo_jit.lower.kernels import kernel
from shlo_jit.lower.kernels.copy import copy
from shlo_jit.lower.nest.nest_step import lower_nest
from shlo_jit.lower.scope import Scope
from shlo_jit.lower.services import Services
from shlo_jit.lower.step_functions import StepFunctions
from shlo_jit.memory.parts import Parts
from shlo_jit.memory.storage import Copy, nbytes
from shlo_jit.schedule.kernel import NOTHING
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.regions import NO_REGIONS, Region
from shlo_jit.schedule.work import step_work
from shlo_jit.sizes import NotSymbolic, equal, hint_of


class StepWriter:
    """Writes the steps of one function of the program; a `BlockWriter` for its control flow."""

    def __init__(self, low: Services, functions: StepFunctions):
        self.low = low
        self.functions = functions
        self.parts: Parts = low.function.parts

    def block(self, block: PlanBlock) -> None:
        """Writes the steps of a block; those of a long block become separate functions."""
        runs = self.parts.runs(block)
        if runs is None:
            self.steps(block.steps)
            return
        for steps in runs:
            self._part(partial(self.steps, steps))

    def steps(self, steps: list[Step]) -> None:
        low = self.low
        regions = NO_REGIONS if low.timing.wanted else low.schedule.regions  # each step then has a time of its own
        for region, group in regions.grouped(steps):
            if region is None:
                (step,) = group
                self._whole(step)
            else:
                self._region(region)
            interrupts.spend(low.scope, sum(hint_of(step_work(step)) for step in group))
            pause()

    def _region(self, region: Region) -> None:
        """Writes steps that describe their tasks, and then the call that runs all of these."""
        low, count = self.low, len(region.shared)
        records = low.scope.jobs()
        jobs.clear(low.b, records, count)
        low.finishing = finishing = []
        for step in region.steps:
            if step in region.shared:
                low.job = low.b.offset(records, region.shared.index(step) * jobs.JOB_BYTES)
            self._whole(step)
            low.job = None
        jobs.deal(low.module, low.b, records, count, low.thread_count)
        low.finishing = None
        for emit in finishing:
            emit()

    def _whole(self, step: Step) -> None:
        """Writes a step with the copies before it."""
        low = self.low
        copies = low.memory.before.get(id(step), [])
        with low.timing.copies(low.scope, step, sum(nbytes(c.source) for c in copies)):
            self._copies(copies)
        with low.timing.step(low.scope, step, low.schedule[step].routines):
            try:
                self._step(step)
            except NotSymbolic as refusal:
                refusal.asked_by(step.place)
                raise

    def finish(self, block: PlanBlock) -> None:
        """Writes the copies at the end of a block."""
        copies = self.low.memory.block_end.get(id(block), [])
        with self.low.timing.copies(self.low.scope, None, sum(nbytes(c.source) for c in copies)):
            self._copies(copies)

    def _copies(self, copies: list[Copy]) -> None:
        """Writes copies, in order. Many copies are split into several functions."""
        runs = self.parts.copy_runs(copies)
        if runs is not None:
            for run in runs:
                self._part(partial(self._copies, run))
            return
        for c in copies:
            if not equal(c.how.nbytes, 0):
                copy(self.low, self.low.pointer(c.target), self.low.pointer(c.source), c.how)

    def _step(self, step: Step) -> None:
        low, schedule = self.low, self.low.schedule[step]
        if isinstance(step, NestStep):
            assert isinstance(schedule, NestSchedule)
            lower_nest(low, step, schedule)
        elif isinstance(step, ControlStep):
            lower_control(low, step, self)
        elif isinstance(step, OpStep | StagedStep):
            if schedule is not NOTHING:
                kernel(step.kind)(low, step, schedule)
        else:
            assert isinstance(step, ViewStep)

    def _part(self, write: Callable[[], None]) -> None:
        """Lets `write` emit into a separate function, and emits a call of it. Addresses that surrounding loops swap
        become parameters."""
        low = self.low
        outer = low.scope
        name = low.new_name("part")
        moved = [("ptr", f"moved{i}") for i in range(len(outer.moved))]
        b = self.functions.new(name, [*abi.PARAMETERS, *moved], internal=True)
        addresses = b.params[len(abi.PARAMETERS) :]
        low.scope = inner = Scope(b, dict(zip(outer.moved, addresses, strict=True)), work=outer.work)
        write()
        interrupts.end_function(inner)
        b.ret(i32(abi.Status.OK))
        low.scope, outer.work = outer, inner.work
        parameters = [outer.args, outer.results, outer.dims, outer.arena, outer.instance]
        outer.call_steps(name, [*parameters, *outer.moved.values()], inner.may_fail)
