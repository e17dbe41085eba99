"""Sums of vectors of bytes, which are stored after each of them."""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.lane_sums import fold
from shlo_jit.kernels.llvm_values import V, const, i64, vector

LANES = 8


def sum_vectors(b: Builder, first: V, count: int, row: int, padding: int) -> None:
    """Emits the sums of `count` vectors of signed bytes, `row` bytes apart, of which the last `padding` hold the
    sum."""
    size = row - padding
    whole = size - size % LANES
    with b.loop(0, count, hint="vector") as r:
        at = b.offset(first, b.mul(r, row))
        with b.loop_carry(0, whole, [const(vector("i32", LANES), 0)], LANES) as carry:
            x = b.load(vector("i8", LANES), b.offset(at, carry.index), align=1)
            carry.next(b.add(carry.values[0], b.cast("sext", x, "i32")))
        with b.loop_carry(whole, size, [fold(b, carry.values[0])]) as rest:
            x = b.load("i8", b.offset(at, rest.index))
            rest.next(b.add(rest.values[0], b.cast("sext", x, "i32")))
        b.store(rest.values[0], b.offset(at, i64(size)), align=1)
