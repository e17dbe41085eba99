"""Numbers in registers, for kernels that serve both real and complex types: a tuple of one or two parts."""

from __future__ import annotations

from dataclasses import dataclass

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.fft.access import Mask, Side, load, store
from shlo_jit.kernels.gemm.precision import itemsize, storage
from shlo_jit.kernels.llvm_values import V, const
from shlo_jit.kernels.target import Target

Number = tuple[V, ...]


@dataclass(frozen=True)
class Field:
    """Memory layout and arithmetic of an element type's numbers."""

    part: str
    parts: int
    lanes: int
    vectors: int
    """Registers of numbers that form a strip: four for real numbers, two for complex ones; half with few registers."""

    @staticmethod
    def of(dtype: str, target: Target) -> Field:
        """Returns the field for f32, f64, complex<f32> or complex<f64>."""
        parts = 2 if dtype.startswith("complex") else 1
        bits = 8 * itemsize(dtype) // parts
        few = target.vector_registers < 32
        return Field(storage(dtype), parts, target.lanes(bits), (2 if few else 4) // parts)

    @property
    def itemsize(self) -> int:
        return self.parts * (4 if self.part == "float" else 8)

    # ------------------------------------------------------------------ memory
    def element(self, b: Builder, base: V, at: V) -> V:
        """Returns the address of element `at`."""
        return b.element(base, self.part, b.mul(at, self.parts))

    def load(self, b: Builder, base: V, at: V, mask: Mask | None) -> Number:
        if self.parts == 2:
            return load(b, Side("pairs"), base, self.part, at, self.lanes, mask)
        return load(b, Side("real"), base, self.part, at, self.lanes, mask)[:1]

    def load_one(self, b: Builder, base: V, at: V) -> Number:
        p = self.element(b, base, at)
        return tuple(b.load(self.part, b.element(p, self.part, k)) for k in range(self.parts))

    def store(self, b: Builder, base: V, at: V, x: Number, mask: Mask | None) -> None:
        kind = "pairs" if self.parts == 2 else "real"
        store(b, Side(kind), base, self.part, at, (x[0], x[-1]), mask)

    def store_one(self, b: Builder, base: V, at: V, real: V) -> None:
        """Stores a real number."""
        p = self.element(b, base, at)
        b.store(real, p)
        if self.parts == 2:
            b.store(const(self.part, 0.0), b.element(p, self.part, 1))

    # ------------------------------------------------------------------ arithmetic
    def splat(self, b: Builder, x: Number) -> Number:
        return tuple(b.splat(v, self.lanes) for v in x)

    def conj(self, b: Builder, x: Number) -> Number:
        return (x[0], b.fneg(x[1])) if self.parts == 2 else x

    def minus_product(self, b: Builder, s: Number, x: Number, y: Number) -> Number:
        """Returns s - x y, with contracted multiply-adds."""

        def fma(a: V, c: V, d: V) -> V:
            return b.intrinsic("fmuladd", a.type, [a, c, d])

        minus = b.fneg(x[0])
        if self.parts == 1:
            return (fma(minus, y[0], s[0]),)
        re = fma(x[1], y[1], fma(minus, y[0], s[0]))
        im = fma(b.fneg(x[1]), y[0], fma(minus, y[1], s[1]))
        return re, im

    def divide(self, b: Builder, xs: list[Number], y: Number) -> list[Number]:
        """Returns registers of numbers, divided by one number."""
        if self.parts == 1:
            (d,) = self.splat(b, y)
            return [(b.fdiv(x[0], d),) for x in xs]
        re, im = self.splat(b, _reciprocal(b, y))
        return [(b.fsub(b.fmul(x[0], re), b.fmul(x[1], im)), b.fadd(b.fmul(x[0], im), b.fmul(x[1], re))) for x in xs]


def _reciprocal(b: Builder, y: Number) -> Number:
    """Returns 1 / (c + id), with the larger part divided out first (Smith, 1962), so that no square overflows."""
    c, d = y
    one = const(c.type, 1.0)
    wide = b.fcmp("oge", b.intrinsic("fabs", c.type, [c]), b.intrinsic("fabs", d.type, [d]))
    large, small = b.select(wide, c, d), b.select(wide, d, c)
    ratio = b.fdiv(small, large)
    scale = b.fdiv(one, b.fadd(large, b.fmul(small, ratio)))
    other = b.fmul(ratio, scale)
    return b.select(wide, scale, other), b.fneg(b.select(wide, other, scale))
