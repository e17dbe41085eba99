"""Collective ops with processes named by number, as on a grid of N replicas and one partition.

Needs: transfers are custom calls, no tuples or tokens. Guarantees: `replica_groups` is a matrix of process numbers,
with short rows padded with -1. `source_target_pairs` are process numbers. Their meaning does not depend on channels,
`use_global_device_ids` or mesh axes. `replica_id` is the process's number, and no other op returns an id. No
cross-replica-sum remains, and no collective op whose groups have one member each. So none remains with a single
process:

    partition_id                                   ->   replica_id rem num_partitions; 0 where there is one
    replica_id                                     ->   replica_id div num_partitions; 0 where there is one
    all_reduce {[[0, 1]], channel 1} of 2 x 2      ->   all_reduce {[[0, 2, 1, 3]]}
    collective_permute {[[0, 1]]} of 2 x 2         ->   collective_permute {[[0, 2], [1, 3]]}
    all_gather {[[0], [1]]}(x) ...                 ->   x
    collective_permute {}(x)                       ->   zeros
    custom_call @ragged_all_to_all(x, y, n: [2, 3]...)   ->   the same of n: i64[6]...; with one process, rows copied

An op that no process takes part in returns zeros (`collective_broadcast` and `collective_reduce` without groups). For
ops that every process takes part in, no groups mean one group of all.

Raises UnsupportedError for an op whose groups name a process that does not exist, leave out one that takes part, or do
not fit its shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import Dense, DictAttr, StructAttr
from shlo_jit.ir.core import Block, Op, Region, Value, walk
from shlo_jit.ir.types import I64, QuantizedType, TensorType, tensor
from shlo_jit.ops import OPS
from shlo_jit.ops.call_record import configuration
from shlo_jit.ops.collective import channel_id
from shlo_jit.ops.known_calls import RAGGED_ALL_TO_ALL, RECV, SEND
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.frontend.mesh_axes import mesh_groups
from shlo_jit.passes.frontend.process_groups import (
    Grid,
    Groups,
    Strategy,
    name_of,
    processes,
    refuse,
    refuse_id,
    strategy_of,
)
from shlo_jit.passes.require_static import require_known_shapes
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import equal

WHOLE = {"stablehlo." + n for n in "all_gather all_reduce all_to_all reduce_scatter cross-replica-sum".split()}
"""Ops that every process takes part in."""
PARTIAL = {"stablehlo.collective_broadcast", "stablehlo.collective_reduce"}
"""Ops that return zeros to a process that is in no group."""
IDS = {"stablehlo.replica_id", "stablehlo.partition_id"}
CALLS = {SEND, RECV, RAGGED_ALL_TO_ALL}


def process_grid(function: Op, context: Context) -> Op:
    """The function with all processes named by number."""
    if not any(_is_collective(op, context) for op in walk(function.block())):
        return function
    grid = Grid(context.num_replicas, context.num_partitions)

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if not _is_collective(op, context):
            return None
        if op.name in IDS:
            return [_id(rw, op, grid)]
        if op.name == "stablehlo.collective_permute":
            return _permute(rw, op, operands, grid)
        if op.name != "stablehlo.custom_call":
            return _grouped(rw, op, operands, context, grid)
        if op.attributes["call_target_name"] == RAGGED_ALL_TO_ALL:
            return _ragged(rw, op, operands, grid)
        return _transfer(rw, op, operands, context, grid)

    return rewrite(function, visit)


def _is_collective(op: Op, context: Context) -> bool:
    if op.name == "stablehlo.custom_call":
        target = op.attributes["call_target_name"]
        return target in CALLS and not context.is_registered(target)
    record = OPS.get(op.name)
    return record is not None and record.has("collective")


def _id(rw: Rewriter, op: Op, grid: Grid) -> Value:
    t = op.result.tensor
    others, own = grid.num_replicas, grid.num_partitions
    if op.name == "stablehlo.replica_id":
        others, own = own, others
    if own == 1:
        return mk.constant(rw, t, 0)
    number = rw.emit1("stablehlo.replica_id", [], t)
    if others == 1:
        return number
    word = "divide" if op.name == "stablehlo.replica_id" else "remainder"
    return mk.apply(rw, word, number, mk.constant(rw, t, grid.num_partitions))


# ---------------------------------------------------------------------------- groups
def _grouped(rw: Rewriter, op: Op, operands: list[Value], context: Context, grid: Grid) -> Sequence[Value]:
    ids, strategy = _ids(op, context, grid)
    groups = _groups(op, ids, strategy, grid, complete=op.name in WHOLE)
    if not groups:
        return [_zeros(rw, r) for r in op.results]
    _check_shapes(op, len(groups[0]))
    if len(groups) == grid.num_processes:
        return _handed_on(rw, op, operands)
    attributes = {k: v for k, v in op.attributes.items() if k not in ("channel_handle", "use_global_device_ids")}
    attributes["replica_groups"] = _matrix(groups)
    if op.name == "stablehlo.cross-replica-sum":
        types = [r.type for r in op.results]
        return rw.emit("stablehlo.all_reduce", operands, types, attributes, [_sum(rw, operands[0].tensor)])
    return _kept(rw, op, operands, attributes)


def _ids(op: Op, context: Context, grid: Grid) -> tuple[Groups, Strategy]:
    """Returns the groups as the op has them, and the strategy that says what their ids mean."""
    attribute = op.attributes["replica_groups"]
    if isinstance(attribute, StructAttr):
        return mesh_groups(op, context.module, grid)
    use_global_device_ids = bool(op.attributes.get("use_global_device_ids"))
    return _rows(attribute), strategy_of(op.name, channel_id(op), use_global_device_ids)


def _rows(matrix: Dense) -> Groups:
    """Returns the rows without their padding; rows of only padding are dropped."""
    rows = [[int(n) for n in row if n != -1] for row in matrix.array]
    return [row for row in rows if row]


def _groups(op: Op, ids: Groups, strategy: Strategy, grid: Grid, *, complete: bool) -> Groups:
    """Returns groups of process numbers; `complete` groups must leave none out. Raises UnsupportedError."""
    count = strategy.ids_of(grid)
    if complete and not ids:
        ids = [list(range(count))]
    found = processes(op, ids, strategy, grid)
    missing = set(range(count)).difference(*ids)
    if complete and missing:
        all_of_them = f"all of 0 to {count - 1}"
        message = (
            f"{name_of(op)}: the groups leave out {strategy.numbered} {min(missing)}, but should name {all_of_them}"
        )
        refuse(op, message, expected=all_of_them)
    return found


def _matrix(groups: Groups) -> Dense:
    longest = max(map(len, groups), default=0)
    rows = np.array([[*g, *[-1] * (longest - len(g))] for g in groups], np.int64).reshape(len(groups), longest)
    return Dense(tensor(rows.shape, I64), rows)


def _check_shapes(op: Op, size: int) -> None:
    """Checks the extents of ops that gather or scatter, for groups of `size`. Raises UnsupportedError."""
    if op.name == "stablehlo.all_to_all" and op.int("split_count") != size:
        refuse(op, f"{op.name}: split_count is {op.int('split_count')}, but a group has {_members(size)}")
    if op.name not in ("stablehlo.all_gather", "stablehlo.reduce_scatter"):
        return
    gathers = op.name == "stablehlo.all_gather"
    d = op.int("all_gather_dim" if gathers else "scatter_dimension")
    for operand, result in zip(op.operands, op.results, strict=True):
        n, m = (_extent(v, d) for v in (operand, result))
        if n is None or m is None:
            continue
        part, all_parts = (n, m) if gathers else (m, n)
        if not equal(part * size, all_parts):
            what = f"dimension {d} has {n} elements before and {m} after"
            refuse(op, f"{op.name}: {what}, which does not fit a group of {_members(size)}")


def _members(size: int) -> str:
    return "one process" if size == 1 else f"{size} processes"


def _extent(value: Value, d: int) -> int | None:
    t = value.type
    return t.shape[d] if isinstance(t, TensorType) and t.shape is not None else None


def _sum(rw: Rewriter, t: TensorType) -> Region:
    """Returns a region that adds two scalars."""
    scalar = tensor((), t.dtype)
    source, start, end = rw.place()
    arguments = [Value(scalar), Value(scalar)]
    add = Op("stablehlo.add", list(arguments), [scalar], None, None, source, start, end)
    done = Op("stablehlo.return", list(add.results), [], None, None, source, start, end)
    return Region([Block(arguments, [add, done])])


def _kept(rw: Rewriter, op: Op, operands: list[Value], attributes: dict[str, Any]) -> list[Value]:
    """Emits the op with other attributes."""
    results = rw.keep(op, operands)
    rw.block.ops[-1].attributes = attributes
    return results


def _handed_on(rw: Rewriter, op: Op, operands: list[Value]) -> list[Value]:
    """Returns the operands in the element types that the reduction promotes them to."""
    pairs = zip(operands, op.results, strict=False)  # a dynamic root comes after the data
    return [value if value.type == result.type else _promoted(rw, value, result.tensor) for value, result in pairs]


def _promoted(rw: Rewriter, value: Value, t: TensorType) -> Value:
    if isinstance(t.dtype, QuantizedType):
        return rw.emit1("stablehlo.uniform_quantize", [value], t)
    return mk.convert(rw, value, t.dtype)


def _zeros(rw: Rewriter, result: Value) -> Value:
    t = result.tensor
    return mk.constant(rw, t, t.dtype.zero_points[0] if isinstance(t.dtype, QuantizedType) else 0)


# ---------------------------------------------------------------------------- pairs
def _pairs(op: Op, matrix: Any, channel: int, grid: Grid) -> Groups:
    return processes(op, _rows(matrix), strategy_of(op.name, channel, False), grid)


def _permute(rw: Rewriter, op: Op, operands: list[Value], grid: Grid) -> Sequence[Value]:
    pairs = _pairs(op, op.attributes["source_target_pairs"], channel_id(op), grid)
    if not pairs:
        return [_zeros(rw, r) for r in op.results]
    if sorted(pairs) == [[n, n] for n in range(grid.num_processes)]:
        return _handed_on(rw, op, operands)
    for r in op.results:
        dtype = r.tensor.dtype
        if isinstance(dtype, QuantizedType) and dtype.zero_points[0] and len(pairs) < grid.num_processes:
            refuse(op, f"{op.name}: a process receives nothing, but its quantized result has a zero point other than 0")
    attributes = {k: v for k, v in op.attributes.items() if k != "channel_handle"}
    return _kept(rw, op, operands, {**attributes, "source_target_pairs": _matrix(pairs)})


def _transfer(rw: Rewriter, op: Op, operands: list[Value], context: Context, grid: Grid) -> Sequence[Value]:
    """Emits a send to or a receive from another process, with process numbers."""
    word = "stablehlo." + op.attributes["call_target_name"].partition(".")[2]
    if grid.num_processes == 1:
        refuse(op, f"{word} to another device, but the program has one process")
    config = configuration(op)
    channel, given = config["channel"], config.get("source_target_pairs")
    if given is not None:
        pairs = _pairs(op, given, channel, grid)
    elif channel in context.channels:
        pairs = [list(pair) for pair in context.channels[channel]]
        for n in (n for pair in pairs for n in pair):
            if not 0 <= n < grid.num_processes:
                refuse_id(op, "process", n, grid.num_processes, grid)
    else:
        hint = f"add source_target_pairs, or give the senders and receivers of channel {channel} when compiling"
        refuse(op, f"{word} does not say which processes send and which receive", hint=hint)
    entries = {**dict(op.attributes["backend_config"].items), "source_target_pairs": _matrix(pairs)}
    return _kept(rw, op, operands, {**op.attributes, "backend_config": DictAttr(tuple(entries.items()))})


# ---------------------------------------------------------------------------- ragged_all_to_all
def _ragged(rw: Rewriter, op: Op, operands: list[Value], grid: Grid) -> Sequence[Value]:
    """Emits a ragged_all_to_all whose offsets and sizes are vectors: the entries for the first member of the group,
    then for the second, and so on."""
    config = configuration(op)
    strategy = strategy_of(op.name, config.get("channel_id", 0), False)
    groups = _groups(op, _rows(config["replica_groups"]), strategy, grid, complete=True)
    size = len(groups[0])
    if any(len(g) != size for g in groups):
        refuse(op, f"{name_of(op)}: groups of different sizes")
    require_known_shapes(op)
    x, out, *tables = operands
    flat = [mk.convert(rw, mk.reshape(rw, t, (t.tensor.size,)), I64) for t in tables]
    count = flat[0].tensor.size
    if count % size:
        refuse(op, f"{name_of(op)}: {count} offsets cannot be divided among a group of {_members(size)}")
    if size == 1:
        from shlo_jit.passes.frontend.ragged_rows import copied_rows

        starts, sizes, targets, _ = flat
        if not count:
            return [out]
        return [copied_rows(rw, x, out, starts, sizes, targets)]
    kept = {"call_target_name": RAGGED_ALL_TO_ALL, "has_side_effect": True, "api_version": op.attributes["api_version"]}
    kept["backend_config"] = DictAttr((("replica_groups", _matrix(groups)),))
    return rw.emit("stablehlo.custom_call", [x, out, *flat], [op.result.type], kept)
