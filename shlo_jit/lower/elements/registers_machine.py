"""The operations of `ops/machine.py` as LLVM text: `Machine` on the registers of one builder."""

from __future__ import annotations

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import DType
from shlo_jit.kernels import math
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, bits, const
from shlo_jit.lower.elements import complexes, floats, integers
from shlo_jit.lower.elements.convert import convert, small_to_float
from shlo_jit.lower.elements.registers import Reg, is_pair, register_type
from shlo_jit.ops.integer_ranges import is_whole

DIVISIONS = ("stablehlo.divide", "stablehlo.sqrt")
SAME_ELEMENTS = ("stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.transpose")


def selects_division(op: Op) -> bool:
    """Whether an op selects a quotient or root of floats. LLVM would compute scalar ones under a branch, but the
    condition is data: a wrong prediction takes longer than the division."""
    if op.name != "stablehlo.select" or not op.result.tensor.storage.is_float:
        return False
    for value in op.operands[1:]:
        while value.op is not None and value.op.name in SAME_ELEMENTS:
            value = value.op.operands[0]
        if value.op is not None and value.op.name in DIVISIONS:
            return True
    return False


class RegistersMachine:
    """`Machine` on the registers of `registers.py`. Float operations take f32 and f64, unless they say otherwise."""

    def __init__(self, b: Builder, dtype: DType, type: str, op: Op | None = None):
        self.b = b
        self.dtype = dtype
        self.type = type
        """LLVM type of the computation, with its lanes; for complex numbers, that of one part."""
        self._op = op

    @property
    def op(self) -> Op:
        assert self._op is not None, "computed without an op at hand"
        return self._op

    # ------------------------------------------------------------------ registers of any element type
    def number(self, value: float, /) -> V:
        return const(self.type, value)

    def select(self, p: V, x: Reg, y: Reg, /) -> Reg:
        if is_pair(x):
            return tuple(self.b.select(p, u, v) for u, v in zip(x, y, strict=True))  # type: ignore[return-value, arg-type]
        return self.b.select(p, x, y, self._op is not None and selects_division(self._op))  # type: ignore[arg-type]

    def compare(self, direction: str, x: Reg, y: Reg, /, *, total_order: bool = False) -> V:
        """Returns i1 lanes of x `direction` y (EQ NE LT LE GT GE)."""
        b, dtype, word = self.b, self.dtype, direction.lower()
        if is_pair(x):
            return complexes.compare(b, direction, x, y)  # type: ignore[arg-type]
        assert isinstance(x, V) and isinstance(y, V)
        if dtype.is_float and not total_order:
            return floats.compare(b, dtype, direction, x, y)
        if dtype.is_float:
            x, y = floats.total_order(b, dtype, x), floats.total_order(b, dtype, y)
        unsigned = dtype.kind in "ub"
        return b.icmp(word if word in ("eq", "ne") else ("u" if unsigned else "s") + word, x, y)

    def convert(self, x: Reg, to: DType, /) -> Reg:
        if self._op is not None and isinstance(x, V) and self.dtype.is_integer and is_whole(self._op.result):
            return small_to_float(self.b, self.dtype, to, x)
        return convert(self.b, self.dtype, to, x)

    def bitcast(self, x: Reg, to: DType, /) -> Reg:
        source, b = self.dtype, self.b
        if source.bits != to.bits or source.is_complex or to.is_complex:
            raise UnsupportedError(
                diagnose("bitcast_convert between element widths is not elementwise", self.op.span, label="no-lowering")
            )
        assert isinstance(x, V)
        t = register_type(to)
        if bits(x.type) != bits(t):  # i4 and f4, which takes a byte
            return b.cast("zext" if bits(x.type) < bits(t) else "trunc", x, t)
        return b.bitcast(x, t)

    def real(self, x: Reg, /) -> V:
        return x[0] if is_pair(x) else x  # type: ignore[index, return-value]

    def imag(self, x: Reg, /) -> V:
        return x[1] if is_pair(x) else const(x.type, 0)  # type: ignore[index, union-attr, return-value]

    def pair(self, re: V, im: V, /) -> Reg:
        return re, im

    def function(self, name: str, /, *xs: Reg) -> Reg:
        if is_pair(xs[0]):
            return complexes.call(self.b, name, *xs)  # type: ignore[arg-type]
        return math.call(self.b, name, *xs)  # type: ignore[arg-type]

    # ------------------------------------------------------------------ floats
    def fadd(self, x: V, y: V, /) -> V:
        return self.b.fadd(x, y)

    def fsub(self, x: V, y: V, /) -> V:
        return self.b.fsub(x, y)

    def fmul(self, x: V, y: V, /) -> V:
        return self.b.fmul(x, y)

    def fdiv(self, x: V, y: V, /) -> V:
        return self.b.fdiv(x, y)

    def fneg(self, x: V, /) -> V:
        return self.b.fneg(x)

    def fabs(self, x: V, /) -> V:
        return self.b.intrinsic("fabs", x.type, [x])

    def fsign(self, x: V, /) -> V:
        return floats.sign(self.b, x)

    def fmax(self, x: V, y: V, /) -> V:
        return floats.extreme(self.b, "maximum", x, y)

    def fmin(self, x: V, y: V, /) -> V:
        return floats.extreme(self.b, "minimum", x, y)

    def fcmp(self, predicate: str, x: V, y: V, /) -> V:
        return self.b.fcmp(predicate, x, y)

    def reduce_precision(self, x: V, exponent_bits: int, mantissa_bits: int, /) -> V:
        return floats.reduce_precision(self.b, x, exponent_bits, mantissa_bits)

    def next_after(self, x: V, y: V, /) -> V:
        if floats.is_narrow(self.dtype):
            return floats.next_after_bits(self.b, self.dtype, x, y)
        return math.call(self.b, "next_after", x, y)

    # ------------------------------------------------------------------ integers and booleans
    def add(self, x: V, y: V, /) -> V:
        return self.b.add(x, y)

    def sub(self, x: V, y: V, /) -> V:
        return self.b.sub(x, y)

    def mul(self, x: V, y: V, /) -> V:
        return self.b.mul(x, y)

    def idiv(self, x: V, y: V, /) -> V:
        return integers.divide(self.b, self.dtype, x, y)

    def irem(self, x: V, y: V, /) -> V:
        return integers.remainder(self.b, self.dtype, x, y)

    def ipow(self, x: V, y: V, /) -> V:
        return integers.power(self.b, self.dtype, x, y)

    def iabs(self, x: V, /) -> V:
        return x if self.dtype.kind == "u" else self.b.intrinsic_with_flag("abs", x, False)

    def isign(self, x: V, /) -> V:
        return integers.sign(self.b, self.dtype, x)

    def imax(self, x: V, y: V, /) -> V:
        return self.b.intrinsic("umax" if self.dtype.kind in "ub" else "smax", x.type, [x, y])

    def imin(self, x: V, y: V, /) -> V:
        return self.b.intrinsic("umin" if self.dtype.kind in "ub" else "smin", x.type, [x, y])

    def mulhi(self, x: V, y: V, /) -> V:
        return integers.upper_product(self.b, self.dtype, x, y)

    def icmp(self, predicate: str, x: V, y: V, /) -> V:
        return self.b.icmp(predicate, x, y)

    def and_(self, x: V, y: V, /) -> V:
        return self.b.and_(x, y)

    def or_(self, x: V, y: V, /) -> V:
        return self.b.or_(x, y)

    def xor(self, x: V, y: V, /) -> V:
        return self.b.xor(x, y)

    def not_(self, x: V, /) -> V:
        return self.b.not_(x)

    def shift_left(self, x: V, count: V, /) -> V:
        return integers.shift(self.b, self.dtype, "shl", x, count)

    def shift_right(self, x: V, count: V, /) -> V:
        return integers.shift(self.b, self.dtype, "lshr", x, count)

    def shift_sign(self, x: V, count: V, /) -> V:
        return integers.shift(self.b, self.dtype, "ashr", x, count)

    def popcount(self, x: V, /) -> V:
        return self.b.intrinsic("ctpop", x.type, [x])

    def leading_zeros(self, x: V, /) -> V:
        return self.b.intrinsic_with_flag("ctlz", x, False)

    # ------------------------------------------------------------------ complex numbers
    def cadd(self, x: complexes.Pair, y: complexes.Pair, /) -> Reg:
        return complexes.add(self.b, x, y)

    def csub(self, x: complexes.Pair, y: complexes.Pair, /) -> Reg:
        return complexes.subtract(self.b, x, y)

    def cmul(self, x: complexes.Pair, y: complexes.Pair, /) -> Reg:
        return complexes.multiply(self.b, x, y)

    def cneg(self, x: complexes.Pair, /) -> Reg:
        return complexes.negate(self.b, x)

    def cmax(self, x: complexes.Pair, y: complexes.Pair, /) -> Reg:
        return complexes.maximum(self.b, x, y)

    def cmin(self, x: complexes.Pair, y: complexes.Pair, /) -> Reg:
        return complexes.minimum(self.b, x, y)
