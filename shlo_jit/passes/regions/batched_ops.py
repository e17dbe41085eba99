"""Rules that express ops with general regions in terms of the region on whole tensors (`batched_region.py`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shlo_jit import tuning
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.attributes import IntegerAttr, StructAttr
from shlo_jit.ir.core import Block, Op, Region, Value, walk
from shlo_jit.ir.types import I1, I32, I64, DType, TensorType, tensor
from shlo_jit.ops import is_elementwise
from shlo_jit.ops.bodies import is_plain
from shlo_jit.ops.contract import dims_of
from shlo_jit.ops.reduce import reduce_window_window, select_window
from shlo_jit.ops.window import Window
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Outlined
from shlo_jit.passes.regions.batched_region import along_last, batched, folded, places
from shlo_jit.passes.regions.outline import is_constant, outer_values, sort_by_function
from shlo_jit.passes.rewriter import Rewriter


def batched_map(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """map(f, x, y) = f(x, y)"""
    return batched(rw, op.block(), operands, mk.shape_of(op.result))


def batched_reduce(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """reduce(x, init) = fold of x along its reduced dimensions"""
    values = _as_arguments(rw, op.block(), operands)
    n = len(op.results)
    shape = mk.shape_of(op.result)
    lines = [along_last(rw, v, op.ints("dimensions")) for v in values[:n]]
    return folded(rw, op.block(), lines, [mk.broadcast(rw, v, shape, ()) for v in values[n:]])


def batched_reduce_window(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """reduce_window(x, init) = fold of the elements that each window position reads from the padded x"""
    values = _as_arguments(rw, op.block(), operands)
    n, rank, out = len(op.results), operands[0].tensor.rank, mk.shape_of(op.result)
    shape = reduce_window_window(op, rank)
    positions = _positions(op, shape)
    low, high = ([p[i] for p in shape.padding] for i in range(2))
    attributes = {
        "edge_padding_low": mk.dims(low),
        "edge_padding_high": mk.dims(high),
        "interior_padding": mk.dims([b - 1 for b in shape.base_dilations]),
    }
    lines = []
    for value, init in zip(values[:n], values[n:], strict=True):
        extents = zip(mk.shape_of(value), low, high, shape.base_dilations, strict=True)
        padded = tensor(tuple(a + b + max(0, (s - 1) * d + 1) for s, a, b, d in extents), value.tensor.storage)
        x = rw.emit1("stablehlo.pad", [value, init], padded, attributes)
        parts = [mk.reshape(rw, _seen(rw, x, shape, position, out), (*out, 1)) for position in positions]
        lines.append(mk.concatenate(rw, parts, rank) if len(parts) > 1 else parts[0])
    return folded(rw, op.block(), lines, [mk.broadcast(rw, v, out, ()) for v in values[n:]])


def _positions(op: Op, shape: Window) -> list[tuple[int, ...]]:
    """Returns the window positions, in order."""
    sizes = [d or 0 for d in shape.dimensions]
    if math.prod(sizes) > tuning.LIFT_POSITIONS:
        raise UnsupportedError(
            diagnose(
                f"{op.name}: the window is too large for a region that is not plain arithmetic",
                op.span,
                label="region-too-large",
            )
        )
    return list(itertools.product(*map(range, sizes)))


def _seen(rw: Rewriter, padded: Value, shape: Window, position: Sequence[int], out: Sequence[int]) -> Value:
    """Returns the elements that all windows have at a position."""
    t = tensor(tuple(out), padded.tensor.storage)
    if not math.prod(out):
        return mk.constant(rw, t, 0)
    starts = [p * d for p, d in zip(position, shape.window_dilations, strict=True)]
    limits = [s + (m - 1) * t + 1 for s, m, t in zip(starts, out, shape.strides, strict=True)]
    slices = {"start_indices": starts, "limit_indices": limits, "strides": shape.strides}
    return rw.emit1("stablehlo.slice", [padded], t, {k: mk.dims(v) for k, v in slices.items()})


def batched_select_and_scatter(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """scatter(full(init), places, source), with the place in each window that the select region chooses"""
    x, source, init = operands
    rank, out, extents = x.tensor.rank, mk.shape_of(operands[1]), mk.shape_of(x)
    shape = select_window(op, rank)
    low, high = ([p[i] for p in shape.padding] for i in range(2))
    padded = mk.pad(rw, x, 0, low, high, [0] * rank)
    chosen = place = None
    for position in _positions(op, shape):
        found = _place_of(shape, position, out, extents)
        value, where = _seen(rw, padded, shape, position, out), mk.constant(rw, tensor(out, I64), found)
        if chosen is None or place is None:
            chosen, place = value, where
            continue
        keep = batched(rw, op.block(), [chosen, value], out)[0]
        zero = mk.splat_like(rw, place, 0)
        keep = mk.apply(rw, "and", keep, mk.compare(rw, "GE", place, zero))
        keep = mk.apply(rw, "or", keep, mk.compare(rw, "LT", where, zero))
        chosen = rw.emit1("stablehlo.select", [keep, chosen, value], value.type)
        place = rw.emit1("stablehlo.select", [keep, place, where], place.type)
    assert place is not None
    values = _as_arguments(rw, op.block(1), [init, source])
    count, size = math.prod(out), math.prod(extents)
    numbers = StructAttr(
        "stablehlo.scatter",
        (("inserted_window_dims", (0,)), ("scatter_dims_to_operand_dims", (0,)), ("index_vector_dim", 1)),
    )
    full = mk.broadcast(rw, values[0], (size,), ())
    given = [full, mk.reshape(rw, place, (count, 1)), mk.reshape(rw, values[1], (count,))]
    region = Region([rw.sweep(op.block(1))])
    scatter = Op("stablehlo.scatter", given, [full.type], {"scatter_dimension_numbers": numbers}, [region], *rw.place())
    if not is_plain(op.block(1)):
        (total,) = batched_scatter(rw, scatter, given)
    else:
        rw.block.ops.append(scatter)
        total = scatter.result
    return [mk.reshape(rw, total, extents)]


def _place_of(shape: Window, position: Sequence[int], out: Sequence[int], extents: Sequence[int]) -> np.ndarray:
    """Returns the linear index of the element that each window has at a position; -1 in the padding."""
    grid = np.indices(tuple(out), sparse=True)
    found, inside = np.zeros(tuple(out), np.int64), np.ones(tuple(out), bool)
    for d, index in enumerate(grid):
        at = index * shape.strides[d] + position[d] - shape.padding[d][0]
        inside &= (at >= 0) & (at < extents[d])
        found = found * extents[d] + at
    return np.where(inside, found, -1)


def general_sort(rw: Rewriter, op: Op, operands: list[Value], outlined: Outlined) -> Sequence[Value]:
    """sort(x) by a comparator whose branches are both computed, or by a function"""
    body = op.block()
    if not _is_selected(body):
        return sort_by_function(rw, op, operands, outlined)
    block = Block([Value(a.type, name=a.name) for a in body.arguments])
    rw.blocks.append(block)
    rw.emit("stablehlo.return", batched(rw, body, block.arguments, ()), [])
    rw.blocks.pop()
    return rw.emit("stablehlo.sort", operands, [r.type for r in op.results], op.attributes, [Region([block])])


def _is_selected(body: Block) -> bool:
    """Whether a region is short, and becomes arithmetic on its own scalars when its conditions become selections."""
    ops = [op for op in walk(body) if op is not body.terminator]
    if len(ops) > tuning.SELECTED_OPS or any(not is_constant(v) for v in outer_values(body)):
        return False
    return all(_is_scalar(op) and (op.name in CHOICES or _is_arithmetic(op)) for op in ops)


CHOICES = ("stablehlo.if", "stablehlo.case")


def _is_scalar(op: Op) -> bool:
    return all(isinstance(v.type, TensorType) and v.tensor.rank == 0 for v in (*op.operands, *op.results))


def _is_arithmetic(op: Op) -> bool:
    return is_elementwise(op) or op.name in ("stablehlo.constant", "stablehlo.return")


def gathered_all_reduce(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """all_reduce(x) = fold of all_gather(x), in the order of the group"""
    size = _group_size(op)
    found = []
    for value, result in zip(operands, op.results, strict=True):
        x = mk.convert(rw, value, _element(op.block()))
        shape, attributes = mk.shape_of(x), {"all_gather_dim": IntegerAttr(0), **_groups(op)}
        parts = mk.reshape(rw, x, (1, *shape))
        parts = rw.emit1("stablehlo.all_gather", [parts], tensor((size, *shape), x.tensor.storage), attributes)
        found.append(mk.convert(rw, _fold_of_parts(rw, op.block(), parts, 0), result.tensor.storage))
    return found


def exchanged_reduce_scatter(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """reduce_scatter(x) = fold of all_to_all(x), in the order of the group"""
    size, d = _group_size(op), op.int("scatter_dimension")
    x = mk.convert(rw, operands[0], _element(op.block()))
    shape = mk.shape_of(x)
    numbers = {"split_dimension": d, "concat_dimension": d, "split_count": size}
    attributes = {**{name: IntegerAttr(n) for name, n in numbers.items()}, **_groups(op)}
    parts = rw.emit1("stablehlo.all_to_all", [x], x.type, attributes)
    parts = mk.reshape(rw, parts, (*shape[:d], size, shape[d] // size, *shape[d + 1 :]))
    return [mk.convert(rw, _fold_of_parts(rw, op.block(), parts, d), op.result.tensor.storage)]


def _element(body: Block) -> DType:
    """Returns the element type that the region of a collective op combines."""
    return body.arguments[0].tensor.storage


def _group_size(op: Op) -> int:
    """Returns the number of processes in a group. Raises UnsupportedError if groups differ in size."""
    groups = op.attributes["replica_groups"].array
    if (groups < 0).any():
        what = f"{op.name}: groups must have the same size for a region that is not plain arithmetic"
        raise UnsupportedError(diagnose(what, op.span, label="uneven-groups"))
    return groups.shape[1]


def _groups(op: Op) -> dict[str, Any]:
    return {"replica_groups": op.attributes["replica_groups"]}


def _fold_of_parts(rw: Rewriter, body: Block, parts: Value, dimension: int) -> Value:
    """Folds the parts along a dimension by a region, in order."""
    lines = along_last(rw, parts, [dimension])
    last, count = lines.tensor.rank - 1, mk.shape_of(lines)[-1]
    first = mk.reshape(rw, mk.slice_dim(rw, lines, last, 0, 1), mk.shape_of(lines)[:-1])
    return folded(rw, body, [mk.slice_dim(rw, lines, last, 1, count)], [first])[0]


def batched_scatter(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """Combines one index after the other: its window is read, combined with the update, and written back.

    The inputs get a border as wide as the window, so that a window partly outside can be read as it is.
    """
    n = len(op.results)
    numbers = op.attributes["scatter_dimension_numbers"]
    assert isinstance(numbers, StructAttr)
    inputs, indices, updates = operands[:n], operands[n], operands[n + 1 :]
    how = _Scatter(numbers, mk.shape_of(inputs[0]), mk.shape_of(indices), mk.shape_of(updates[0]))
    if not how.count:
        return inputs
    values = _as_arguments(rw, op.block(), [*inputs, *updates])
    border = how.window
    padded = [mk.pad(rw, v, 0, border, border, [0] * len(border)) for v in values[:n]]
    starts = how.starts(rw, indices)
    lines = [how.lines(rw, v) for v in values[n:]]

    def iteration(number: Value, current: list[Value]) -> list[Value]:
        corner, inside = how.corner(rw, starts, number)
        old = [mk.window(rw, v, corner, how.window) for v in current]
        new = [mk.reshape(rw, _row(rw, v, number), how.window) for v in lines]
        combined = batched(rw, op.block(), [*old, *new], how.window)
        spread = mk.broadcast(rw, inside, how.window, ())
        kept = [rw.emit1("stablehlo.select", [spread, a, b], a.type) for a, b in zip(combined, old, strict=True)]
        pairs = zip(current, kept, strict=True)
        return [rw.emit1("stablehlo.dynamic_update_slice", [v, k, *corner], v.type) for v, k in pairs]

    found = mk.counted(rw, how.count, padded, iteration)
    return [mk.pad(rw, v, 0, [-b for b in border], [-b for b in border], [0] * len(border)) for v in found]


class _Scatter:
    """The dimension numbers of a scatter in terms of one window per index."""

    def __init__(self, numbers: StructAttr, shape: Sequence[int], indices: Sequence[int], updates: Sequence[int]):
        self.shape = shape
        self.vector = int(numbers.get("index_vector_dim", len(indices)))
        self.index_map = dims_of(numbers, "scatter_dims_to_operand_dims")
        self.window_dims = dims_of(numbers, "update_window_dims")
        self.batching = dims_of(numbers, "input_batching_dims")
        self.indices_batching = dims_of(numbers, "scatter_indices_batching_dims")
        thin = {*dims_of(numbers, "inserted_window_dims"), *self.batching}
        sizes = iter([updates[d] for d in self.window_dims])
        self.window = tuple(1 if d in thin else next(sizes) for d in range(len(shape)))
        self.batch = [d for d in range(len(indices)) if d != self.vector]
        self.index_shape = tuple(indices)
        self.count = math.prod(indices[d] for d in self.batch) if math.prod(self.window) else 0

    def starts(self, rw: Rewriter, indices: Value) -> Value:
        """Returns (count, rank): the start of each window in the input, as i32; starts far outside are clamped to one
        value."""
        if self.vector == len(self.index_shape):
            indices = mk.reshape(rw, indices, (*self.index_shape, 1))
        transposed = mk.transpose(rw, indices, [*self.batch, self.vector])
        rows = mk.reshape(rw, transposed, (self.count, len(self.index_map)))
        columns = []
        for d in range(len(self.shape)):
            if d in self.index_map:
                column = mk.slice_dim(rw, rows, 1, k := self.index_map.index(d), k + 1)
                columns.append(_saturated(rw, column, -self.window[d] - 1, self.shape[d] + 1))
            elif d in self.batching:
                source = self.batch.index(self.indices_batching[self.batching.index(d)])
                extents = [self.index_shape[b] for b in self.batch]
                columns.append(mk.reshape(rw, places(rw, extents, source), (self.count, 1)))
            else:
                columns.append(mk.constant(rw, tensor((self.count, 1), I32), 0))
        return mk.concatenate(rw, columns, 1) if len(columns) > 1 else columns[0]

    def lines(self, rw: Rewriter, updates: Value) -> Value:
        """Returns the updates with one row per index."""
        rest = [d for d in range(updates.tensor.rank) if d not in self.window_dims]
        transposed = mk.transpose(rw, updates, [*rest, *self.window_dims])
        return mk.reshape(rw, transposed, (self.count, math.prod(self.window)))

    def corner(self, rw: Rewriter, starts: Value, number: Value) -> tuple[list[Value], Value]:
        """Returns the start of a window in the padded input, and whether any of it is inside the input."""
        row = _row(rw, starts, number)
        scalars = [mk.reshape(rw, mk.slice_dim(rw, row, 1, d, d + 1), ()) for d in range(len(self.shape))]
        inside = mk.constant(rw, tensor((), I1), True)
        corner = []
        for d, start in enumerate(scalars):
            low = mk.compare(rw, "GT", start, mk.splat_like(rw, start, -self.window[d]))
            high = mk.compare(rw, "LT", start, mk.splat_like(rw, start, self.shape[d]))
            inside = mk.apply(rw, "and", inside, mk.apply(rw, "and", low, high))
            corner.append(mk.apply(rw, "add", start, mk.splat_like(rw, start, self.window[d])))
        return corner, inside


def _saturated(rw: Rewriter, value: Value, low: int, high: int) -> Value:
    """Converts integers of any type to i32, clamped to [low, high]."""
    dtype = value.tensor.storage
    least, most = (0 if dtype.kind == "u" else -(1 << (dtype.bits - 1))), (1 << (dtype.bits - (dtype.kind != "u"))) - 1
    bounds = [mk.splat_like(rw, value, min(max(b, least), most)) for b in (low, high)]
    limited = rw.emit1("stablehlo.clamp", [bounds[0], value, bounds[1]], value.type)
    return mk.convert(rw, limited, I32)


def _row(rw: Rewriter, value: Value, index: Value) -> Value:
    """Returns one row of a matrix, as a matrix."""
    zero = mk.splat_like(rw, index, 0)
    return mk.window(rw, value, [index, zero], (1, mk.shape_of(value)[1]))


def _as_arguments(rw: Rewriter, body: Block, operands: Sequence[Value]) -> list[Value]:
    """Converts operands to the element types of the region's arguments: a reducer may compute in a wider type."""
    pairs = zip(operands, body.arguments, strict=True)
    return [mk.convert(rw, v, a.tensor.storage) for v, a in pairs]


RULES: dict[str, Callable[[Rewriter, Op, list[Value]], Sequence[Value]]] = {
    "stablehlo.map": batched_map,
    "stablehlo.reduce": batched_reduce,
    "stablehlo.reduce_window": batched_reduce_window,
    "stablehlo.scatter": batched_scatter,
    "stablehlo.select_and_scatter": batched_select_and_scatter,
    "stablehlo.all_reduce": gathered_all_reduce,
    "stablehlo.reduce_scatter": exchanged_reduce_scatter,
}
