"""`convert` between any two element types (specification, "convert").

Float to integer truncates and saturates, NaN gives 0. Integer to integer wraps. Anything to i1 tests whether it differs
from zero. Complex to real drops the imaginary part. Floats round once, to nearest even.
"""

from __future__ import annotations

from shlo_jit.ir.types import DType, storage_range
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const, lanes, scalar, vector
from shlo_jit.lower.elements.nibble_tables import (
    has_lookup,
    has_signed_bytes,
    has_wide_bytes,
    look_up,
    signed_bytes,
    wide_bytes,
)
from shlo_jit.lower.elements.registers import Reg, exactly, from_f32, is_pair, register_type, to_f32


def convert(b: Builder, source: DType, target: DType, x: Reg) -> Reg:
    if source == target:
        return x
    if is_pair(x):
        if target.is_complex:
            return tuple(_real(b, source.part, target.part, p) for p in x)  # type: ignore[return-value]
        return _real(b, source.part, target, x[0])  # type: ignore[index]
    assert isinstance(x, V)
    if target.is_complex:
        re = _real(b, source, target.part, x)
        return re, const(re.type, 0.0)
    return _real(b, source, target, x)


def _real(b: Builder, source: DType, target: DType, x: V) -> V:
    if source == target:
        return x
    if source.is_float:
        return _from_float(b, source, target, x)
    if target.kind == "b":
        return b.icmp("ne", x, const(x.type, 0))
    if target.is_float:
        return _int_to_float(b, source, target, x)
    if source.name == "i4" and target.bits > source.bits and has_signed_bytes(b, lanes(x.type)):
        return b.cast("sext", signed_bytes(b, x), register_type(target))
    if target.bits > source.bits or source.kind == "b":
        return b.cast("zext" if source.kind in "ub" else "sext", x, register_type(target))
    return b.cast("trunc", x, register_type(target)) if target.bits < source.bits else x


def _from_float(b: Builder, source: DType, target: DType, x: V) -> V:
    wide = x if source.name == "f64" else to_f32(b, source, x)
    if target.kind == "b":
        return b.fcmp("une", wide, const(wide.type, 0.0))
    if not target.is_float:
        return _float_to_int(b, target, wide)
    if target.name == "f64":
        return b.cast("fpext", wide, "double")
    if source.bits <= 8 and (target.name == "bf16" or (target.name == "f16" and source.name != "f8E8M0FNU")):
        return exactly(b, target, wide)
    if source.name != "f64":
        return from_f32(b, target, wide)
    if target.name == "f32":
        return b.cast("fptrunc", wide, "float")
    return from_f32(b, target, _round_to_odd(b, wide))


def _round_to_odd(b: Builder, x: V) -> V:
    """Rounds f64 to f32 with the last bit of inexact results set. Rounding once more to a narrower type is then
    exact."""
    n = lanes(x.type)
    i32, single = vector("i32", n), vector("float", n)
    y = b.cast("fptrunc", x, "float")
    back = b.cast("fpext", y, "double")
    bits = b.bitcast(y, i32)
    magnitude = b.intrinsic("fabs", x.type, [x])
    away = b.fcmp("ogt", b.intrinsic("fabs", back.type, [back]), magnitude)
    inexact = b.fcmp("one", back, x)
    toward_zero = b.select(away, b.sub(bits, const(i32, 1)), bits)
    odd = b.or_(toward_zero, const(i32, 1))
    return b.bitcast(b.select(inexact, odd, bits), single)


def _float_to_int(b: Builder, target: DType, x: V) -> V:
    """Converts numbers in range; others become the nearest end of the range, and NaN 0. (`llvm.fptosi.sat` does the
    same, but LLVM 22 computes it one element at a time.)"""
    n = lanes(x.type)
    low, high = storage_range(target)
    if target.bits < 32:
        return _float_to_narrow(b, x, low, high, vector(register_type(target), n))
    wide = vector(register_type(target), n)
    unsigned = target.kind == "u"
    above = b.fcmp("oge", x, const(x.type, float(high + 1)))
    below = b.fcmp("olt", x, const(x.type, float(low)))
    outside = b.or_(b.or_(above, below), b.fcmp("uno", x, x))
    inside = b.select(outside, const(x.type, 0.0), x)
    y = b.cast("fptoui" if unsigned else "fptosi", inside, wide)
    y = b.select(above, const(wide, high), y)
    return y if unsigned else b.select(below, const(wide, low), y)


