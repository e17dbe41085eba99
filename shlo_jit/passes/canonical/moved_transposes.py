"""Move transposes of convolutions' results, and of arguments with features last, after the ops that read them, so that
a chain of convolutions with features last has features last throughout, whatever layout the program has.

A transpose that the program needs after a few loops would otherwise make these read or write at a distance; two
transposes that meet, such as those around each convolution of `features_last.py`, cancel out.

Needs: static shapes. Guarantees: nothing; transposes that are no longer read are dead.

    transpose(add(transpose(convolution(x, w), p), broadcast(bias)), q)
    ->
    transpose(transpose(add(convolution(x, w), broadcast(bias)), p), q)  =  add(convolution(x, w), broadcast(bias))

A transpose moves after an elementwise op if the other operands are transposed alike, or can be computed in the other
order as easily: constants, broadcasts, iotas, arguments of the program, transposes of other values, results of products
and scatters, which are in memory, and values whose transpose exists already. It moves after reductions, windows,
slices, padding, concatenations, and reshapes that keep the dimensions which it exchanges apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Block, Op, Region, Value, walk
from shlo_jit.ir.types import TensorType, tensor
from shlo_jit.ops import is_elementwise
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import Size

TRANSPOSE, BROADCAST, CONVOLUTION = "stablehlo.transpose", "stablehlo.broadcast_in_dim", "stablehlo.convolution"
Order = tuple[int, ...]


def moved_transposes(function: Op, _: Context) -> Op:
    """The function with transposes of convolutions moved after the ops that read them."""
    ops = {op.name for op in walk(function.block())}
    return rewrite(function, _Moving().visit) if {TRANSPOSE, CONVOLUTION} <= ops else function


class _Moving:
    def __init__(self) -> None:
        self.moved: dict[Value, tuple[Value, Order]] = {}
        """Transposes that may move: their operand and their permutation."""
        self.known: dict[tuple[Value, Order], tuple[Value, Block]] = {}
        """The transpose of a value by a permutation, where the program has one, and its block."""

    def visit(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name == TRANSPOSE:
            return [self._transpose(rw, op, operands[0])]
        if is_elementwise(op):
            return self._elementwise(rw, op, operands)
        move = _MOVES.get(op.name)
        if move is None or len(op.results) != 1 or not any(o in self.moved for o in operands):
            return None
        return move(self, rw, op, operands)

    def after(self, rw: Rewriter, value: Value, order: Order) -> Value:
        """Returns the transpose of a value, which ops after it may replace by the value."""
        if list(order) == sorted(order):
            return value
        found = mk.transpose(rw, value, order)
        self.moved[found] = value, order
        return found

    def _transpose(self, rw: Rewriter, op: Op, operand: Value) -> Value:
        order = op.ints("permutation")
        if operand in self.moved:
            source, before = self.moved[operand]
            return self.after(rw, source, tuple(before[d] for d in order))
        if operand.op is not None and operand.op.name == CONVOLUTION:
            return self.after(rw, operand, order)
        if operand.op is None and len(order) > 2 and order == (0, len(order) - 1, *range(1, len(order) - 1)):
            return self.after(rw, operand, order)
        found = mk.transpose(rw, operand, order)
        self.known[operand, order] = found, rw.block
        return found

    # ------------------------------------------------------------------ elementwise
    def _elementwise(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        orders = Counter(self.moved[o][1] for o in operands if o in self.moved)
        if not orders or len(op.results) != 1:
            return None
        (order, _), *_ = orders.most_common(1)
        alike = sum(o in self.moved for o in operands)
        read = [self._before(rw, o, order, alike) for o in operands]
        if any(v is None for v in read):
            return None
        t = _before_type(op.result.tensor, order)
        found = rw.emit1(op.name, [v for v in read if v is not None], t, op.attributes)
        return [self.after(rw, found, order)]

    def _before(self, rw: Rewriter, value: Value, order: Order, alike: int = 0) -> Value | None:
        """Returns a value whose transpose by `order` is `value`, None if it would take a loop to compute it. `alike`:
        the operands of its reader that are transposed by `order`, which make up for reading one at a distance."""
        if value.tensor.rank == 0:
            return value
        source, own = self.moved.get(value, (value, ()))
        if own == order:
            return source
        back = inverse(order)
        found, block = self.known.get((value, back), (None, None))
        if found is not None and any(block is b for b in rw.blocks):
            return found
        repeated = self._repeated(value)
        if repeated is not None:
            operand, dims = repeated
            return mk.broadcast(rw, operand, _permuted(mk.shape_of(value), back), [order[d] for d in dims])
        made = value.op
        if made is None or made.name == "stablehlo.constant":
            return mk.transpose(rw, value, back)
        if made.name == TRANSPOSE and value not in self.moved:
            between = made.ints("permutation")
            return mk.transpose(rw, made.operands[0], [between[d] for d in back])
        if made.name == "stablehlo.iota":
            return mk.iota(rw, _before_type(value.tensor, order), order[made.int("iota_dimension")])
        return mk.transpose(rw, value, back) if alike and _is_in_memory(value) else None

    def _repeated(self, value: Value) -> tuple[Value, list[int]] | None:
        """Returns the operand of a broadcast that is `value`, before a transpose that moves or without one, and the
        dimension of `value` of each of its dimensions. None if there is no broadcast."""
        source, order = self.moved.get(value, (value, tuple(range(value.tensor.rank))))
        if source.op is None or source.op.name != BROADCAST:
            return None
        return source.op.operands[0], [order.index(d) for d in source.op.ints("broadcast_dimensions")]

    # ------------------------------------------------------------------ other ops
    def _alike(self, rw: Rewriter, operands: Sequence[Value]) -> tuple[list[Value], Order] | None:
        """Returns the operands before the transpose that moves, and its permutation."""
        order = next(self.moved[o][1] for o in operands if o in self.moved)
        read = [self._before(rw, o, order) for o in operands]
        return None if any(v is None for v in read) else ([v for v in read if v is not None], order)

    def permuted_attributes(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        """An op of attributes that have an entry, or a row, for each dimension: a slice, padding, a window."""
        found = self._alike(rw, operands)
        if found is None:
            return None
        read, order = found
        attributes = dict(op.attributes)
        for name in _OF_DIMENSIONS & attributes.keys():
            attributes[name] = _before_attribute(op, name, order)
        regions = [Region([rw.sweep(b) for b in r.blocks]) for r in op.regions]
        t = _before_type(op.result.tensor, order)
        (made,) = rw.emit(op.name, read, [t], attributes, regions)
        return [self.after(rw, made, order)]

    def concatenate(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        found = self._alike(rw, operands)
        if found is None:
            return None
        read, order = found
        return [self.after(rw, mk.concatenate(rw, read, order[op.int("dimension")]), order)]

    def reduce(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        """A reduction of one operand; the result's dimensions may be in another order, too."""
        value, start = operands
        if value not in self.moved:
            return None
        source, order = self.moved[value]
        over = [order[d] for d in op.ints("dimensions")]
        left, kept = ([d for d in dims if d not in over] for dims in (range(len(order)), order))
        t = tensor(tuple(mk.shape_of(source)[d] for d in left), op.result.tensor.dtype)
        attributes = {**op.attributes, "dimensions": mk.dims(sorted(over))}
        regions = [Region([rw.sweep(b) for b in r.blocks]) for r in op.regions]
        (made,) = rw.emit(op.name, [source, start], [t], attributes, regions)
        return [self.after(rw, made, tuple(left.index(d) for d in kept))]

    def broadcast(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        """A broadcast; dimensions that it adds stay after those which they follow."""
        source, order = self.moved[operands[0]]
        shape, dims = mk.shape_of(op.result), op.ints("broadcast_dimensions")
        before = [dims[d] for d in inverse(order)]
        added = [d for d in range(len(shape)) if d not in dims]
        results = [d for d in added if d < min(dims)]
        for d in before:
            results.append(d)
            end = min((n for n in dims if n > d), default=len(shape))
            results += [n for n in added if d < n < end]
        made = mk.broadcast(rw, source, [shape[d] for d in results], [results.index(d) for d in before])
        return [self.after(rw, made, inverse(tuple(results)))]

    def reshape(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        """A reshape that splits or merges only dimensions which are adjacent before the transpose, too."""
        source, order = self.moved[operands[0]]
        groups = _groups(mk.shape_of(operands[0]), mk.shape_of(op.result))
        if groups is None:
            return None
        wide = [d for d, n in enumerate(mk.shape_of(source)) if n != 1]
        before = [[wide.index(order[d]) for d in dims] for dims, _ in groups]
        if any(dims != [*range(dims[0], dims[0] + len(dims))] for dims in before):
            return None
        sequence = sorted(range(len(groups)), key=lambda i: before[i][0])
        results = [d for i in sequence for d in groups[i][1]]
        shape = mk.shape_of(op.result)
        made = mk.reshape(rw, source, [shape[d] for d in results])
        return [self.after(rw, made, tuple(results.index(d) for d in range(len(shape))))]


_OF_DIMENSIONS = {
    "start_indices", "limit_indices", "strides", "edge_padding_low", "edge_padding_high", "interior_padding",
    "window_dimensions", "window_strides", "base_dilations", "window_dilations", "padding", "dimensions",
}  # fmt: skip
"""Attributes with an entry for each dimension, a pair (`padding`), or dimensions (`dimensions`)."""
_IN_MEMORY = {"stablehlo.dot_general", "stablehlo.scatter"}
"""Ops with kernels of their own, which write results that any loop then reads in its order."""
_MOVES: dict[str, Callable[[_Moving, Rewriter, Op, list[Value]], Sequence[Value] | None]] = {
    "stablehlo.slice": _Moving.permuted_attributes,
    "stablehlo.pad": _Moving.permuted_attributes,
    "stablehlo.reverse": _Moving.permuted_attributes,
    "stablehlo.reduce_window": _Moving.permuted_attributes,
    "stablehlo.select_and_scatter": _Moving.permuted_attributes,
    "stablehlo.concatenate": _Moving.concatenate,
    "stablehlo.reduce": _Moving.reduce,
    "stablehlo.broadcast_in_dim": _Moving.broadcast,
    "stablehlo.reshape": _Moving.reshape,
}


def _is_in_memory(value: Value) -> bool:
    """Whether a value, or what it is a reshape of, is the result of a product or a scatter."""
    while value.op is not None and value.op.name == "stablehlo.reshape":
        value = value.op.operands[0]
    return value.op is not None and value.op.name in _IN_MEMORY


def moves_across(op: Op) -> bool:
    """Whether transposes may move from the operands of an op to its result."""
    return op.name == TRANSPOSE or op.name in _MOVES or is_elementwise(op)


def inverse(order: Order) -> Order:
    return tuple(order.index(d) for d in range(len(order)))


def _permuted(values: Sequence[int], order: Order) -> tuple[int, ...]:
    return tuple(values[d] for d in order)


def _before_type(t: TensorType, order: Order) -> TensorType:
    """The type whose transpose by `order` is `t`."""
    return tensor(_permuted(t.extents, inverse(order)), t.dtype)


def _before_attribute(op: Op, name: str, order: Order) -> Any:
    """An attribute of the op whose result's transpose by `order` is that of `op`."""
    if name == "dimensions":
        return mk.dims(sorted(order[d] for d in op.ints(name)))
    if name == "padding":
        pairs = op.attributes[name]
        assert isinstance(pairs, Dense)
        return Dense(pairs.type, pairs.array.reshape(-1, 2)[list(inverse(order))])
    return mk.dims(_permuted(op.ints(name), inverse(order)))


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """Returns which dimensions of a reshape's operand become which of its result, in order, as few as possible at a
    time. Dimensions of extent 1 are left out of the operand's, and belong to the group before them in the result's.
    None if extents are zero or unknown, or if there is only one element."""
    if any(isinstance(n, Size) or n == 0 for n in (*before, *after)):
        return None
    wide, others = ([d for d, n in enumerate(shape) if n != 1] for shape in (before, after))
    groups = list[tuple[list[int], list[int]]]()
    while wide:
        group = [wide.pop(0)], [others.pop(0)]
        while (difference := prod(before[d] for d in group[0]) - prod(after[d] for d in group[1])) != 0:
            side, rest = (1, others) if difference > 0 else (0, wide)
            group[side].append(rest.pop(0))
        groups.append(group)
    if not groups:
        return None
    for d, n in enumerate(after):
        if n == 1:
            nth = max((i for i, (_, dims) in enumerate(groups) if dims[0] < d), default=0)
            groups[nth][1].append(d)
    return [(dims, sorted(results)) for dims, results in groups]
