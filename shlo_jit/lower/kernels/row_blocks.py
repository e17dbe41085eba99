"""Lowers row blocks, as `schedule/row_blocks.py` has decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit.fuse.plan import RowBlocksStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.gemm.gemm import GemmStrategy, gemm_symbol
from shlo_jit.kernels.gemm.panels import block_symbol, panels_symbol
from shlo_jit.kernels.gemm.precision import itemsize
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.kernels.epilogue import NULL
from shlo_jit.lower.kernels.key_range import Keys, keys_of_rows
from shlo_jit.lower.kernels.keys_in_registers import write_keys
from shlo_jit.lower.kernels.partial_sums import add_up
from shlo_jit.lower.kernels.row_tasks import run_tasks
from shlo_jit.lower.kernels.viewed import operand_address
from shlo_jit.lower.nest.nest import NestLowering, check_supported
from shlo_jit.lower.scratch import Fields, worker_fields
from shlo_jit.lower.services import Services
from shlo_jit.ops.runs import extents_of
from shlo_jit.schedule.row_blocks import RowBlocksSchedule, RowNest, RowProduct
from shlo_jit.schedule.row_products import Matrices, Right
from shlo_jit.schedule.row_ranges import Ranged
from shlo_jit.schedule.segments import Part
from shlo_jit.schedule.shared_columns import SharedColumns


def lower(low: Services, step: RowBlocksStep, schedule: RowBlocksSchedule) -> None:
    """Writes the loops and the task, runs the tasks, and adds up the partial sums."""
    s = schedule
    nests, values, arrays = write_stages(low, s)
    hint = f"{step.title}_{next((n.hint for n in step.nests if n.nest.reduce_vars), 'products')}"
    name = low.new_name(hint)
    found = [operand_address(low, s.viewed.get(v), 1, v) for v in values]
    pointers = [low.scratch(step), *arrays, *found]
    b = low.task(name, len(pointers))
    _Task(b, s, nests, values, len(arrays)).write()
    run_tasks(low, s, low.share(hint, name), pointers)
    if s.division.parts > 1 and step.sums:
        add_up(low, s, low.scratch(step))


def write_stages(low: Services, s: RowBlocksSchedule) -> tuple[dict[int, Nest], list[Value], list[V]]:
    """Writes the functions of the loops, and of products in registers. Returns them by the id() of the stage, the
    values that the stages read and write outside of their buffers, and the addresses of the right operands that were
    packed at compile time."""
    nests = {id(stage): _write_nest(low, stage, s) for stage in s.stages if isinstance(stage, RowNest)}
    for stage in s.products:
        if stage.keys is not None:
            nests[id(stage)] = Nest(write_keys(low, stage.keys, "keys"), [], [], [])
    values: list[Value] = []
    for stage in s.stages:
        values += nests[id(stage)].outside if isinstance(stage, RowNest) else _outside(stage, s)
    values += [] if s.ranged is None else [s.ranged.starts, s.ranged.ends]
    arrays = [low.constant_array(p.prepacked) for p in s.products if p.prepacked is not None]
    return nests, list(dict.fromkeys(values)), arrays


def _outside(stage: RowProduct, s: RowBlocksSchedule) -> list[Value]:
    """The values in the program's memory that a product reads and writes."""
    left, right = stage.step.op.operands
    values = [s.step.source(v) for v in (left, stage.step.op.result) if s.buffers.of(v) is None]
    if stage.prepacked is not None:
        return values
    return [*values, *([part.value for part, _ in stage.product.parts] if stage.right is Right.SKINNY else [right])]


class Nest(NamedTuple):
    """The function of a loop, or of a product in registers, which has the name only."""

    name: str
    buffers: list[tuple[str, Value]]
    """For row programs: the parameters for rows in the worker's memory, as fields, each with one of the values there.
    For loops on rectangles: all such values."""
    outside: list[Value]
    """The values in the program's memory, in the order of the other parameters."""
    order: list[Value]
    """For loops on rectangles: the values whose addresses the frame holds."""


