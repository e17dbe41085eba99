"""Packing of a kernel into panels, in a call.

Most kernels are packed one window position after the other. In kernels with all window positions of a feature adjacent,
such as OIHW, the elements of a position are apart, so reading them position by position would take a load for each.
Such kernels are read in vectors along the positions, which are transposed in registers.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.convolution.input import TASK_PARAMS, Arguments, copy_symbols, dot, packers, split
from shlo_jit.kernels.convolution.shape import conv_plan
from shlo_jit.kernels.gemm.micro import attributes, lane_masks
from shlo_jit.kernels.gemm.pack import convert, pack_plans, transpose
from shlo_jit.kernels.gemm.precision import GemmPlan, GemmTypes, itemsize, storage
from shlo_jit.kernels.llvm_values import V, i64, vector
from shlo_jit.kernels.target import Target

SPREAD_PARAMS = [
    ("ptr", "source"),
    ("i64", "row_bytes"),
    ("i64", "rows"),
    ("i64", "run"),
    ("i64", "positions"),
    ("ptr", "to"),
    ("i64", "position_bytes"),
    ("i64", "place_bytes"),
]
"""Element e of a row, one of `run` adjacent ones, goes to byte (e % positions) * position_bytes + (e // positions) *
place_bytes of `to`, plus a unit for each row before it. There are at most as many rows as a vector has lanes. Without
masks, the units of missing rows are overwritten."""


def spread_symbol(types: GemmTypes) -> str:
    """Returns the symbol of the function that transposes rows of a kernel; see SPREAD_PARAMS."""
    return f"shlo_conv_{types.name}_spread"


def emit_weights_task(module: ModuleText, types: GemmTypes, target: Target) -> str:
    """Emits the task that packs some panels of one group's features, for some window positions. k is in the order
    (d, h, w, input feature). Returns its name."""
    emit_spread(module, types, target)
    name = copy_symbols(types)[1]
    b = module.function(name, TASK_PARAMS, linkage="", attributes=attributes(target))
    task = WeightsTask(b, types, target)
    with b.if_(b.icmp("eq", task.g.get("w_adjacent"), 0)):
        task.by_position()
    with b.if_(b.icmp("ne", task.g.get("w_adjacent"), 0)):
        task.by_rows()
    b.ret()
    return name


class WeightsTask:
    """Some panels of one group's features."""

    def __init__(self, b: Builder, types: GemmTypes, target: Target):
        self.b, self.types, self.target, self.plan = b, types, target, conv_plan(types, target)
        frame, index, self.worker = b.params
        self.g = g = Arguments(b, frame)
        chunk, chunks, self.width, co, self.ci, self.panel_bytes = g.ints(
            "w_chunk w_chunks w_width co ci k_bytes_per_panel"
        )
        kd, kh, kw = g.ints("kd kh kw")
        self.positions, self.each = b.mul(b.mul(kd, kh), kw), g.get("w_positions")
        blocks = b.udiv(b.add(self.positions, b.sub(self.each, 1)), self.each)
        group, self.block, nth = split(b, index, blocks, chunks)
        first = b.mul(nth, b.mul(chunk, self.width))
        self.first = b.add(b.mul(group, co), first)
        """The first feature, of all groups."""
        self.count = b.min_(b.sub(co, first), b.mul(chunk, self.width))
        self.w_in, self.w_out = g.ints("w_in w_out")
        to = b.offset(g.pointer("scratch"), g.get("scratch_weights"))
        self.to = b.offset(to, dot(b, (group, g.get("w_group_bytes")), (b.mul(nth, chunk), self.panel_bytes)))
        source = b.offset(g.pointer("kernel"), g.get("w_offset"))
        self.source = b.offset(source, dot(b, (group, g.get("w_group")), (first, self.w_out)))
        self.row = b.mul(self.width, self.plan.unit_bytes)
        """Bytes of a step of k in a panel."""
        self.step = b.mul(self.ci, self.row)
        """Bytes of a window position in a panel."""

    def by_position(self) -> None:
        """Packs one window position after the other."""
        b, g = self.b, self.g
        kh, kw = g.ints("kh kw")
        first = b.mul(self.block, self.each)
        with b.loop(first, b.min_(b.add(first, self.each), self.positions), hint="tap") as position:
            d, h, w = split(b, position, kh, kw)
            at = b.offset(self.source, dot(b, *zip((d, h, w), g.ints("w_sd w_sh w_sw"), strict=True)))
            to = b.offset(self.to, b.mul(position, self.step))
            args = [at, self.w_out, self.w_in, to, self.width, self.count, self.ci, self.panel_bytes]
            b.call("void", packers(self.types, self.target)[1].name, args)

    def by_rows(self) -> None:
        """Packs all positions of one panel after the other."""
        b, size = self.b, itemsize(self.types.b)
        reversed_ = b.icmp("slt", self.g.get("w_adjacent"), 0)
        last = b.select(reversed_, b.sub(self.positions, 1), i64(0))
        source = b.offset(self.source, b.mul(last, -size))
        of_inputs = b.icmp("eq", self.w_in, b.mul(self.positions, size))
        with b.loop(0, self.count, self.width, "panel") as first:
            count = b.min_(b.sub(self.count, first), self.width)
            at = b.offset(source, b.mul(first, self.w_out))
            to = b.offset(self.to, b.mul(b.udiv(first, self.width), self.panel_bytes))
            with b.if_(of_inputs):
                self._rows_of_outputs(at, count, b.offset(to, b.mul(last, self.step)), reversed_)
            with b.if_(b.not_(of_inputs)):
                self._rows_of_inputs(at, count, to, last, reversed_)

    def _rows_of_outputs(self, source: V, count: V, to: V, reversed_: V) -> None:
        """Writes a panel from rows of output features, which have the positions of one input feature after another."""
        b, n = self.b, self.plan.lanes
        step = b.select(reversed_, b.sub(0, self.step), self.step)
        run = b.mul(self.ci, self.positions)
        with b.loop(0, count, n, "row") as j:
            rows = b.min_(b.sub(count, j), n)
            place = b.offset(to, b.mul(j, self.plan.unit_bytes))
            first = b.offset(source, b.mul(j, self.w_out))
            args = [first, self.w_out, rows, run, self.positions, place, step, self.row]
            b.call("void", spread_symbol(self.types), args)

    def _rows_of_inputs(self, source: V, count: V, to: V, last: V, reversed_: V) -> None:
        """Writes a panel from rows of input features, which have the positions of one output feature after another: a
        vector of rows becomes a small kernel of each position, which is packed."""
        b, g, n, unit = self.b, self.g, self.plan.lanes, self.plan.unit_bytes
        at = b.add(g.get("scratch_workers"), b.mul(self.worker, g.get("worker_bytes")))
        memory = b.offset(g.pointer("scratch"), at)
        place = i64(n * unit)
        of_position = b.mul(self.width, place)
        with b.loop(0, self.ci, n, "row") as k:
            rows = b.min_(b.sub(self.ci, k), n)
            line = b.offset(source, b.mul(k, self.w_in))
            run = b.mul(count, self.positions)
            args = [line, self.w_in, rows, run, self.positions, memory, of_position, place]
            b.call("void", spread_symbol(self.types), args)
            with b.loop(0, self.positions, hint="tap") as nth:
                position = b.select(reversed_, b.sub(last, nth), nth)
                panel = b.offset(to, b.add(b.mul(position, self.step), b.mul(k, self.row)))
                small = b.offset(memory, b.mul(nth, of_position))
                args = [small, place, i64(unit), panel, self.width, count, rows, i64(0)]
                b.call("void", pack_plans(self.plan)[0].name, args)


def emit_spread(module: ModuleText, types: GemmTypes, target: Target) -> None:
    """Emits the function that transposes rows of a kernel; see SPREAD_PARAMS."""
    plan = conv_plan(types, target)
    b = module.function(spread_symbol(types), SPREAD_PARAMS, attributes=attributes(target))
    _Spread(b, plan, types.b).run()
    b.ret()


class _Spread:
    def __init__(self, b: Builder, plan: GemmPlan, dtype: str):
        self.b, self.plan, self.dtype = b, plan, dtype
        source, row_bytes, self.rows, self.length, self.positions, self.to, self.of_position, self.of_place = b.params
        last = b.sub(self.rows, 1)
        self.starts = [b.offset(source, b.mul(b.min_(last, r), row_bytes)) for r in range(plan.lanes)]
        """Addresses of as many rows as there are lanes; the last one is repeated."""
        self.mask = lane_masks(b, plan, self.rows, 1)[0] if plan.masks else None
        back = b.mul(b.sub(self.positions, 1), self.of_position)
        self.wrap = b.sub(self.of_place, back)
        """Distance from the last position of a place to the first of the next."""

    def run(self) -> None:
        b, n = self.b, self.plan.lanes
        whole = b.mul(b.udiv(self.length, n), n)
        with b.loop_carry(0, whole, [self.to, i64(0)], n, "elements") as carry:
            carry.next(*self._block(carry.index, n, carry.values[0], carry.values[1]))
        if self.plan.masks:
            self._rest(whole, *carry.values)
            return
        with b.loop_carry(whole, self.length, carry.values, 1, "rest") as rest:
            rest.next(*self._block(rest.index, 1, rest.values[0], rest.values[1]))

    def _block(self, first: V, count: int, to: V, position: V) -> tuple[V, V]:
        """Writes `count` elements of all rows from address `to` on, which is that of a position. Returns the address
        and the position after them."""
        for x in self._columns(first, count):
            self._store(x, to)
            to, position = self._next(to, position)
        return to, position

    def _columns(self, first: V, count: int) -> list[V]:
        """Returns `count` elements of all rows, one or as many as there are lanes, as vectors along the rows."""
        b, plan, element = self.b, self.plan, storage(self.dtype)
        offset = b.mul(first, itemsize(self.dtype))
        places = [b.offset(start, offset) for start in self.starts]
        if count > 1:
            vectors = [b.load(vector(element, count), at) for at in places]
            return transpose(b, [convert(b, x, self.dtype, plan.unit) for x in vectors])
        column = V(vector(element, plan.lanes), "poison")
        for lane, at in enumerate(places):
            column = b.insert(column, b.load(element, at), lane)
        return [convert(b, column, self.dtype, plan.unit)]

    def _rest(self, first: V, to: V, position: V) -> None:
        """Writes the last elements of all rows, fewer than there are lanes."""
        b, plan = self.b, self.plan
        count = b.sub(self.length, first)
        with b.if_(b.icmp("sgt", count, 0)):
            some, kind = lane_masks(b, plan, count, 1)[0], vector(storage(self.dtype), plan.lanes)
            offset = b.mul(first, itemsize(self.dtype))
            vectors = [b.masked_load(kind, b.offset(start, offset), some) for start in self.starts]
            columns = transpose(b, [convert(b, x, self.dtype, plan.unit) for x in vectors])
            for nth, x in enumerate(columns[:-1]):
                with b.if_(b.icmp("sgt", count, nth)):
                    self._store(x, to)
                to, position = self._next(to, position)

    def _store(self, x: V, to: V) -> None:
        if self.mask is None:
            self.b.store(x, to)
        else:
            self.b.masked_store(x, to, self.mask)

    def _next(self, to: V, position: V) -> tuple[V, V]:
        b = self.b
        after = b.add(position, 1)
        is_last = b.icmp("eq", after, self.positions)
        return b.offset(to, b.select(is_last, self.wrap, self.of_position)), b.select(is_last, i64(0), after)
