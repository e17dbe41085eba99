"""Ops in a batched region that have no batched form, computed for one element of the batch after the other.

map(x) by a body with a `cholesky`   ->   for k { y[k] = cholesky(x[k]) }
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from shlo_jit.ir.core import Block, Op, Region, Value
from shlo_jit.ir.types import tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.regions.outline import check_region, is_constant, outer_values
from shlo_jit.passes.rewriter import Rewriter

if TYPE_CHECKING:
    from shlo_jit.passes.regions.batched_region import BatchedRegion


def per_element(region: BatchedRegion, op: Op) -> Sequence[Value]:
    """Returns the results of an op for every element of the batch. If its regions might not end for elements that take
    another branch, it runs only for the other elements."""
    check_region([op])
    inner = [v for r in op.regions for block in r.blocks for v in outer_values(block)]
    read = [v for v in dict.fromkeys([*op.operands, *inner]) if v in region.values]
    # Some ops need to see that an operand is a constant.
    constants = [v.op for v in read if v.op is not None and is_constant(v)]
    read = [v for v in read if not is_constant(v)]
    if not read and not op.regions:
        return [_spread(region, v) for v in _made(region.rw, [*constants, op], op.results, {})]
    values = {v: region.values[v] for v in read}
    active = region.active if op.regions else None
    return each_element(region.rw, region.shape, values, [*constants, op], op.results, active)


def each_element(
    rw: Rewriter,
    shape: tuple[int, ...],
    values: Mapping[Value, Value],
    ops: Sequence[Op],
    results: Sequence[Value],
    active: Value | None = None,
) -> list[Value]:
    """Returns the results of some ops for each element of a batch. `values`: the values that the ops read -> the same
    with leading batch dimensions. Where `active` is false, nothing runs and the results are zeros."""
    check_region(ops)
    count = math.prod(shape)
    types = [tensor((count, *mk.shape_of(v)), v.tensor.storage) for v in results]

    def flat(value: Value) -> Value:
        return mk.reshape(rw, value, (count, *mk.shape_of(value)[len(shape) :]))

    def iteration(number: Value, current: list[Value]) -> Sequence[Value]:
        given = {value: _row(rw, all_of_them, number) for value, all_of_them in rows.items()}
        made = _guarded(rw, ops, results, given, None if chosen is None else _row(rw, chosen, number))
        return [_with_row(rw, all_of_them, number, v) for all_of_them, v in zip(current, made, strict=True)]

    rows = {value: flat(v) for value, v in values.items()}
    chosen = None if active is None else flat(active)
    found = [mk.constant(rw, t, 0) for t in types]
    if count:
        found = mk.counted(rw, count, found, iteration)
    return [mk.reshape(rw, v, (*shape, *mk.shape_of(v)[1:])) for v in found]


def _made(rw: Rewriter, ops: Sequence[Op], results: Sequence[Value], given: Mapping[Value, Value]) -> list[Value]:
    """Emits the ops in the block being built, with given values. The rewriter forgets their results afterwards, as they
    are valid only in that block."""
    own = [*given, *(r for op in ops for r in op.results)]
    known = {v: rw.values[v] for v in own if v in rw.values}
    rw.values.update(given)
    rw.run(ops)
    found = [rw.get(v) for v in results]
    for v in own:
        rw.values.pop(v, None)
    rw.values.update(known)
    return found


def _guarded(
    rw: Rewriter, ops: Sequence[Op], results: Sequence[Value], given: Mapping[Value, Value], chosen: Value | None
) -> list[Value]:
    """Emits the ops; their results are zeros if a condition does not hold."""

    def made() -> list[Value]:
        return _made(rw, ops, results, given)

    if chosen is None:
        return made()

    def nothing() -> list[Value]:
        return [mk.constant(rw, mk.with_dtype(v, v.tensor.storage), 0) for v in results]

    regions = [_region(rw, write) for write in (made, nothing)]
    types = [mk.with_dtype(v, v.tensor.storage) for v in results]
    return rw.emit("stablehlo.if", [chosen], types, {}, regions)


def _region(rw: Rewriter, write: Callable[[], Sequence[Value]]) -> Region:
    rw.blocks.append(Block([]))
    rw.emit("stablehlo.return", write(), [])
    return Region([rw.blocks.pop()])


def _corner(rw: Rewriter, value: Value, number: Value) -> list[Value]:
    """Returns the start indices of a row, along every dimension."""
    return [number, *[mk.splat_like(rw, number, 0)] * (value.tensor.rank - 1)]


def _row(rw: Rewriter, value: Value, number: Value) -> Value:
    """Returns the element of a batch at an index along the first dimension."""
    shape = mk.shape_of(value)[1:]
    return mk.reshape(rw, mk.window(rw, value, _corner(rw, value, number), (1, *shape)), shape)


def _with_row(rw: Rewriter, value: Value, number: Value, row: Value) -> Value:
    """Returns a batch with one element replaced."""
    update = mk.reshape(rw, row, (1, *mk.shape_of(row)))
    corner = _corner(rw, value, number)
    return rw.emit1("stablehlo.dynamic_update_slice", [value, update, *corner], value.type)


def _spread(region: BatchedRegion, value: Value) -> Value:
    """Returns a batch of equal elements."""
    shape = (*region.shape, *mk.shape_of(value))
    return mk.broadcast(region.rw, value, shape, range(region.rank, len(shape)))
