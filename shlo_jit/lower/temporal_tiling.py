"""Temporal tiling: several iterations of a loop on stripes of its arrays, as `memory/temporal_tiling.py` has decided.

    while c:
        m = 0
        do { the iteration's scalars; m = m + 1 } while c and m < iterations
        for each stripe:               m iterations, each after the one before
        for each end between stripes:  the triangles that iterations 2 to m left there
        the arrays are swapped if m is odd

There are two kinds of tasks: stripes, and triangles. A nest's kernel takes the addresses of arrays and a range of
units.
So each iteration is one call of each kernel, with the addresses of the arrays in that iteration.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.fuse.plan import ControlStep, NestStep, PlanBlock
from shlo_jit.ir.core import Value
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower import interrupts
from shlo_jit.lower.block_writer import BlockWriter
from shlo_jit.lower.nest.nest_step import nest_kernel
from shlo_jit.lower.services import Services
from shlo_jit.memory.storage import Storage
from shlo_jit.schedule.loop_interchange import TimeBlocks
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.temporal_tiling import the_nests
from shlo_jit.schedule.work import step_work

SLOT = 16
"""Bytes reserved for a scalar of an iteration."""


def blocked(low: Services, step: ControlStep) -> list[NestStep]:
    """The nests of a loop that runs several iterations per pass; none if iterations run one after the other."""
    nests = the_nests(step.blocks[1])
    schedules = [low.schedule[nest] for nest in nests]
    return nests if all(isinstance(s, NestSchedule) and s.blocks is not None for s in schedules) else []


class _Stage(NamedTuple):
    """A nest of the iteration: its kernel, and the addresses of its arrays."""

    kernel: str
    blocks: TimeBlocks
    units: int
    pointers: list[V]
    moved: list[V]
    """The addresses in odd iterations."""
    numbers: list[int]
    """Which of the pointers are to scalars of the iteration."""


def write_interchanged(low: Services, step: ControlStep, nests: list[NestStep], write: BlockWriter) -> V:
    """Emits at least one and at most `blocks.iterations` iterations. Returns whether their number was odd."""
    b, (cond, body) = low.b, step.blocks
    stages, kept = _stages(low, step, nests)
    blocks = stages[0].blocks
    with b.repeat([i64(0)], "numbers") as loop:
        for inner in body.steps:
            if isinstance(inner, NestStep) and inner in nests:
                stage = stages[nests.index(inner)]
                for k, (slots, nbytes) in zip(stage.numbers, kept[nests.index(inner)], strict=True):
                    b.memcpy(b.offset(slots, b.mul(loop.values[0], SLOT)), stage.pointers[k], nbytes)
            else:
                write.steps([inner])
        write.finish(body)
        made = b.add(loop.values[0], 1)
        write.block(cond)
        loop.again = b.and_(low.truth(cond.results[0]), b.icmp("slt", made, i64(blocks.iterations)))
        loop.next(made)
    iterations = loop.values[0]
    place = b.alloca("i64", 1)
    b.store(iterations, place, 8)
    with low.timing.step(low.scope, nests[0], low.schedule[nests[0]].routines, several=True):
        for stage, slots in zip(stages, kept, strict=True):
            low.timing.note_kernel(stage.kernel)
            for k, (at, _) in zip(stage.numbers, slots, strict=True):
                stage.pointers[k] = at
        frame = [p for stage in stages for p in (*stage.pointers, *stage.moved)]
        for kind in (_Stripes, _Triangles):
            writer = kind(low, stages)
            if writer.tasks:  # a single stripe has no neighbours
                low.parallel(writer.write(), [*frame, place], writer.tasks)
    interrupts.spend(low.scope, blocks.iterations * sum(int(step_work(nest)) for nest in nests))
    return b.icmp("ne", b.and_(iterations, i64(1)), i64(0))


def _stages(low: Services, step: ControlStep, nests: list[NestStep]) -> tuple[list[_Stage], list[list[tuple[V, int]]]]:
    """The kernels, and for each of them the memory in which iterations keep their scalars, with the bytes of one
    scalar."""
    stages: list[_Stage] = []
    kept: list[list[tuple[V, int]]] = []
    for nest in nests:
        schedule = low.schedule[nest]
        assert isinstance(schedule, NestSchedule) and schedule.blocks is not None
        name, pointers, buffers = nest_kernel(low, nest, schedule)
        storages = [low.memory.storage[values[0]] for _, values in buffers]
        numbers = _numbers(low, step.blocks[1], buffers)
        kept.append([(low.b.alloca("i8", SLOT * schedule.blocks.iterations), storages[k].nbytes) for k in numbers])
        moved = _moved(low, step, storages, pointers)
        stages.append(_Stage(name, schedule.blocks, schedule.tasks.units, pointers, moved, numbers))
    return stages, kept


def _numbers(low: Services, body: PlanBlock, buffers: list[tuple[str, list[Value]]]) -> list[int]:
    """The buffers with scalars that iterations recompute: each iteration has a separate copy."""
    made = {v for s in body.steps for v in s.writes}
    made |= {a for a, r in zip(body.block.arguments, body.results, strict=True) if a is not r}
    return [k for k, (_, values) in enumerate(buffers) if any(v in made and not v.tensor.rank for v in values)]


def _moved(low: Services, step: ControlStep, storages: list[Storage], pointers: list[V]) -> list[V]:
    """The addresses in odd iterations."""
    found = {id(s): p for s, p in zip(storages, pointers, strict=True)}
    for s, t in low.memory.swaps.get(id(step), []):
        found[id(s)], found[id(t)] = low.address(t), low.address(s)
    return [found[id(s)] for s in storages]


class _Tasks:
    """Writes `void name(ptr frame, i64 index, i64 worker)`: the task of stripes, or of the triangles between them."""

    hint: str

    def __init__(self, low: Services, stages: list[_Stage]):
        self.low = low
        self.stages = stages
        self.blocks = stages[0].blocks

    @property
    def tasks(self) -> int:
        return self.blocks.stripes

    def write(self) -> str:
        blocks = self.blocks
        parts = [blocks.stripes, blocks.lines, blocks.reach, blocks.front, int(blocks.periodic)]
        for stage in self.stages:
            parts += [stage.kernel, stage.blocks.line, stage.blocks.first, *stage.numbers]
        name = ".".join([self.stages[0].kernel, self.hint, *map(str, parts)])
        if name in self.low.module.functions:
            return name
        count = sum(2 * len(stage.pointers) for stage in self.stages)
        self.b = b = self.low.task(name, count + 1)
        frame, index, _ = b.params
        given = [b.load("ptr", b.element(frame, "ptr", i)) for i in range(count + 1)]
        self.places: list[tuple[list[V], list[V]]] = []
        """For each stage, the addresses in even and in odd iterations."""
        at = 0
        for stage in self.stages:
            n = len(stage.pointers)
            self.places.append((given[at : at + n], given[at + n : at + 2 * n]))
            at += 2 * n
        self.body(index, b.load("i64", given[-1], 8))
        b.ret()
        return name

    def body(self, index: V, iterations: V) -> None:
        raise NotImplementedError

    def start_of(self, index: V) -> V:
        """The first line of a stripe."""
        return self.b.udiv(self.b.mul(index, self.blocks.lines), self.blocks.stripes)

    def fronts(self, iteration: V) -> list[V]:
        """The numbers of an iteration's wavefronts, one for each stage."""
        return [self.b.add(self.b.mul(iteration, len(self.stages)), k) for k in range(len(self.stages))]

    def call(self, iteration: V, stage: int, first: V, last: V) -> None:
        """Calls the kernel of a nest for lines [first, last) of an iteration, where line 0 is the first; the range may
        be empty."""
        b, at = self.b, self.stages[stage]
        line, even, odd = at.blocks.line, *self.places[stage]
        if len(self.stages) > 1:
            first, last = (b.max_(b.sub(x, at.blocks.first), 0) for x in (first, last))
        start, stop = b.mul(first, line), b.mul(last, line)
        if len(self.stages) > 1:
            stop = b.min_(stop, at.units)
        is_odd = b.icmp("ne", b.and_(iteration, i64(1)), i64(0))
        with b.if_(b.icmp("slt", start, stop)):
            pointers = [b.select(is_odd, o, e) for o, e in zip(odd, even, strict=True)]
            for k in at.numbers:
                pointers[k] = b.offset(even[k], b.mul(iteration, SLOT))
            b.call("void", at.kernel, [*pointers, start, stop], declare=False)


