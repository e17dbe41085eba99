"""Loops over large arrays whose elements need their neighbours: several turns on a part before the next part.

    while c { u = f(u, neighbours) }   ->   while c { for each stripe: for each line: turns 1, 2, ... T }

The nest that is the body writes lines of one array from those of another, and the two change places every turn. Turn
t + 1 of a line may run as soon as turn t of the lines that it reads has: so a stripe is gone over once, with a front
for each turn, each `reach` lines behind the one before, and what they work on stays in the cache. Where two stripes
meet, each turn stops `reach` lines earlier than the last; what is left, triangles, follows when all stripes are done.
Every element is computed once, by the same code.

    line    0 1 2 3 4 5 6 7 | 8 9 ...
    turn 1  s s s s s s s s | s s      s: with its stripe
    turn 2  s s s s s s s t | t s      t: afterwards, in the triangle between two stripes
    turn 3  s s s s s s t t | t t
"""

from __future__ import annotations

from dataclasses import replace

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.plan import ControlStep, NestStep, PlanBlock, Step
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir import index as ix
from shlo_jit.ir.index import At
from shlo_jit.passes.regions.unroll import turns_of
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.tasks import Tasks
from shlo_jit.schedule.turns import TimeBlocks
from shlo_jit.sizes import Size


def block_turns(step: ControlStep, steps: dict[int, KernelSchedule]) -> None:
    """Let the nest of a loop's body run for several turns at a time, where that can be and pays."""
    if step.op.name != "stablehlo.while" or step.no_turns is None:
        return
    body = step.blocks[1]
    nest = the_nest(body)
    if nest is None:
        return
    schedule = steps[id(nest)]
    assert isinstance(schedule, NestSchedule)
    found = _Blocking(step, nest, schedule).run()
    if isinstance(found, Refusal):
        steps[id(nest)] = replace(schedule, no_blocks=found)
        return
    grain = -(-found.lines // found.stripes) * found.line
    tasks = Tasks(schedule.tasks.units, -(-schedule.tasks.units // grain), "stripes of several turns", grain)
    steps[id(nest)] = replace(schedule, blocks=found, tasks=tasks, streams=())


def the_nest(body: PlanBlock) -> NestStep | None:
    """The only step of a loop's body that is about more than numbers."""
    wide = [s for s in body.steps if not is_of_numbers(s)]
    return wide[0] if len(wide) == 1 and isinstance(wide[0], NestStep) else None


def is_of_numbers(step: Step) -> bool:
    return isinstance(step, NestStep) and all(not v.tensor.rank for v in (*step.reads, *step.writes))


class _Blocking:
    """The decision about one loop."""

    def __init__(self, step: ControlStep, nest: NestStep, schedule: NestSchedule):
        self.step = step
        self.body = step.blocks[1]
        self.nest_step = nest
        self.nest: Nest = nest.nest
        self.schedule = schedule
        arguments = self.body.block.arguments
        self.changing = {a for a, r in zip(arguments, self.body.results, strict=True) if a is not r}

    def run(self) -> TimeBlocks | Refusal:
        refusal = self.unfit() or self.unfit_values() or self.unfit_states()
        if refusal is not None:
            return refusal
        return self.choose()

    def unfit(self) -> Refusal | None:
        """What about the nest does not fit."""
        s, nest = self.schedule, self.nest
        plain = s.split is None and s.crossing is None and s.interleaved is None and s.space.vector is not None
        if nest.reduce_vars or nest.overwrites is not None or nest.after is not None or not plain:
            return Refusal("its loop is no plain one along lanes")
        if not s.chunk and not s.row_loops:
            return Refusal("it has one line")
        if any(isinstance(n, Size) for n in (*nest.extents, *s.space.extents.values())):
            return Refusal("sizes are known at the call only")
        return None

    def unfit_values(self) -> Refusal | None:
        """What about states and results does not fit."""
        targets = {s.target for s in self.nest.stores}
        made = {v for s in self.body.steps for v in s.writes}
        if len(targets) != len(self.nest.stores):
            return Refusal("a value is written in parts")
        for result in self.body.results:
            if result.tensor.rank and result not in targets and result not in self.body.block.arguments:
                return Refusal("a state is not what its loop makes")
        if any(t not in self.body.results for t in targets):
            return Refusal("its loop makes more than states")
        if any(value in made and value.tensor.rank for value in self.nest_step.reads):
            return Refusal("it reads what another step of the turn makes")
        if not all(is_of_numbers(s) for s in self.step.blocks[0].steps):
            return Refusal("its condition does not follow from numbers alone")
        for s in self.body.steps:
            if s is not self.nest_step and any(v in targets for v in s.reads):
                return Refusal("a number follows from a state")
        return None

    def unfit_states(self) -> Refusal | None:
        """Which states have no two places that turns could write by turns."""
        arguments, results = self.body.block.arguments, self.body.results
        number = {a: i for i, a in enumerate(arguments)}
        for old, result in zip(arguments, results, strict=True):
            if not result.tensor.rank or result is old:
                continue
            if results.count(result) > 1:
                return Refusal("one value is two states")
            if result not in number:
                continue
            new = results[number[result]]
            lead = next((s for s in self.nest.stores if s.target is new), None)
            if lead is None or old in results:
                return Refusal("states go round")
            if any(value is old and at.index != lead.index for value, at in self.nest.loads):
                return Refusal("a state that goes is read at other places than its successor is written")
        return None

    # ------------------------------------------------------------------ lines
    @property
    def variable(self) -> int:
        """The one that goes over lines: the outermost, or of a single one, in chunks, that."""
        space = self.schedule.space
        assert space.vector is not None
        return space.vector if self.schedule.chunk else self.schedule.row_loops[0]

    def reach(self) -> tuple[int, bool] | Refusal:
        """How many turns of that variable away the states are read, and whether the last are beside the first."""
        lead, n, periodic, most = self.nest.stores[0], self.schedule.space.extents[self.variable], False, 0
        extents = lead.target.tensor.extents
        if any(s.index != lead.index or s.target.tensor.extents != extents for s in self.nest.stores):
            return Refusal("states differ in shape")
        for value, at in self.nest.loads:
            if value not in self.changing or not value.tensor.rank:
                continue
            away = self.distances(at) if value.tensor.extents == extents else None
            if away is None:
                return Refusal("a state is read at places that are no neighbours")
            for far in away:
                periodic = periodic or 2 * abs(far) > n
                most = max(most, min(abs(far), abs(abs(far) - n)))
        return most, periodic

    def distances(self, at: At) -> list[int] | None:
        """How far from where it is written a state is read, in turns of the variable: the least and the most."""
        lead, space = self.nest.stores[0], self.schedule.space
        extents = lead.target.tensor.extents
        strides = ix.strides_of(extents)
        step = space.collapse(ix.linearize(lead.index, extents)).coefficient(self.variable)
        far, fixed = 0, False
        for e, own, stride in zip(at.index, lead.index, strides, strict=True):
            if e.syms or step < 1:
                return None
            if not any(space.final(v) == self.variable for v, _ in own.terms):
                if any(space.final(v) == self.variable for v, _ in e.terms):
                    return None
                continue
            if e.terms and e.terms != own.terms:
                return None
            fixed = fixed or not e.terms
            far += (e.const - own.const) * stride
        if far % step:
            return None
        if not fixed:
            return [far // step]
        low, high = self.range_under(at)
        return [far // step - low, far // step - (high - 1)] if low < high else []

    def range_under(self, at: At) -> tuple[int, int]:
        """Of the variable, where the conditions of a place hold."""
        low, high = 0, self.schedule.space.extents[self.variable]
        for c in at.conditions:
            e = self.schedule.space.collapse(c.expr)
            if e.terms == ((self.variable, 1),) and not e.syms:
                low, high = max(low, c.low - e.const), min(high, c.high - e.const)
        return low, high

    def choose(self) -> TimeBlocks | Refusal:
        """How many turns, and how large stripes are."""
        found = self.reach()
        if isinstance(found, Refusal):
            return found
        reach, periodic = max(1, found[0]), found[1]
        schedule, n = self.schedule, self.schedule.space.extents[self.variable]
        lines, line = n, schedule.tasks.units // n
        if schedule.chunk:
            lines, line = -(-n // schedule.chunk), 1
            reach = -(-reach // schedule.chunk) + (periodic and n % schedule.chunk > 0)
        values = dict.fromkeys([*self.nest_step.reads, *self.nest_step.writes])
        nbytes = sum(v.tensor.nbytes for v in values)
        if nbytes < tuning.TIME_BLOCKS_BYTES:
            return Refusal(f"states and operands have {nbytes:,} bytes, which stay in the caches")
        a_line = nbytes // lines
        front = max(1, tuning.TIME_BLOCKS_FRONT // a_line)
        turns = 0
        for cache in (tuning.TIME_BLOCKS_CACHE, tuning.TIME_BLOCKS_SHARED):
            if turns < tuning.TIME_BLOCKS_FEW:
                turns = (cache // a_line - front - reach) // reach
        turns = min(tuning.TIME_BLOCKS_TURNS, turns, lines // (2 * tuning.TIME_BLOCKS_STRIPES * reach))
        count = turns_of(self.step.op)
        if count is not None and count and turns > 0:
            turns = -(-count // -(-count // turns))
        if turns < 2:
            return Refusal(f"two turns of {lines:,} lines of {a_line:,} bytes do not stay in a cache")
        stripes = max(tuning.TIME_BLOCKS_STRIPES, min(tuning.MAX_TASKS, lines // (8 * turns * reach)))
        why = f"lines of {a_line:,} bytes; {nbytes:,} bytes stay in no cache"
        return TimeBlocks(turns, lines, line, reach, stripes, front, periodic, why)
