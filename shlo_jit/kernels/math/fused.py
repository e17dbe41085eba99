"""Fused multiply-adds of f64 for targets without the instruction: a function of the module, with exactly equal bits.

libm's `fma` takes one number at a time, and some tens of nanoseconds if the machine lacks the instruction, too. Here
product and sum are split into the rounded value and the rounding error (Dekker, Knuth). The sum of both errors is
rounded to odd, so that the last addition rounds as if it were the only one (Boldo and Melquiond, "Emulation of FMA and
correctly rounded sums", 2008). That is correct if no intermediate result overflows or underflows; otherwise the lanes
go to libm.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, const, lanes, mangle, vector

_SPLIT = 2.0**27 + 1
"""Factor that splits a number: x times this, minus the difference of that and x, is the upper half of x."""
_LARGEST, _SMALLEST = 2.0**990, 2.0**-900
"""Limits of operands and of the product: its error is then a normal number, and halves do not overflow."""


def fused(b: Builder, a: V, c: V, d: V) -> V:
    """Returns a * c + d of f64, rounded once."""
    name = f"shlo_fma.{mangle(a.type)}"
    if name not in b.module.functions:
        _write(b.module, name, a.type)
    return b.call(a.type, name, [a, c, d], declare=False)


def _write(module: ModuleText, name: str, type: str) -> None:
    attributes = "memory(none) nounwind willreturn"
    b = module.function(name, [(type, "a"), (type, "c"), (type, "d")], type, attributes=attributes)
    a, c, d = b.params
    p = b.fmul(a, c)
    holds = b.fcmp("oge", b.intrinsic("fabs", type, [p]), const(type, _SMALLEST))
    for factor in (a, c):
        holds = b.or_(holds, b.fcmp("oeq", factor, const(type, 0.0)))
    for x in (a, c, d, p):
        holds = b.and_(holds, b.fcmp("ole", b.intrinsic("fabs", type, [x]), const(type, _LARGEST)))
    if lanes(type) > 1:
        holds = b.call("i1", f"llvm.vector.reduce.and.{mangle(holds.type)}", [holds])
    (result,) = b.if_else(holds, lambda: [_sum(b, p, _lost_of_product(b, a, c, p), d)], lambda: [_by_libm(b, a, c, d)])
    b.ret(result)


def _by_libm(b: Builder, a: V, c: V, d: V) -> V:
    """Returns libm's result, lane by lane."""
    if lanes(a.type) == 1:
        return b.fma(a, c, d)
    result = a
    for k in range(lanes(a.type)):
        result = b.insert(result, b.fma(b.extract(a, k), b.extract(c, k), b.extract(d, k)), k)
    return result


def _lost_of_product(b: Builder, a: V, c: V, p: V) -> V:
    """Returns the rounding error of p = a * c."""
    (a1, a2), (c1, c2) = _halves(b, a), _halves(b, c)
    e = b.fsub(b.fmul(a1, c1), p)
    for x, y in ((a1, c2), (a2, c1), (a2, c2)):
        e = b.fadd(e, b.fmul(x, y))
    return e


def _halves(b: Builder, a: V) -> tuple[V, V]:
    """Returns two numbers of half the digits whose sum is a."""
    t = b.fmul(a, const(a.type, _SPLIT))
    high = b.fsub(t, b.fsub(t, a))
    return high, b.fsub(a, high)


def _two_sum(b: Builder, x: V, y: V) -> tuple[V, V]:
    """Returns x + y and its rounding error."""
    s = b.fadd(x, y)
    t = b.fsub(s, x)
    return s, b.fadd(b.fsub(x, b.fsub(s, t)), b.fsub(y, t))


def _sum(b: Builder, p: V, e: V, d: V) -> V:
    """Returns p + e + d, rounded once."""
    s, t = _two_sum(b, p, d)
    high, low = _two_sum(b, t, e)
    odd = _to_odd(b, high, low)
    zero = const(p.type, 0.0)
    return b.select(b.fcmp("oeq", odd, zero), s, b.fadd(s, odd))  # a zero keeps its sign


def _to_odd(b: Builder, high: V, low: V) -> V:
    """Returns a value between two numbers, rounded to the one whose last bit is set."""
    word = vector("i64", lanes(high.type))
    one, zero = const(word, 1), const(word, 0)
    bits, lost = b.bitcast(high, word), b.bitcast(low, word)
    is_even = b.icmp("eq", b.and_(bits, one), zero)
    between = b.and_(is_even, b.fcmp("one", low, const(low.type, 0.0)))
    outward = b.icmp("sge", b.xor(bits, lost), zero)
    moved = b.select(outward, b.add(bits, one), b.sub(bits, one))
    return b.select(between, b.bitcast(moved, high.type), high)
