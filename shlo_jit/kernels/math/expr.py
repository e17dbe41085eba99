"""Arithmetic notation over `Builder`: an `X` is a value with operators, so that code reads like a formula.

    y = fma(x, x, 1.0)          # Python numbers become constants of the other operand's type
    z = where(x < 0.0, -y, y)   # comparisons of floats are ordered: false for NaN

Every operation is an IEEE operation on each lane, so the bits do not depend on the number of lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, bits, const, is_float, lanes, mangle, scalar, vector
from shlo_jit.kernels.math.fused import fused


class Format(NamedTuple):
    """A floating-point format: names of its types, and the numbers that algorithms need."""

    float_: str
    int_: str
    bits: int
    precision: int
    """Bits of the significand, including the leading one."""
    bias: int
    tiny: float
    """Smallest normal number."""
    magic: float
    """1.5 * 2^(precision-1): adding it rounds to an integer, which is then in the low bits."""

    @property
    def fraction(self) -> int:
        """Bits of the significand that are stored."""
        return self.precision - 1

    def pick(self, f32: float, f64: float) -> float:
        """Returns the constant for this format."""
        return f32 if self.bits == 32 else f64


F32 = Format("float", "i32", 32, 24, 127, 2.0**-126, 1.5 * 2.0**23)
F64 = Format("double", "i64", 64, 53, 1023, 2.0**-1022, 1.5 * 2.0**52)

Number = int | float


class X:
    """A value in a builder, with operators."""

    __slots__ = ("b", "v")

    def __init__(self, b: Builder, v: V) -> None:
        self.b = b
        self.v = v

    # ------------------------------------------------------------------ type
    @property
    def type(self) -> str:
        return self.v.type

    @property
    def lanes(self) -> int:
        return lanes(self.v.type)

    @property
    def format(self) -> Format:
        """The format of a float, or of the integer of its size."""
        return F32 if bits(self.v.type) == 32 else F64

    def like(self, value: X | Number) -> X:
        """Returns a constant of this type; an X is returned as it is."""
        return value if isinstance(value, X) else X(self.b, const(self.v.type, value))

    def _op(self, float_op: str, int_op: str, other: X | Number, swap: bool = False) -> X:
        o = self.like(other)
        a, c = (o, self) if swap else (self, o)
        op = float_op if is_float(self.v.type) else int_op
        return X(self.b, self.b.emit(self.v.type, f"{op} {self.v.type} {a.v.text}, {c.v.text}"))

    # ------------------------------------------------------------------ arithmetic
    def __add__(self, other: X | Number) -> X:
        return self._op("fadd", "add", other)

    __radd__ = __add__

    def __sub__(self, other: X | Number) -> X:
        return self._op("fsub", "sub", other)

    def __rsub__(self, other: Number) -> X:
        return self._op("fsub", "sub", other, swap=True)

    def __mul__(self, other: X | Number) -> X:
        return self._op("fmul", "mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: X | Number) -> X:
        return self._op("fdiv", "sdiv", other)

    def __rtruediv__(self, other: Number) -> X:
        return self._op("fdiv", "sdiv", other, swap=True)

    def __neg__(self) -> X:
        if is_float(self.v.type):
            return X(self.b, self.b.fneg(self.v))
        return 0 - self

    def __and__(self, other: X | Number) -> X:
        return self._op("", "and", other)

    def __or__(self, other: X | Number) -> X:
        return self._op("", "or", other)

    def __xor__(self, other: X | Number) -> X:
        return self._op("", "xor", other)

    def __invert__(self) -> X:
        return self ^ (1 if bits(self.v.type) == 1 else -1)

    def __lshift__(self, other: X | Number) -> X:
        return self._op("", "shl", other)

    def __rshift__(self, other: X | Number) -> X:
        """Shifts logically."""
        return self._op("", "lshr", other)

    def ashr(self, other: X | Number) -> X:
        """Shifts arithmetically, which keeps the sign."""
        return self._op("", "ashr", other)

    # ------------------------------------------------------------------ comparison
    def _compare(self, float_predicate: str, int_predicate: str, other: X | Number) -> X:
        o = self.like(other)
        if is_float(self.v.type):
            return X(self.b, self.b.fcmp(float_predicate, self.v, o.v))
        return X(self.b, self.b.icmp(int_predicate, self.v, o.v))

    def __lt__(self, other: X | Number) -> X:
        return self._compare("olt", "slt", other)

    def __le__(self, other: X | Number) -> X:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: X | Number) -> X:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: X | Number) -> X:
        return self._compare("oge", "sge", other)

    def eq(self, other: X | Number) -> X:
        return self._compare("oeq", "eq", other)

    def ne(self, other: X | Number) -> X:
        return self._compare("une", "ne", other)

    def is_nan(self) -> X:
        return self._compare("uno", "", self)

    # ------------------------------------------------------------------ conversion
    def cast(self, op: str, to: str) -> X:
        return X(self.b, self.b.cast(op, self.v, to))

    def bits(self) -> X:
        """Returns the integer of the same bits."""
        return self.cast("bitcast", self.format.int_)

    def as_float(self) -> X:
        """Returns the float of the same bits."""
        return self.cast("bitcast", self.format.float_)

    def to_f64(self) -> X:
        return self.cast("fpext", "double") if bits(self.v.type) == 32 else self

    def to_f32(self) -> X:
        return self.cast("fptrunc", "float") if bits(self.v.type) == 64 else self

    # ------------------------------------------------------------------ one operand
    def intrinsic(self, name: str) -> X:
        return X(self.b, self.b.intrinsic(name, self.v.type, [self.v]))

    def abs(self) -> X:
        return self.intrinsic("fabs")

    def sqrt(self) -> X:
        return self.intrinsic("sqrt")

    def rint(self) -> X:
        """Rounds to the nearest integer, ties to even."""
        return self.intrinsic("roundeven")

    def floor(self) -> X:
        return self.intrinsic("floor")

    def trunc(self) -> X:
        return self.intrinsic("trunc")

    def sign_bit(self) -> X:
        """Returns the sign bit alone, as an integer."""
        return self.bits() & -(1 << (self.format.bits - 1))

    def with_sign(self, sign: X) -> X:
        """Returns this float with its sign flipped by an integer `sign_bit`."""
        return (self.bits() ^ sign).as_float()


def fma(a: X, c: X | Number, d: X | Number) -> X:
    """Returns a * c + d, rounded once.

    Targets without the instruction need many operations for f64 (`fused.py`). For f32 the product is computed in f64,
    where it is exact, and the sum is rounded to f64 and then to f32. That differs from the sum rounded once only if the
    former lies on a tie of f32 (one in 2^29)."""
    c, d, target = a.like(c), a.like(d), a.b.module.target
    if target is None or target.has_fma:
        return X(a.b, a.b.fma(a.v, c.v, d.v))
    if a.format.bits == 32:
        return (a.to_f64() * c.to_f64() + d.to_f64()).to_f32()
    return X(a.b, fused(a.b, a.v, c.v, d.v))


def where(condition: X, a: X | Number, c: X | Number) -> X:
    if not isinstance(a, X):
        assert isinstance(c, X)
        a = c.like(a)
    return X(a.b, a.b.select(condition.v, a.v, a.like(c).v))


def at_most(x: X, limit: Number | X) -> X:
    """Returns min(x, limit); a NaN in x is kept."""
    limit = x.like(limit)
    return where(limit < x, limit, x)


def at_least(x: X, limit: Number | X) -> X:
    """Returns max(x, limit); a NaN in x is kept."""
    limit = x.like(limit)
    return where(limit > x, limit, x)


def copysign(magnitude: X, sign: X) -> X:
    return X(magnitude.b, magnitude.b.intrinsic("copysign", magnitude.type, [magnitude.v, sign.v]))


def any_lane(condition: X) -> X:
    """Returns whether any lane of a vector of i1 is set, as one i1."""
    n = condition.lanes
    if n == 1:
        return condition
    return X(condition.b, condition.b.call("i1", f"llvm.vector.reduce.or.{mangle(condition.type)}", [condition.v]))


def polynomial(x: X, coefficients: Sequence[float]) -> X:
    """Returns c0 + c1 x + c2 x^2 ... Short ones by Horner's rule; longer ones as two interleaved Horner chains in x^2,
    which costs one multiplication and halves the latency."""
    if len(coefficients) <= 5:
        return horner(x, coefficients)
    square = x * x
    return fma(horner(square, coefficients[1::2]), x, horner(square, coefficients[0::2]))


def horner(x: X, coefficients: Sequence[float]) -> X:
    """Returns c0 + c1 x + c2 x^2 ... by Horner's rule."""
    result = x.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, c) if result.v.text[0] == "%" else fma(x, result, c)
    return result


def power_of_two(exponent: X) -> X:
    """Returns 2^exponent for an integer exponent within the normal range."""
    f = exponent.format
    return ((exponent + f.bias) << f.fraction).as_float()


def two_sum(a: X, c: X) -> tuple[X, X]:
    """Returns a + c and its rounding error (Knuth)."""
    s = a + c
    t = s - a
    return s, (a - (s - t)) + (c - t)


def fast_two_sum(a: X, c: X) -> tuple[X, X]:
    """Returns a + c and its rounding error if |a| >= |c| (Dekker)."""
    s = a + c
    return s, c - (s - a)


def two_product(a: X, c: X) -> tuple[X, X]:
    """Returns a * c and its rounding error."""
    p = a * c
    return p, fma(a, c, -p)


__all__ = [
    "F32",
    "F64",
    "Format",
    "X",
    "any_lane",
    "at_least",
    "at_most",
    "copysign",
    "fast_two_sum",
    "fma",
    "horner",
    "polynomial",
    "power_of_two",
    "scalar",
    "two_product",
    "two_sum",
    "vector",
    "where",
]
