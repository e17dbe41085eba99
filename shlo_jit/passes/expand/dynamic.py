"""Expansions of ops with shape operands into static ones, once the shapes are known.

A static result type determines the shape operand (dynamic_reshape, dynamic_broadcast_in_dim, dynamic_iota,
dynamic_gather). Paddings, starts and strides must be constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import Dense, StructAttr
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import I64, tensor
from shlo_jit.ops.contract import dims_of
from shlo_jit.ops.type_algebra import constant_ints
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter


def expand_reshape(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """dynamic_reshape(x, shape) = reshape(x)"""
    if not (mk.is_static(op.result) and mk.is_static(operands[0])):
        return None
    return rw.emit("stablehlo.reshape", operands[:1], [op.result.type])


def expand_broadcast(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """dynamic_broadcast_in_dim(x, shape) = broadcast_in_dim(x)"""
    if not (mk.is_static(op.result) and mk.is_static(operands[0])):
        return None
    return [mk.broadcast(rw, operands[0], op.result.tensor.extents, op.ints("broadcast_dimensions"))]


def expand_iota(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """dynamic_iota(shape) = iota"""
    return [mk.iota(rw, op.result.tensor, op.int("iota_dimension"))] if mk.is_static(op.result) else None


def expand_pad(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """dynamic_pad(x, value, low, high, interior) = pad(x, value)"""
    known = [constant_ints(v) for v in operands[2:]]
    if not (mk.is_static(op.result) and mk.is_static(operands[0])) or None in known:
        return None
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    attributes = {n: mk.dims(k or ()) for n, k in zip(names, known, strict=True)}
    return rw.emit("stablehlo.pad", operands[:2], [op.result.type], attributes)


def expand_slice(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """real_dynamic_slice(x, starts, limits, strides) = slice(x), or dynamic_slice if only the strides are known, and
    are 1"""
    x, starts, limits, strides = operands
    known = [constant_ints(v) for v in (starts, limits, strides)]
    if not (mk.is_static(op.result) and mk.is_static(x)):
        return None
    if None not in known:
        names = ("start_indices", "limit_indices", "strides")
        attributes = {n: mk.dims(k or ()) for n, k in zip(names, known, strict=True)}
        return rw.emit("stablehlo.slice", [x], [op.result.type], attributes)
    if known[2] is None or any(k != 1 for k in known[2]):
        return None
    corner = [mk.reshape(rw, mk.slice_dim(rw, starts, 0, d, d + 1), ()) for d in range(x.tensor.rank)]
    attributes = {"slice_sizes": mk.dims(op.result.tensor.extents)}
    return rw.emit("stablehlo.dynamic_slice", [x, *corner], [op.result.type], attributes)


def expand_gather(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """dynamic_gather(x, indices, sizes) = gather(x, indices); the sizes are extents of the result, or 1"""
    if not (mk.is_static(op.result) and all(map(mk.is_static, operands))):
        return None
    numbers = op.attributes["dimension_numbers"]
    assert isinstance(numbers, StructAttr)
    single = dims_of(numbers, "collapsed_slice_dims") + dims_of(numbers, "operand_batching_dims")
    offsets = iter(dims_of(numbers, "offset_dims"))
    shape = op.result.tensor.extents
    sizes = [0 if d in single else shape[next(offsets)] for d in range(operands[0].tensor.rank)]
    given = constant_ints(operands[2]) or tuple(1 if d in single else n for d, n in enumerate(sizes))
    attributes = _without(op, ()) | {"slice_sizes": mk.dims(given)}
    return rw.emit("stablehlo.gather", operands[:2], [op.result.type], attributes)


def expand_conv(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """dynamic_conv(lhs, rhs, padding) = convolution(lhs, rhs)"""
    padding = constant_ints(operands[2])
    if padding is None or not (mk.is_static(op.result) and all(map(mk.is_static, operands[:2]))):
        return None
    pairs = np.asarray(padding, np.int64).reshape(-1, 2)
    attributes = _without(op, ("padding",)) | {"padding": Dense(tensor(pairs.shape, I64), pairs)}
    return rw.emit("stablehlo.convolution", operands[:2], [op.result.type], attributes)


def _without(op: Op, names: Sequence[str]) -> dict[str, Any]:
    return {k: v for k, v in op.attributes.items() if k not in names}


RULES = {
    "stablehlo.dynamic_reshape": expand_reshape,
    "chlo.dynamic_reshape": expand_reshape,
    "stablehlo.dynamic_broadcast_in_dim": expand_broadcast,
    "stablehlo.dynamic_iota": expand_iota,
    "stablehlo.dynamic_pad": expand_pad,
    "stablehlo.real_dynamic_slice": expand_slice,
    "stablehlo.dynamic_gather": expand_gather,
    "stablehlo.dynamic_conv": expand_conv,
}
