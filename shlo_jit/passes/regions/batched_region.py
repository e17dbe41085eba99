"""A region on scalars (or small tensors), computed on whole tensors: every value gets leading batch dimensions.

    if p {a} else {b}     ->   select(p, a, b)
    while c(x) { f(x) }   ->   while any(active) { x = select(active, f(x), x) }, active = active and c(x)

A branch is computed for all elements, but the loops in it iterate only for elements that take it. Ops that have no
batched form are computed for one element after the other (`per_element.py`), and so is a whole region with an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shlo_jit import tuning
from shlo_jit.ir.attributes import IntegerAttr, StructAttr
from shlo_jit.ir.core import Block, Op, Region, Value, walk
from shlo_jit.ir.types import I1, I32, TensorType, tensor
from shlo_jit.ops import is_elementwise
from shlo_jit.ops.bodies import CONTROL, is_plain
from shlo_jit.ops.contract import dims_of
from shlo_jit.ops.effects import acting
from shlo_jit.passes import build as mk
from shlo_jit.passes.regions.outline import outer_values
from shlo_jit.passes.regions.per_element import each_element, per_element
from shlo_jit.passes.rewriter import Rewriter


def batched(rw: Rewriter, body: Block, arguments: Sequence[Value], shape: tuple[int, ...]) -> list[Value]:
    """Returns a region's results for arguments with leading batch dimensions `shape`."""
    if acting(body):
        values = dict(zip(body.arguments, arguments, strict=True))
        return each_element(rw, shape, values, body.ops[:-1], body.terminator.operands)
    return BatchedRegion(rw, shape).block(body, arguments)


def folded(rw: Rewriter, body: Block, values: Sequence[Value], inits: Sequence[Value]) -> list[Value]:
    """Reduces the values along their last dimension by a region, in order, starting from the initial values. `inits`
    have only the batch dimensions."""
    shape = mk.shape_of(inits[0])
    axis, count = len(shape), mk.shape_of(values[0])[len(shape)]
    if count <= tuning.LIFT_UNROLLED:
        total = list(inits)
        for k in range(count):
            step = [mk.reshape(rw, mk.slice_dim(rw, v, axis, k, k + 1), shape) for v in values]
            total = batched(rw, body, [*total, *step], shape)
        return total
    lines = [mk.transpose(rw, v, [axis, *range(axis)]) for v in values]

    def iteration(k: Value, total: list[Value]) -> list[Value]:
        corner = [k, *[mk.splat_like(rw, k, 0)] * axis]
        step = [mk.reshape(rw, mk.window(rw, v, corner, (1, *shape)), shape) for v in lines]
        return batched(rw, body, [*total, *step], shape)

    return mk.counted(rw, count, list(inits), iteration)


