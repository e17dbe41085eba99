"""`fma` and `fmaf`: a product and a sum, rounded once."""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.compiler_helpers.function import begin
from shlo_jit.kernels.llvm_values import V, const, i64
from shlo_jit.kernels.target import Target

_ROOM = 20
"""Zero bits after the product, which has 106 bits of 126."""
_REACH = 72
"""Maximum shift of the summand, which has 53 bits, to the left."""
_LEAST = -1074
"""Exponent of the least positive number."""


def _f32(module: ModuleText, name: str, target: Target) -> None:
    """Emits fmaf. In f64 the product is exact; the sum is rounded to odd, so that it can be rounded again."""
    b = begin(module, name, [("float", "x"), ("float", "y"), ("float", "z")], "float")
    x, y, z = (b.cast("fpext", v, "double") for v in b.params)
    p = b.fmul(x, y)
    s = b.fadd(p, z)
    t = b.fsub(s, p)
    lost = b.fadd(b.fsub(p, b.fsub(s, t)), b.fsub(z, t))
    bits = b.bitcast(s, "i64")
    between = b.and_(b.fcmp("one", lost, const("double", 0.0)), b.icmp("eq", b.and_(bits, i64(1)), 0))
    outward = b.icmp("sge", b.xor(bits, b.bitcast(lost, "i64")), 0)
    odd = b.select(outward, b.add(bits, 1), b.sub(bits, 1))
    b.ret(b.cast("fptrunc", b.bitcast(b.select(between, odd, bits), "double"), "float"))


def _f64(module: ModuleText, name: str, target: Target) -> None:
    """Emits fma with integers of 128 bits."""
    b = begin(module, name, [("double", "x"), ("double", "y"), ("double", "z")], "double")
    x, y, z = b.params
    infinity, zero = const("double", float("inf")), const("double", 0.0)
    sizes = [b.intrinsic("fabs", "double", [v]) for v in (x, y, z)]
    finite = [b.fcmp("olt", size, infinity) for size in sizes]
    nonzero = [b.fcmp("ogt", size, zero) for size in sizes]
    usual = const("i1", 1)
    for flag in finite + nonzero:
        usual = b.and_(usual, flag)
    with b.if_(usual):
        b.ret_early(_exact_sum(b, x, y, z))
    product = b.fmul(x, y)
    result = b.fadd(product, z)
    # A product of finite numbers may overflow; it must not be added to an infinity then. It may vanish, and keeps its
    # sign then.
    meets = b.and_(b.and_(finite[0], finite[1]), b.not_(finite[2]))
    result = b.select(meets, b.fadd(z, z), result)
    alone = b.and_(b.and_(nonzero[0], nonzero[1]), b.fcmp("oeq", z, zero))
    b.ret(b.select(alone, product, result))


def _exact_sum(b: Builder, x: V, y: V, z: V) -> V:
    """Returns the sum for finite numbers other than zero: the bits of product and summand above a common exponent."""
    (mx, ex), (my, ey), (mz, ez) = (_parts(b, v) for v in (x, y, z))
    product = b.shl(b.mul(b.cast("zext", mx, "i128"), b.cast("zext", my, "i128")), _ROOM)
    exponent = b.sub(b.add(ex, ey), _ROOM)
    ahead = b.sub(ez, exponent)
    # If the summand's exponent is too large, the product moves. Its lost bits only decide on which side of a tie the
    # sum is.
    excess = b.max_(b.sub(ahead, _REACH), 0)
    product = _shift_right(b, product, excess)
    exponent = b.add(exponent, excess)
    summand = b.cast("zext", mz, "i128")
    left = b.min_(b.max_(ahead, 0), _REACH)
    summand = b.shl(summand, b.cast("zext", left, "i128"))
    summand = _shift_right(b, summand, b.max_(b.sub(0, ahead), 0))
    negative = b.icmp("slt", b.xor(b.bitcast(x, "i64"), b.bitcast(y, "i64")), 0)
    differs = b.icmp("ne", negative, b.icmp("slt", b.bitcast(z, "i64"), 0))
    total = b.select(differs, b.sub(product, summand), b.add(product, summand))
    is_negated = b.icmp("slt", total, const("i128", 0))
    size = b.select(is_negated, b.sub(const("i128", 0), total), total)
    bits = _rounded(b, size, exponent)
    sign = b.select(b.xor(negative, is_negated), i64(-(1 << 63)), i64(0))
    result = b.bitcast(b.or_(bits, sign), "double")
    return b.select(b.icmp("eq", total, const("i128", 0)), const("double", 0.0), result)


def _parts(b: Builder, x: V) -> tuple[V, V]:
    """Returns an integer of 53 bits whose first bit is set, and an exponent."""
    size = b.and_(b.bitcast(x, "i64"), i64((1 << 63) - 1))
    field = b.lshr(size, 52)
    fraction = b.and_(size, i64((1 << 52) - 1))
    is_normal = b.icmp("ne", field, 0)
    significand = b.select(is_normal, b.or_(fraction, i64(1 << 52)), fraction)
    missing = b.sub(b.intrinsic_with_flag("ctlz", significand, False), 11)
    exponent = b.add(b.max_(field, 1), _LEAST - 1)
    return b.shl(significand, missing), b.sub(exponent, missing)


def _shift_right(b: Builder, x: V, by: V) -> V:
    """Shifts by any number of bits; if a set bit is lost, the last one is set."""
    amount = b.cast("zext", b.min_(by, 127), "i128")
    moved = b.lshr(x, amount)
    lost = b.icmp("ne", b.shl(moved, amount), x)
    return b.or_(moved, b.cast("zext", lost, "i128"))


def _rounded(b: Builder, size: V, exponent: V) -> V:
    """Returns size * 2^exponent as the bits of a double; size is not zero."""
    first = b.sub(127, b.cast("trunc", b.intrinsic_with_flag("ctlz", size, False), "i64"))
    last = b.max_(b.sub(b.add(exponent, first), 52), _LEAST)  # exponent of the result's last bit
    drop = b.sub(last, exponent)
    right = b.cast("zext", b.min_(b.max_(drop, 0), 127), "i128")
    left = b.cast("zext", b.max_(b.sub(0, drop), 0), "i128")
    kept = b.shl(b.lshr(size, right), left)
    rest = b.shl(b.sub(size, b.shl(b.lshr(size, right), right)), 1)  # doubled, to compare with a whole last place
    unit = b.shl(const("i128", 1), right)
    is_odd = b.icmp("ne", b.and_(kept, const("i128", 1)), const("i128", 0))
    up = b.or_(b.icmp("ugt", rest, unit), b.and_(b.icmp("eq", rest, unit), is_odd))
    up = b.and_(up, b.icmp("slt", drop, 128))
    whole = b.add(b.cast("trunc", kept, "i64"), b.cast("zext", up, "i64"))
    whole = b.select(b.icmp("slt", drop, 128), whole, i64(0))
    bits = b.add(whole, b.shl(b.sub(last, _LEAST), 52))
    infinity = i64(0x7FF << 52)
    too_large = b.or_(b.icmp("sgt", last, 971), b.icmp("uge", bits, infinity))
    return b.select(too_large, infinity, bits)


WRITERS = {"fma": _f64, "fmaf": _f32}
