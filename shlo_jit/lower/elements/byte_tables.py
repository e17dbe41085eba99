"""Floats of 8 bits, looked up in registers: two tables of 128 bytes hold the high and the low byte of the bf16 of each
magnitude, and bf16 holds every such float exactly. For CPUs with AVX-512 VBMI."""

from __future__ import annotations

from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const, lanes, vector, vector_literal
from shlo_jit.lower.elements.nibble_tables import joined

CODES = 128
"""Number of magnitudes: an index has 7 bits, and the instruction does not read the sign."""
BYTES, WORDS = 64, 16
"""Bytes of a register, and words of 32 bits."""
GROUP = 32
"""Lanes that are looked up together. The other half of the indices are zeros, whose bytes fill the low half of f32."""


def has_byte_lookup(b: Builder, n: int) -> bool:
    """Whether n lanes are looked up by instructions on whole registers."""
    target = b.module.target
    return target is not None and target.looks_up_bytes and n % GROUP == 0


def look_up_f8(b: Builder, dtype: DType, x: V) -> V:
    """The f32 of bit patterns (i8 lanes) of a type with a sign and with a zero of either sign."""
    import numpy as np

    magnitudes = np.arange(CODES).astype(np.uint8).view(dtype.numpy).astype(np.float32)
    magnitudes = np.where(np.isnan(magnitudes), np.float32(np.nan), magnitudes)  # its own NaN may have a sign
    bits = magnitudes.view(np.uint32)
    assert not (bits & 0xFFFF).any() and not bits[0], f"bf16 does not hold all numbers of {dtype.name}"
    low, high = ((bits >> shift & 0xFF).tolist() for shift in (16, 24))
    zeros, found = const(vector("i8", GROUP), 0), list[V]()
    for first in range(0, lanes(x.type), GROUP):
        some = x if lanes(x.type) == GROUP else b.shuffle(x, None, range(first, first + GROUP))
        codes = b.shuffle(some, zeros, range(BYTES))
        sign = b.and_(codes, const(codes.type, CODES))
        below, above = _look_up(b, codes, low), b.or_(_look_up(b, codes, high), sign)
        for start in range(0, GROUP, WORDS):
            order = [n for i in range(start, start + WORDS) for n in (GROUP, GROUP, i, BYTES + i)]
            found.append(b.bitcast(b.shuffle(below, above, order), vector("float", WORDS)))
    return joined(b, found)


def _look_up(b: Builder, index: V, table: list[int]) -> V:
    """The bytes of a table at some places."""
    signed = [n - 256 if n >= CODES else n for n in table]
    first, second = (vector_literal("i8", half) for half in (signed[:BYTES], signed[BYTES:]))
    return b.call(index.type, "llvm.x86.avx512.vpermi2var.qi.512", [first, index, second])
