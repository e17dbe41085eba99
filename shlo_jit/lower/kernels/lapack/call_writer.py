"""Building blocks of LAPACK calls: arguments by reference, matrices of a batch, workspaces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shlo_jit.ir.core import Value
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.externals import LAPACK_PREFIX
from shlo_jit.kernels.llvm_values import V, const, i64
from shlo_jit.lower.scratch import shared_fields
from shlo_jit.ops.in_place import updates
from shlo_jit.schedule.lapack import LARGEST, LapackSchedule
from shlo_jit.sizes import Size


class Writer:
    """Writes the call for one matrix of the batch."""

    def __init__(self, b: Builder, schedule: LapackSchedule, pointers: dict[Value, V], scratch: V, index: V):
        self.b = b
        self.schedule = schedule
        self.call = schedule.call
        self.pointers = pointers
        self.fields = shared_fields(b, schedule.scratch, scratch)
        self.index = index
        self.symbols: dict[str, None] = {}
        """External symbols called."""
        self.part = "float" if self.call.part_bytes == 4 else "double"
        """LLVM type of a real number."""

    # ------------------------------------------------------------------ arrays
    def _at(self, value: Value) -> V:
        t = value.tensor
        size = math.prod(t.extents[len(self.call.batch) :]) * t.storage.itemsize
        return self.b.offset(self.pointers[value], self.b.mul(self.index, size))

    def operand(self, name: str) -> V:
        """Address of the current matrix of an operand."""
        return self._at(self.call.operands[name])

    def result(self, name: str) -> V:
        return self._at(self.call.results[name])

    def has_result(self, name: str) -> bool:
        return name in self.call.results

    def whole(self, name: str) -> V:
        """Address of an operand without a batch."""
        return self.pointers[self.call.operands[name]]

    def skip(self, pointer: V, elements: int) -> V:
        return self.b.offset(pointer, elements * self.call.itemsize)

    def copy(self, name: str) -> None:
        """Copies the operand's current matrix into the result of the same name, unless both share memory."""
        value = self.call.operands[name]
        if (value, self.call.results[name]) in updates(self.call.op):
            return
        nbytes = math.prod(self.call.core(name)) * value.tensor.storage.itemsize
        self.b.memcpy(self.result(name), self.operand(name), nbytes)

    # ------------------------------------------------------------------ scalars, by reference
    def int(self, value: int) -> V:
        assert value <= LARGEST, value
        slot = self.b.alloca("i32", align=4)
        self.b.store(self.b.cast("trunc", i64(value), "i32") if isinstance(value, Size) else const("i32", value), slot)
        return slot

    def ld(self, rows: int) -> V:
        """A leading dimension, by reference."""
        return self.int(max(1, rows))

    def text(self, letter: str) -> V:
        slot = self.b.alloca("i8", align=1)
        self.b.store(const("i8", ord(letter)), slot)
        return slot

    def option(self, name: str) -> Any:
        return self.call.options[name]

    def char(self, name: str) -> V:
        """An option that is a letter, by reference."""
        return self.text(self.option(name))

    def one(self) -> V:
        """The number 1 of the matrices' type, by reference."""
        slot = self.b.alloca(self.part, 2, align=self.call.part_bytes)
        self.b.store(const(self.part, 1.0), slot)
        self.b.store(const(self.part, 0.0), self.b.element(slot, self.part, 1))
        return slot

    def info(self) -> V:
        """Address for the status: a result, or memory that is not read."""
        return self.result("info") if self.has_result("info") else self.b.alloca("i32", align=4)

    # ------------------------------------------------------------------ workspaces
    def workspace(self, name: str) -> V:
        return self.fields[name]

    def sized_workspace(self, name: str) -> tuple[V, V]:
        """A workspace, and its length by reference."""
        return self.workspace(name), self.int(self.schedule.workspaces[name].length)

    def rwork(self) -> list[V]:
        """Arguments for the workspace of real numbers that routines for complex matrices take; empty for real ones."""
        return [self.workspace("rwork")] if self.call.is_complex else []

    def copied(self, name: str, source: V) -> V:
        """A workspace with a copy of as many matrix elements as it has room for."""
        copy = self.workspace(name)
        self.b.memcpy(copy, source, self.schedule.workspaces[name].elements * self.call.itemsize)
        return copy

    # ------------------------------------------------------------------ numbers
    def tiny(self) -> V:
        """The least number whose reciprocal is finite."""
        return const(self.part, 2.0 ** (-126 if self.call.part_bytes == 4 else -1022))

    def precision(self) -> V:
        return const(self.part, 2.0 ** (-23 if self.call.part_bytes == 4 else -52))

    def size(self, pointer: V, index: V) -> V:
        """Absolute value of a matrix element."""
        b, parts = self.b, self.call.itemsize // self.call.part_bytes
        first = b.mul(index, parts)
        squares = [b.load(self.part, b.element(pointer, self.part, b.add(first, k))) for k in range(parts)]
        if parts == 1:
            return b.intrinsic("fabs", self.part, squares)
        # scaled by the larger part, so that the squares neither overflow nor underflow
        x, y = (b.intrinsic("fabs", self.part, [v]) for v in squares)
        large, small = b.intrinsic("maxnum", self.part, [x, y]), b.intrinsic("minnum", self.part, [x, y])
        ratio = b.fdiv(small, b.intrinsic("maxnum", self.part, [large, self.tiny()]))
        root = b.intrinsic("sqrt", self.part, [b.fadd(const(self.part, 1.0), b.fmul(ratio, ratio))])
        return b.fmul(large, root)

    def largest(self, vectors: Sequence[tuple[V, int]]) -> V:
        """The largest absolute value among the elements of vectors, each given by its address and length."""
        found = const(self.part, 0.0)
        for pointer, length in vectors:
            with self.b.loop_carry(0, length, [found], 1, "largest") as carry:
                size = self.size(pointer, carry.index)
                carry.next(self.b.intrinsic("maxnum", self.part, [carry.values[0], size]))
            found = carry.values[0]
        return found

    def keep_away_from_zero(self, pointer: V, index: V, tiny: V, small: V) -> None:
        """Replaces an element below `tiny` by `small`, keeping its sign if it is real."""
        b, parts = self.b, self.call.itemsize // self.call.part_bytes
        is_tiny = b.fcmp("olt", self.size(pointer, index), tiny)
        for k in range(parts):
            place = b.element(pointer, self.part, b.add(b.mul(index, parts), k))
            old = b.load(self.part, place)
            new = const(self.part, 0.0) if k else small
            if parts == 1:
                new = b.intrinsic("copysign", self.part, [small, old])
            b.store(b.select(is_tiny, new, old), place)

    # ------------------------------------------------------------------ the call
    def invoke(self, routine: str, *arguments: V) -> None:
        symbol = f"{LAPACK_PREFIX}{self.call.letter}{routine}"
        self.symbols[symbol] = None
        self.b.call("void", symbol, list(arguments))

    def is_finite(self, pointer: V, elements: int) -> V:
        """Whether there is no infinity or NaN among `elements` matrix elements, as i1. Some routines do not terminate
        otherwise."""
        b, n = self.b, elements * (self.call.itemsize // self.call.part_bytes)
        with b.loop_carry(0, n, [const(self.part, 0.0)], 1, "finite") as carry:
            x = b.load(self.part, b.element(pointer, self.part, carry.index))
            carry.next(b.fadd(carry.values[0], b.fmul(x, const(self.part, 0.0))))
        return b.fcmp("ord", carry.values[0], carry.values[0])

    def guarded(self, name: str, arguments: Sequence[V], matrix: V, elements: int, info: V) -> None:
        """Emits a call that runs if the matrix is finite; otherwise the status is -4."""

        def run() -> list[V]:
            self.invoke(name, *arguments)
            return []

        def refuse() -> list[V]:
            self.b.store(const("i32", -4), info)
            return []

        self.b.if_else(self.is_finite(matrix, elements), run, refuse)
