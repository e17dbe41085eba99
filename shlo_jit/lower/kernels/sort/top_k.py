"""Lowers top_k: the k largest of each line and their indices, the lower index first among equals, floats in total
order.

Elements become records of key and index (`kernels/sort.py`) whose keys have the reverse order. For small k a line is
read
once, a vector of keys at a time. Only a vector with a key below the k-th smallest so far inserts into the sorted array
of
the best (`kernels/top_k.py`). For random lines this happens about k * log(n / k) times. For large k, and for keys of 64
bits, the line is sorted. Lines are independent tasks.
"""

from __future__ import annotations

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels import top_k as best
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, bits, const, i64, vector
from shlo_jit.kernels.sort import INDEX_BITS
from shlo_jit.lower.kernels.access import Buffer, lanes_loop
from shlo_jit.lower.kernels.sort.keys import emit_order
from shlo_jit.lower.kernels.sort.records import RecordWriter
from shlo_jit.lower.kernels.sort.sort import each_line
from shlo_jit.lower.scratch import Fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.sort import RecordSort, TopKSchedule


def lower(low: Services, step: OpStep, schedule: TopKSchedule) -> None:
    op, how, k = step.op, schedule.records, schedule.k
    writer = RecordWriter(how)
    n, lanes = how.lines.n, low.target.lanes(64)
    types = [v.tensor.storage for v in (op.operands[0], *op.results)]

    def line_body(b: Builder, pointers: list[V], fields: Fields, line: V) -> None:
        operand, values, indices = (Buffer(b, t, p) for t, p in zip(types, pointers, strict=True))
        start = b.mul(line, n)
        if schedule.inserts.value:
            records = select(b, low, operand, start, how, best.begin(b, fields["best"], k, lanes), k)
        else:
            order_line(b, low, operand, start, how, fields["first"])
            records = writer.sort_line(b, low, fields)
        with b.loop(0, k, 1, "place") as i:
            index, out = writer.index(b, records, i), b.add(b.mul(line, k), i)
            values.store(out, operand.load(b.add(start, index)))
            indices.store(out, b.cast("trunc", index, "i32"))

    pointers = [low.pointer(v) for v in (op.operands[0], *op.results)]
    each_line(low, "top_k", step, pointers, schedule.tasks, line_body)


def order(b: Builder, how: RecordSort, x: V) -> V:
    key = how.keys[0]
    found = emit_order(b, how.dtypes[0], x, key.total, key.descending)
    return b.cast("zext", found, key_type(how)) if bits(found.type) < 8 else found


def key_type(how: RecordSort) -> str:
    """Type of a key in memory. It has whole bytes, because LLVM would pack a vector of smaller keys."""
    return f"i{max(8, how.keys[0].bits)}"


def record_of(b: Builder, how: RecordSort, key: V, i: V) -> V:
    """The record of an element with a given key at index i."""
    wide = b.cast("zext", key, how.records.type)
    return b.or_(b.shl(wide, INDEX_BITS), b.cast("zext", i, how.records.type))


def order_line(b: Builder, low: Services, operand: Buffer, start: V, how: RecordSort, records: V) -> None:
    """Writes the records of all elements of a line."""
    with b.loop(0, how.lines.n, 1, "record") as i:
        x = operand.load(b.add(start, i))
        assert isinstance(x, V)
        b.store(record_of(b, how, order(b, how, x), i), b.element(records, how.records.type, i), align=8)


def select(b: Builder, low: Services, operand: Buffer, start: V, how: RecordSort, array: V, k: int) -> V:
    """Writes the k smallest records of a line to `array`."""
    n, function = how.lines.n, best.insert_function(low.module, k, low.target.lanes(64))

    def insert(key: V, i: V) -> V:
        """Inserts a record. Returns the key of the largest record kept."""
        last = b.call("i64", function, [array, record_of(b, how, key, i)], declare=False)
        return b.cast("trunc", b.lshr(last, INDEX_BITS), key.type)

    def key_at(i: V) -> V:
        x = operand.load(b.add(start, i))
        assert isinstance(x, V)
        return order(b, how, x)

    kept = b.alloca(key_type(how))
    with b.loop(0, k, 1, "first") as i:
        b.store(insert(key_at(i), i), kept)
    width = low.target.lanes(max(8, how.keys[0].bits))

    def body(i: V, lanes: int, mask: V | None) -> None:
        x = operand.load(b.add(start, i), lanes, mask)
        assert isinstance(x, V)
        keys = order(b, how, x)
        better = b.icmp("ult", keys, b.splat(b.load(f"i{bits(keys.type)}", kept), lanes))
        if mask is not None:
            better = b.and_(better, mask)
        if lanes == 1:
            with b.if_(better, "better"):
                b.store(insert(keys, i), kept)
            return
        found = b.emit(f"i{lanes}", f"bitcast {better.type} {better.text} to i{lanes}")
        with b.if_(b.icmp("ne", found, const(found.type, 0)), "better"):
            some_better(keys, found, i, lanes)

    def some_better(keys: V, found: V, i: V, lanes: int) -> None:
        """Inserts the lanes that are set in `found`, unless an earlier one has lowered the limit below them."""
        line = b.alloca(vector(key_type(how), lanes))
        b.store(keys, line)
        count = (
            b.cast("zext", b.intrinsic("ctpop", found.type, [found]), "i64")
            if lanes < 64
            else b.intrinsic("ctpop", found.type, [found])
        )
        with b.loop_carry(0, count, [found], 1, "lane") as carry:
            (rest,) = carry.values
            lane = b.intrinsic_with_flag("cttz", rest, False)
            lane = b.cast("zext", lane, "i64") if lanes < 64 else lane
            key = b.load(key_type(how), b.element(line, key_type(how), lane))
            with b.if_(b.icmp("ult", key, b.load(key.type, kept)), "insert"):
                b.store(insert(key, b.add(i, lane)), kept)
            carry.next(b.and_(rest, b.sub(rest, const(rest.type, 1))))

    lanes_loop(b, low.target, i64(k), i64(n), width, body)
    return array
