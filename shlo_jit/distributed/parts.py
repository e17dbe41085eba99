"""Two internal ops that exist while a program is made local: the part of a value, and the whole of parts.

    part(x)    this process's part of a value that every process has
    whole(x)   the value of which each process has a part

Both have the tile assignment as an attribute. `written_out` replaces them by StableHLO ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from shlo_jit.distributed.tiles import TileAssignment
from shlo_jit.errors import UnsupportedError, VerifyError, diagnose
from shlo_jit.ir.attributes import UNIT, Dense, IntegerAttr, StructAttr
from shlo_jit.ir.core import Block, Op, Region, Value
from shlo_jit.ir.types import I1, I64, UI32, TensorType, Type, tensor
from shlo_jit.ops.type_algebra import type_text
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter, rewrite

PART, WHOLE = "distributed.part", "distributed.whole"


def emit_part(rw: Rewriter, value: Value, tiles: TileAssignment, local: Type) -> Value:
    """Emits this process's part of a value. If the value was assembled from such parts, returns the existing part."""
    if value.type == local and tiles.summands == 1:
        return value
    made = value.op
    if made is not None and made.name == WHOLE and assignment(made).same_parts(tiles):
        return made.operands[0]
    return rw.emit1(PART, [value], local, {"tiles": tiles})


def emit_whole(rw: Rewriter, value: Value, tiles: TileAssignment, whole: Type) -> Value:
    """Emits the value of which the processes have parts."""
    return value if value.type == whole and tiles.summands == 1 else rw.emit1(WHOLE, [value], whole, {"tiles": tiles})


def assignment(op: Op) -> TileAssignment:
    """Returns the tile assignment of a `part` or `whole` op."""
    return op.attributes["tiles"]


def check_parts(op: Op, what: str, whole: Type, tiles: TileAssignment, local: Type) -> None:
    """Checks the type of a part. Raises VerifyError if `local` is not the type of a part of a `whole`, and
    UnsupportedError if the whole cannot be split into equal parts."""
    if not isinstance(whole, TensorType):
        if tiles.tiles or local != whole:
            _refuse_type(op, what, type_text(whole), local)
        return
    if whole.shape is not None and len(whole.shape) != len(tiles.tiles):
        text = f"{op.name}: {what} is {type_text(whole)}, but its sharding has rank {len(tiles.tiles)}"
        raise VerifyError(diagnose(text, op.span, op=op.name, label="sharding", found=type_text(whole)))
    expected = whole if tiles.is_whole else tensor(_part_shape(op, what, whole, tiles), whole.dtype)
    if expected != local:
        _refuse_type(op, what, type_text(expected), local)


def _part_shape(op: Op, what: str, whole: TensorType, tiles: TileAssignment) -> tuple[int, ...]:
    if not whole.is_fixed:
        text = f"{op.name}: {what} has unknown dimensions, so no parts of it are known"
        raise UnsupportedError(diagnose(text, op.span, op=op.name, label="sharding", found=type_text(whole)))
    try:
        return tiles.part_shape(whole.extents)
    except ValueError as error:
        text = f"{op.name}: {what}: {error}"
        raise UnsupportedError(diagnose(text, op.span, op=op.name, label="sharding", found=type_text(whole))) from None


def _refuse_type(op: Op, what: str, expected: str, local: Type) -> NoReturn:
    got = type_text(local)
    text = f"{op.name}: {what}: a part should be {expected} by its sharding, got {got}"
    raise VerifyError(diagnose(text, op.span, op=op.name, label="type", found=got, expected=expected))


# ---------------------------------------------------------------------------- in ops of StableHLO
def written_out(function: Op) -> Op:
    """Returns the function with `part` and `whole` ops expressed in StableHLO ops."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name == PART:
            return [_slice(rw, op, operands[0])]
        return [_gather(rw, op, operands[0])] if op.name == WHOLE else None

    return rewrite(function, visit)


def _slice(rw: Rewriter, op: Op, value: Value) -> Value:
    """Emits a dynamic_slice from the start of this process's part. The result is zero if another process has the first
    summand."""
    tiles, local = assignment(op), op.result.tensor
    process = rw.emit1("stablehlo.partition_id", [], tensor((), UI32))
    starts = []
    for dimension, count in enumerate(tiles.tiles):
        if count == 1:
            starts.append(mk.constant(rw, tensor((), I64), 0))
            continue
        by_process = tiles.starts(dimension, mk.shape_of(value)[dimension])
        table = mk.constant(rw, tensor((len(by_process),), I64), by_process)
        start = rw.emit1("stablehlo.dynamic_slice", [table, process], tensor((1,), I64), {"slice_sizes": mk.dims([1])})
        starts.append(mk.reshape(rw, start, ()))
    part = rw.emit1("stablehlo.dynamic_slice", [value, *starts], local, {"slice_sizes": mk.dims(local.extents)})
    if tiles.summands == 1:
        return part
    firsts = [tiles.is_first(device) for device in range(len(tiles.devices))]
    table = mk.constant(rw, tensor((len(firsts),), I1), firsts)
    first = rw.emit1("stablehlo.dynamic_slice", [table, process], tensor((1,), I1), {"slice_sizes": mk.dims([1])})
    return mk.apply(rw, "select", mk.reshape(rw, first, ()), part, mk.splat_like(rw, part, 0))


def _gather(rw: Rewriter, op: Op, value: Value) -> Value:
    """Emits an all_reduce of summands, then an all_gather for each dimension that is split. The first dimension, whose
    parts are contiguous, comes last."""
    tiles = assignment(op)
    if tiles.summands > 1:
        scalar = tensor((), value.tensor.dtype)
        sides = [Value(scalar), Value(scalar)]
        total = Op("stablehlo.add", sides, [scalar], {}, [], *rw.place())
        body = Block(sides, [total, Op("stablehlo.return", [total.result], [], {}, [], *rw.place())])
        attributes = _among(tiles.summand_groups())
        (value,) = rw.emit("stablehlo.all_reduce", [value], [value.type], attributes, [Region([body])])
    for dimension in reversed(range(len(tiles.tiles))):
        shape = list(mk.shape_of(value))
        if tiles.tiles[dimension] == 1 or shape[dimension] == 0:  # the whole of empty parts is empty
            continue
        shape[dimension] *= tiles.tiles[dimension]
        attributes = {"all_gather_dim": IntegerAttr(dimension), **_among(tiles.groups(dimension))}
        value = rw.emit1("stablehlo.all_gather", [value], tensor(tuple(shape), value.tensor.dtype), attributes)
    return value


def _among(groups: np.ndarray) -> dict[str, object]:
    """Returns the attributes of a collective op among groups of devices."""
    return {
        "channel_handle": StructAttr("stablehlo.channel_handle", (("handle", 1), ("type", 1))),
        "replica_groups": Dense(tensor(groups.shape, I64), groups.astype(np.int64)),
        "use_global_device_ids": UNIT,
    }
