"""Reducer bodies: the combine step of reduce, over registers."""

from __future__ import annotations

from dataclasses import dataclass

from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.types import F32, I32, DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const, lanes, vector
from shlo_jit.lower.elements import elementwise
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.registers import (
    Reg,
    constant,
    is_pair,
    lanes_of,
    register_type,
    select_lanes,
    to_f32,
    widen,
)
from shlo_jit.ops import OpDef
from shlo_jit.schedule.reducers import accumulator, simple_op
from shlo_jit.schedule.selection import Selection


@dataclass(frozen=True)
class Reducer:
    """The combine step of a reduce on an accumulator and an element."""

    op: Op
    body: Block
    simple: OpDef | None
    """The op, if the body is one commutative op of the two arguments that has a neutral element; otherwise None."""

    @property
    def dtype(self) -> DType:
        return self.op.results[0].tensor.storage

    @property
    def accumulator(self) -> DType:
        return accumulator(self.op, self.simple)

    @property
    def wide(self) -> bool:
        return self.accumulator != self.dtype

    def combine(self, b: Builder, left: list[Reg], right: list[Reg]) -> list[Reg]:
        if self.simple:
            return [elementwise.apply(b, self.simple, self.accumulator, [left[0], right[0]])]
        return run_body(b, self.body, [*left, *right])

    def merge(self, b: Builder, left: list[Reg], right: list[Reg]) -> list[Reg]:
        """Combines accumulators of elements in any order (for a simple reducer)."""
        return self.combine(b, left, right)

    def enter(self, b: Builder, values: list[Reg]) -> list[Reg]:
        """Converts elements to accumulators."""
        return [convert(b, self.dtype, F32, values[0])] if self.wide else values

    def leave(self, b: Builder, values: list[Reg]) -> list[Reg]:
        return [convert(b, F32, self.dtype, values[0])] if self.wide else values

    def neutral(self) -> Reg:
        """The neutral element e, with combine(e, x) = x, bit for bit (for a simple reducer)."""
        assert self.simple is not None
        return constant(self.accumulator, self.simple.neutral_on(self.accumulator))

    @property
    def like(self) -> list[Reg]:
        """Registers with the structure of accumulators (for a simple reducer)."""
        return [self.neutral()]


@dataclass(frozen=True)
class Selector:
    """The combine step of a reduce of pairs (value, index) that selects one of them."""

    selection: Selection
    index: DType

    @property
    def like(self) -> list[Reg]:
        """Registers with the structure of accumulators."""
        return [const(register_type(dtype), 0) for dtype in self.selection.accumulators]

    def better(self, b: Builder, new: Reg, old: Reg) -> V:
        """Whether a value precedes another."""
        dtype = self.selection.accumulators[0]
        assert isinstance(new, V) and isinstance(old, V)
        word = "gt" if self.selection.greatest else "lt"
        if not dtype.is_float:
            return b.icmp(("u" if dtype.kind in "ub" else "s") + word, new, old)
        if dtype.bits < 32:
            new, old = to_f32(b, dtype, new), to_f32(b, dtype, old)
        if not self.selection.nan_first:
            return b.fcmp("o" + word, new, old)
        return b.and_(b.fcmp("u" + word, new, old), b.fcmp("ord", old, old))

    def combine(self, b: Builder, left: list[Reg], right: list[Reg]) -> list[Reg]:
        """Combines elements in the order of their indices."""
        return self.choose(b, self.better(b, right[0], left[0]), left, right)

    def merge(self, b: Builder, left: list[Reg], right: list[Reg]) -> list[Reg]:
        """Combines elements in any order."""
        equal = b.not_(self.better(b, left[0], right[0]))
        earlier = b.and_(equal, b.icmp("slt", right[1], left[1]))  # type: ignore[arg-type]
        return self.choose(b, b.or_(self.better(b, right[0], left[0]), earlier), left, right)

    def choose(self, b: Builder, mask: V, left: list[Reg], right: list[Reg]) -> list[Reg]:
        return [select_lanes(b, mask, x, y) for x, y in zip(right, left, strict=True)]

    def enter(self, b: Builder, values: list[Reg]) -> list[Reg]:
        """Converts elements to accumulators."""
        types = (self.selection.dtype, self.index), self.selection.accumulators
        return [x if t == to else convert(b, t, to, x) for x, t, to in zip(values, *types, strict=True)]

    def leave(self, b: Builder, values: list[Reg]) -> list[Reg]:
        """Converts accumulators to results; a value that is not read stays as it is."""
        index = values[1] if self.index == I32 else convert(b, I32, self.index, values[1])
        return [values[0], index]