class BatchedRegion:
    """A region computed on a batch. `active`: elements whose loops may iterate, a tensor of i1 in the shape of the
    batch."""

    def __init__(
        self, rw: Rewriter, shape: tuple[int, ...], outer: BatchedRegion | None = None, active: Value | None = None
    ):
        self.rw = rw
        self.shape = shape
        self.rank = len(shape)
        self.values: dict[Value, Value] = {} if outer is None else dict(outer.values)
        self.active = active

    def block(self, body: Block, arguments: Sequence[Value]) -> list[Value]:
        """Returns the region's results for arguments with leading batch dimensions."""
        self.values.update(zip(body.arguments, arguments, strict=True))
        for op in body.ops[:-1]:
            self.values.update(zip(op.results, self.op(op), strict=True))
        return [self.get(v) for v in body.terminator.operands]

    def get(self, value: Value) -> Value:
        """Returns the value with leading batch dimensions; a value from outside the region is the same for all
        elements."""
        if value not in self.values:
            own = self.rw.get(value)
            full = (*self.shape, *mk.shape_of(own))
            self.values[value] = mk.broadcast(self.rw, own, full, range(self.rank, len(full)))
        return self.values[value]

    def type(self, value: Value) -> TensorType:
        return tensor((*self.shape, *mk.shape_of(value)), value.tensor.storage)

    def op(self, op: Op) -> Sequence[Value]:
        if is_elementwise(op):
            operands = [self.spread(o, op.result.tensor.rank) for o in op.operands]
            operands = [mk.broadcast(self.rw, v, self.type(op.result).extents, w) for v, w in operands]
            return self.rw.emit(op.name, operands, [self.type(r) for r in op.results], op.attributes)
        rule = RULES.get(op.name)
        found = per_element(self, op) if rule is None or self._is_bound(op) else rule(self, op)
        return [found] if isinstance(found, Value) else found

    def _is_bound(self, op: Op) -> bool:
        """Whether an op's own region reads values of the batch, or might not end for elements that do not run the
        op."""
        if op.name in CONTROL:
            return False
        blocks = [block for region in op.regions for block in region.blocks]
        loops = self.active is not None and any(inner.name == "stablehlo.while" for b in blocks for inner in walk(b))
        return loops or any(v in self.values for b in blocks for v in outer_values(b))

    def spread(self, value: Value, rank: int) -> tuple[Value, range | tuple[int, ...]]:
        """Returns an operand of an elementwise op, and the dimensions of the result that it has; a scalar has only the
        batch dimensions."""
        found = self.get(value)
        whole = value.tensor.rank == rank
        return found, range(found.tensor.rank) if whole else range(self.rank)

    def emit(self, op: Op, operands: Sequence[Value], attributes: dict[str, Any]) -> Value:
        return self.rw.emit1(op.name, operands, self.type(op.result), attributes)

    def moved(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Maps dimensions of a value in the region to those of the batched value."""
        return tuple(d + self.rank for d in dims)

    # ------------------------------------------------------------------ control flow
    def where(self, predicate: Value, yes: Value, no: Value) -> Value:
        wide = mk.broadcast(self.rw, predicate, mk.shape_of(yes), range(self.rank))
        return self.rw.emit1("stablehlo.select", [wide, yes, no], yes.type)

    def branch(self, op: Op, index: int, chosen: Value) -> list[Value]:
        active = chosen if self.active is None else mk.apply(self.rw, "and", self.active, chosen)
        return BatchedRegion(self.rw, self.shape, self, active).block(op.block(index), [])

    def choose(self, op: Op) -> Sequence[Value]:
        """if and case: selects each branch where it is chosen; an index out of range chooses the last one."""
        index, count = self.get(op.operands[0]), len(op.regions)
        if op.name == "stablehlo.if":
            chosen = [index, self.rw.emit1("stablehlo.not", [index], index.type)]
        else:
            chosen = [mk.compare(self.rw, "EQ", index, mk.splat_like(self.rw, index, k)) for k in range(count - 1)]
            low = mk.compare(self.rw, "LT", index, mk.splat_like(self.rw, index, 0))
            high = mk.compare(self.rw, "GE", index, mk.splat_like(self.rw, index, count - 1))
            chosen.append(mk.apply(self.rw, "or", low, high))
        found = self.branch(op, count - 1, chosen[-1])
        for k in range(count - 1):
            results = self.branch(op, k, chosen[k])
            found = [self.where(chosen[k], a, b) for a, b in zip(results, found, strict=True)]
        return found

    def loop(self, op: Op) -> Sequence[Value]:
        """while: iterates as long as any element does; the state changes only for elements whose loop continues."""
        condition, body = op.block(0), op.block(1)
        state = [self.get(v) for v in op.operands]
        active = self.active or mk.constant(self.rw, tensor(self.shape, I1), True)
        types = [v.type for v in (active, *state)]
        blocks = [Block([Value(t) for t in types]) for _ in range(2)]

        def going(arguments: Sequence[Value]) -> Value:
            goes = BatchedRegion(self.rw, self.shape, self).block(condition, arguments[1:])[0]
            return mk.apply(self.rw, "and", arguments[0], goes)

        self.rw.blocks.append(blocks[0])
        anywhere = mk.reduce_sum(self.rw, going(blocks[0].arguments), range(self.rank))
        self.rw.emit("stablehlo.return", [anywhere], [])
        self.rw.blocks[-1] = blocks[1]
        now = going(blocks[1].arguments)
        old = blocks[1].arguments[1:]
        new = BatchedRegion(self.rw, self.shape, self, now).block(body, old)
        kept = [self.where(now, a, b) for a, b in zip(new, old, strict=True)]
        self.rw.emit("stablehlo.return", [now, *kept], [])
        self.rw.blocks.pop()
        regions = [Region([block]) for block in blocks]
        return self.rw.emit("stablehlo.while", [active, *state], types, {}, regions)[1:]

    # ------------------------------------------------------------------ tensors
    def constant(self, op: Op) -> Value:
        array = op.constant.array
        return mk.constant(self.rw, self.type(op.result), np.broadcast_to(array, mk.shape_of(op.result)))

    def reshape(self, op: Op) -> Value:
        return mk.reshape(self.rw, self.get(op.operands[0]), self.type(op.result).extents)

    def broadcast(self, op: Op) -> Value:
        where = (*range(self.rank), *self.moved(op.ints("broadcast_dimensions")))
        return mk.broadcast(self.rw, self.get(op.operands[0]), self.type(op.result).extents, where)

    def transpose(self, op: Op) -> Value:
        order = (*range(self.rank), *self.moved(op.ints("permutation")))
        return mk.transpose(self.rw, self.get(op.operands[0]), order)

    def iota(self, op: Op) -> Value:
        return mk.iota(self.rw, self.type(op.result), op.int("iota_dimension") + self.rank)

    def reverse(self, op: Op) -> Value:
        return self.emit(op, [self.get(op.operands[0])], {"dimensions": mk.dims(self.moved(op.ints("dimensions")))})

    def concatenate(self, op: Op) -> Value:
        return mk.concatenate(self.rw, [self.get(o) for o in op.operands], op.int("dimension") + self.rank)

    def slice(self, op: Op) -> Value:
        zeros, ones = (0,) * self.rank, (1,) * self.rank
        fronts = {"start_indices": zeros, "limit_indices": self.shape, "strides": ones}
        attributes = {name: mk.dims((*front, *op.ints(name))) for name, front in fronts.items()}
        return self.emit(op, [self.get(op.operands[0])], attributes)

    def pad(self, op: Op) -> Value:
        value, filling = op.operands
        if filling in self.values:
            return per_element(self, op)[0]
        names = ("edge_padding_low", "edge_padding_high", "interior_padding")
        attributes = {name: mk.dims((*(0,) * self.rank, *op.ints(name))) for name in names}
        return self.emit(op, [self.get(value), self.rw.get(filling)], attributes)

    def inner(self, op: Op) -> Value:
        """Ops along the last dimensions, with any number of leading ones."""
        return self.emit(op, [self.get(o) for o in op.operands], op.attributes)

    def sort(self, op: Op) -> Sequence[Value]:
        if not is_plain(op.block()):
            return per_element(self, op)
        dimension = op.int("dimension", -1) % max(1, op.operands[0].tensor.rank)
        attributes = {**op.attributes, "dimension": IntegerAttr(dimension + self.rank)}
        types, region = [self.type(r) for r in op.results], Region([self.rw.sweep(op.block())])
        return self.rw.emit(op.name, [self.get(o) for o in op.operands], types, attributes, [region])

    def reduce(self, op: Op) -> Sequence[Value]:
        n = len(op.results)
        over = op.ints("dimensions")
        values = [self.get(v) for v in op.operands]
        values = [along_last(self.rw, v, self.moved(over)) for v in values[:n]] + values[n:]
        shape = mk.shape_of(values[0])[:-1]
        inits = [mk.broadcast(self.rw, v, shape, range(self.rank)) for v in values[n:]]
        return folded(self.rw, op.block(), values[:n], inits)

    def dot(self, op: Op) -> Value:
        numbers = op.attributes["dot_dimension_numbers"]
        assert isinstance(numbers, StructAttr)
        names = ("lhs_batching", "rhs_batching", "lhs_contracting", "rhs_contracting")
        roles = [self.moved(dims_of(numbers, f"{name}_dimensions")) for name in names]
        roles = [(*range(self.rank), *r) if k < 2 else r for k, r in enumerate(roles)]
        extra = {k: v for k, v in op.attributes.items() if k != "dot_dimension_numbers"}
        lhs, rhs = (self.get(o) for o in op.operands)
        return mk.dot(self.rw, (lhs, rhs), roles, op.result.tensor.storage, extra)


def along_last(rw: Rewriter, value: Value, dims: Sequence[int]) -> Value:
    """Returns the value with some of its dimensions merged into one, the last."""
    kept = [d for d in range(value.tensor.rank) if d not in dims]
    transposed = mk.transpose(rw, value, [*kept, *dims])
    count = int(np.prod([mk.shape_of(value)[d] for d in dims], dtype=np.int64))
    return mk.reshape(rw, transposed, (*(mk.shape_of(value)[d] for d in kept), count))


def places(rw: Rewriter, shape: Sequence[int], dimension: int) -> Value:
    """Returns the index along a dimension, as i32."""
    return mk.iota(rw, tensor(tuple(shape), I32), dimension)


RULES: dict[str, Callable[[BatchedRegion, Op], Value | Sequence[Value]]] = {
    "stablehlo.if": BatchedRegion.choose,
    "stablehlo.case": BatchedRegion.choose,
    "stablehlo.while": BatchedRegion.loop,
    "stablehlo.constant": BatchedRegion.constant,
    "stablehlo.reshape": BatchedRegion.reshape,
    "stablehlo.broadcast_in_dim": BatchedRegion.broadcast,
    "stablehlo.transpose": BatchedRegion.transpose,
    "stablehlo.iota": BatchedRegion.iota,
    "stablehlo.reverse": BatchedRegion.reverse,
    "stablehlo.concatenate": BatchedRegion.concatenate,
    "stablehlo.slice": BatchedRegion.slice,
    "stablehlo.pad": BatchedRegion.pad,
    "stablehlo.sort": BatchedRegion.sort,
    "stablehlo.fft": BatchedRegion.inner,
    "stablehlo.cholesky": BatchedRegion.inner,
    "stablehlo.triangular_solve": BatchedRegion.inner,
    "stablehlo.reduce": BatchedRegion.reduce,
    "stablehlo.dot_general": BatchedRegion.dot,
}
"""Ops that are not elementwise."""
