"""Arithmetic on batches of matrices, to write factorizations with.

A `Matrices` has the shape [count, rows, columns]. Operators broadcast extents of 1, and reductions keep the dimension,
so a vector per matrix is [count, rows, 1] or [count, 1, columns], and a number per matrix is [count, 1, 1]. Each
operator emits one op. All of them but `sum` are elementwise or exact, so no result depends on the other matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shlo_jit.ir.attributes import EnumAttr, IntegerAttr
from shlo_jit.ir.core import Block, Region, Value
from shlo_jit.ir.types import C64, C128, F32, I1, I32, UI32, UI64, DType, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter

ROWS, COLUMNS = 1, 2
Number = int | float


@dataclass(frozen=True, eq=False)
class Matrices:
    """A batch of matrices, vectors or numbers, in a block that is being built."""

    rw: Rewriter
    value: Value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.tensor.extents

    @property
    def dtype(self) -> DType:
        return self.value.tensor.storage

    @property
    def is_complex(self) -> bool:
        return self.dtype.is_complex

    def like(self, number: Number) -> Matrices:
        """A number of this type, to broadcast."""
        return Matrices(self.rw, mk.constant(self.rw, tensor((1, 1, 1), self.dtype), number))

    def spread(self, shape: Sequence[int]) -> Matrices:
        """Broadcasts extents of 1."""
        if tuple(shape) == self.shape:
            return self
        kept = [d for d in range(3) if self.shape[d] == shape[d]]
        thin = mk.reshape(self.rw, self.value, [shape[d] for d in kept])
        return Matrices(self.rw, mk.broadcast(self.rw, thin, shape, kept))

    def _pair(self, other: Matrices | Number) -> tuple[Matrices, Matrices]:
        other = other if isinstance(other, Matrices) else self.like(other)
        x, y = self, other
        if x.dtype != y.dtype:
            x, y = (v if v.is_complex else v.as_complex() for v in (x, y))
        shape = [a if b == 1 else b for a, b in zip(x.shape, y.shape, strict=True)]
        return x.spread(shape), y.spread(shape)

    def apply(self, name: str, *others: Matrices | Number) -> Matrices:
        """An elementwise op of this and at most one other operand."""
        operands = self._pair(others[0]) if others else (self,)
        return Matrices(self.rw, mk.apply(self.rw, name, *(o.value for o in operands)))

    def __add__(self, other: Matrices | Number) -> Matrices:
        return self.apply("add", other)

    def __sub__(self, other: Matrices | Number) -> Matrices:
        return self.apply("subtract", other)

    def __mul__(self, other: Matrices | Number) -> Matrices:
        return self.apply("multiply", other)

    def __truediv__(self, other: Matrices | Number) -> Matrices:
        return self.apply("divide", other)

    def __neg__(self) -> Matrices:
        return self.apply("negate")

    def __and__(self, other: Matrices) -> Matrices:
        return self.apply("and", other)

    def __or__(self, other: Matrices) -> Matrices:
        return self.apply("or", other)

    def __invert__(self) -> Matrices:
        return self.apply("not")

    def _compare(self, direction: str, other: Matrices | Number) -> Matrices:
        x, y = self._pair(other)
        return Matrices(self.rw, mk.compare(self.rw, direction, x.value, y.value))

    def __lt__(self, other: Matrices | Number) -> Matrices:
        return self._compare("LT", other)

    def __le__(self, other: Matrices | Number) -> Matrices:
        return self._compare("LE", other)

    def __gt__(self, other: Matrices | Number) -> Matrices:
        return self._compare("GT", other)

    def __ge__(self, other: Matrices | Number) -> Matrices:
        return self._compare("GE", other)

    def equals(self, other: Matrices | Number) -> Matrices:
        return self._compare("EQ", other)

    def where(self, condition: Matrices, other: Matrices | Number) -> Matrices:
        """This where the condition holds, else the other."""
        x, y = self._pair(other)
        shape = [a if b == 1 else b for a, b in zip(x.shape, condition.shape, strict=True)]
        operands = (condition.spread(shape), x.spread(shape), y.spread(shape))
        return Matrices(self.rw, mk.apply(self.rw, "select", *(o.value for o in operands)))

    # ------------------------------------------------------------------ parts of complex numbers
    def as_complex(self) -> Matrices:
        return complex_of(self, self.like(0).spread(self.shape))

    def _part(self, name: str) -> Matrices:
        t = tensor(self.shape, self.dtype.part)
        return Matrices(self.rw, self.rw.emit1(f"stablehlo.{name}", [self.value], t))

    def real(self) -> Matrices:
        return self._part("real") if self.is_complex else self

    def imag(self) -> Matrices:
        return self._part("imag") if self.is_complex else self.like(0).spread(self.shape)

    def conj(self) -> Matrices:
        return complex_of(self.real(), -self.imag()) if self.is_complex else self

    def size(self) -> Matrices:
        """The absolute value; of a complex number, the larger of its parts' absolute values."""
        if not self.is_complex:
            return self.apply("abs")
        return self.real().apply("abs").apply("maximum", self.imag().apply("abs"))

    def square(self) -> Matrices:
        """|x|^2"""
        if not self.is_complex:
            return self * self
        re, im = self.real(), self.imag()
        return re * re + im * im

    def scaling(self) -> Matrices:
        """The largest power of two that is not above a positive real number; 1 for zero and subnormal numbers."""
        bits = self.dtype.bits
        integer, mask = (UI32, 0x7F800000) if bits == 32 else (UI64, 0x7FF0000000000000)
        whole = self.rw.emit1("stablehlo.bitcast_convert", [self.value], tensor(self.shape, integer))
        kept = mk.apply(self.rw, "and", whole, mk.splat_like(self.rw, whole, mask))
        power = Matrices(self.rw, self.rw.emit1("stablehlo.bitcast_convert", [kept], self.value.tensor))
        return power.where(power > 0, 1)

    # ------------------------------------------------------------------ rows and columns
    def index(self, dimension: int) -> Matrices:
        """The index of each element along a dimension, as [1, rows, 1] or [1, 1, columns] of i32."""
        shape = [self.shape[d] if d == dimension else 1 for d in range(3)]
        return Matrices(self.rw, mk.iota(self.rw, tensor(tuple(shape), I32), dimension))

    def line(self, dimension: int, index: Value) -> Matrices:
        """One row (or column) of every matrix: the same index, an i32 scalar, for all."""
        zero = mk.constant(self.rw, tensor((), I32), 0)
        corner = [index if d == dimension else zero for d in range(3)]
        sizes = [1 if d == dimension else n for d, n in enumerate(self.shape)]
        return Matrices(self.rw, mk.window(self.rw, self.value, corner, sizes))

    def with_line(self, dimension: int, index: Value, line: Matrices) -> Matrices:
        """This with one row (or column) replaced."""
        zero = mk.constant(self.rw, tensor((), I32), 0)
        corner = [index if d == dimension else zero for d in range(3)]
        operands = [self.value, line.value, *corner]
        return Matrices(self.rw, self.rw.emit1("stablehlo.dynamic_update_slice", operands, self.value.tensor))

    def part(self, dimension: int, start: int, limit: int) -> Matrices:
        return Matrices(self.rw, mk.slice_dim(self.rw, self.value, dimension, start, limit))

    def padded(self, rows: int, columns: int) -> Matrices:
        """Zeros are added below and to the right."""
        high = [0, rows - self.shape[ROWS], columns - self.shape[COLUMNS]]
        return Matrices(self.rw, mk.pad(self.rw, self.value, 0, [0, 0, 0], high, [0, 0, 0]))

    def transpose(self) -> Matrices:
        return Matrices(self.rw, mk.transpose(self.rw, self.value, (0, 2, 1)))

    def adjoint(self) -> Matrices:
        return self.transpose().conj()

    def swapped_axes(self) -> Matrices:
        """A row as a column, and the other way around: the same memory."""
        count, rows, columns = self.shape
        return Matrices(self.rw, mk.reshape(self.rw, self.value, (count, columns, rows)))

    def reversed(self) -> Matrices:
        """Rows and columns in opposite order."""
        attributes = {"dimensions": mk.dims((ROWS, COLUMNS))}
        return Matrices(self.rw, self.rw.emit1("stablehlo.reverse", [self.value], self.value.tensor, attributes))

    # ------------------------------------------------------------------ reductions
    def _reduced(self, name: str, initial: object, dimensions: Sequence[int]) -> Matrices:
        found = mk.reduce(self.rw, name, self.value, initial, dimensions)
        kept = [1 if d in dimensions else n for d, n in enumerate(self.shape)]
        return Matrices(self.rw, mk.reshape(self.rw, found, kept))

    def sum(self, *dimensions: int) -> Matrices:
        return self._reduced("add", 0, dimensions)

    def chosen(self, condition: Matrices, dimension: int) -> Matrices:
        """The only element along a dimension for which the condition holds. All others are replaced by the number that
        changes no sum, so it is exact."""
        shape = [a if b == 1 else b for a, b in zip(self.shape, condition.shape, strict=True)]
        initial = complex(-0.0, -0.0) if self.is_complex else -0.0
        nothing = Matrices(self.rw, mk.constant(self.rw, tensor((1, 1, 1), self.dtype), initial))
        return self.spread(shape).where(condition, nothing)._reduced("add", initial, [dimension])

    def largest(self, *dimensions: int) -> Matrices:
        """The maximum of real numbers that are not negative. NaN if one is NaN."""
        return self._reduced("maximum", 0, dimensions)

    def first(self, dimension: int) -> Matrices:
        """The index of the first element that is true; the extent if there is none."""
        n = self.shape[dimension]
        return self.index(dimension).where(self, n)._reduced("minimum", n, [dimension])

    def any(self) -> Matrices:
        """Whether one element of the matrix is true."""
        return self._reduced("or", 0, [ROWS, COLUMNS])

    def convert(self, dtype: DType) -> Matrices:
        return Matrices(self.rw, mk.convert(self.rw, self.value, dtype))


