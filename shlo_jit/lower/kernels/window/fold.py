"""Shared code of the kernels of reduce_window: folds elements with its body in registers."""

from __future__ import annotations

from shlo_jit.ir.core import Op
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, bits, is_float, lanes, vector
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.reducers import Reducer, reducer_of
from shlo_jit.lower.elements.registers import Reg, constant, flatten, lanes_of, regroup, widen
from shlo_jit.lower.kernels.access import Buffer, same_lanes
from shlo_jit.schedule.window import known_scalar


class Fold:
    """Accumulators of a reduce_window inside one function. In its methods, `values` are accumulators, one per input."""

    def __init__(self, op: Op, b: Builder, pointers: list[V]):
        self.b = b
        self.op = op
        self.n = n = len(op.results)
        self.reducer: Reducer = reducer_of(op)
        types = [v.tensor.storage for v in (*op.operands[:n], *op.results)]
        self.inputs = [Buffer(b, t, p) for t, p in zip(types[:n], pointers[:n], strict=True)]
        self.outputs = [Buffer(b, t, p) for t, p in zip(types[n:], pointers[2 * n :], strict=True)]
        inits = [Buffer(b, v.tensor.storage, p) for v, p in zip(op.operands[n:], pointers[n : 2 * n], strict=True)]
        self.init = self.enter([(i, i.load(0)) for i in inits])

    def enter(self, loaded: list[tuple[Buffer, Reg]]) -> list[Reg]:
        """Converts elements to accumulators."""
        types = [a.tensor.storage for a in self.op.block().arguments[: self.n]]
        pairs = zip(loaded, types, strict=True)
        return self.reducer.enter(self.b, [convert(self.b, buffer.dtype, t, x) for (buffer, x), t in pairs])

    def load(self, index: V | int, n: int, mask: V | None = None) -> list[Reg]:
        return self.enter([(x, x.load(index, n, mask)) for x in self.inputs])

    def gather(self, index: V, mask: V) -> list[Reg]:
        return self.enter([(x, x.gather(index, mask)) for x in self.inputs])

    def store(self, index: V, values: list[Reg], n: int, mask: V | None = None) -> None:
        for out, value in zip(self.outputs, self.reducer.leave(self.b, values), strict=True):
            out.store(index, value if lanes_of(value) == n else widen(self.b, value, n), n, mask)

    def combine(self, left: list[Reg], right: list[Reg]) -> list[Reg]:
        return self.reducer.combine(self.b, left, right)

    def start(self, n: int) -> list[Reg]:
        """The initial values in n lanes."""
        return [widen(self.b, x, n) for x in self.init]

    def select(self, mask: V, values: list[Reg], other: list[Reg]) -> list[Reg]:
        """Lanes of `values` where the mask is set, of `other` elsewhere."""
        picked = [self.b.select(mask, x, y) for x, y in zip(flatten(values), flatten(other), strict=True)]
        return self.like(picked)

    def like(self, flat: list[V]) -> list[Reg]:
        """The inverse of `flatten` for accumulators."""
        return regroup(flat, [self.init])[0]

    def flat(self, values: list[Reg]) -> list[V]:
        return flatten(values)

    # ------------------------------------------------------------------ the initial value
    @property
    def starts_neutral(self) -> bool:
        """Whether combine(init, x) is x, bit for bit; known only for constant initial values."""
        simple = self.reducer.simple
        known = known_scalar(self.op.operands[self.n]) if simple is not None and simple.has("idempotent") else None
        if known is None or self.reducer.wide:
            return False
        return constant(self.op.operands[self.n].tensor.storage, known) == self.reducer.neutral()

    def init_is_absorbed(self) -> V:
        """Whether combine(init, init) has the same bits as init, as i1."""
        b, same = self.b, V("i1", "true")
        for x, y in zip(self.combine(self.init, self.init), self.init, strict=True):
            for p, q in zip(same_lanes(x), same_lanes(y), strict=True):
                if is_float(p.type):
                    integer = vector(f"i{bits(p.type)}", lanes(p.type))
                    p, q = b.bitcast(p, integer), b.bitcast(q, integer)
                same = b.and_(same, b.icmp("eq", p, q))
        return same