def _float_to_narrow(b: Builder, x: V, low: int, high: int, type: str) -> V:
    """Both ends of the range are floats too, so numbers are clamped before they are converted. A NaN becomes 0
    afterwards."""
    least, most = const(x.type, float(low)), const(x.type, float(high))
    inside = b.select(b.fcmp("olt", most, x), most, x)
    inside = b.select(b.fcmp("ogt", least, inside), least, inside)
    wide = vector("i32", lanes(x.type))
    y = b.select(b.fcmp("ord", x, x), b.cast("fptosi", inside, wide), const(wide, 0))
    return b.cast("trunc", y, type)


def _int_to_float(b: Builder, source: DType, target: DType, x: V) -> V:
    op = "sitofp" if source.kind in "ix" else "uitofp"
    if source.bits == 4 and target.name in ("f32", "f16", "bf16") and has_lookup(b, lanes(x.type)):
        found = look_up(b, x, [float(i - 16 if i > 7 and source.kind == "i" else i) for i in range(16)])
        return found if target.name == "f32" else exactly(b, target, found)
    field = b.field_of(x)
    if field is not None and scalar(field[0].type) == "i32":  # it is not narrowed and widened
        x, op = _extended(b, source, *field), "sitofp"
    elif source.name == "i4" and has_signed_bytes(b, lanes(x.type)):
        x = signed_bytes(b, x)
    elif source.name == "ui4" and target.name == "f32" and has_wide_bytes(b, lanes(x.type)):
        x, op = wide_bytes(b, x), "sitofp"
    if target.name in ("f32", "f64"):
        return b.cast(op, x, register_type(target))
    if source.bits <= 8 and target.name in ("f16", "bf16"):
        return exactly(b, target, b.cast(op, x, "float"))
    if source.bits <= 16:  # exact in f32
        return from_f32(b, target, b.cast(op, x, "float"))
    if source.bits <= 32:  # exact in f64
        return from_f32(b, target, _round_to_odd(b, b.cast(op, x, "double")))
    return from_f32(b, target, _wide_int_to_odd(b, source, x))


def small_to_float(b: Builder, source: DType, target: DType, x: V) -> V:
    """Converts integers that f16 or bf16 holds exactly, whatever others their type has."""
    if source.bits <= 8:
        return _int_to_float(b, source, target, x)
    return exactly(b, target, b.cast("sitofp", b.cast("trunc", x, "i32") if source.bits > 32 else x, "float"))


def _extended(b: Builder, dtype: DType, words: V, place: V) -> V:
    """The integers that begin at a bit of words, as words. They are below 32 bits."""
    n = lanes(words.type)
    if dtype.kind == "i":
        up = b.sub(const("i32", 32 - dtype.bits), place)
        return b.ashr(b.shl(words, b.splat(up, n)), 32 - dtype.bits)
    return b.and_(b.lshr(words, b.splat(place, n)), const(words.type, (1 << dtype.bits) - 1))


def _wide_int_to_odd(b: Builder, source: DType, x: V) -> V:
    """Converts a 64-bit integer to f32 with a sticky last bit: low bits are merged into one before the exact
    conversion."""
    t = x.type
    magnitude = x if source.kind == "u" else b.intrinsic_with_flag("abs", x, False)
    large = b.icmp("ugt", magnitude, const(t, (1 << 53) - 1))
    low = b.icmp("ne", b.and_(magnitude, const(t, 0x7FF)), const(t, 0))
    sticky = b.or_(b.and_(magnitude, const(t, ~0x7FF)), b.cast("zext", low, t))
    # with a sticky bit at 2^11 the value has at most 53 significant bits
    sticky = b.or_(b.and_(sticky, const(t, ~0x7FF)), b.shl(b.cast("zext", low, t), 11))
    y = _round_to_odd(b, b.cast("uitofp", b.select(large, sticky, magnitude), "double"))
    if source.kind == "u":
        return y
    return b.select(b.icmp("slt", x, const(t, 0)), b.fneg(y), y)
