"""The meaning of grouped products in numpy (`ops/grouped.py`)."""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ops.contract import dot_general
from shlo_jit.ops.grouped import Grouped, grouped_of
from shlo_jit.ops.numeric import Array, result_dtype


def grouped_product(op: Op, lhs: Array, rhs: Array, starts: Array, ends: Array) -> Array:
    """The result of a call."""
    g, dtype = grouped_of(op), result_dtype(op)
    assert g is not None
    shape, row = [1] * lhs.ndim, np.arange(lhs.shape[g.ragged])
    shape[g.ragged] = -1
    row = row.reshape(shape)
    total = np.zeros(op.result.tensor.extents, dtype)
    for k in range(starts.shape[-1]):
        low, high = (_along(x[..., k], g.prefix, lhs.ndim) for x in (starts, ends))
        inside = (row >= low) & (row < high)
        if g.sums:
            # rows outside of the range are left out on both sides, so that 0 * NaN is no term
            total[k] = _sum_of_rows(g, lhs, rhs, np.broadcast_to(inside, lhs.shape), dtype)
        else:
            total = total + _rows_of_group(g, lhs, np.take(rhs, k, axis=g.group), inside, dtype)
    return total


def _along(x: Array, prefix: tuple[int, ...], rank: int) -> Array:
    """Reshapes a bound for each index of the prefix so that it broadcasts against lhs."""
    order = np.argsort(prefix)
    shape = [1] * rank
    for d, n in zip(prefix, x.shape, strict=True):
        shape[d] = n
    return np.transpose(x, order).reshape(shape)


def _rows_of_group(g: Grouped, lhs: Array, matrix: Array, inside: Array, dtype: np.dtype) -> Array:
    assert g.group is not None
    inner = [tuple(d - (d > g.group) for d in dims) for dims in (g.rhs_batch, g.rhs_sum)]
    product = dot_general(lhs, matrix, (g.lhs_batch, inner[0], g.lhs_sum, inner[1]), dtype)
    free = g.lhs_free(lhs.ndim)
    kept = np.broadcast_to(inside, [1 if d in g.lhs_sum else n for d, n in enumerate(lhs.shape)])
    kept = kept.transpose([*g.lhs_batch, *free, *g.lhs_sum])
    kept = kept.reshape(
        [*kept.shape[: len(g.lhs_batch) + len(free)], *[1] * (product.ndim - kept.ndim + len(g.lhs_sum))]
    )
    return np.where(kept, product, np.zeros((), dtype))


def _sum_of_rows(g: Grouped, lhs: Array, rhs: Array, inside: Array, dtype: np.dtype) -> Array:
    order = (*g.lhs_batch, *g.lhs_sum, *g.lhs_free(lhs.ndim))
    n, m = len(g.lhs_batch), len(g.lhs_sum)
    kept = inside.transpose(order).reshape([*(lhs.shape[d] for d in order[: n + m]), -1])[..., 0]
    place = np.argsort((*g.rhs_batch, *g.rhs_sum, *g.rhs_free(rhs.ndim)))
    mask = kept.reshape([*kept.shape, *[1] * (rhs.ndim - n - m)]).transpose(place)
    zero = np.zeros((), lhs.dtype)
    left, right = np.where(inside, lhs, zero), np.where(mask, rhs, np.zeros((), rhs.dtype))
    return dot_general(left, right, (g.lhs_batch, g.rhs_batch, g.lhs_sum, g.rhs_sum), dtype)
