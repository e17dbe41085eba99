"""Expansions of ops on shapes: set_dimension_size of static shapes, compute_reshape_shape, cstr_reshapable, trace."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import I64, tensor
from shlo_jit.ops.type_algebra import constant_ints
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter


def expand_set_dimension_size(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """set_dimension_size(x, n) = slice(x) to the static size of the result"""
    x = operands[0]
    if not (mk.is_static(x) and mk.is_static(op.result)):
        return None
    size = op.result.tensor.extents[op.int("dimension")]
    known = constant_ints(operands[1])
    if known is not None and known[0] != size:
        raise UnsupportedError(
            diagnose(
                f"set_dimension_size: the size is {known[0]}, but the result has extent {size}",
                op.span,
                label="dimension-size",
            )
        )
    if mk.shape_of(x) == op.result.tensor.extents:
        return [x]
    return [mk.slice_dim(rw, x, op.int("dimension"), 0, size)]


def expand_compute_reshape_shape(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """compute_reshape_shape(n, s) = s, with -1 replaced by n / product(the others)"""
    count, shape = (mk.convert(rw, v, I64) for v in operands)
    rank = mk.shape_of(shape)[0]
    one = mk.constant(rw, tensor((), I64), 1)
    missing = mk.compare(rw, "EQ", shape, mk.splat_like(rw, shape, -1))
    known = rw.emit1("stablehlo.select", [missing, mk.splat_like(rw, shape, 1), shape], shape.type)
    product = one
    for d in range(rank):
        product = mk.apply(rw, "multiply", product, mk.reshape(rw, mk.slice_dim(rw, known, 0, d, d + 1), ()))
    zero = mk.splat_like(rw, product, 0)
    safe = rw.emit1("stablehlo.select", [mk.compare(rw, "EQ", product, zero), one, product], product.type)
    rest = mk.broadcast(rw, mk.apply(rw, "divide", count, safe), (rank,), ())
    rest = rw.emit1("stablehlo.select", [missing, rest, shape], shape.type)
    empty = mk.broadcast(rw, mk.compare(rw, "EQ", product, zero), (rank,), ())
    resolved = rw.emit1("stablehlo.select", [empty, shape, rest], shape.type)
    return [mk.convert(rw, resolved, op.result.tensor.storage)]


def expand_cstr_reshapable(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """A witness is not a tensor and computes nothing: it is removed if nothing reads it, and refused otherwise."""
    return [Value(op.result.type)]


def expand_trace(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """trace(x) has no result and no meaning of its own"""
    return []


RULES = {
    "stablehlo.set_dimension_size": expand_set_dimension_size,
    "stablehlo.compute_reshape_shape": expand_compute_reshape_shape,
    "stablehlo.cstr_reshapable": expand_cstr_reshapable,
    "stablehlo.trace": expand_trace,
}
