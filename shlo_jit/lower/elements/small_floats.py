"""Floats of 4, 6 and 8 bits: converts bit patterns to f32 and back, in integer instructions on vectors.

One routine serves all formats, parametrised by `Format`; f8E8M0FNU, which has neither sign nor mantissa, has its own.
The semantics are those of ml_dtypes, bit for bit. It rounds to nearest even and keeps subnormals. Numbers out of range
become an infinity, a NaN or the largest finite number, depending on the format.
"""

from __future__ import annotations

from dataclasses import dataclass

from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const, lanes, vector
from shlo_jit.lower.elements.byte_tables import has_byte_lookup, look_up_f8
from shlo_jit.lower.elements.nibble_tables import has_lookup, look_up

F32_INFINITY = 0x7F800000
F32_NAN = 0x7FC00000


@dataclass(frozen=True)
class Format:
    """Layout and special codes of a format. Codes are magnitudes: patterns without their sign bit."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    largest: int
    """Code of the largest finite number."""
    overflow: int
    """Code of numbers that are too large, including infinity."""
    nan: int | None
    """Code of NaN. None for a format without NaN: NaN then becomes a zero of the opposite sign."""
    infinity: int | None = None
    unsigned_zero: bool = False
    """Whether there is no -0: its pattern is the only NaN, which overflow gives too."""

    @property
    def has_halves(self) -> bool:
        """Whether each number is an f16 times a power of two that depends on the format only."""
        return self.exponent_bits < 5 or self.infinity is not None

    @property
    def sign(self) -> int:
        return 1 << (self.exponent_bits + self.mantissa_bits)


def _ieee(exponent_bits: int, mantissa_bits: int) -> Format:
    """A format whose top exponent holds infinity and NaN."""
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    quiet = infinity | (1 << (mantissa_bits - 1))
    bias = (1 << (exponent_bits - 1)) - 1
    return Format(exponent_bits, mantissa_bits, bias, infinity - 1, infinity, quiet, infinity)


def _saturating(exponent_bits: int, mantissa_bits: int) -> Format:
    """An FN format without NaN: every code is a finite number."""
    top = (1 << (exponent_bits + mantissa_bits)) - 1
    return Format(exponent_bits, mantissa_bits, (1 << (exponent_bits - 1)) - 1, top, top, None)


def _fnuz(exponent_bits: int, mantissa_bits: int, bias: int) -> Format:
    top = (1 << (exponent_bits + mantissa_bits)) - 1
    return Format(exponent_bits, mantissa_bits, bias, top, 0, 0, unsigned_zero=True)


FORMATS: dict[str, Format] = {
    "f4E2M1FN": _saturating(2, 1),
    "f6E2M3FN": _saturating(2, 3),
    "f6E3M2FN": _saturating(3, 2),
    "f8E3M4": _ieee(3, 4),
    "f8E4M3": _ieee(4, 3),
    "f8E4M3FN": Format(4, 3, 7, 0x7E, 0x7F, 0x7F),
    "f8E4M3FNUZ": _fnuz(4, 3, 8),
    "f8E4M3B11FNUZ": _fnuz(4, 3, 11),
    "f8E5M2": _ieee(5, 2),
    "f8E5M2FNUZ": _fnuz(5, 2, 16),
}


def decode(b: Builder, dtype: DType, x: V) -> V:
    """The f32 of a bit pattern (i8 lanes), which is exact."""
    if dtype.bits == 4 and has_lookup(b, lanes(x.type)):
        import numpy as np

        return look_up(b, x, np.arange(16).astype(np.uint8).view(dtype.numpy).astype(np.float64).tolist())
    bits = b.cast("zext", x, "i32")
    t = bits.type
    if dtype.name == "f8E8M0FNU":
        return b.bitcast(_decode_power(b, bits), "float")
    f = FORMATS[dtype.name]
    if dtype.bits == 8 and not f.unsigned_zero and has_byte_lookup(b, lanes(x.type)):
        return look_up_f8(b, dtype, x)
    if f.has_halves and b.module.target is not None and b.module.target.converts_halves:
        return _decode_through_half(b, f, x)
    code = b.and_(bits, const(t, f.sign - 1))
    sign = b.shl(b.and_(bits, const(t, f.sign)), 31 - f.exponent_bits - f.mantissa_bits)
    normal = b.add(b.shl(code, 23 - f.mantissa_bits), const(t, (127 - f.bias) << 23))
    unit = 2.0 ** (1 - f.bias - f.mantissa_bits)
    count = b.cast("uitofp", code, "float")
    subnormal = b.bitcast(b.fmul(count, const(count.type, unit)), t)
    value = b.select(b.icmp("ult", code, const(t, 1 << f.mantissa_bits)), subnormal, normal)
    if f.infinity is not None:
        value = b.select(b.icmp("eq", code, const(t, f.infinity)), const(t, F32_INFINITY), value)
        value = b.select(b.icmp("ugt", code, const(t, f.infinity)), const(t, F32_NAN), value)
    elif f.unsigned_zero:
        value = b.select(b.icmp("eq", bits, const(t, f.sign)), const(t, F32_NAN), value)
    elif f.nan is not None:
        value = b.select(b.icmp("eq", code, const(t, f.nan)), const(t, F32_NAN), value)
    return b.bitcast(b.or_(value, sign), "float")


def _decode_through_half(b: Builder, f: Format, x: V) -> V:
    """Moves the code to the place of an f16's exponent and mantissa, which the processor converts, subnormal numbers
    too, and scales by the difference of the biases."""
    t = vector("i16", lanes(x.type))
    wide = b.cast("zext", x, "i16")
    drop = 10 - f.mantissa_bits
    code = b.shl(b.and_(wide, const(t, f.sign - 1)), drop)
    half, nan = code, const(t, 0x7E00)
    if f.infinity is not None:
        top = const(t, f.infinity << drop)
        if f.exponent_bits < 5:
            half = b.select(b.icmp("eq", code, top), const(t, 0x7C00), half)
        half = b.select(b.icmp("ugt", code, top), nan, half)
    elif f.unsigned_zero:
        half = b.select(b.icmp("eq", wide, const(t, f.sign)), nan, half)
    elif f.nan is not None:
        half = b.select(b.icmp("eq", code, const(t, f.nan << drop)), nan, half)
    sign = b.shl(b.and_(wide, const(t, f.sign)), 15 - f.exponent_bits - f.mantissa_bits)
    y = b.cast("fpext", b.bitcast(b.or_(half, sign), vector("half", lanes(t))), "float")
    return y if f.bias == 15 else b.fmul(y, const(y.type, 2.0 ** (15 - f.bias)))


def encode(b: Builder, dtype: DType, x: V) -> V:
    """The bit pattern (i8 lanes) of the number nearest to an f32, ties to even."""
    t = vector("i32", lanes(x.type))
    bits = b.bitcast(x, t)
    if dtype.name == "f8E8M0FNU":
        return b.cast("trunc", _encode_power(b, bits), "i8")
    f = FORMATS[dtype.name]
    magnitude = b.and_(bits, const(t, 0x7FFFFFFF))
    sign = b.and_(b.lshr(bits, 31 - f.exponent_bits - f.mantissa_bits), const(t, f.sign))
    code = _round(b, f, magnitude)
    over = b.icmp("sgt", code, const(t, f.largest))
    nan = b.icmp("ugt", magnitude, const(t, F32_INFINITY))
    if f.unsigned_zero:
        code = b.select(b.icmp("eq", code, const(t, 0)), code, b.or_(code, sign))
        code = b.select(b.or_(over, nan), const(t, f.sign), code)
        return b.cast("trunc", code, "i8")
    code = b.select(over, const(t, f.overflow), code)
    if f.nan is None:
        code = b.select(nan, const(t, f.sign), code)
        return b.cast("trunc", b.xor(code, sign), "i8")
    code = b.select(nan, const(t, f.nan), code)
    return b.cast("trunc", b.or_(code, sign), "i8")


def _round(b: Builder, f: Format, magnitude: V) -> V:
    """The code nearest to the bits of a non-negative f32, as if exponents had no upper limit."""
    t = magnitude.type
    drop = 23 - f.mantissa_bits
    odd = b.and_(b.lshr(magnitude, drop), const(t, 1))
    up = b.add(b.add(magnitude, odd), const(t, (1 << (drop - 1)) - 1))
    normal = b.sub(b.lshr(up, drop), const(t, (127 - f.bias) << f.mantissa_bits))
    # Adding 2^23 times the format's smallest number leaves the rounded count of smallest numbers in the low bits.
    shift = 127 + 23 + 1 - f.bias - f.mantissa_bits
    magic = const(t, shift << 23)
    single = vector("float", lanes(t))
    total = b.bitcast(b.fadd(b.bitcast(magnitude, single), b.bitcast(magic, single)), t)
    subnormal = b.sub(total, magic)
    small = b.icmp("ult", magnitude, const(t, (128 - f.bias) << 23))
    return b.select(small, subnormal, normal)


def _decode_power(b: Builder, code: V) -> V:
    """Decodes f8E8M0FNU: 2^(code - 127); code 255 is NaN. 2^-127 is subnormal in f32."""
    t = code.type
    value = b.select(b.icmp("eq", code, const(t, 0)), const(t, 0x00400000), b.shl(code, 23))
    return b.select(b.icmp("eq", code, const(t, 255)), const(t, F32_NAN), value)


def _encode_power(b: Builder, bits: V) -> V:
    """Encodes f8E8M0FNU: the exponent of the nearest power of two. A tie takes the upper one, because the hidden bit,
    the only bit there is, is odd. The subnormal 2^-127 has code 0. Numbers without a logarithm give NaN."""
    t = bits.type
    normal = b.cast("zext", b.icmp("uge", bits, const(t, 1 << 23)), t)
    code = b.lshr(b.add(b.add(bits, normal), const(t, 0x3FFFFF)), 23)
    positive = b.icmp("sgt", bits, const(t, 0))
    return b.select(positive, b.intrinsic("umin", t, [code, const(t, 255)]), const(t, 255))
