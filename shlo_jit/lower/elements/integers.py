"""Integer arithmetic that takes more than one instruction, on registers.

Results that the specification leaves open are fixed here and documented in docs/accuracy.md: x / 0 = -1 (all ones),
x rem 0 = x, MIN / -1 = MIN, shifts past the width give 0 (or the sign).
"""

from __future__ import annotations

from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const


def divide(b: Builder, dtype: DType, x: V, y: V) -> V:
    zero = b.icmp("eq", y, const(y.type, 0))
    if dtype.kind == "u":
        q = b.emit(x.type, f"udiv {x.type} {x.text}, {b.select(zero, const(y.type, 1), y).text}")
        return b.select(zero, const(x.type, -1), q)
    minus = b.icmp("eq", y, const(y.type, -1))
    safe = b.select(b.or_(zero, minus), const(y.type, 1), y)
    q = b.sdiv(x, safe)
    q = b.select(minus, b.sub(const(x.type, 0), x), q)
    return b.select(zero, const(x.type, -1), q)


def remainder(b: Builder, dtype: DType, x: V, y: V) -> V:
    zero = b.icmp("eq", y, const(y.type, 0))
    if dtype.kind == "u":
        safe = b.select(zero, const(y.type, 1), y)
        return b.select(zero, x, b.emit(x.type, f"urem {x.type} {x.text}, {safe.text}"))
    minus = b.icmp("eq", y, const(y.type, -1))
    safe = b.select(b.or_(zero, minus), const(y.type, 1), y)
    return b.select(zero, x, b.srem(x, safe))


def sign(b: Builder, dtype: DType, x: V) -> V:
    positive = b.cast("zext", b.icmp("ne", x, const(x.type, 0)), x.type)
    return positive if dtype.kind == "u" else b.or_(b.ashr(x, dtype.bits - 1), positive)


def power(b: Builder, dtype: DType, x: V, y: V) -> V:
    """Squares and multiplies over the bits of the exponent. A negative exponent of a signed type gives 0, or +-1 for
    +-1."""
    result, base = const(x.type, 1), x
    width = min(dtype.bits, 64)
    for k in range(width if dtype.kind == "u" else width - 1):
        bit = b.and_(b.lshr(y, k), const(y.type, 1))
        result = b.select(b.icmp("ne", bit, const(y.type, 0)), b.mul(result, base), result)
        if k + 1 < width:
            base = b.mul(base, base)
    if dtype.kind == "u":
        return result
    odd = b.icmp("ne", b.and_(y, const(y.type, 1)), const(y.type, 0))
    one = b.icmp("eq", x, const(x.type, 1))
    minus = b.icmp("eq", x, const(x.type, -1))
    inverse = b.select(one, x, b.select(minus, b.select(odd, x, const(x.type, 1)), const(x.type, 0)))
    return b.select(b.icmp("slt", y, const(y.type, 0)), inverse, result)


def shift(b: Builder, dtype: DType, method: str, x: V, count: V) -> V:
    """Shifts by `method`: `shl`, `lshr` or `ashr`. Counts past the width give 0, or the sign."""
    past = b.icmp("uge", count, const(count.type, dtype.bits))
    if method == "ashr":
        return b.ashr(x, b.select(past, const(count.type, dtype.bits - 1), count))
    return b.select(past, const(x.type, 0), getattr(b, method)(x, b.select(past, const(count.type, 0), count)))


def upper_product(b: Builder, dtype: DType, x: V, y: V) -> V:
    wide = f"i{2 * dtype.bits}"
    extend = "zext" if dtype.kind == "u" else "sext"
    product = b.mul(b.cast(extend, x, wide), b.cast(extend, y, wide))
    return b.cast("trunc", b.lshr(product, dtype.bits), f"i{dtype.bits}")
