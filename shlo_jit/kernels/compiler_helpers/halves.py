"""Conversions of f16 and bf16, on integers: LLVM compiles its own conversions into calls of these functions.

Results are rounded to nearest, ties to even. A NaN keeps its sign and the upper bits of its payload and becomes quiet,
as with the instructions.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.compiler_helpers.function import begin
from shlo_jit.kernels.llvm_values import V, const, lanes, vector
from shlo_jit.kernels.target import Target


class _Wide(NamedTuple):
    """A type that is rounded: f32 or f64."""

    type: str
    word: str
    bits: int
    fraction: int
    bias: int


_F32 = _Wide("float", "i32", 32, 23, 127)
_F64 = _Wide("double", "i64", 64, 52, 1023)


def _as_integers(target: Target) -> bool:
    """Whether narrow floats are passed as integers, because the ABI has no registers for them."""
    return target.arch == "wasm32" or (target.is_x86 and target.system == "macos")


def _give(b: Builder, bits: V, type: str, target: Target) -> None:
    """Returns an i16 from the function, as the narrow float it represents."""
    b.ret(bits if _as_integers(target) else b.bitcast(bits, type))


def _extend(module: ModuleText, name: str, target: Target) -> None:
    """float __extendhfsf2(half), float __extendbfsf2(bfloat)"""
    type = "half" if "hf" in name else "bfloat"
    b = begin(module, name, [("i16" if _as_integers(target) else type, "x")], "float")
    (x,) = b.params
    bits = b.bitcast(x, "i16")
    b.ret(half_to_float(b, bits) if type == "half" else _bfloat_to_float(b, bits))


def half_to_float(b: Builder, bits: V) -> V:
    """Returns the f32 values of f16 numbers given by their bits, i16 or vectors of i16."""
    word = vector("i32", lanes(bits.type))

    def const_(value: int) -> V:
        return const(word, value)

    wide = b.cast("zext", bits, "i32")
    sign, size = b.and_(wide, const_(0x8000)), b.and_(wide, const_(0x7FFF))
    shifted = b.shl(size, 13)
    result = b.add(shifted, const_((127 - 15) << 23))
    quiet = b.select(b.icmp("sgt", size, const_(0x7C00)), const_(0x7FC00000), const_(0x7F800000))
    result = b.select(b.icmp("sge", size, const_(0x7C00)), b.or_(shifted, quiet), result)
    # Numbers that are subnormal in f16 are whole multiples of 2^-24.
    small = b.cast("uitofp", size, "float")
    small = b.bitcast(b.fmul(small, const(small.type, 2.0**-24)), word)
    result = b.select(b.icmp("slt", size, const_(0x400)), small, result)
    return b.bitcast(b.or_(result, b.shl(sign, 16)), vector("float", lanes(bits.type)))


def _bfloat_to_float(b: Builder, bits: V) -> V:
    word = b.shl(b.cast("zext", bits, "i32"), 16)
    nan = b.icmp("sgt", b.and_(word, _i32(0x7FFFFFFF)), _i32(0x7F800000))
    return b.bitcast(b.or_(word, b.select(nan, _i32(0x400000), _i32(0))), "float")


def _truncate_to_half(module: ModuleText, name: str, target: Target) -> None:
    """half __truncsfhf2(float), half __truncdfhf2(double)"""
    wide = _F32 if "sf" in name else _F64
    b = begin(module, name, [(wide.type, "x")], "i16" if _as_integers(target) else "half")
    (x,) = b.params

    def word(value: int) -> V:
        return const(wide.word, value)

    bits, cut = b.bitcast(x, wide.word), wide.fraction - 10
    size = b.and_(bits, word((1 << (wide.bits - 1)) - 1))
    sign = b.and_(b.lshr(bits, wide.bits - 16), word(0x8000))
    # Rounding to nearest: half of the last place, less one if the last bit is even. An overflow becomes infinity.
    last = b.and_(b.lshr(size, cut), word(1))
    rebased = b.sub(size, word((wide.bias - 15) << wide.fraction))
    normal = b.lshr(b.add(b.add(rebased, word((1 << (cut - 1)) - 1)), last), cut)
    # Below 2^-14 the last place is 2^-24: adding the number with that last place rounds there.
    magic = 2.0 ** (wide.fraction - 24)
    sum_ = b.fadd(b.bitcast(size, wide.type), const(wide.type, magic))
    small = b.sub(b.bitcast(sum_, wide.word), b.bitcast(const(wide.type, magic), wide.word))
    nan = b.or_(word(0x7E00), b.and_(b.lshr(size, cut), word(0x3FF)))

    def exponent(power: int) -> V:
        return word((wide.bias + power) << wide.fraction)

    result = b.select(b.icmp("ult", size, exponent(-14)), small, normal)
    result = b.select(b.icmp("uge", size, exponent(16)), word(0x7C00), result)
    result = b.select(b.icmp("ugt", size, exponent(wide.bias + 1)), nan, result)
    _give(b, b.cast("trunc", b.or_(result, sign), "i16"), "half", target)


def _truncate_to_bfloat(module: ModuleText, name: str, target: Target) -> None:
    """bfloat __truncsfbf2(float), bfloat __truncdfbf2(double)"""
    wide = _F32 if "sf" in name else _F64
    b = begin(module, name, [(wide.type, "x")], "i16" if _as_integers(target) else "bfloat")
    (x,) = b.params
    bits = b.bitcast(x, "i32") if wide is _F32 else _to_odd(b, x)
    size = b.and_(bits, _i32(0x7FFFFFFF))
    last = b.and_(b.lshr(bits, 16), _i32(1))
    near = b.lshr(b.add(b.add(bits, _i32(0x7FFF)), last), 16)
    nan = b.or_(b.lshr(bits, 16), _i32(0x40))
    result = b.select(b.icmp("ugt", size, _i32(0x7F800000)), nan, near)
    _give(b, b.cast("trunc", result, "i16"), "bfloat", target)


def _to_odd(b: Builder, x: V) -> V:
    """Returns the bits of an f64 as f32, rounded to odd: the last bit is set if bits are lost, so that the value can be
    rounded again."""
    near = b.cast("fptrunc", x, "float")
    back, bits = b.cast("fpext", near, "double"), b.bitcast(near, "i32")
    too_large = b.fcmp("ogt", b.intrinsic("fabs", "double", [back]), b.intrinsic("fabs", "double", [x]))
    lost = b.and_(b.fcmp("one", back, x), b.icmp("eq", b.and_(bits, _i32(1)), _i32(0)))
    odd = b.select(too_large, b.sub(bits, _i32(1)), b.add(bits, _i32(1)))
    return b.select(lost, odd, bits)


def _i32(value: int) -> V:
    return const("i32", value)


WRITERS = {
    "__extendhfsf2": _extend,
    "__extendbfsf2": _extend,
    "__truncsfhf2": _truncate_to_half,
    "__truncdfhf2": _truncate_to_half,
    "__truncsfbf2": _truncate_to_bfloat,
    "__truncdfbf2": _truncate_to_bfloat,
}
