"""Words to write calls of LAPACK with: arguments by reference, matrices of a batch, workspaces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shlo_jit.codegen.lapack import PREFIX
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import updates
from shlo_jit.ir.core import Value
from shlo_jit.kernels.builder import Builder, V, const
from shlo_jit.lower.kernels.lapack.calls import Call

BLOCK = 64
"""Columns a blocked routine treats at once, at most."""
ALIGN = 64
MOST = 2**31 - 1


class Writer:
    """Writes the call for one matrix of the batch."""

    def __init__(self, b: Builder, call: Call, pointers: dict[Value, V], scratch: V, index: V, batch_dims: int):
        self.b = b
        self.call_ = call
        self.pointers = pointers
        self.scratch = scratch
        self.index = index
        self.batch_dims = batch_dims
        self.taken = 0
        """Bytes of scratch memory in use."""
        self.symbols: dict[str, None] = {}
        """External symbols called."""
        self.part = "float" if call.letter in "sc" else "double"
        self.part_bytes = 4 if call.letter in "sc" else 8
        self.itemsize = self.part_bytes * (2 if call.is_complex else 1)

    # ------------------------------------------------------------------ arrays
    def _value(self, name: str) -> Value:
        found = self.call_.operands.get(name) or self.call_.results.get(name)
        assert found is not None, name
        return found

    def core(self, name: str) -> tuple[int, ...]:
        """Shape of one matrix or vector of the batch, as it lies in memory."""
        return self._value(name).tensor.extents[self.batch_dims :]

    def rows(self, name: str) -> int:
        return self.core(name)[-1]

    def columns(self, name: str) -> int:
        return self.core(name)[-2]

    def length(self, name: str) -> int:
        return self.core(name)[-1]

    def _at(self, value: Value) -> V:
        t = value.tensor
        size = math.prod(t.extents[self.batch_dims :]) * t.storage.itemsize
        return self.b.offset(self.pointers[value], self.b.mul(self.index, size))

    def operand(self, name: str) -> V:
        """Address of the current matrix of an operand."""
        return self._at(self.call_.operands[name])

    def result(self, name: str) -> V:
        return self._at(self.call_.results[name])

    def has_result(self, name: str) -> bool:
        return name in self.call_.results

    def whole(self, name: str) -> V:
        """Address of an operand that has no batch."""
        return self.pointers[self.call_.operands[name]]

    def skip(self, pointer: V, elements: int) -> V:
        return self.b.offset(pointer, elements * self.itemsize)

    def copy(self, name: str) -> None:
        """The operand's current matrix into the result of the same name, unless it is there already."""
        value = self.call_.operands[name]
        if (value, self.call_.results[name]) in updates(self.call_.op):
            return
        nbytes = math.prod(self.core(name)) * value.tensor.storage.itemsize
        self.b.memcpy(self.result(name), self.operand(name), nbytes)

    # ------------------------------------------------------------------ scalars, by reference
    def int(self, value: int) -> V:
        if value > MOST:
            target = self.call_.op.attributes["call_target_name"]
            message = f"custom_call: @{target} needs numbers up to {value} for these sizes, and LAPACK's have 32 bits"
            raise UnsupportedError(diagnose(message, self.call_.op.span))
        slot = self.b.alloca("i32", align=4)
        self.b.store(const("i32", value), slot)
        return slot

    def ld(self, rows: int) -> V:
        """A leading dimension."""
        return self.int(max(1, rows))

    def text(self, letter: str) -> V:
        slot = self.b.alloca("i8", align=1)
        self.b.store(const("i8", ord(letter)), slot)
        return slot

    def option(self, name: str) -> Any:
        return self.call_.options[name]

    def char(self, name: str) -> V:
        """An option that is a letter."""
        return self.text(self.option(name))

    def one(self) -> V:
        """The number 1 of the matrices' type."""
        slot = self.b.alloca(self.part, 2, align=self.part_bytes)
        self.b.store(const(self.part, 1.0), slot)
        self.b.store(const(self.part, 0.0), self.b.element(slot, self.part, 1))
        return slot

    def info(self) -> V:
        """Where the status goes: a result, or a place nobody reads."""
        return self.result("info") if self.has_result("info") else self.b.alloca("i32", align=4)

    # ------------------------------------------------------------------ workspaces
    def take(self, nbytes: int) -> V:
        at = self.b.offset(self.scratch, self.taken)
        self.taken += -(-max(1, nbytes) // ALIGN) * ALIGN
        return at

    def work(self, elements: int) -> tuple[V, V]:
        """A workspace of matrix elements, and its length by reference."""
        elements = max(1, elements)
        return self.take(elements * self.itemsize), self.int(elements)

    def real_work(self, elements: int) -> V:
        return self.take(elements * self.part_bytes)

    def int_work(self, elements: int) -> V:
        return self.take(elements * 4)

    def copied(self, source: V, elements: int) -> V:
        """A workspace with a copy of so many matrix elements."""
        copy = self.take(elements * self.itemsize)
        self.b.memcpy(copy, source, elements * self.itemsize)
        return copy

    # ------------------------------------------------------------------ numbers
    def tiny(self) -> V:
        """The least number whose reciprocal is finite."""
        return const(self.part, 2.0 ** (-126 if self.part_bytes == 4 else -1022))

    def precision(self) -> V:
        return const(self.part, 2.0 ** (-23 if self.part_bytes == 4 else -52))

    def size(self, pointer: V, index: V) -> V:
        """Absolute value of a matrix element."""
        b, parts = self.b, self.itemsize // self.part_bytes
        first = b.mul(index, parts)
        squares = [b.load(self.part, b.element(pointer, self.part, b.add(first, k))) for k in range(parts)]
        if parts == 1:
            return b.intrinsic("fabs", self.part, squares)
        # scaled by the larger part, so that the squares neither overflow nor vanish
        x, y = (b.intrinsic("fabs", self.part, [v]) for v in squares)
        large, small = b.intrinsic("maxnum", self.part, [x, y]), b.intrinsic("minnum", self.part, [x, y])
        ratio = b.fdiv(small, b.intrinsic("maxnum", self.part, [large, self.tiny()]))
        root = b.intrinsic("sqrt", self.part, [b.fadd(const(self.part, 1.0), b.fmul(ratio, ratio))])
        return b.fmul(large, root)

    def largest(self, vectors: Sequence[tuple[V, int]]) -> V:
        """The largest absolute value among the elements of vectors, each given by its place and length."""
        found = const(self.part, 0.0)
        for pointer, length in vectors:
            with self.b.loop_carry(0, length, [found], 1, "largest") as carry:
                size = self.size(pointer, carry.index)
                carry.next(self.b.intrinsic("maxnum", self.part, [carry.values[0], size]))
            found = carry.values[0]
        return found

    def keep_away_from_zero(self, pointer: V, index: V, tiny: V, small: V) -> None:
        """Replace an element below `tiny` by `small`, with the sign it has when it is real."""
        b, parts = self.b, self.itemsize // self.part_bytes
        is_tiny = b.fcmp("olt", self.size(pointer, index), tiny)
        for k in range(parts):
            place = b.element(pointer, self.part, b.add(b.mul(index, parts), k))
            old = b.load(self.part, place)
            new = const(self.part, 0.0) if k else small
            if parts == 1:
                new = b.intrinsic("copysign", self.part, [small, old])
            b.store(b.select(is_tiny, new, old), place)

    # ------------------------------------------------------------------ the call
    def call(self, routine: str, *arguments: V) -> None:
        symbol = f"{PREFIX}{self.call_.letter}{routine}"
        self.symbols[symbol] = None
        self.b.call("void", symbol, list(arguments))

    def is_finite(self, pointer: V, elements: int) -> V:
        """i1: no infinity or NaN among so many matrix elements. Some routines do not end when there are."""
        b, n = self.b, elements * (self.itemsize // self.part_bytes)
        with b.loop_carry(0, n, [const(self.part, 0.0)], 1, "finite") as carry:
            x = b.load(self.part, b.element(pointer, self.part, carry.index))
            carry.next(b.fadd(carry.values[0], b.fmul(x, const(self.part, 0.0))))
        return b.fcmp("ord", carry.values[0], carry.values[0])

    def guarded(self, name: str, arguments: Sequence[V], matrix: V, elements: int, info: V) -> None:
        """A call, if the matrix is finite; else the status -4 instead."""

        def run() -> list[V]:
            self.call(name, *arguments)
            return []

        def refuse() -> list[V]:
            self.b.store(const("i32", -4), info)
            return []

        self.b.if_else(self.is_finite(matrix, elements), run, refuse)
