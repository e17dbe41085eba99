"""Converts short rows of f16 and bf16 for products with a matrix in registers (see `schedule/short_rows.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.fuse.nest import Key
from shlo_jit.ir.types import DTYPES
from shlo_jit.kernels.llvm_values import V, i64, vector
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.registers import from_memory, memory_type
from shlo_jit.lower.kernels.units_in_registers import Found, UnitWriter, Variables
from shlo_jit.schedule.short_rows import converted_rows, loops_around_lanes, row_bytes

F32 = DTYPES["f32"]


class ConvertedRows:
    """The rows of the outputs that are computed together, as f32 on the stack."""

    def __init__(self, w: UnitWriter):
        self.w, self.b, self.s = w, w.b, w.s
        self.results = converted_rows(w.s)
        self.counts = {key: row_bytes(w.s, key) * 8 // key[0].tensor.storage.bits + 1 for key in self.results}
        self.stacks = {key: w.b.alloca("float", w.s.together * n) for key, n in self.counts.items()}
        self.numbers: dict[V, int] = {}
        """The places of outputs among those that are computed together."""

    def convert(self, outputs: Sequence[Variables]) -> None:
        """Emits the conversion of the rows of these outputs."""
        self.numbers = {here[self.s.cut]: i for i, here in enumerate(outputs)}
        for key, to in self.stacks.items():
            for i, here in enumerate(outputs):
                row = self.w.address(key, {**here, **dict.fromkeys(self.s.along, i64(0))})
                self.convert_row(key, row, self.b.offset(to, i * self.counts[key] * F32.itemsize))

    def convert_row(self, key: Key, row: V, to: V) -> None:
        b, storage, count = self.b, key[0].tensor.storage, self.counts[key]
        width = min(self.s.target.lanes(F32.bits), 1 << count.bit_length() - 1)
        kind = vector(memory_type(storage), width)
        # The last vector ends where the row does, and has some elements of the one before.
        for first in [*range(0, count - width, width), count - width]:
            at = b.offset(row, first * storage.itemsize)
            x = convert(b, storage, F32, from_memory(b, storage, b.load(kind, at, align=storage.itemsize)))
            assert isinstance(x, V)
            b.store(x, b.offset(to, first * F32.itemsize), align=F32.itemsize)

    def found(self, here: Variables) -> Found:
        """The results of the conversions at an iteration of an output that `convert` was called for."""
        found: Found = {}
        for key, stack in self.stacks.items():
            first = self.numbers[here[self.s.cut]] * self.counts[key]
            place = self.b.add(here[loops_around_lanes(self.s)[-1]], first)
            found[self.results[key]] = self.b.load("float", self.b.element(stack, "float", place))
        return found
