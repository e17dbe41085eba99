"""Element types in memory and in registers.

A register holds a scalar or a vector of lanes. i1 is LLVM's i1 (a byte in memory), i2 and i4 are LLVM's (a byte in
memory), f16 is `half`; bf16 and the small floats stay bit patterns, decoded to f32 by each op that computes with them
and rounded back, since LLVM's own bf16 truncation flushes subnormals on AVX-512. A complex number is a pair of
registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_jit.ir.types import DTYPES, DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.gemm.dot_instructions import round_to_bf16
from shlo_jit.kernels.llvm_values import V, const, i64, lanes, vector, vector_literal
from shlo_jit.sizes import Size

Reg = V | tuple[V, V]
"""A value in a register; a complex number is (real, imaginary)."""


def is_bits(dtype: DType) -> bool:
    """Whether a type is a float that registers hold as a bit pattern."""
    return dtype.is_float and dtype.name not in ("f16", "f32", "f64")


def register_type(dtype: DType) -> str:
    """Scalar LLVM type of a register (of one part, for complex)."""
    if dtype.is_complex:
        return register_type(dtype.part)
    if dtype.is_float:
        return {"f16": "half", "f32": "float", "f64": "double"}.get(dtype.name) or f"i{8 * dtype.itemsize}"
    return "i64" if dtype.kind == "x" else f"i{dtype.bits}"


def memory_type(dtype: DType) -> str:
    """Scalar LLVM type of an element in memory (of one part, for complex)."""
    t = register_type(dtype)
    return "i8" if t in ("i1", "i2", "i4") else t


def from_memory(b: Builder, dtype: DType, x: V) -> V:
    """Converts a loaded value (memory type) to a register."""
    if dtype.kind == "b":
        return b.icmp("ne", x, const(x.type, 0))
    to = register_type(dtype)
    return b.field(x, 0, to) if to in ("i2", "i4") else b.cast("trunc", x, to)


def to_memory(b: Builder, dtype: DType, x: V) -> V:
    """Converts a register to the value that is stored. The bits above i2 and i4 are zero, as ml_dtypes leaves them."""
    return b.cast("zext", x, memory_type(dtype)) if dtype.kind in "biu" else x


def lanes_of(x: Reg) -> int:
    return lanes(x[0].type) if isinstance(x, tuple) and not isinstance(x, V) else lanes(x.type)  # type: ignore[union-attr]


def is_pair(x: Reg) -> bool:
    return not isinstance(x, V)


def widen(b: Builder, x: Reg, n: int) -> Reg:
    """Splats a scalar register to n lanes; returns a register of n lanes unchanged."""
    if isinstance(x, V):
        return b.splat(x, n)
    return b.splat(x[0], n), b.splat(x[1], n)


def constant(dtype: DType, value: object) -> Reg:
    """A literal register (one lane) with an element of a numpy array."""
    import numpy as np

    if dtype.is_complex:
        z = complex(value)  # type: ignore[arg-type]
        return const(register_type(dtype), z.real), const(register_type(dtype), z.imag)
    if is_bits(dtype) or dtype.is_float:
        return float_literal(dtype, np.asarray(value, dtype.numpy))
    return const(register_type(dtype), int(value))  # type: ignore[call-overload]


def float_literal(dtype: DType, value) -> V:
    """A bit-exact literal, including NaN payloads."""
    import numpy as np

    raw = int(np.asarray(value, dtype.numpy).reshape(()).view(f"u{dtype.itemsize}"))
    t = register_type(dtype)
    if t == "half":
        return V(t, f"0xH{raw:04X}")
    if t == "double":
        return V(t, f"0x{raw:016X}")
    if t == "float":
        wide = int(np.asarray(raw, np.uint32).view(np.float32).astype(np.float64).view(np.uint64))
        return V(t, f"0x{wide:016X}")
    return const(t, raw)


# ---------------------------------------------------------------------------- bf16 and the small floats
def to_f32(b: Builder, dtype: DType, x: V) -> V:
    """The exact f32 of an f16, bf16 or small float register; f32 is returned unchanged."""
    if dtype.name == "f32":
        return x
    wide = b.wide_of(x)
    if wide is not None:
        return wide
    if dtype.name == "f16":
        target = b.module.target
        if target is not None and target.arch == "wasm32":
            # LLVM 22 would compare f16 numbers as such here, and hangs on vectors of them (tests/test_every_target.py).
            from shlo_jit.kernels.compiler_helpers.halves import half_to_float

            return half_to_float(b, b.bitcast(x, "i16"))
        return b.cast("fpext", x, "float")
    if dtype.name == "bf16":
        return b.bitcast(b.shl(b.cast("zext", x, "i32"), 16), vector("float", lanes(x.type)))
    from shlo_jit.lower.elements.small_floats import decode

    return decode(b, dtype, x)


def from_f32(b: Builder, dtype: DType, x: V) -> V:
    """Rounds f32 to nearest even, into an f16, bf16 or small float register."""
    if dtype.name == "f32":
        return x
    if dtype.name == "f16":
        return b.cast("fptrunc", x, "half")
    if dtype.name == "bf16":
        return round_bf16(b, x)
    from shlo_jit.lower.elements.small_floats import encode

    return encode(b, dtype, x)


def exactly(b: Builder, dtype: DType, x: V) -> V:
    """The f16 or bf16 register of f32 numbers that the type holds exactly. Where they are computed with further, it is
    not converted back."""
    if dtype.name == "f16":
        return b.narrowed(b.cast("fptrunc", x, "half"), x)
    return b.cut(x, round_to_bf16(b, x) if _flushes(b, x) else None)


def _flushes(b: Builder, x: V) -> bool:
    """Whether an instruction rounds f32 numbers to bf16."""
    return b.flushes_bf16 and lanes(x.type) in (16, 32)


def round_bf16_sum(b: Builder, x: V) -> V:
    """Rounds a sum, product or quotient of bf16 numbers like `round_bf16`. A NaN is one of the operands' or the default
    one. Its lower half is zero, so rounding does not change it."""
    if _flushes(b, x):
        return round_to_bf16(b, x)
    i32 = vector("i32", lanes(x.type))
    return b.cast("trunc", b.lshr(_half_up(b, b.bitcast(x, i32)), 16), "i16")


def _half_up(b: Builder, bits: V) -> V:
    """The bits of an f32, with the upper half rounded to nearest even."""
    lsb = b.and_(b.lshr(bits, 16), const(bits.type, 1))
    return b.add(b.add(bits, lsb), const(bits.type, 0x7FFF))


def round_bf16(b: Builder, x: V) -> V:
    if _flushes(b, x):
        return round_to_bf16(b, x)
    n = lanes(x.type)
    i32 = vector("i32", n)
    bits = b.bitcast(x, i32)
    rounded = b.lshr(_half_up(b, bits), 16)
    quiet = b.or_(b.lshr(bits, 16), const(i32, 0x40))
    nan = b.fcmp("uno", x, x)
    return b.cast("trunc", b.select(nan, quiet, rounded), "i16")


F32 = DTYPES["f32"]


def flatten(values: Sequence[Reg]) -> list[V]:
    """Registers, with complex pairs flattened."""
    out: list[V] = []
    for r in values:
        out.extend(r if is_pair(r) else [r])  # type: ignore[arg-type, list-item]
    return out


def regroup(values: Sequence[V], like: list[list[Reg]]) -> list[list[Reg]]:
    """The inverse of flatten, with the structure of `like`."""
    it = iter(values)
    return [[(next(it), next(it)) if is_pair(r) else next(it) for r in group] for group in like]


def map_parts(x: Reg, f: Callable[[V], V]) -> Reg:
    """Applies f to a register, or to both parts of a pair."""
    return (f(x[0]), f(x[1])) if is_pair(x) else f(x)  # type: ignore[index]


def put_lane(b: Builder, old: Reg, x: Reg) -> Reg:
    """Replaces lane 0."""
    if is_pair(old):
        return tuple(b.insert(o, p, 0) for o, p in zip(old, x, strict=True))  # type: ignore[arg-type, return-value]
    return b.insert(old, x, 0)  # type: ignore[arg-type]


def select_lanes(b: Builder, mask: V, x: Reg, other: Reg) -> Reg:
    """Lanes of x where the mask holds, of `other` elsewhere."""
    if is_pair(x):
        return tuple(b.select(mask, p, q) for p, q in zip(x, other, strict=True))  # type: ignore[arg-type, return-value]
    return b.select(mask, x, other)  # type: ignore[arg-type]


def first_lanes(width: int, count: int) -> V:
    """Mask of the first `count` lanes."""
    return vector_literal("i1", [k < count for k in range(width)])


def lanes_left(b: Builder, width: int, count: int) -> V:
    """Mask of the first `count` lanes, where `count` may be known only at the call."""
    if not isinstance(count, Size):
        return first_lanes(width, count)
    return b.icmp("slt", b.iota("i32", width), b.splat(b.cast("trunc", i64(count), "i32"), width))
