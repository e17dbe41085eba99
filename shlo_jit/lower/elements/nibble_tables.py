"""Floats of four bits of index, looked up in a register that holds all 16 of them (AVX-512)."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, lanes, scalar, vector, vector_literal

ENTRIES = 16


def has_lookup(b: Builder, n: int) -> bool:
    """Whether n lanes are looked up by instructions on whole registers."""
    target = b.module.target
    return target is not None and target.is_x86 and target.vector_bits == 32 * ENTRIES and n % ENTRIES == 0


def look_up(b: Builder, index: V, floats: Sequence[float]) -> V:
    """The f32 with the number in the lowest four bits of each lane, in lanes for which there is a lookup."""
    n, kind = lanes(index.type), vector("float", ENTRIES)
    field = b.field_of(index)
    if field is not None and scalar(field[0].type) == "i32":  # without a mask: other bits do not matter
        index = b.lshr(field[0], b.splat(field[1], n))
    index = b.cast("zext", index, "i32")
    table = vector_literal("float", floats)
    found: list[V] = []
    for first in range(0, n, ENTRIES):
        some = index if n == ENTRIES else b.shuffle(index, None, range(first, first + ENTRIES))
        found.append(b.call(kind, "llvm.x86.avx512.permvar.sf.512", [table, some]))
    while len(found) > 1:  # vectors of equal lengths, joined in pairs
        width = lanes(found[0].type)
        found = [b.shuffle(x, y, range(2 * width)) for x, y in zip(found[::2], found[1::2], strict=True)]
    return found[0]
