"""Temporal tiling of loops over large arrays whose elements need their neighbours: several iterations run on one part
of the arrays before the next part.

    while c { u = f(u, neighbours) }   ->   while c { for each stripe: for each line: iterations 1, 2, ... T }

The nest that is the body writes lines of one array from those of another, and the two are swapped in every iteration.
Iteration t + 1 of a line may run as soon as iteration t of the lines that it reads has run. So a stripe is swept once,
with a wavefront for each iteration, each `reach` lines after the one before, and their working set stays in the cache.
At the boundary of two stripes, each iteration stops `reach` lines earlier than the previous one. The triangles that are
left follow when all stripes are done. Every element is computed once, by the same code.

    line         0 1 2 3 4 5 6 7 | 8 9 ...
    iteration 1  s s s s s s s s | s s      s: with its stripe
    iteration 2  s s s s s s s t | t s      t: afterwards, in the triangle between two stripes
    iteration 3  s s s s s s t t | t t

If the body is several nests, such as the steps of a Runge-Kutta method or fields that follow each other, each of them
has a wavefront in each iteration. A wavefront is `reach` lines after all before it, whichever of them wrote what it
reads, or reads what it overwrites. So the memory that a nest writes does not matter, as long as all arrays have the
same lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest, Store
from shlo_jit.fuse.plan import ControlStep, NestStep, PlanBlock, Step
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import At, Expr
from shlo_jit.passes.regions.unroll import trip_count_of
from shlo_jit.reasons import Reason
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.loop_interchange import TimeBlocks
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.tasks import Tasks
from shlo_jit.sizes import Size


class Tiling(NamedTuple):
    """The nests of a loop's body, and their schedules if several iterations run per pass."""

    nests: list[NestStep]
    schedules: list[NestSchedule]