def _write_nest(low: Services, stage: RowNest, s: RowBlocksSchedule) -> Nest:
    """Writes the function of a loop: of units if it is a row program, of rectangles otherwise."""
    nest, hint = stage.schedule.nest, stage.step.hint
    check_supported(stage.step.nest)
    field_of = {s.buffers.rows[v]: s.fields[v] for v in s.buffers.rows}
    values = list(dict.fromkeys([*(k[0] for k in nest.loads), *(x.target for x in nest.stores)]))
    own: dict[str, list[Value]] = {}
    groups: dict[int, list[Value]] = {}
    for v in values:
        if v in field_of:
            own.setdefault(field_of[v], []).append(v)
        else:
            source = s.step.source(v)
            groups.setdefault(id(low.memory.storage.get(source, source)), []).append(v)  # or in a line buffer
    name = low.new_name(hint)
    lowering = NestLowering(stage.schedule)
    outside = [s.step.source(vs[0]) for vs in groups.values()]
    if stage.schedule.tile is not None:
        lowering.write_epilogue(low.module, name, values, symbolic=low.is_symbolic, is_steady=False)
        buffers = [(field_of[v], v) for v in values if v in field_of]
        in_memory = [s.step.source(v) for v in values if v not in field_of]
        return Nest(low.share(hint, name), buffers, in_memory, values)
    parameters = [(f"b{i}", vs) for i, vs in enumerate(own.values())]
    parameters += [(f"p{i}", vs) for i, vs in enumerate(groups.values())]
    parameters += [("dims", [])] if low.is_symbolic else []
    lowering.write(low.module, name, parameters, None if s.ranged is None else s.ranged.key_of(stage))
    return Nest(low.share(hint, name), [(f, vs[0]) for f, vs in own.items()], outside, [])


def matrix(b: Builder, pointer: V, of: Matrices, dtype: str, batch: V) -> V:
    """The address of the operand's matrix for a batch index."""
    number, place = batch, i64(0)
    for extent, stride in reversed(of.batch[1:]):
        place = b.add(place, b.mul(b.urem(number, extent), stride))
        number = b.udiv(number, extent)
    if of.batch:
        place = b.add(place, b.mul(number, of.batch[0][1]))
    return b.offset(pointer, b.mul(place, itemsize(dtype)))


def keys_of(b: Builder, ranged: Ranged, at: dict[Value, V], first: V, count: V) -> Keys:
    """Emits the keys that some rows need, from row `first` among those of all batches on."""
    return keys_of_rows(b, (at[ranged.starts], at[ranged.ends]), ranged.keys, first, count, ranged.step)


class Range(NamedTuple):
    """Rows [start, stop) of a batch, one part of its rows."""

    batch: V
    start: V
    stop: V
    part: V


class _Block(NamedTuple):
    """A block of `m` rows: from row i of the batch on, and from row `unit` among those of all batches."""

    i: V
    unit: V
    m: V
    keys: Keys | None
    """The keys that its rows need; None if that is not known."""


