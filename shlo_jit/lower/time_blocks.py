"""Several turns of a loop on stripes of its arrays: what `schedule/time_blocks.py` decided, as two kinds of tasks.

    while c:
        m = 0
        do { the turn's numbers; m = m + 1 } while c and m < turns
        for each stripe:               m turns, each behind the one before
        for each end between stripes:  what turns 2 to m left there
        the arrays change places if m is odd

The nest's kernel takes the addresses of arrays and a range of units, so each turn is a call of it with the arrays in
their places of that turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.fuse.plan import ControlStep, NestStep, PlanBlock
from shlo_jit.ir.core import Value
from shlo_jit.kernels.builder import V, i64
from shlo_jit.memory.storage import Storage, pointwise
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.time_blocks import the_nest
from shlo_jit.schedule.turns import TimeBlocks
from shlo_jit.schedule.work import step_work

SLOT = 16
"""Bytes that a number of a turn has room in."""

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering


def blocked(low: ProgramLowering, step: ControlStep) -> tuple[NestStep, TimeBlocks] | None:
    """The nest of a loop that makes several turns at a time, and how; None if the loop goes turn by turn."""
    nest = the_nest(step.blocks[1])
    schedule = low.schedule[nest] if nest is not None else None
    if nest is None or not isinstance(schedule, NestSchedule) or schedule.blocks is None:
        return None
    return (nest, schedule.blocks) if _in_places(low, step, nest) else None


def _in_places(low: ProgramLowering, step: ControlStep, nest: NestStep) -> bool:
    """Whether memory is such that a turn writes each state where the turn after the next has it: in its own place, or
    one that it changes every turn."""
    memory, body = low.memory, step.blocks[1]
    copies = [*memory.block_end.get(id(body), []), *memory.before.get(id(nest), [])]
    if any(c.source.tensor.rank for c in copies):
        return False
    partner: dict[int, Storage] = {}
    for s, t in memory.exchanges.get(id(step), []):
        partner |= {id(s): t, id(t): s}
    states = {id(memory.storage[v]) for v in body.block.arguments if v.tensor.rank}
    for store in nest.nest.stores:
        storage = memory.storage[store.target]
        mine = [v for v in nest.reads if memory.storage[v] is storage]
        if id(storage) not in states | set(partner):
            return False
        if any(not pointwise(nest.nest, v, store.index, store.target) for v in mine):
            return False
    return True


def write_turns(low: ProgramLowering, step: ControlStep, nest: NestStep, blocks: TimeBlocks) -> V:
    """Up to so many turns, one at least; whether they were an odd number."""
    b, (cond, body) = low.b, step.blocks
    schedule = low.schedule[nest]
    assert isinstance(schedule, NestSchedule)
    name, pointers, buffers = low.nest_kernel(nest, schedule)
    storages = [low.memory.storage[values[0]] for _, values in buffers]
    numbers = _numbers(low, body, buffers)
    kept = [b.alloca("i8", SLOT * blocks.turns) for _ in numbers]
    here = body.steps.index(nest)
    with b.repeat([i64(0)], "numbers") as loop:
        low.steps(body.steps[:here])
        for k, slots in zip(numbers, kept, strict=True):
            b.memcpy(b.offset(slots, b.mul(loop.values[0], SLOT)), pointers[k], storages[k].nbytes)
        low.steps(body.steps[here + 1 :])
        low.finish(body)
        made = b.add(loop.values[0], 1)
        low.block(cond)
        loop.again = b.and_(low.truth(cond.results[0]), b.icmp("slt", made, i64(blocks.turns)))
        loop.next(made)
    turns = loop.values[0]
    place = b.alloca("i64", 1)
    b.store(turns, place, 8)
    with low.timing.step(nest, several=True):
        low.timing.note_kernel(name)
        for k, slots in zip(numbers, kept, strict=True):
            pointers[k] = slots
        moved = _moved(low, step, storages, pointers)
        frame = [*pointers, *moved, place]
        for kind in (_Stripes, _Triangles):
            writer = kind(low, name, len(pointers), blocks, numbers)
            low.parallel(writer.write(), frame, writer.tasks)
    low.pauses.spend(blocks.turns * int(step_work(nest)))
    return b.icmp("ne", b.and_(turns, i64(1)), i64(0))


def _numbers(low: ProgramLowering, body: PlanBlock, buffers: list[tuple[str, list[Value]]]) -> list[int]:
    """The buffers that have numbers which turns make anew: each turn has its own."""
    made = {v for s in body.steps for v in s.writes}
    made |= {a for a, r in zip(body.block.arguments, body.results, strict=True) if a is not r}
    return [k for k, (_, values) in enumerate(buffers) if any(v in made and not v.tensor.rank for v in values)]


def _moved(low: ProgramLowering, step: ControlStep, storages: list[Storage], pointers: list[V]) -> list[V]:
    """The addresses in every other turn."""
    found = {id(s): p for s, p in zip(storages, pointers, strict=True)}
    for s, t in low.memory.exchanges.get(id(step), []):
        found[id(s)], found[id(t)] = low.address(t), low.address(s)
    return [found[id(s)] for s in storages]


class _Tasks:
    """Writes `void name(ptr frame, i64 index, i64 worker)`: of stripes, or of what is between them."""

    hint: str

    def __init__(self, low: ProgramLowering, kernel: str, count: int, blocks: TimeBlocks, numbers: list[int]):
        self.low = low
        self.kernel = kernel
        self.count = count
        self.blocks = blocks
        self.numbers = numbers

    @property
    def tasks(self) -> int:
        return self.blocks.stripes

    def write(self) -> str:
        blocks, n = self.blocks, self.count
        parts = (blocks.stripes, blocks.lines, blocks.line, blocks.reach, blocks.front, int(blocks.periodic))
        parts = (*parts, *self.numbers)
        name = ".".join([self.kernel, self.hint, *map(str, parts)])
        if name in self.low.module.functions:
            return name
        self.b = b = self.low.task(name, 2 * n + 1)
        frame, index, _ = b.params
        given = [b.load("ptr", b.element(frame, "ptr", i)) for i in range(2 * n + 1)]
        self.even, self.odd = given[:n], given[n : 2 * n]
        self.body(index, b.load("i64", given[-1], 8))
        b.ret()
        return name

    def body(self, index: V, turns: V) -> None:
        raise NotImplementedError

    def start_of(self, index: V) -> V:
        """The first line of a stripe."""
        return self.b.udiv(self.b.mul(index, self.blocks.lines), self.blocks.stripes)

    def call(self, turn: V, first: V, last: V) -> None:
        """Lines [first, last) of a turn, the first of which is 0; maybe none."""
        b, line = self.b, self.blocks.line
        is_odd = b.icmp("ne", b.and_(turn, i64(1)), i64(0))
        with b.if_(b.icmp("slt", first, last)):
            pointers = [b.select(is_odd, o, e) for o, e in zip(self.odd, self.even, strict=True)]
            for k in self.numbers:
                pointers[k] = b.offset(self.even[k], b.mul(turn, SLOT))
            b.call("void", self.kernel, [*pointers, b.mul(first, line), b.mul(last, line)], declare=False)


class _Stripes(_Tasks):
    """All turns on a stripe, with a front of each that follows that of the one before."""

    hint = "stripes"

    def body(self, index: V, turns: V) -> None:
        b, blocks = self.b, self.blocks
        first, last = self.start_of(index), self.start_of(b.add(index, 1))
        rise, fall = i64(blocks.reach), i64(blocks.reach)
        if not blocks.periodic:
            rise = b.select(b.icmp("sgt", first, i64(0)), rise, i64(0))
            fall = b.select(b.icmp("slt", last, i64(blocks.lines)), fall, i64(0))
        behind = b.mul(b.sub(turns, 1), blocks.reach)
        with b.loop(first, b.add(last, behind), blocks.front, "front") as front, b.loop(0, turns, 1, "turn") as turn:
            low, high = b.add(first, b.mul(turn, rise)), b.sub(last, b.mul(turn, fall))
            here = b.sub(front, b.mul(turn, blocks.reach))
            begin, end = (b.max_(low, b.min_(x, high)) for x in (here, b.add(here, blocks.front)))
            self.call(turn, begin, end)


class _Triangles(_Tasks):
    """What turns after the first have left on both sides of where two stripes meet; of a periodic array the last meets
    the first."""

    hint = "triangles"

    @property
    def tasks(self) -> int:
        return self.blocks.stripes - (not self.blocks.periodic)

    def body(self, index: V, turns: V) -> None:
        b, blocks = self.b, self.blocks
        at = self.start_of(index if blocks.periodic else b.add(index, 1))
        with b.loop(1, turns, 1, "turn") as turn:
            half = b.mul(turn, blocks.reach)
            self.call(turn, b.max_(b.sub(at, half), 0), b.add(at, half))
            if blocks.periodic:
                low = b.select(b.icmp("eq", at, i64(0)), b.sub(i64(blocks.lines), half), i64(blocks.lines))
                self.call(turn, low, i64(blocks.lines))