def complex_of(re: Matrices, im: Matrices) -> Matrices:
    t = tensor(re.shape, C64 if re.dtype == F32 else C128)
    return Matrices(re.rw, re.rw.emit1("stablehlo.complex", [re.value, im.value], t))


def joined(parts: Sequence[Matrices], dimension: int) -> Matrices:
    """Concatenates the parts that are not empty."""
    values = [p.value for p in parts if p.shape[dimension]]
    return Matrices(parts[0].rw, mk.concatenate(parts[0].rw, values, dimension))


def identity(like: Matrices, rows: int, columns: int) -> Matrices:
    """A matrix with ones on its diagonal, for each matrix of a batch."""
    shape = (like.shape[0], rows, columns)
    zeros = like.like(0).spread(shape)
    return zeros.like(1).where(zeros.index(ROWS).equals(zeros.index(COLUMNS)), 0).spread(shape)


def zeros(like: Matrices, rows: int, columns: int, dtype: DType | None = None) -> Matrices:
    t = tensor((like.shape[0], rows, columns), like.dtype if dtype is None else dtype)
    return Matrices(like.rw, mk.constant(like.rw, t, 0))


def steps(
    rw: Rewriter, count: int, state: Sequence[Matrices], step: Callable[..., Sequence[Matrices]], down: bool = False
) -> list[Matrices]:
    """The state after `count` steps. `step` gets the index, an i32 scalar that counts up or down, and the state."""

    def iteration(index: Value, values: list[Value]) -> list[Value]:
        if down:
            index = mk.apply(rw, "subtract", mk.constant(rw, index.tensor, count - 1), index)
        return [m.value for m in step(index, *(Matrices(rw, v) for v in values))]

    if count <= 0:
        return list(state)
    return [Matrices(rw, v) for v in mk.counted(rw, count, [m.value for m in state], iteration)]


