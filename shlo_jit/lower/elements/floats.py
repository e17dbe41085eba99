"""Float arithmetic that takes more than one instruction, on registers."""

from __future__ import annotations

from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const, lanes, scalar, vector
from shlo_jit.lower.elements.registers import to_f32

VECTORS = (128, 256, 512)
"""Bits of x86's vector registers."""
RANGE_SIGNED, CURRENT_ROUNDING = 4, 4
"""Operands of `vrange`: the result keeps the sign of the chosen operand (1 chooses the maximum), and the current
rounding applies."""


def is_narrow(dtype: DType) -> bool:
    """Whether a type is a float that is computed in f32 and rounded."""
    return dtype.is_float and dtype.name not in ("f32", "f64")


def sign(b: Builder, x: V) -> V:
    one = b.intrinsic("copysign", x.type, [const(x.type, 1.0), x])
    special = b.fcmp("ueq", x, const(x.type, 0.0))  # zero keeps its sign, NaN stays
    return b.select(special, x, one)


def extreme(b: Builder, which: str, x: V, y: V) -> V:
    """Emits IEEE-754's maximum or minimum. AVX-512 has an instruction that orders zeros but leaves NaNs to be inserted.
    That takes three instructions instead of LLVM's six; if one side is a constant, LLVM needs only three. For scalars,
    LLVM takes nine, so a scalar is computed in lane 0 of a register."""
    n, target = lanes(x.type), b.module.target
    size = {"float": 32, "double": 64}.get(scalar(x.type), 0) * n
    varies = all(v.text.startswith("%") for v in (x, y))
    is_there = target is not None and target.is_x86 and target.has_masks
    if not (is_there and varies and (size in VECTORS or (n == 1 and size))):
        return b.intrinsic(which, x.type, [x, y])
    if n == 1:
        whole = V(vector(x.type, VECTORS[0] // size), "poison")
        found = b.extract(_in_order(b, which, b.insert(whole, x, 0), b.insert(whole, y, 0)), 0)
    else:
        found = _in_order(b, which, x, y)
    return b.select(b.fcmp("uno", x, y), b.fadd(x, y), found)


def _in_order(b: Builder, which: str, x: V, y: V) -> V:
    """The greater or the lesser of two register-sized vectors without NaNs."""
    n, size = lanes(x.type), {"float": 32, "double": 64}[scalar(x.type)] * lanes(x.type)
    suffix = "ps" if scalar(x.type) == "float" else "pd"
    order = const("i32", RANGE_SIGNED | (which == "maximum"))
    mask = const(f"i{max(n, 8)}", -1)
    rest = [const("i32", CURRENT_ROUNDING)] if size == VECTORS[-1] else []
    name = f"llvm.x86.avx512.mask.range.{suffix}.{size}"
    return b.call(x.type, name, [x, y, order, V(x.type, "zeroinitializer"), mask, *rest])


def compare(b: Builder, dtype: DType, direction: str, x: V, y: V) -> V:
    """Returns i1 lanes of x `direction` y (EQ NE LT LE GT GE)."""
    if is_narrow(dtype):
        x, y = to_f32(b, dtype, x), to_f32(b, dtype, y)
    return b.fcmp("une" if direction == "NE" else "o" + direction.lower(), x, y)


def total_order(b: Builder, dtype: DType, x: V) -> V:
    """Bits as an integer that is ordered like IEEE's totalOrder."""
    width = 8 * dtype.itemsize
    own = b.bitcast(x, vector(f"i{width}", lanes(x.type)))
    if dtype.name == "f8E8M0FNU":  # without a sign, the bits are ordered already
        return b.xor(own, const(own.type, 0x80))
    if dtype.bits < width:
        own = b.shl(own, width - dtype.bits)
    flip = b.lshr(b.ashr(own, width - 1), 1)
    return b.xor(own, flip)


def reduce_precision(b: Builder, x: V, exponent_bits: int, mantissa_bits: int) -> V:
    """Rounds f32 or f64 to fewer exponent and mantissa bits, to nearest even. Overflow gives infinity, subnormals flush
    to zero. A NaN is kept, or becomes an infinity if no mantissa bit is left."""
    width, mantissa, exponent = (64, 52, 11) if "double" in x.type else (32, 23, 8)
    t = vector(f"i{width}", lanes(x.type))
    own = b.bitcast(x, t)
    if mantissa_bits < mantissa:
        drop = mantissa - mantissa_bits
        lsb = b.and_(b.lshr(own, drop), const(t, 1))
        own = b.add(own, b.add(lsb, const(t, (1 << (drop - 1)) - 1)))
        own = b.and_(own, const(t, -1 << drop))
    if exponent_bits < exponent:
        sign_bit = 1 << (width - 1)
        bias, reduced = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        field = ((1 << exponent) - 1) << mantissa
        e = b.and_(own, const(t, field))
        sign = b.and_(own, const(t, sign_bit))
        over = b.icmp("ugt", e, const(t, (bias + reduced) << mantissa))
        under = b.icmp("ule", e, const(t, (bias - reduced) << mantissa))
        own = b.select(over, b.or_(sign, const(t, field)), own)
        own = b.select(under, sign, own)
    rounded, nan = b.bitcast(own, x.type), x
    if mantissa_bits == 0:
        infinity = const(t, ((1 << exponent) - 1) << mantissa)
        nan = b.bitcast(b.or_(b.and_(b.bitcast(x, t), const(t, -1 << (width - 1))), infinity), x.type)
    return b.select(b.fcmp("uno", x, x), nan, rounded)


def next_after_bits(b: Builder, dtype: DType, x: V, y: V) -> V:
    """The neighbour of x towards y, for floats whose bits are ordered like integers."""
    fx, fy = to_f32(b, dtype, x), to_f32(b, dtype, y)
    t = vector(f"i{8 * dtype.itemsize}", lanes(x.type))
    own, other = b.bitcast(x, t), b.bitcast(y, t)
    sign = const(t, 0 if dtype.name == "f8E8M0FNU" else 1 << (dtype.bits - 1))
    zero = b.fcmp("oeq", fx, const(fx.type, 0.0))
    up = b.fcmp("olt", fx, fy)
    negative = b.icmp("ne", b.and_(own, sign), const(t, 0))
    step = b.select(b.xor(up, negative), const(t, 1), const(t, -1))
    least = b.or_(b.and_(other, sign), const(t, 1))
    r = b.select(zero, least, b.add(own, step))
    r = b.select(b.fcmp("oeq", fx, fy), other, r)
    r = b.select(b.fcmp("uno", fx, fx), own, b.select(b.fcmp("uno", fy, fy), other, r))
    return b.bitcast(r, x.type)
