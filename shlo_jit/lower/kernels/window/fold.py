"""What reduce_window's kernels share: its dimensions, and folding elements with its body in registers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shlo_jit.ir.core import Op, Value
from shlo_jit.kernels.builder import Builder, V, bits, is_float, lanes, vector
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.reducers import Reducer, reducer_of
from shlo_jit.lower.elements.registers import Reg, constant, flatten, lanes_of, regroup, widen
from shlo_jit.lower.kernels.access import Buffer, same_lanes
from shlo_jit.ops.window import padding_pairs


@dataclass(frozen=True)
class Dim:
    """A dimension: extents of the input and of the result, and the window over it.

    Output o and window position w read input (o * stride + w * dilation - low) / base, where that is whole and inside.
    """

    extent: int
    out: int
    size: int
    stride: int
    low: int
    high: int
    base: int
    dilation: int

    @property
    def is_plain(self) -> bool:
        """Output o reads input o."""
        return self.size == 1 and self.stride == 1 and self.low == self.high == 0 and self.base == 1

    @property
    def interior(self) -> tuple[int, int]:
        """Outputs whose window lies inside the input: from, and up to."""
        if self.base != 1 and self.extent > 1:
            return 0, 0
        first = max(0, -(-self.low // self.stride))
        last = (self.extent - 1 + self.low - (self.size - 1) * self.dilation) // self.stride + 1
        return (first, min(last, self.out)) if first < min(last, self.out) else (0, 0)


def dims_of_window(op: Op) -> list[Dim]:
    """The dimensions of a reduce_window or select_and_scatter; neighbours that are plain are merged into one."""
    operand = op.operands[0].tensor.extents
    result = op.operands[1] if op.name == "stablehlo.select_and_scatter" else op.result
    rank = len(operand)
    ones = (1,) * rank
    columns = zip(
        operand,
        result.tensor.extents,
        op.ints("window_dimensions", ones),
        op.ints("window_strides", ones),
        padding_pairs(op.attributes.get("padding"), rank, ""),
        op.ints("base_dilations", ones),
        op.ints("window_dilations", ones),
        strict=True,
    )
    dims: list[Dim] = []
    for n, out, size, stride, (low, high), base, dilation in columns:
        dim = Dim(n, out, size, stride, low, high, base, dilation)
        if dims and dim.is_plain and dims[-1].is_plain:
            dims[-1] = replace(dims[-1], extent=dims[-1].extent * n, out=dims[-1].out * n)
        else:
            dims.append(dim)
    return dims or [Dim(1, 1, 1, 1, 0, 0, 1, 1)]  # a scalar is one element


def known_scalar(value: Value) -> object | None:
    """The element of a scalar constant, also one that was broadcast or reshaped."""
    op = value.op
    while op is not None and op.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
        op = op.operands[0].op
    if op is None or op.name != "stablehlo.constant":
        return None
    return op.constant.array.reshape(-1)[0]


class Fold:
    """Accumulators of a reduce_window inside one function: `values` below are accumulators, one an input."""

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
        """Elements as accumulators."""
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
        """Lanes of `values` where the mask is set, else of `other`."""
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
        """Whether combine(init, x) is x, bit for bit; known for constant initial values only."""
        simple = self.reducer.simple
        known = known_scalar(self.op.operands[self.n]) if simple is not None and simple.has("idempotent") else None
        if known is None or self.reducer.wide:
            return False
        return constant(self.op.operands[self.n].tensor.storage, known) == self.reducer.neutral()

    @property
    def absorbs_init(self) -> bool | None:
        """Whether combine(init, init) is init; None where that depends on the value at run time."""
        simple = self.reducer.simple
        if simple is None:
            return None
        if simple.has("idempotent"):
            return True
        known = known_scalar(self.op.operands[self.n])
        return known is not None and bool(known == simple.neutral_on(self.reducer.dtype))

    def init_is_absorbed(self) -> V:
        """i1: combine(init, init) has the same bits as init."""
        b, same = self.b, V("i1", "true")
        for x, y in zip(self.combine(self.init, self.init), self.init, strict=True):
            for p, q in zip(same_lanes(x), same_lanes(y), strict=True):
                if is_float(p.type):
                    integer = vector(f"i{bits(p.type)}", lanes(p.type))
                    p, q = b.bitcast(p, integer), b.bitcast(q, integer)
                same = b.and_(same, b.icmp("eq", p, q))
        return same