def reducer_of(op: Op) -> Reducer:
    """Returns the reducer of a reduce (or of another op with such a body)."""
    return Reducer(op, op.block(), simple_op(op))


def run_body(b: Builder, body: Block, args: list[Reg], outside: dict[Value, Reg] | None = None) -> list[Reg]:
    """Emits a region of elementwise ops on registers. Returns the values that the region returns."""
    env: dict[Value, Reg] = dict(outside or {})
    env.update(zip(body.arguments, args, strict=True))

    def get(v: Value) -> Reg:
        if v not in env:
            assert v.op is not None and v.op.name == "stablehlo.constant"
            env[v] = constant(v.tensor.storage, v.op.constant.array.reshape(-1)[0])
        return env[v]

    for op in body.ops:
        if op.name == "stablehlo.constant":
            get(op.result)
        elif op.name.endswith(".return"):
            n = max(lanes_of(a) for a in args)
            return [widen(b, get(o), n) for o in op.operands]
        elif op.name in ("stablehlo.reshape", "stablehlo.broadcast_in_dim"):
            env[op.result] = get(op.operands[0])
        else:
            values = [get(o) for o in op.operands]
            n = max(lanes_of(v) for v in values)
            env[op.result] = elementwise.emit(b, op, [widen(b, v, n) for v in values])
    raise AssertionError("a body ends in a return")


def across(b: Builder, reducer: Reducer | Selector, values: list[Reg]) -> list[Reg]:
    """Combines the lanes of an accumulator: halves with halves, in a tree of fixed shape."""
    n = lanes_of(values[0])
    while n > 1:
        n //= 2

        def half(x: V, first: int, count: int = n) -> V:
            if count == 1:
                return b.extract(x, first)
            return b.shuffle(x, None, range(first, first + count))

        def split(x: Reg, first: int) -> Reg:
            if is_pair(x):
                return tuple(half(p, first) for p in x)  # type: ignore[return-value, union-attr]
            return half(x, first)  # type: ignore[arg-type]

        values = reducer.merge(b, [split(v, 0) for v in values], [split(v, n) for v in values])
    return values


def side_by_side(
    b: Builder, reducer: Reducer | Selector, left: list[Reg], right: list[Reg], rows: int, in_order: bool
) -> list[Reg]:
    """Combines two accumulators whose lanes belong to `rows` rows each. Like `across`, it combines halves of each row's
    lanes with halves, the rows of `left` before those of `right`. If n rows are combined pairwise, each lane of the
    last accumulator equals the result of `across` for one row.

    `in_order`: a row's lanes are in the order of its elements. Selections then combine neighbours, so that no indices
    have
    to be compared.
    """
    n = lanes_of(left[0])
    half = n // rows // 2
    neighbours = in_order and isinstance(reducer, Selector)
    to_lane, to_part = (2, 1) if neighbours else (1, half)

    def split(x: Reg, y: Reg, part: int) -> Reg:
        places = [2 * half * row + to_part * part + to_lane * i for row in range(2 * rows) for i in range(half)]
        if is_pair(x):
            return tuple(b.shuffle(p, q, places) for p, q in zip(x, y, strict=True))  # type: ignore
        return b.shuffle(x, y, places)  # type: ignore[arg-type]

    first, second = ([split(x, y, part) for x, y in zip(left, right, strict=True)] for part in (0, 1))
    return reducer.combine(b, first, second) if neighbours else reducer.merge(b, first, second)


__all__ = ["Reducer", "Selector", "across", "lanes", "reducer_of", "run_body", "side_by_side", "vector"]
