"""A region on scalars (or small tensors), computed on whole tensors at once: every value gets the dimensions of a
batch in front.

    if p {a} else {b}     ->   select(p, a, b)
    while c(x) { f(x) }   ->   while any(active) { x = select(active, f(x), x) }, active = active and c(x)

A branch is computed where it is not taken too, but the loops in it turn only where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shlo_jit import tuning
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.attributes import IntegerAttr, StructAttr
from shlo_jit.ir.core import Block, Op, Region, Value
from shlo_jit.ir.types import I1, I32, TensorType, tensor
from shlo_jit.ops import is_elementwise
from shlo_jit.ops.contract import dims_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter


def batched(rw: Rewriter, body: Block, arguments: Sequence[Value], shape: tuple[int, ...]) -> list[Value]:
    """What a region gives for arguments with the batch `shape` in front."""
    return BatchedRegion(rw, shape).block(body, arguments)


def folded(rw: Rewriter, body: Block, values: Sequence[Value], inits: Sequence[Value]) -> list[Value]:
    """The values reduced along their last dimension by a region, in order, from the initial values on. `inits` have
    the batch alone."""
    shape = mk.shape_of(inits[0])
    axis, count = len(shape), mk.shape_of(values[0])[len(shape)]
    if count <= tuning.LIFT_UNROLLED:
        total = list(inits)
        for k in range(count):
            step = [mk.reshape(rw, mk.slice_dim(rw, v, axis, k, k + 1), shape) for v in values]
            total = batched(rw, body, [*total, *step], shape)
        return total
    lines = [mk.transpose(rw, v, [axis, *range(axis)]) for v in values]

    def turn(k: Value, total: list[Value]) -> list[Value]:
        corner = [k, *[mk.splat_like(rw, k, 0)] * axis]
        step = [mk.reshape(rw, mk.window(rw, v, corner, (1, *shape)), shape) for v in lines]
        return batched(rw, body, [*total, *step], shape)

    return counted(rw, count, list(inits), turn)


def counted(
    rw: Rewriter, count: int, state: Sequence[Value], turn: Callable[[Value, list[Value]], Sequence[Value]]
) -> list[Value]:
    """A loop of `count` turns over a state: `turn` writes one, given its number and the state before it."""
    first = [mk.constant(rw, tensor((), I32), 0), *state]
    types = [v.type for v in first]
    condition, body = (Block([Value(t) for t in types]) for _ in range(2))
    rw.blocks.append(condition)
    limit = mk.constant(rw, tensor((), I32), count)
    rw.emit("stablehlo.return", [mk.compare(rw, "LT", condition.arguments[0], limit)], [])
    rw.blocks[-1] = body
    number, *before = body.arguments
    after = turn(number, before)
    one = mk.constant(rw, tensor((), I32), 1)
    rw.emit("stablehlo.return", [mk.apply(rw, "add", number, one), *after], [])
    rw.blocks.pop()
    return rw.emit("stablehlo.while", first, types, {}, [Region([condition]), Region([body])])[1:]


class BatchedRegion:
    """A region computed on a batch. `active`: where its loops may turn, a tensor of i1 in the shape of the batch."""

    def __init__(
        self, rw: Rewriter, shape: tuple[int, ...], outer: BatchedRegion | None = None, active: Value | None = None
    ):
        self.rw = rw
        self.shape = shape
        self.rank = len(shape)
        self.values: dict[Value, Value] = {} if outer is None else dict(outer.values)
        self.active = active

    def block(self, body: Block, arguments: Sequence[Value]) -> list[Value]:
        """Results of the region for arguments with the batch in front."""
        self.values.update(zip(body.arguments, arguments, strict=True))
        for op in body.ops[:-1]:
            self.values.update(zip(op.results, self.op(op), strict=True))
        return [self.get(v) for v in body.terminator.operands]

    def get(self, value: Value) -> Value:
        """The value with the batch in front; one from outside the region is the same everywhere."""
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
        if rule is None:
            raise UnsupportedError(diagnose(f"{op.name} in the region of another op", op.span, label="region-op"))
        found = rule(self, op)
        return [found] if isinstance(found, Value) else found

    def spread(self, value: Value, rank: int) -> tuple[Value, range | tuple[int, ...]]:
        """An operand of an elementwise op, and where its dimensions lie in the result: a scalar's are the
        batch."""
        found = self.get(value)
        whole = value.tensor.rank == rank
        return found, range(found.tensor.rank) if whole else range(self.rank)

    def emit(self, op: Op, operands: Sequence[Value], attributes: dict[str, Any]) -> Value:
        return self.rw.emit1(op.name, operands, self.type(op.result), attributes)

    def moved(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Dimensions of a value in the region as those of the batched one."""
        return tuple(d + self.rank for d in dims)

    # ------------------------------------------------------------------ control flow
    def where(self, predicate: Value, yes: Value, no: Value) -> Value:
        wide = mk.broadcast(self.rw, predicate, mk.shape_of(yes), range(self.rank))
        return self.rw.emit1("stablehlo.select", [wide, yes, no], yes.type)

    def branch(self, op: Op, index: int, chosen: Value) -> list[Value]:
        active = chosen if self.active is None else mk.apply(self.rw, "and", self.active, chosen)
        return BatchedRegion(self.rw, self.shape, self, active).block(op.block(index), [])

    def choose(self, op: Op) -> Sequence[Value]:
        """if and case: each branch where it is chosen; an index that is out of range chooses the last one."""
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
        """while: turns as long as it does anywhere; the state changes where it still does."""
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
    """The value with some of its dimensions as one, the last."""
    kept = [d for d in range(value.tensor.rank) if d not in dims]
    turned = mk.transpose(rw, value, [*kept, *dims])
    count = int(np.prod([mk.shape_of(value)[d] for d in dims], dtype=np.int64))
    return mk.reshape(rw, turned, (*(mk.shape_of(value)[d] for d in kept), count))


def places(rw: Rewriter, shape: Sequence[int], dimension: int) -> Value:
    """The index along a dimension, as i32."""
    return mk.iota(rw, tensor(tuple(shape), I32), dimension)


def plain_sort(rw: Rewriter, keys: Value, others: Sequence[Value], dimension: int) -> list[Value]:
    """The others in ascending order of integer keys."""
    values = [keys, *others]
    arguments = [Value(tensor((), v.tensor.storage)) for v in values for _ in range(2)]
    block = Block(arguments)
    rw.blocks.append(block)
    rw.emit("stablehlo.return", [mk.compare(rw, "LT", arguments[0], arguments[1])], [])
    rw.blocks.pop()
    attributes = {"dimension": IntegerAttr(dimension), "is_stable": True}
    return rw.emit("stablehlo.sort", values, [v.type for v in values], attributes, [Region([block])])[1:]


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
    "stablehlo.reduce": BatchedRegion.reduce,
    "stablehlo.dot_general": BatchedRegion.dot,
}
"""Ops that are no elementwise ones."""