def tile_loop(step: ControlStep, steps: Mapping[int, KernelSchedule]) -> Tiling | Refusal | None:
    """Returns the tiling of a loop's body for several iterations per pass, or why it is refused; None if the loop is no
    candidate. Whether memory allows it is decided elsewhere (see `memory/temporal_tiling.py`)."""
    if step.op.name != "stablehlo.while" or "interchange" not in step.refused:
        return None
    nests = the_nests(step.blocks[1])
    if not nests:
        return None
    schedules = [steps[id(nest)] for nest in nests]
    stages = [_Stage(nest, s) for nest, s in zip(nests, schedules, strict=True) if isinstance(s, NestSchedule)]
    blocking = _Blocking(step, stages)
    found = blocking.run()
    if isinstance(found, Refusal):
        return found
    tiled: list[NestSchedule] = []
    for stage, blocks in zip(blocking.stages, found, strict=True):
        grain = -(-blocks.lines // blocks.stripes) * blocks.line
        units = stage.schedule.tasks.units
        tasks = Tasks(units, -(-units // grain), Reason("stripes", "one stripe of several iterations each"), grain)
        tiled.append(replace(stage.schedule, blocks=blocks, tasks=tasks, streams=()))
    return Tiling(nests, tiled)


def the_nests(body: PlanBlock) -> list[NestStep]:
    """The steps of a loop's body that compute more than scalars, if all of them are nests; otherwise an empty list."""
    wide = [s for s in body.steps if not is_of_numbers(s)]
    nests = [s for s in wide if isinstance(s, NestStep)]
    return nests if len(nests) == len(wide) else []


def is_of_numbers(step: Step) -> bool:
    return isinstance(step, NestStep) and all(not v.tensor.rank for v in (*step.reads, *step.writes))


class _Stage:
    """A nest of the body, and how its loops iterate over the lines of arrays."""

    def __init__(self, step: NestStep, schedule: NestSchedule):
        self.step = step
        self.nest: Nest = step.nest
        self.schedule = schedule

    def unfit(self) -> Refusal | None:
        """Returns why the nest cannot be tiled; None if it can."""
        s, nest = self.schedule, self.nest
        plain = s.split is None and s.transposed_loads is None and s.interleaved is None and s.space.vector is not None
        if nest.reduce_vars or nest.after is not None or not plain:
            return Refusal("not-simple-vector-loop", "its loop is not a simple vectorized loop")
        if not s.chunk and not s.row_loops:
            return Refusal("single-line", "it has only one line")
        if any(isinstance(n, Size) for n in (*nest.extents, *s.space.extents.values())):
            return Refusal("dynamic-size", "sizes are known only when the program is called")
        extents = self.lead.target.tensor.extents
        if any(s.index != self.lead.index or s.target.tensor.extents != extents for s in nest.stores):
            return Refusal("states-differ-in-shape", "states differ in shape")
        return (
            Refusal("not-over-lines", "its outermost loop does not iterate over the lines of the arrays")
            if self.step_of_line < 1 or not self.has_whole_lines
            else None
        )

    @property
    def lead(self) -> Store:
        return self.nest.stores[0]

    @property
    def variable(self) -> int:
        """The variable that iterates over lines: the outermost, or a single one that is cut into chunks."""
        space = self.schedule.space
        assert space.vector is not None
        return space.vector if self.schedule.chunk else self.schedule.row_loops[0]

    @property
    def place(self) -> Expr:
        """The offset in elements at which the nest writes."""
        lead = self.lead
        return self.schedule.space.collapse(ix.linearize(lead.index, lead.target.tensor.extents))

    @property
    def step_of_line(self) -> int:
        """Elements from one iteration of the variable to the next."""
        return self.place.coefficient(self.variable)

    @property
    def has_whole_lines(self) -> bool:
        """Whether the other loops stay within a line. They do not if loops were given in another order, or lanes along
        the outermost dimension."""
        space, place = self.schedule.space, self.place
        others = (v for v in space.rows if v != self.variable)
        return sum(abs(place.coefficient(v)) * (space.extents[v] - 1) for v in others) < self.step_of_line

    @property
    def elements(self) -> int:
        """Elements of a line, if this nest alone defined the lines."""
        return self.step_of_line * (self.schedule.chunk or 1)

    @property
    def units(self) -> int:
        """Units of such a line."""
        n = self.schedule.space.extents[self.variable]
        return 1 if self.schedule.chunk else self.schedule.tasks.units // n

    def fits(self, elements: int) -> bool:
        """Whether the nest's units can be counted by lines of `elements` elements. An inner part with lines of its own
        may begin anywhere in the first; other lines must begin together."""
        is_own = elements == self.elements == self.step_of_line
        return elements % self.elements == 0 and (is_own or self.place.const % elements == 0)

    def in_lines(self, elements: int) -> _Stage:
        """The same stage with lines of `elements` elements, if its units are chunks and such chunks are whole
        vectors."""
        s, chunk = self.schedule, elements // max(1, self.step_of_line)
        if not s.chunk or not chunk or chunk % (s.space.width * s.unroll.value):
            return self
        units = -(-self.schedule.space.extents[self.variable] // chunk)
        tasks = self.schedule.tasks._replace(units=units, tasks=min(self.schedule.tasks.tasks, units))
        return _Stage(self.step, replace(self.schedule, chunk=chunk, tasks=tasks))

    def distances(self, at: At) -> list[int] | None:
        """The least and the greatest distance along lines, in elements, from the place that is written to the place of
        a state that is read. None if distances are not fixed."""
        lead, space, step = self.lead, self.schedule.space, self.step_of_line
        strides = ix.strides_of(lead.target.tensor.extents)
        far, fixed = 0, False
        for e, own, stride in zip(at.index, lead.index, strides, strict=True):
            if e.syms:
                return None
            if not any(space.final(v) == self.variable for v, _ in own.terms):
                if any(space.final(v) == self.variable for v, _ in e.terms) or (stride > step and e.terms):
                    return None
                far += (e.const - own.const) * stride if stride > step else 0
                continue
            if e.terms and e.terms != own.terms:
                return None
            fixed = fixed or not e.terms
            far += (e.const - own.const) * stride
        if far % step:
            return None
        if not fixed:
            return [far]
        low, high = self.range_under(at)
        return [far - low * step, far - (high - 1) * step] if low < high else []

    def range_under(self, at: At) -> tuple[int, int]:
        """The range of the variable in which the conditions of a place hold."""
        low, high = 0, self.schedule.space.extents[self.variable]
        for c in at.conditions:
            e = self.schedule.space.collapse(c.expr)
            if e.terms == ((self.variable, 1),) and not e.syms:
                low, high = max(low, c.low - e.const), min(high, c.high - e.const)
        return low, high


class _Blocking:
    """The decision about one loop."""

    def __init__(self, step: ControlStep, stages: list[_Stage]):
        self.step = step
        self.body = step.blocks[1]
        self.stages = stages
        arguments = self.body.block.arguments
        self.made = {v for stage in stages for v in stage.step.writes}
        self.changing = {a for a, r in zip(arguments, self.body.results, strict=True) if a is not r} | self.made

    def run(self) -> list[TimeBlocks] | Refusal:
        """Returns the parameters of temporal tiling for each nest, or why there are none."""
        refusal = next(filter(None, (stage.unfit() for stage in self.stages)), None)
        refusal = refusal or self.unfit_values() or self.unfit_states()
        if refusal is not None:
            return refusal
        return self.choose()

    def unfit_values(self) -> Refusal | None:
        """Returns why states and results do not allow tiling; None if they do."""
        stores = [s for stage in self.stages for s in stage.nest.stores]
        targets = {s.target for s in stores}
        if len(targets) != len(stores) or (len(self.stages) == 1 and self.stages[0].nest.overwrites is not None):
            return Refusal("written-in-parts", "a value is written in several parts")
        for result in self.body.results:
            if result.tensor.rank and result not in targets and result not in self.body.block.arguments:
                return Refusal("state-from-elsewhere", "a state is not computed by a loop of the body")
        if not all(is_of_numbers(s) for s in self.step.blocks[0].steps):
            return Refusal("condition-reads-tensor", "its condition depends on more than scalars")
        for s in self.body.steps:
            if is_of_numbers(s) and any(v in targets for v in s.reads):
                return Refusal("scalar-from-state", "a scalar is computed from a tensor state")
        return None

    def unfit_states(self) -> Refusal | None:
        """Returns which states lack two buffers that iterations could write alternately; None if there are none."""
        arguments, results = self.body.block.arguments, self.body.results
        number = {a: i for i, a in enumerate(arguments)}
        for old, result in zip(arguments, results, strict=True):
            if not result.tensor.rank or result is old:
                continue
            if results.count(result) > 1:
                return Refusal("shared-state", "one value is the next value of two states")
            if result not in number:
                continue
            new = results[number[result]]
            stage = next((stage for stage in self.stages if new in stage.step.writes), None)
            if stage is None or old in results:
                return Refusal("states-permuted", "states are permuted cyclically")
            readers = [other for other in self.stages if old in other.step.reads]
            if not self.is_read_where_written(old, stage) or readers not in ([], [stage]):
                return Refusal(
                    "old-state-read-elsewhere", "a state is read at other indices than its successor is written"
                )
        return None

    @staticmethod
    def is_read_where_written(value: Value, stage: _Stage) -> bool:
        return all(v is not value or at.index == stage.lead.index for v, at in stage.nest.loads)

    # ------------------------------------------------------------------ lines
    def far(self) -> tuple[int, bool] | Refusal:
        """The greatest distance in elements, along lines, at which states are read, and whether the last lines are
        neighbours of the first."""
        extents, periodic, most = self.stages[0].lead.target.tensor.extents, False, 0
        size = self.stages[0].lead.target.tensor.size
        for stage in self.stages:
            if stage.lead.target.tensor.extents != extents:
                return Refusal("states-differ-in-shape", "states differ in shape")
            for value, at in stage.nest.loads:
                if value not in self.changing or not value.tensor.rank:
                    continue
                away = stage.distances(at) if value.tensor.extents == extents else None
                if away is None:
                    return Refusal("not-neighbours", "a state is read at indices that are not a fixed distance away")
                for far in away:
                    periodic = periodic or 2 * abs(far) > size
                    most = max(most, min(abs(far), abs(abs(far) - size)))
        return most, periodic

    def nbytes(self) -> int:
        """Bytes of the working set. A new state may take the memory of the state that it replaces."""
        values = dict.fromkeys(v for stage in self.stages for v in (*stage.step.reads, *stage.step.writes))
        for new in self.replacing() if len(self.stages) > 1 else ():
            values.pop(new, None)
        return sum(v.tensor.nbytes for v in values)

    def replacing(self) -> Iterator[Value]:
        """The new states that are computed in the memory of an old one: the state's own memory or, if that becomes
        another state, the memory of the state that it succeeds."""
        arguments, results = self.body.block.arguments, self.body.results
        moves_to = {a: results[i] for i, a in enumerate(arguments)}
        for old, result in zip(arguments, results, strict=True):
            new = moves_to.get(result, result)
            number = next((i for i, stage in enumerate(self.stages) if new in stage.step.writes), None)
            if number is None or not any(old in stage.step.reads for stage in self.stages):
                continue
            later = any(old in stage.step.reads for stage in self.stages[number + 1 :])
            if not later and self.is_read_where_written(old, self.stages[number]):
                yield new

    def elements(self) -> int:
        """Elements of a line: the longest of the loops over lines, or a common size for chunks of about the default
        size."""
        rows = [stage.elements for stage in self.stages if not stage.schedule.chunk]
        most = max(rows or [stage.elements for stage in self.stages])
        alike = rows or all(stage.elements == most for stage in self.stages)
        return most if alike else -(-most // tuning.TEMPORAL_TILE_CHUNK) * tuning.TEMPORAL_TILE_CHUNK

    def choose(self) -> list[TimeBlocks] | Refusal:
        """Chooses the number of iterations per pass and the size of the stripes."""
        found = self.far()
        if isinstance(found, Refusal):
            return found
        (far, periodic), count = found, len(self.stages)
        size, elements = self.stages[0].lead.target.tensor.size, self.elements()
        self.stages = [stage.in_lines(elements) for stage in self.stages]
        if not all(stage.fits(elements) for stage in self.stages):
            return Refusal("lines-do-not-align", "the loops of an iteration have lines of incompatible lengths")
        lines = -(-size // elements)
        reach = max(1, -(-far // elements) + (periodic and size % elements > 0))
        nbytes = self.nbytes()
        caches = self.stages[0].schedule.target.caches
        if nbytes < caches.bytes_of(tuning.TEMPORAL_TILE_LOOP_BYTES):
            return Refusal("fits-in-cache", f"states and operands have {nbytes:,} bytes, which stay in the caches")
        a_line = nbytes // lines
        front = max(1, tuning.TEMPORAL_TILE_WAVEFRONT // a_line)
        iterations = 0
        for cache in (tuning.TEMPORAL_TILE_BYTES, tuning.TEMPORAL_TILE_SHARED_BYTES):
            if iterations < tuning.TEMPORAL_TILE_LEAST_ITERATIONS:
                iterations = (caches.bytes_of(cache) // a_line - front - reach) // (reach * count)
        iterations = min(
            tuning.TEMPORAL_TILE_ITERATIONS, iterations, lines // (2 * tuning.TEMPORAL_TILE_STRIPES * reach * count)
        )
        known = trip_count_of(self.step.op)
        if known is not None and known and iterations > 0:
            iterations = -(-known // -(-known // iterations))
        if iterations < 1 or iterations * count < 2:
            return Refusal(
                "iterations-exceed-cache",
                f"two iterations over {lines:,} lines of {a_line:,} bytes do not fit in a cache",
            )
        stripes = max(tuning.TEMPORAL_TILE_STRIPES, min(tuning.MAX_TASKS, lines // (8 * iterations * reach * count)))
        why = Reason("exceeds-cache", f"lines of {a_line:,} bytes; no cache holds {nbytes:,} bytes")
        return [
            TimeBlocks(
                iterations=iterations,
                lines=lines,
                line=elements // stage.elements * stage.units,
                first=stage.place.const // elements,
                nests=count,
                reach=reach,
                stripes=stripes,
                front=front,
                periodic=periodic,
                why=why,
            )
            for stage in self.stages
        ]