class _Stripes(_Tasks):
    """All iterations on a stripe: the wavefronts of each follow those of the one before."""

    hint = "stripes"

    def body(self, index: V, iterations: V) -> None:
        b, blocks = self.b, self.blocks
        first, last = self.start_of(index), self.start_of(b.add(index, 1))
        rise, fall = i64(blocks.reach), i64(blocks.reach)
        if not blocks.periodic:
            rise = b.select(b.icmp("sgt", first, i64(0)), rise, i64(0))
            fall = b.select(b.icmp("slt", last, i64(blocks.lines)), fall, i64(0))
        delay = b.mul(b.sub(b.mul(iterations, len(self.stages)), 1), blocks.reach)
        with (
            b.loop(first, b.add(last, delay), blocks.front, "front") as front,
            b.loop(0, iterations, 1, "iteration") as iteration,
        ):
            for stage, k in enumerate(self.fronts(iteration)):
                low, high = b.add(first, b.mul(k, rise)), b.sub(last, b.mul(k, fall))
                here = b.sub(front, b.mul(k, blocks.reach))
                begin, end = (b.max_(low, b.min_(x, high)) for x in (here, b.add(here, blocks.front)))
                self.call(iteration, stage, begin, end)


class _Triangles(_Tasks):
    """The triangles that wavefronts after the first have left on both sides of the boundary between two stripes. In a
    periodic array, the last stripe also meets the first."""

    hint = "triangles"

    @property
    def tasks(self) -> int:
        return self.blocks.stripes - (not self.blocks.periodic)

    def body(self, index: V, iterations: V) -> None:
        b, blocks = self.b, self.blocks
        at = self.start_of(index if blocks.periodic else b.add(index, 1))
        with b.loop(0, iterations, 1, "iteration") as iteration:
            for stage, k in enumerate(self.fronts(iteration)):
                half = b.mul(k, blocks.reach)
                self.call(iteration, stage, b.max_(b.sub(at, half), 0), b.add(at, half))
                if blocks.periodic:
                    low = b.select(b.icmp("eq", at, i64(0)), b.sub(i64(blocks.lines), half), i64(blocks.lines))
                    self.call(iteration, stage, low, i64(blocks.lines))
