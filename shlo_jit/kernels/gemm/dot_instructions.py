"""Instructions that multiply several adjacent integers in each lane of 32 bits, and add the products up."""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, bits, lanes

PAIRS = {128: "llvm.x86.sse2.pmadd.wd", 256: "llvm.x86.avx2.pmadd.wd", 512: "llvm.x86.avx512.pmaddw.d.512"}
"""Intrinsics that multiply two integers of 16 bits in each lane, by bits of a vector. With VNNI, LLVM combines them
with the addition to `vpdpwssd`."""


BYTE_PAIRS = {
    128: "llvm.x86.ssse3.pmadd.ub.sw.128",
    256: "llvm.x86.avx2.pmadd.ub.sw",
    512: "llvm.x86.avx512.pmaddubs.w.512",
}
"""Intrinsics that multiply two bytes in each lane of 16 bits, by bits of a vector."""


def multiply_byte_pairs(b: Builder, unsigned: V, signed: V) -> V:
    """Returns the sums of two products in each lane of 16 bits: bytes without sign by bytes with sign. The sums must
    fit: they would saturate."""
    n = lanes(unsigned.type)
    return b.call(f"<{n // 2} x i16>", BYTE_PAIRS[8 * n], [unsigned, signed])


def multiply_bytes(b: Builder, unsigned: V, signed: V, acc: V) -> V:
    """Returns `acc` plus the sums of four products in each lane: bytes without sign by bytes with sign. Exact modulo
    2^32."""
    width = lanes(acc.type) * 32
    four = f"<{width // 8} x i8>"
    args = [acc, b.bitcast(unsigned, four), b.bitcast(signed, four)]
    return b.call(acc.type, f"llvm.x86.avx512.vpdpbusd.{width}", args)


def multiply_pairs(b: Builder, x: V, y: V, acc: V) -> V:
    """Returns `acc` plus the sums of two products of 16-bit integers in each lane; exact modulo 2^32."""
    width = lanes(acc.type) * bits(acc.type)
    pair = f"<{width // 16} x i16>"
    return b.add(acc, b.call(acc.type, PAIRS[width], [b.bitcast(x, pair), b.bitcast(y, pair)]))


def dot_bytes(b: Builder, x: V, dtype_x: str, y: V, dtype_y: str, acc: V) -> V:
    """Returns `acc` plus the sums of four products of bytes in each lane, on AArch64."""
    if (dtype_x, dtype_y) == ("i8", "ui8"):
        return dot_bytes(b, y, dtype_y, x, dtype_x, acc)
    name = "usdot" if dtype_x != dtype_y else "sdot" if dtype_x == "i8" else "udot"
    n = lanes(acc.type)
    args = [acc, *(b.bitcast(v, f"<{4 * n} x i8>") for v in (x, y))]
    return b.call(acc.type, f"llvm.aarch64.neon.{name}.v{n}i32.v{4 * n}i8", args)
