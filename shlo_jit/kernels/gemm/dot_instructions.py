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


def dot_bf16(b: Builder, x: V, y: V, acc: V) -> V:
    """Returns `acc` plus the sums of two products of bf16 numbers in each of 16 lanes, with `vdpbf16ps`: it adds the
    products one after the other, and takes subnormal numbers for zero."""
    pair = "<32 x bfloat>"
    return b.call(acc.type, "llvm.x86.avx512bf16.dpbf16ps.512", [acc, b.bitcast(x, pair), b.bitcast(y, pair)])


def round_to_bf16(b: Builder, x: V) -> V:
    """Rounds 16 or 32 f32 numbers to the bits of bf16, with an instruction that takes subnormal numbers for zero."""
    n = lanes(x.type)
    halves = [x] if n == 16 else [b.shuffle(x, None, range(at, at + 16)) for at in (16, 0)]
    name = "cvtneps2bf16" if n == 16 else "cvtne2ps2bf16"
    return b.bitcast(b.call(f"<{n} x bfloat>", f"llvm.x86.avx512bf16.{name}.512", halves), f"<{n} x i16>")


def dot_bytes(b: Builder, x: V, dtype_x: str, y: V, dtype_y: str, acc: V) -> V:
    """Returns `acc` plus the sums of four products of bytes in each lane, on AArch64."""
    if (dtype_x, dtype_y) == ("i8", "ui8"):
        return dot_bytes(b, y, dtype_y, x, dtype_x, acc)
    name = "usdot" if dtype_x != dtype_y else "sdot" if dtype_x == "i8" else "udot"
    n = lanes(acc.type)
    args = [acc, *(b.bitcast(v, f"<{4 * n} x i8>") for v in (x, y))]
    return b.call(acc.type, f"llvm.aarch64.neon.{name}.v{n}i32.v{4 * n}i8", args)