def repeated(
    rw: Rewriter, most: int, active: Matrices, state: Sequence[Matrices], step: Callable[..., Sequence[Matrices]]
) -> list[Matrices]:
    """Runs steps until no matrix is active any more, at most `most` times. `step` maps the state to the flags of active
    matrices, [count, 1, 1], and the next state. The state of a matrix that is not active stays, so that it does not
    depend on the others of the batch. Returns the flags and the state."""
    first = [mk.constant(rw, tensor((), I32), 0), active.value, *(m.value for m in state)]
    types = [v.type for v in first]
    condition, body = (Block([Value(t) for t in types]) for _ in range(2))
    rw.blocks.append(condition)
    below = mk.compare(rw, "LT", condition.arguments[0], mk.constant(rw, tensor((), I32), most))
    some = mk.reduce(rw, "or", condition.arguments[1], 0, (0, 1, 2))
    rw.emit("stablehlo.return", [mk.apply(rw, "and", below, some)], [])
    rw.blocks[-1] = body
    number, *values = body.arguments
    before = [Matrices(rw, v) for v in values]
    still, *after = step(*before[1:])
    kept = [new.where(before[0], old).value for new, old in zip(after, before[1:], strict=True)]
    following = mk.apply(rw, "add", number, mk.constant(rw, tensor((), I32), 1))
    rw.emit("stablehlo.return", [following, (still & before[0]).value, *kept], [])
    rw.blocks.pop()
    found = rw.emit("stablehlo.while", first, types, {}, [Region([condition]), Region([body])])
    return [Matrices(rw, v) for v in found[1:]]


def sorted_rows(key: Matrices, *others: Matrices) -> list[Matrices]:
    """The rows of matrices in ascending order of real keys [count, rows, 1]. Returns the sorted keys and matrices."""
    rw = key.rw
    operands = [key.value]
    for m in others:
        operands += [key.spread(m.shape).value, m.value]
    found: list[Matrices] = []
    for pair in (operands[:1], *(operands[k : k + 2] for k in range(1, len(operands), 2))):
        scalars = [tensor((), v.tensor.storage) for v in pair for _ in range(2)]
        block = Block([Value(t) for t in scalars])
        rw.blocks.append(block)
        order = {
            "comparison_direction": EnumAttr("stablehlo", "comparison_direction", "LT"),
            "compare_type": EnumAttr("stablehlo", "comparison_type", "TOTALORDER"),
        }
        less = rw.emit1("stablehlo.compare", block.arguments[:2], tensor((), I1), order)
        rw.emit("stablehlo.return", [less], [])
        rw.blocks.pop()
        attributes = {"dimension": IntegerAttr(ROWS), "is_stable": True}
        results = rw.emit("stablehlo.sort", pair, [v.type for v in pair], attributes, [Region([block])])
        found.append(Matrices(rw, results[-1]))
    return found


def epsilon(dtype: DType) -> float:
    """The distance from 1 to the next number of a type, or of its parts."""
    return float(np.finfo(dtype.part.numpy).eps)


def tiny(dtype: DType) -> float:
    """The least normal number of a type, or of its parts."""
    return float(np.finfo(dtype.part.numpy).tiny)