class RowsWriter:
    """Writes the code that computes some rows of a batch, block by block. `at`: the addresses of values outside of the
    buffers, which the caller may change from one range to the next; `arrays`: those of right operands that were packed
    at compile time."""

    def __init__(
        self,
        b: Builder,
        s: RowBlocksSchedule,
        nests: dict[int, Nest],
        at: dict[Value, V],
        arrays: Sequence[V],
        fields: Fields,
    ):
        self.b, self.s, self.nests, self.at, self.fields = b, s, nests, at, fields
        prepacked = [stage for stage in s.products if stage.prepacked is not None]
        self.prepacked = {id(stage): x for stage, x in zip(prepacked, arrays, strict=True)}
        self.rights: dict[int, list[V]] = {}
        """For each product, the right operand's matrix of the current batch, or its segments."""
        self.panels: dict[int, V] = {}
        self.columns: tuple[V, V] | None = None
        """The columns of the last product that a task computes; None if it computes all."""
        self.frames = {key: b.alloca("ptr", len(nest.order) + 1) for key, nest in nests.items() if nest.order}

    def begin(self, batch: V, rows: Range | None = None) -> None:
        """Sets the right operands of a batch, and packs those that are packed once. `rows`: all rows that follow."""
        keys = None
        if self.s.ranged is not None and rows is not None:
            first = self.b.add(self.b.mul(rows.batch, self.s.step.rows), rows.start)
            keys = keys_of(self.b, self.s.ranged, self.at, first, self.b.sub(rows.stop, rows.start))
        for stage in self.s.products:
            self.begin_product(stage, batch, keys)

    def rows(self, rows: Range, sums: dict[int, V]) -> None:
        """Emits the code for some rows of a batch. `sums`: the addresses of the sums over rows."""
        b, s = self.b, self.s
        with b.loop(rows.start, rows.stop, s.block, "block") as i:
            m = b.min_(b.sub(rows.stop, i), s.block)
            unit = b.add(b.mul(rows.batch, s.step.rows), i)
            keys = None if s.ranged is None else keys_of(b, s.ranged, self.at, unit, m)
            block = _Block(i, unit, m, keys)
            for stage in s.stages:
                if isinstance(stage, RowNest):
                    self.nest(stage, block)
                elif stage.partial is not None:
                    self.sum(stage, sums[id(stage)], block, b.sub(i, rows.start))
                else:
                    self.product(stage, rows.batch, block)

    # ------------------------------------------------------------------ addresses
    def base(self, value: Value) -> V:
        """The address of a value's rows in the worker's memory."""
        return self.fields[self.s.fields[self.s.step.source(value)]]

    def row_zero(self, field: str, buffer: Value, unit: V) -> V:
        """The address that row 0 of a buffer would have, whose first row is `unit`."""
        row = buffer.tensor.extents[1] * buffer.tensor.storage.itemsize
        return self.b.offset(self.fields[field], self.b.mul(unit, -row))

    def left(self, stage: RowProduct, batch: V, block: _Block) -> tuple[V, int, int]:
        """The block's rows of a left operand, with their strides."""
        b, p, value = self.b, stage.product, stage.step.op.operands[0]
        if self.s.buffers.of(value) is not None:
            return self.base(value), self.s.buffers.stride(value), 1
        whole = matrix(b, self.at[self.s.step.source(value)], p.a, p.types.a, batch)
        return b.offset(whole, b.mul(block.i, p.a.row * itemsize(p.types.a))), p.a.row, p.a.column

    def out(self, stage: RowProduct, block: _Block) -> tuple[V, int]:
        """The block's rows of a result, with their stride."""
        p, value = stage.product, stage.step.op.result
        if self.s.buffers.of(value) is not None:
            return self.base(value), self.s.buffers.stride(value)
        return self.b.offset(self.at[value], self.b.mul(block.unit, p.n * itemsize(p.types.acc))), p.n

    # ------------------------------------------------------------------ loops
    def nest(self, stage: RowNest, block: _Block) -> None:
        b, n = self.b, self.nests[id(stage)]
        end = b.add(block.unit, block.m)
        if stage.schedule.tile is None:
            own = [self.row_zero(field, v, block.unit) for field, v in n.buffers]
            sizes = [b.dims] if b.dims is not None else []
            args = [*own, *(self.at[v] for v in n.outside), *sizes, block.unit, end]
            if self.s.ranged is not None and self.s.ranged.key_of(stage) is not None:
                args += [*(block.keys or ())]
            b.call("void", n.name, args, declare=False)
            return
        fields, frame = dict((v, field) for field, v in n.buffers), self.frames[id(stage)]
        for i, v in enumerate(n.order):
            place = self.row_zero(fields[v], v, block.unit) if v in fields else self.at[self.s.step.source(v)]
            b.store(place, b.element(frame, "ptr", i))
        if b.dims is not None:
            b.store(b.dims, b.element(frame, "ptr", len(n.order)))
        columns = 1
        for v in stage.schedule.tile.columns:
            columns *= stage.schedule.space.extents[v]
        some = (i64(0), i64(columns))
        if self.columns is not None and self.s.columns is not None and id(stage.step) in self.s.columns.loops:
            some = self.columns
        b.call("void", n.name, [frame, i64(0), block.unit, end, *some], declare=False)

    # ------------------------------------------------------------------ products
    def begin_product(self, stage: RowProduct, batch: V, keys: Keys | None) -> None:
        """Sets the right operand of a product for a batch, and packs it for all blocks of the task."""
        b, p = self.b, stage.product
        if stage.right is Right.PREPACKED:
            self.rights[id(stage)] = [self.prepacked[id(stage)]]
            return
        parts = p.parts if stage.right is Right.SKINNY else [(None, p.b)]
        values = [part.value if part is not None else stage.step.op.operands[1] for part, _ in parts]
        found = [matrix(b, self.at[v], of, p.types.b, batch) for v, (_, of) in zip(values, parts, strict=True)]
        self.rights[id(stage)] = found
        packs = stage.right is Right.PACKED
        if packs and self.is_ranged(stage):
            assert keys is not None
            self.pack_keys(stage, found[0], keys)
            return
        self.panels[id(stage)] = self.packed(stage, found[0], i64(p.k)) if packs else NULL

    def packed(self, stage: RowProduct, right: V, k: V) -> V:
        """Packs k steps of the right operand of a product."""
        p, place = stage.product, self.fields[stage.panels.name]
        self.b.call("void", panels_symbol(p.types), [right, i64(p.b.row), i64(p.b.column), i64(p.n), k, place])
        return place

    def product(self, stage: RowProduct, batch: V, block: _Block) -> None:
        """Emits the product of the block's rows."""
        left, out = self.left(stage, batch, block), self.out(stage, block)
        rights = self.rights[id(stage)]
        if self.is_ranged(stage):
            self.of_keys(stage, left, rights[0], out, block)
            return
        if stage.right is Right.SKINNY:
            for (part, _), right in zip(stage.product.parts, rights, strict=True):
                self.plain(stage, part, left, right, out, block.m)
        elif stage.right is Right.PREPACKED:
            p = stage.product
            whole = Part(stage.step.op.operands[1], 0, 0, p.n, p.k, 0, 0)
            self.plain(stage, whole, left, rights[0], out, block.m)
        else:
            k = i64(stage.product.k)
            self.by_block(stage, left, (rights[0], self.panels[id(stage)]), out, (block.m, k, i64(0)))

    def plain(
        self,
        stage: RowProduct,
        part: Part,
        left: tuple[V, int, int],
        right: V,
        out: tuple[V, int],
        m: V,
        extents: tuple[V, V] | None = None,
    ) -> None:
        """Emits the product of m rows with a matrix or one segment of it, as a plain product on this thread.
        `extents`: columns and terms, if they are not those of the segment."""
        b, p, zero, one = self.b, stage.product, i64(0), i64(1)
        (a, *strides), (c, c_stride) = left, out
        is_prepacked, work = stage.right is Right.PREPACKED, self.fields["work"]
        a = b.offset(a, part.k0 * strides[1] * itemsize(p.types.a))
        c = b.offset(c, part.n0 * itemsize(p.types.acc))
        args = [a, *(i64(x) for x in strides), zero, right, i64(part.row), i64(part.column), zero]
        sizes = [one, m, *((i64(part.n), i64(part.k)) if extents is None else extents), i64(part.k0)]
        args += [i64(int(is_prepacked)), c, i64(c_stride), zero, *sizes, work, NULL, NULL, NULL, zero, NULL, one]
        b.call("void", gemm_symbol(p.types, GemmStrategy.TILES if is_prepacked else p.way), args)

    def by_block(
        self,
        stage: RowProduct,
        left: tuple[V, int, int],
        right: tuple[V, V],
        out: tuple[V, int],
        extents: tuple[V, V, V],
        columns: V | None = None,
    ) -> None:
        """Emits a product. `left` and `out` come with their strides, `right` in place and packed; `extents`: m, k and
        k0. `columns`: their number, if it is not that of the matrix."""
        p = stage.product
        (a, *a_strides), (in_place, panels), (c, c_stride), (m, k, k0) = left, right, out, extents
        args = [a, *(i64(x) for x in a_strides), in_place, i64(p.b.row), i64(p.b.column), c, i64(c_stride)]
        args += [m, i64(p.n) if columns is None else columns, k, k0, panels, self.fields["work"]]
        self.b.call("void", block_symbol(p.types), args)

    # ------------------------------------------------------------------ ranges of keys
    def is_ranged(self, stage: RowProduct) -> bool:
        """Whether a product computes only the keys that the rows of a block need."""
        return self.s.ranged is not None and self.s.ranged.has(stage.step)

    def key_stride(self, stage: RowProduct) -> tuple[bool, int]:
        """Whether the keys are the product's terms, and bytes from one key to the next in its right operand."""
        ranged, p = self.s.ranged, stage.product
        assert ranged is not None
        is_terms = id(stage.step) == ranged.terms
        return is_terms, (p.b.row if is_terms else p.b.column) * itemsize(p.types.b)

    def pack_keys(self, stage: RowProduct, right: V, keys: Keys) -> None:
        """Packs the right operand of a product, each step of keys into panels of its own."""
        b, p, ranged = self.b, stage.product, self.s.ranged
        assert ranged is not None
        is_terms, stride = self.key_stride(stage)
        with b.loop(*keys, ranged.step, "keys") as key:
            count = b.min_(b.sub(ranged.keys, key), ranged.step)
            n, k = (i64(p.n), count) if is_terms else (count, i64(p.k))
            args = [b.offset(right, b.mul(key, stride)), i64(p.b.row), i64(p.b.column), n, k]
            b.call("void", panels_symbol(p.types), [*args, self.panels_at(stage, key)])

    def panels_at(self, stage: RowProduct, key: V) -> V:
        """The address of the panels of a step of keys."""
        ranged = self.s.ranged
        assert ranged is not None
        each = stage.panels.nbytes // -(-ranged.keys // ranged.step)
        return self.b.offset(self.fields[stage.panels.name], self.b.mul(self.b.udiv(key, ranged.step), each))

    def of_keys(
        self, stage: RowProduct, left: tuple[V, int, int], right: V, out: tuple[V, int], block: _Block
    ) -> None:
        """Emits the product of a block's rows for the keys that they need."""
        b, p, ranged, keys = self.b, stage.product, self.s.ranged, block.keys
        assert ranged is not None and keys is not None
        is_terms, stride = self.key_stride(stage)
        if stage.keys is not None:
            columns = (self.columns or (i64(0), i64(p.n))) if stage.keys.is_terms else ()
            b.call("void", self.nests[id(stage)].name, [right, left[0], out[0], *keys, *columns], declare=False)
            return

        def part(key: V, count: V, done: V, panels: V) -> None:
            """The product for some keys, after `done` keys."""
            at = b.offset(right, b.mul(key, stride))
            a, c = left, out
            if is_terms:
                a = (b.offset(left[0], b.mul(key, left[2] * itemsize(p.types.a))), *left[1:])
            else:
                c = (b.offset(out[0], b.mul(key, itemsize(p.types.acc))), out[1])
            n, k = (i64(p.n), count) if is_terms else (count, i64(p.k))
            if stage.right is Right.SKINNY:
                whole = p.parts[0][0]
                self.plain(stage, whole, a, at, c, block.m, (n, k))
            else:
                self.by_block(stage, a, (at, panels), c, (block.m, k, done if is_terms else i64(0)), n)

        if stage.right is not Right.PACKED:
            part(keys.low, b.sub(keys.high, keys.low), i64(0), NULL)
            return
        with b.loop(*keys, ranged.step, "keys") as key:
            count = b.min_(b.sub(ranged.keys, key), ranged.step)
            part(key, count, b.sub(key, keys.low), self.panels_at(stage, key))

    # ------------------------------------------------------------------ sums over rows
    def sum(self, stage: RowProduct, out: V, block: _Block, done: V) -> None:
        """Adds the contribution of a block of rows; the first block, for which no row is `done`, initializes it."""
        b, p, value = self.b, stage.product, stage.step.op.operands[0]
        right = b.offset(self.rights[id(stage)][0], b.mul(block.i, p.b.row * itemsize(p.types.b)))
        panels = self.packed(stage, right, block.m) if stage.right is Right.PACKED_BY_BLOCK else NULL
        m = extents_of(stage.step.op)[1]
        if self.s.buffers.of(value) is not None:
            left = (self.base(value), 1, self.s.buffers.stride(value))
        else:
            rows = b.mul(block.unit, m * itemsize(p.types.a))
            left = (b.offset(self.at[self.s.step.source(value)], rows), 1, m)
        self.by_block(stage, left, (right, panels), (out, p.n), (i64(m), block.m, done))


