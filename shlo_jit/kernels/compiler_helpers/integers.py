"""Arithmetic on 128 bits, on halves of 64: LLVM itself adds, subtracts, compares and shifts by literals.

Division by zero is undefined and returns what the loop computes; the least number by -1 is the least number. 64-bit
Windows passes such numbers in memory, which these functions do not expect: there the C run-time library is needed.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.compiler_helpers.function import begin
from shlo_jit.kernels.llvm_values import V, const, i64
from shlo_jit.kernels.target import Target


def _halves(b: Builder, x: V) -> tuple[V, V]:
    """Returns the lower and the upper 64 bits."""
    return b.cast("trunc", x, "i64"), b.cast("trunc", b.lshr(x, 64), "i64")


def _join(b: Builder, low: V, high: V) -> V:
    return b.or_(b.cast("zext", low, "i128"), b.shl(b.cast("zext", high, "i128"), 64))


def _multiply(module: ModuleText, name: str, target: Target) -> None:
    """Emits i128 __multi3(i128, i128), the lower half of the product."""
    b = begin(module, name, [("i128", "x"), ("i128", "y")], "i128")
    (x0, x1), (y0, y1) = (_halves(b, p) for p in b.params)
    low, high = _product(b, x0, y0)
    b.ret(_join(b, low, b.add(high, b.add(b.mul(x0, y1), b.mul(x1, y0)))))


def _product(b: Builder, x: V, y: V) -> tuple[V, V]:
    """Returns both halves of the product of two words, from four products of 32 bits."""
    mask = i64(0xFFFFFFFF)
    (a0, a1), (b0, b1) = ((b.and_(w, mask), b.lshr(w, 32)) for w in (x, y))
    low, middle = b.mul(a0, b0), b.mul(a1, b0)
    middle = b.add(middle, b.lshr(low, 32))
    other = b.add(b.mul(a0, b1), b.and_(middle, mask))
    high = b.add(b.add(b.mul(a1, b1), b.lshr(middle, 32)), b.lshr(other, 32))
    return b.or_(b.shl(other, 32), b.and_(low, mask)), high


def _unsigned(module: ModuleText, name: str, target: Target) -> None:
    """Emits i128 __udivti3(i128, i128) or i128 __umodti3(i128, i128): a bit at a time, from the dividend's first."""
    b = begin(module, name, [("i128", "x"), ("i128", "y")], "i128")
    x, y = b.params
    _, high = _halves(b, x)
    is_short = b.icmp("eq", high, i64(0))
    dividend = b.select(is_short, b.shl(x, 64), x)
    zero, one = const("i128", 0), const("i128", 1)
    with b.loop_carry(0, b.select(is_short, i64(64), i64(128)), [dividend, zero, zero]) as step:
        bits, rest, quotient = step.values
        carry = b.icmp("slt", rest, zero)  # the bit that the shift moves out of the rest
        rest = b.or_(b.shl(rest, 1), b.lshr(bits, 127))
        fits = b.or_(carry, b.icmp("uge", rest, y))
        rest = b.select(fits, b.sub(rest, y), rest)
        quotient = b.or_(b.shl(quotient, 1), b.select(fits, one, zero))
        step.next(b.shl(bits, 1), rest, quotient)
    b.ret(step.values[1] if "mod" in name else step.values[2])


def _signed(module: ModuleText, name: str, target: Target) -> None:
    """Emits i128 __divti3(i128, i128) or i128 __modti3(i128, i128), from absolute values; a remainder has the
    dividend's sign."""
    b = begin(module, name, [("i128", "x"), ("i128", "y")], "i128")
    zero = const("i128", 0)
    x, y = b.params
    sizes = [b.select(b.icmp("slt", p, zero), b.sub(zero, p), p) for p in b.params]
    sign = x if "mod" in name else b.xor(x, y)
    result = b.call("i128", name.replace("__", "__u"), sizes, declare=False)
    b.ret(b.select(b.icmp("slt", sign, zero), b.sub(zero, result), result))


def _shift(module: ModuleText, name: str, target: Target) -> None:
    """Emits i128 __ashlti3(i128, i32), __lshrti3 or __ashrti3."""
    b = begin(module, name, [("i128", "x"), ("i32", "n")], "i128")
    low, high = _halves(b, b.params[0])
    by = b.cast("zext", b.params[1], "i64")
    over = b.and_(by, i64(63))
    is_large = b.icmp("ne", b.and_(by, i64(64)), i64(0))
    if "ashl" in name:
        crossed = b.intrinsic("fshl", "i64", [high, low, over])
        moved = b.shl(low, over)
        b.ret(_join(b, b.select(is_large, i64(0), moved), b.select(is_large, moved, crossed)))
        return
    crossed = b.intrinsic("fshr", "i64", [high, low, over])
    moved = b.ashr(high, over) if "ashr" in name else b.lshr(high, over)
    filled = b.ashr(high, 63) if "ashr" in name else i64(0)
    b.ret(_join(b, b.select(is_large, moved, crossed), b.select(is_large, filled, moved)))


WRITERS = {
    "__multi3": _multiply,
    "__udivti3": _unsigned,
    "__umodti3": _unsigned,
    "__divti3": _signed,
    "__modti3": _signed,
    "__ashlti3": _shift,
    "__lshrti3": _shift,
    "__ashrti3": _shift,
}
