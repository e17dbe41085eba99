"""Records of key and index: computed from elements, sorted, and used to move the operands (see `schedule/sort.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shlo_jit.ir.types import I64
from shlo_jit.kernels import sort as records_sort
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, bits, i64, lanes, vector
from shlo_jit.kernels.sort import INDEX_BITS, load_record
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.registers import Reg, register_type
from shlo_jit.lower.kernels.access import Buffer, lanes_loop
from shlo_jit.lower.kernels.sort.key_sort import quicksort
from shlo_jit.lower.kernels.sort.keys import emit_key
from shlo_jit.lower.scratch import Fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.sort import Lines, RecordSort


def start_of(b: Builder, lines: Lines, line: V) -> V:
    """Index of a line's first element."""
    outer = b.mul(b.udiv(line, lines.stride), lines.n * lines.stride)
    return b.add(outer, b.urem(line, lines.stride))


@dataclass(frozen=True)
class RecordWriter:
    """Parts of kernels that sort by records. `kept`: see SortSchedule."""

    how: RecordSort
    kept: tuple[str, ...] = ()

    def fill(self, b: Builder, low: Services, inputs: list[Buffer], line: V, records: V, bounds: tuple[V, V]) -> None:
        """Writes the records [bounds) of the line that begins at `line`."""
        rec, stride = self.how.records, self.how.lines.stride
        width = low.target.lanes(64) if rec.bits == 64 and stride == 1 else 1

        def body(i: V, n: int, mask: V | None) -> None:
            place = b.add(line, b.mul(i, stride))
            elements = [x.load(place, n, mask) for x in inputs]
            value = self.record(b, elements, i, n)
            at = b.element(records, rec.type, i)
            if mask is None:
                b.store(value, at, align=8)
            else:
                b.masked_store(value, at, mask)

        lanes_loop(b, low.target, bounds[0], bounds[1], width, body)

    def record(self, b: Builder, elements: list, i: V, n: int) -> V:
        """Key and index of n elements from index i on."""
        t = vector(self.how.records.type, n)
        total: V | None = None
        for key in self.how.keys:
            part = b.cast("zext", emit_key(b, key, elements), t)
            if lanes(part.type) != n:
                part = b.splat(part, n)
            total = part if total is None else b.or_(b.shl(total, key.bits), part)
        assert total is not None
        if self.how.moves_values:
            rest = _as_integer(b, elements[0])
        else:
            rest = b.add(b.splat(i, n), b.iota("i64", n)) if n > 1 else i
        return b.or_(b.shl(total, INDEX_BITS), b.cast("zext", rest, t))

    def index(self, b: Builder, records: V, i: V) -> V:
        x = b.cast("trunc", load_record(b, self.how.records, records, i), "i32")
        return b.cast("zext", x, "i64")

    def place(self, b: Builder, buffers: list[Buffer], records: V, start: V, i: V) -> None:
        """Writes place i of the results' line from sorted records; `buffers`: the operands, then the results."""
        if not self.how.moves_values:
            move(b, buffers, start, self.how.lines.stride, i, self.index(b, records, i), self.kept)
            return
        (_, result), dtype = buffers, self.how.dtypes[0]
        t = register_type(dtype)
        x = b.cast("trunc", load_record(b, self.how.records, records, i), f"i{bits(t)}")
        result.store(b.add(start, b.mul(i, self.how.lines.stride)), b.bitcast(x, t))

    def sort_line(self, b: Builder, low: Services, fields: Fields) -> V:
        """Sorts the records in the first field. Returns the address of the sorted ones."""
        if self.how.is_partitioned:
            return quicksort(b, self.how.records.bits, fields["first"], fields["second"], self.how.lines.n)
        if self.how.is_ranked:
            function = records_sort.rank_records(low.module, self.how.records, low.target.lanes(64))
        else:
            function = records_sort.radix_records(low.module, self.how.records)
        arguments = [fields["first"], fields["second"], i64(self.how.lines.n), fields["counts"]]
        return b.call("ptr", function, arguments, declare=False)


def _as_integer(b: Builder, x: Reg) -> V:
    assert isinstance(x, V)
    return b.bitcast(x, vector(f"i{bits(x.type)}", lanes(x.type)))


def move(b: Builder, buffers: list[Buffer], start: V, stride: int, i: V, index: V, kept: Sequence[str]) -> None:
    """Copies element `index` of each operand's line to place i of the result's; `kept` as in SortSchedule."""
    n = len(buffers) // 2
    source, target = b.add(start, b.mul(index, stride)), b.add(start, b.mul(i, stride))
    for x, y, what in zip(buffers[:n], buffers[n:], kept, strict=True):
        if what:
            y.store(target, x.load(source) if what == "value" else convert(b, I64, y.dtype, index))
