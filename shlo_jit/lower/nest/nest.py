"""Lowers a nest to LLVM functions: the loops over its rows, in units that tasks can share.

    void @name(ptr buffers..., i64 first, i64 last)

runs the units [first, last). A unit is one iteration of the outer row loops. If the vector variable is the only row
variable, a unit is a chunk of it; for a reduction split along its row, it is a chunk of the row. Code inside a row is
in `rows.py`, earlier decisions in `schedule.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.choices import CHOICES
from shlo_jit.fuse.nest import Nest
from shlo_jit.ir.core import Value
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.elements.registers import first_lanes, lanes_left
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.interior import write_interior_first
from shlo_jit.lower.nest.interleaved import Waiting
from shlo_jit.lower.nest.loop_interchange import write_scalars
from shlo_jit.lower.nest.partials import Partials
from shlo_jit.lower.nest.position import Position
from shlo_jit.lower.nest.row_batching import write_row_batch
from shlo_jit.lower.nest.rows import RowWriter, Variables
from shlo_jit.lower.nest.transposed_tiles import TileWriter
from shlo_jit.lower.scratch import shared_fields
from shlo_jit.ops import OPS
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.row_split import Split
from shlo_jit.schedule.transposed_loads import TransposedLoads
from shlo_jit.sizes import Size

Buffers = Sequence[tuple[str, list[Value]]]
"""Parameter names, with the values that live in each."""


class NestLowering:
    """Writes the functions of one nest."""

    def __init__(self, schedule: NestSchedule):
        self.schedule = schedule
        self.nest = schedule.nest
        self.target = schedule.target
        self.space = schedule.space
        self.fixed: list[Variables] = [{}]
        """Iterations that are emitted for each vector."""

    # ------------------------------------------------------------------ functions
    def write(self, module: ModuleText, name: str, buffers: Buffers, ranged: int | None = None) -> None:
        """Writes the function of the units. The last buffer of a split nest is scratch. `ranged`: a reduced variable
        that runs over a range, from the parameter `low` to `high`, which come last."""
        b, pointers = self.begin(module, name, buffers, ranged is not None)
        first, last = b.params[-4:-2] if ranged is not None else b.params[-2:]
        if self.schedule.is_whole:
            first, last = i64(0), i64(self.schedule.tasks.units)
        if self.schedule.split is not None:
            self.split(self.schedule.split, pointers, b.params[-3], first, last)
        else:
            self.row = RowWriter(b, self.schedule, Evaluator(b, self.nest, self.space, pointers))
            if self.schedule.scalar_table is not None:
                self.row.scalars = shared_fields(b, self.schedule.scratch, b.params[-3])
            if ranged is not None:
                self.row.bounds = {ranged: (b.params[-2], b.params[-1])}
            if self.schedule.transposed_loads is not None:
                self.stripes(self.schedule.transposed_loads, first, last)
            elif self.schedule.chunk:
                self.row.ev.streaming.update(self.schedule.streams)
                self.chunked(first, last)
            else:
                self.rows_from(first, last)
        b.ret()

    def write_finish(self, module: ModuleText, name: str, buffers: Buffers) -> None:
        """Writes the function of a split nest that combines the partial results and stores the rows."""
        b, pointers = self.begin(module, name, buffers)
        partials = Partials(b, self.schedule, b.params[-3], None)
        self.row = RowWriter(b, self.schedule, Evaluator(b, self.nest, self.space, pointers), partials)
        self.all_rows()
        b.ret()

    def write_scalars(self, module: ModuleText, name: str, buffers: Buffers) -> None:
        """Writes the function that fills the table of an interchanged loop's scalars, and stores those that remain."""
        b, pointers = self.begin(module, name, buffers)
        fields = shared_fields(b, self.schedule.scratch, b.params[-3])
        write_scalars(b, Evaluator(b, self.nest, self.space, pointers), self.schedule, fields)
        b.ret()

    def begin(
        self, module: ModuleText, name: str, buffers: Buffers, is_ranged: bool = False
    ) -> tuple[Builder, dict[Value, V]]:
        params = [("ptr", n) for n, _ in buffers] + [("i64", "first"), ("i64", "last")]
        params += [("i64", "low"), ("i64", "high")] if is_ranged else []
        self.b = module.function(name, params, noalias=True, attributes="nounwind")
        return self.b, {v: V("ptr", f"%{n}") for n, values in buffers for v in values}

    def split(self, split: Split, pointers: dict[Value, V], scratch: V, first: V, last: V) -> None:
        b, v = self.b, self.space.inner[0]
        with b.loop(first, last, 1, "chunk") as number:
            partials = Partials(b, self.schedule, scratch, number)
            self.row = RowWriter(b, self.schedule, Evaluator(b, self.nest, self.space, pointers), partials)
            low = b.mul(number, split.chunk)
            self.row.bounds = {v: (low, b.min_(b.add(low, split.chunk), self.space.extents[v]))}
            self.all_rows()

    def write_epilogue(
        self, module: ModuleText, name: str, values: list[Value], *, symbolic: bool, is_steady: bool = True
    ) -> None:
        """Writes `void @name(ptr frame, i64 batch, i64 i0, i64 i1, i64 j0, i64 j1)`: the nest on a rectangle of a
        matrix.

        The frame holds the addresses of `values` in order, followed by that of the sizes in a symbolic program. The
        schedule's tile says which variables number batches, rows, columns. `is_steady`: the frame does not change while
        its owner runs.
        """
        params = [("ptr", "frame"), *(("i64", n) for n in ("batch", "i0", "i1", "j0", "j1"))]
        self.b = b = module.function(name, params, attributes="nounwind")
        frame, batch, *bounds = b.params
        self.rectangle(self.addresses(frame, values, symbolic, is_steady), batch, bounds)
        b.ret()

    def write_box(
        self,
        module: ModuleText,
        name: str,
        values: list[Value],
        box: Value,
        interleaved: int | None,
        *,
        by_terms: bool,
        symbolic: bool,
    ) -> None:
        """Writes `void @name(ptr frame, i64 batch, i64 j0, i64 j1, i64 k0, i64 k1, ptr box)`: the nest on a box of an
        operand (see `kernels/gemm/computed.py`), whose elements it writes to `box`. `by_terms`: the rows of the nest
        number j, its columns k. `interleaved`: a variable whose iterations are adjacent in the box, between lanes."""
        params = [("ptr", "frame"), *(("i64", n) for n in ("batch", "j0", "j1", "k0", "k1")), ("ptr", "box")]
        self.b = b = module.function(name, params, attributes="nounwind")
        frame, batch, j0, j1, k0, k1, memory = b.params
        bounds = [j0, j1, k0, k1] if by_terms else [k0, k1, j0, j1]
        before = b.add(b.mul(bounds[0], box.tensor.extents[1]), bounds[2])
        first = b.offset(memory, b.mul(b.sub(0, before), box.tensor.storage.itemsize))
        pointers = {**self.addresses(frame, values, symbolic, True), box: first}
        if interleaved is not None:
            count = self.nest.extents[interleaved]
            self.fixed = [{interleaved: i64(i)} for i in range(count)]
            bounds = [*bounds[:2], b.udiv(bounds[2], count), b.udiv(bounds[3], count)]
        self.rectangle(pointers, batch, bounds, together=4, interleaved=interleaved)
        b.ret()

    def addresses(self, frame: V, values: list[Value], symbolic: bool, is_steady: bool) -> dict[Value, V]:
        """The addresses of values that a frame holds in order, followed by that of the sizes in a symbolic program."""
        b = self.b
        if symbolic:
            with b.at_entry():
                b.dims = b.load("ptr", b.element(frame, "ptr", len(values)))
        extra = ", !invariant.load !{}" if is_steady else ""
        return {v: b.load("ptr", b.element(frame, "ptr", i), 8, extra) for i, v in enumerate(values)}

    def rectangle(
        self,
        pointers: dict[Value, V],
        batch: V,
        bounds: Sequence[V],
        together: int = 1,
        interleaved: int | None = None,
    ) -> None:
        """Emits the nest on rows [i0, i1) and columns [j0, j1) of a matrix, as its tile numbers them. `together`:
        vectors in an iteration. `interleaved`: a variable whose iterations are stored between lanes."""
        b, tile, (i0, i1, j0, j1) = self.b, self.schedule.tile, bounds
        assert tile is not None
        self.row = RowWriter(b, self.schedule, Evaluator(b, self.nest, self.space, pointers))
        self.row.ev.streaming.update(self.schedule.streams)
        if interleaved is not None:
            self.row.ev.waiting = Waiting(interleaved, len(self.fixed))
        outer = self.decode(tile.batch, batch)
        with b.loop(i0, i1, 1, "row") as i:
            variables = {**outer, **self.decode(tile.rows, i)}
            if self.space.vector is None:
                with b.loop(j0, j1, 1, "column") as j:
                    self.row.row(self.at({**variables, **self.decode(tile.columns, j)}, 1))
            elif len(tile.columns) == 1:
                self.columns(variables, j0, j1, together)
            else:
                self.stretches(tile.columns, variables, j0, j1, together)

    def decode(self, order: Sequence[int], number: V) -> Variables:
        """Splits a linear index into the values of variables (outermost first)."""
        out: Variables = {}
        for v in reversed(order[1:]):
            out[v] = self.b.urem(number, self.space.extents[v])
            number = self.b.udiv(number, self.space.extents[v])
        if order:
            out[order[0]] = number
        return out

    def stretches(self, order: Sequence[int], variables: Variables, j0: V, j1: V, together: int) -> None:
        """Emits columns [j0, j1) that several variables number, with lanes along the innermost one. The bounds may cut
        runs of that variable anywhere."""
        b, inner = self.b, self.space.extents[order[-1]]
        with b.loop(b.udiv(j0, inner), ceil_div(b, j1, inner), 1, "stretch") as outer:
            start = b.mul(outer, inner)
            low, high = b.max_(b.sub(j0, start), 0), b.min_(b.sub(j1, start), inner)
            self.columns({**variables, **self.decode(order[:-1], outer)}, low, high, together)

    def columns(self, variables: Variables, start: V, stop: V, together: int = 1) -> None:
        """Emits columns [start, stop), with arbitrary bounds: whole vectors, then the remainder."""
        b, w, v = self.b, self.space.width, self.space.vector
        assert v is not None
        if together > 1:
            several = b.add(start, b.and_(b.sub(stop, start), i64(-w * together)))
            with b.loop(start, several, w * together, "vectors") as j:
                vectors = ({**variables, v: b.add(j, i * w)} for i in range(together))
                self.row.row([position for here in vectors for position in self.at(here, w)])
            start = several
        whole = b.add(start, b.and_(b.sub(stop, start), i64(-w)))
        with b.loop(start, whole, w, "vector") as j:
            self.row.row(self.at({**variables, v: j}, w))
        if self.target.has_masks:
            with b.loop(whole, stop, w, "tail") as j:
                left = b.splat(b.cast("trunc", b.sub(stop, j), "i32"), w)
                mask = b.icmp("slt", b.iota("i32", w), left)
                self.row.row(self.at({**variables, v: j}, w, mask))
        else:
            with b.loop(whole, stop, 1, "tail") as j:
                self.row.row(self.at({**variables, v: j}, 1))

    def at(self, variables: Variables, width: int, mask: V | None = None) -> list[Position]:
        """The iterations of the interleaved variable, if there is one, at the given ones of all others."""
        return [Position({**variables, **fixed}, width, mask) for fixed in self.fixed]

    # ------------------------------------------------------------------ loops over rows
    def all_rows(self) -> None:
        """Emits plain nested loops over every row."""
        self.nested(self.schedule.row_loops, {}, self.row_vectors)

    def nested(self, order: list[int], variables: Variables, body: Callable[[Variables], None]) -> None:
        if not order:
            body(variables)
            return
        if self.schedule.is_fully_unrolled:
            for iteration in range(self.space.extents[order[0]]):
                self.nested(order[1:], {**variables, order[0]: i64(iteration)}, body)
            return
        if order == [self.schedule.row_batching]:
            self.rows(order[0], i64(0), i64(self.space.extents[order[0]]), "row", variables)
            return
        with self.b.loop(0, self.space.extents[order[0]], 1, "row") as i:
            self.nested(order[1:], {**variables, order[0]: i}, body)

    def stripes(self, transposed_loads: TransposedLoads, first: V, last: V) -> None:
        """Emits the loop over units that are stripes of tiles."""
        b, tiles = self.b, TileWriter(self.b, self.row, transposed_loads)
        width = transposed_loads.width
        count = -(-self.space.extents[transposed_loads.across] // width)
        others = [v for v in self.schedule.row_loops if v != transposed_loads.across]
        with b.loop(first, last, 1, "stripe") as unit:
            start = b.mul(b.urem(unit, count), width)
            tiles.stripe(self.decode(others, b.udiv(unit, count)), start)

    def rows_from(self, first: V, last: V) -> None:
        """Emits the loops over units that are rows."""
        if self.schedule.is_whole:
            self.all_rows()
            return
        b, order = self.b, self.schedule.row_loops
        if len(order) == 1:
            self.rows(order[0], first, last, "unit", {})
            return
        # Loops over stretches of the innermost variable, so that only each stretch is decoded by divisions.
        inner = self.space.extents[order[-1]]
        with b.loop(b.udiv(first, inner), ceil_div(b, last, inner), 1, "stretch") as outer:
            start = b.mul(outer, inner)
            variables = self.decode(order[:-1], outer)
            low = b.max_(b.sub(first, start), 0)
            self.rows(order[-1], low, b.min_(b.sub(last, start), inner), "unit", variables)

    def rows(self, v: int, low: V, high: V, hint: str, variables: Variables) -> None:
        """Emits the innermost row variable over [low, high): whole batches of rows, then single rows."""
        b, width = self.b, self.space.width
        if self.schedule.row_batching is not None:
            whole = b.add(low, b.and_(b.sub(high, low), i64(-width)))
            with b.loop(low, whole, width, "rows") as i:
                write_row_batch(self.row, {**variables, v: i})
            low = whole
        with b.loop(low, high, 1, hint) as i:
            self.row_vectors({**variables, v: i})

    def chunked(self, first: V, last: V) -> None:
        """Emits the loop over units that are chunks of the vector variable."""
        b, vector_var = self.b, self.space.vector
        assert vector_var is not None
        n = self.space.extents[vector_var]
        start, stop = b.mul(first, self.schedule.chunk), b.min_(b.mul(last, self.schedule.chunk), n)
        self.lanes_loop(start, stop, n, {})

    def row_vectors(self, variables: Variables) -> None:
        space = self.space
        if space.vector in space.rows:
            assert space.vector is not None
            n = space.extents[space.vector]
            self.lanes_loop(i64(0), i64(n), n, variables)
        else:
            self.row.row([Position(variables, space.width if space.vector is not None else 1)])

    def lanes_loop(self, start: V, stop: V, n: int, variables: Variables) -> None:
        """Emits the vector variable over rows [start, stop) of n: unrolled vectors, single vectors, a tail."""
        b, space, w = self.b, self.space, self.space.width
        v = space.vector
        assert v is not None
        step = w * self.schedule.unroll.value
        whole = n - n % w
        if isinstance(n, Size):
            self.lanes_loop_of_size(start, stop, n, variables)
            return
        if self.schedule.interior is not None:
            write_interior_first(b, self.schedule, self.row, self.schedule.interior, start, stop, variables)
            return
        if self.schedule.unroll.value > 1:
            bulk = n - n % step
            with b.loop(start, b.min_(stop, bulk), step, "vectors") as i:
                self.row.row(
                    [Position({**variables, v: b.add(i, k * w)}, w) for k in range(self.schedule.unroll.value)]
                )
            if whole > bulk:
                with b.loop(b.max_(start, bulk), b.min_(stop, whole), w, "vector") as i:
                    self.row.row([Position({**variables, v: i}, w)])
        elif whole:
            with b.loop(start, b.min_(stop, whole), w, "vector") as i:
                self.row.row([Position({**variables, v: i}, w)])
        if n == whole:
            return
        if self.target.has_masks or (self.nest.stores and n < w):
            with b.if_(b.icmp("eq", stop, n)) if stop.literal is None else nullcontext():
                self.row.row([Position({**variables, v: i64(whole)}, w, first_lanes(w, n - whole))])
        else:
            with b.loop(b.max_(start, whole), stop, 1, "tail") as i:
                self.row.row([Position({**variables, v: i}, 1)])

    def lanes_loop_of_size(self, start: V, stop: V, n: int, variables: Variables) -> None:
        """`lanes_loop` for an `n` that is known only at the call: the tail may be empty."""
        b, w, v, unroll = self.b, self.space.width, self.space.vector, self.schedule.unroll.value
        assert v is not None
        whole = n - n % w
        first = start
        if unroll > 1:
            bulk = n - n % (w * unroll)
            with b.loop(start, b.min_(stop, bulk), w * unroll, "vectors") as i:
                self.row.row([Position({**variables, v: b.add(i, k * w)}, w) for k in range(unroll)])
            first = b.max_(start, bulk)
        with b.loop(first, b.min_(stop, whole), w, "vector") as i:
            self.row.row([Position({**variables, v: i}, w)])
        if self.target.has_masks:
            with b.loop(b.max_(start, whole), stop, w, "tail") as i:
                self.row.row([Position({**variables, v: i}, w, lanes_left(b, w, n % w))])
        else:
            with b.loop(b.max_(start, whole), stop, 1, "tail") as i:
                self.row.row([Position({**variables, v: i}, 1)])


def ceil_div(b: Builder, x: V, by: int) -> V:
    return b.udiv(b.add(x, by - 1), by)


def check_supported(nest: Nest) -> None:
    """Raises UnsupportedError for ops that no record can compute, at their lines, before any text is written."""
    for node in nest.nodes.values():
        record = OPS[node.op.name]
        known = record.index_map is not None or record.machine is not None or node.op.name in CHOICES
        if not known and node.op.name != "stablehlo.reduce":
            raise UnsupportedError(diagnose(f"{node.op.name} has no lowering yet", node.op.span, label="no-lowering"))
