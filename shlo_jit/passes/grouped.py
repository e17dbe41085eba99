"""Builders of grouped products (`ops/grouped.py`) in the form that the kernel takes."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.core import Value
from shlo_jit.ir.types import I64, DType, tensor
from shlo_jit.ops.grouped import GROUPED, Grouped
from shlo_jit.ops.product_types import accumulator, operand_types
from shlo_jit.ops.runs import run_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.canonical_dots import in_kind_of
from shlo_jit.passes.rewriter import Rewriter


def is_supported(lhs: Value, rhs: Value, dtype: DType) -> bool:
    """Whether the kernel multiplies such operands: all shapes are fixed, and the elements are numbers that are not
    complex."""
    types = [v.tensor.storage for v in (lhs, rhs)]
    fixed = all(v.tensor.is_fixed and v.tensor.size for v in (lhs, rhs))
    return fixed and all(t.is_float or t.kind in "iu" for t in (*types, dtype)) and not any(map(is_narrow, types))


def is_narrow(dtype: DType) -> bool:
    """Whether several elements share a byte."""
    return dtype.bits < 8


def product(rw: Rewriter, g: Grouped, sides: tuple[Value, Value], bounds: tuple[Value, Value], dtype: DType) -> Value:
    """Emits a grouped product with the ranges `bounds`, whose result has elements of a type."""
    lhs, rhs = (in_kind_of(rw, side, dtype) for side in sides)
    acc = accumulator(lhs.tensor.storage, dtype)
    kinds = operand_types(lhs.tensor.storage, rhs.tensor.storage, acc)
    lhs, rhs = (mk.convert(rw, side, kind) for side, kind in zip((lhs, rhs), kinds, strict=True))
    lhs, rhs, g = _in_runs(rw, lhs, rhs, g)
    shape = g.result_shape(mk.shape_of(lhs), mk.shape_of(rhs), mk.shape_of(bounds[0])[-1])
    attributes = {"call_target_name": GROUPED, "grouped": g}
    made = rw.emit1("stablehlo.custom_call", [lhs, rhs, *bounds], tensor(shape, acc), attributes)
    return mk.convert(rw, made, dtype)


def _in_runs(rw: Rewriter, lhs: Value, rhs: Value, g: Grouped) -> tuple[Value, Value, Grouped]:
    """Transposes operands whose contracting or free dimensions are not each one run of memory."""
    shape, free = mk.shape_of(lhs), g.lhs_free(lhs.tensor.rank)
    if run_of(shape, g.lhs_sum) is None or (g.sums and run_of(shape, free) is None):
        order = (*g.lhs_batch, *free, *g.lhs_sum)
        lhs = mk.transpose(rw, lhs, order)
        batch, summed, (ragged, *prefix) = (_moved(order, x) for x in (g.lhs_batch, g.lhs_sum, (g.ragged, *g.prefix)))
        g = Grouped.of((batch, g.rhs_batch), (summed, g.rhs_sum), ragged, g.group, tuple(prefix))
    shape, free = mk.shape_of(rhs), g.rhs_free(rhs.tensor.rank)
    if run_of(shape, g.rhs_sum) is None or run_of(shape, free) is None:
        own = () if g.group is None else (g.group,)
        order = (*own, *g.rhs_batch, *g.rhs_sum, *free)
        rhs = mk.transpose(rw, rhs, order)
        batch, summed = _moved(order, g.rhs_batch), _moved(order, g.rhs_sum)
        g = Grouped.of((g.lhs_batch, batch), (g.lhs_sum, summed), g.ragged, None if g.group is None else 0, g.prefix)
    return lhs, rhs, g


def _moved(order: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(order.index(d) for d in dims)


def edges(rw: Rewriter, sizes: Value) -> tuple[Value, Value]:
    """Returns where groups of these sizes start and end if they follow one another along the last dimension, as i64.

    ends[j] = sum over i of (i <= j ? sizes[i] : 0)
    """
    wide = mk.convert(rw, sizes, I64)
    shape = mk.shape_of(wide)
    n = len(shape)
    pairs = tensor((*shape, shape[-1]), I64)
    each = mk.broadcast(rw, wide, pairs.extents, range(n))
    upto = mk.compare(rw, "LE", mk.iota(rw, pairs, n - 1), mk.iota(rw, pairs, n))
    ends = mk.reduce_sum(rw, mk.apply(rw, "select", upto, each, mk.splat_like(rw, each, 0)), [n - 1])
    return mk.apply(rw, "subtract", ends, wide), ends