class _Task(RowsWriter):
    """Writes `void task(ptr frame, i64 index, i64 worker)`."""

    def __init__(self, b: Builder, s: RowBlocksSchedule, nests: dict[int, Nest], values: list[Value], arrays: int):
        frame, self.index, worker = b.params
        is_divided = s.division.finer is not None or s.columns is not None
        count = 1 + arrays + len(values)
        self.scratch, *loaded = (b.load("ptr", b.element(frame, "ptr", i)) for i in range(count))
        at = dict(zip(values, loaded[arrays:], strict=True))
        words = (b.load("i64", b.element(frame, "ptr", count + i)) for i in range(2)) if is_divided else ()
        self.divided = tuple(words)
        """The rows of a task and the tasks of a batch, if they are not those of the division; or what `shared_batch`
        takes."""
        fields = worker_fields(b, s.scratch, self.scratch, worker)
        super().__init__(b, s, nests, at, loaded[:arrays], fields)

    def write(self) -> None:
        b, s, d = self.b, self.s, self.s.division
        zero = i64(0)
        if s.columns is not None:
            self.shared_batch(s.columns, *self.divided)
        elif self.divided or d.parts > 1:
            rows, parts = self.divided or (d.task_rows, d.parts)
            batch, part = b.udiv(self.index, parts), b.urem(self.index, parts)
            start = b.mul(part, rows)
            self.batch(Range(batch, start, b.min_(b.add(start, rows), s.step.rows), part))
        else:
            first = b.mul(self.index, d.each)
            with b.loop(first, b.min_(b.add(first, d.each), s.step.batch), 1, "batch") as batch:
                self.batch(Range(batch, zero, i64(s.step.rows), zero))
        b.ret()

    def shared_batch(self, shared: SharedColumns, whole: V, parts: V) -> None:
        """Emits the code for a batch, or for some columns of one. `whole`: batches that have one task; `parts`: tasks
        that share each of the others."""
        b, zero = self.b, i64(0)
        is_whole, rest = b.icmp("slt", self.index, whole), b.sub(self.index, whole)
        batch = b.select(is_whole, self.index, b.add(whole, b.udiv(rest, parts)))
        part, parts = b.select(is_whole, zero, b.urem(rest, parts)), b.select(is_whole, i64(1), parts)
        each = b.mul(b.udiv(b.add(parts, shared.most_parts - 1), parts), shared.width)
        first = b.min_(b.mul(part, each), shared.columns)
        self.columns = first, b.min_(b.add(first, each), shared.columns)
        self.batch(Range(batch, zero, i64(self.s.step.rows), zero))

    def batch(self, rows: Range) -> None:
        """Emits the code for all of the task's rows of a batch."""
        self.begin(rows.batch, rows)
        self.rows(rows, {id(p): self.sums(p, rows) for p in self.s.products if p.partial is not None})

    def sums(self, stage: RowProduct, rows: Range) -> V:
        """The address of a part's sums: for the first part, the result itself."""
        b, s, p = self.b, self.s, stage.product
        size = extents_of(stage.step.op)[1] * p.n * itemsize(p.types.acc)
        result = b.offset(self.at[stage.step.op.result], b.mul(rows.batch, size))
        if s.division.parts == 1 or stage.partial is None:
            return result
        first = s.scratch.shared_offsets[stage.partial.name]
        place = b.add(b.mul(b.add(b.mul(b.sub(rows.part, 1), s.step.batch), rows.batch), size), first)
        return b.select(b.icmp("eq", rows.part, i64(0)), result, b.offset(self.scratch, place))
