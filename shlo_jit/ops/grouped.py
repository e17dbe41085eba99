"""Grouped products: each group multiplies a range of rows, or sums over one. Ranges are known only at run time.

    custom_call @shlo_jit.grouped_product(lhs, rhs, starts, ends)

Passes emit such calls for `chlo.ragged_dot`, and for products with operands that are zero outside of a range of rows
for each group (`passes/canonical/masked_products.py`). Elements outside of a group's range are not part of its product:
they are neither read nor multiplied by zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shlo_jit.ir.attributes import OpaqueAttr
from shlo_jit.ir.core import Op
from shlo_jit.ops.contract import dot_general
from shlo_jit.ops.numeric import Array, result_dtype

GROUPED = "shlo_jit.grouped_product"
"""Target of the calls. They have the attribute `grouped`, a `Grouped`."""


@dataclass(frozen=True)
class Grouped(OpaqueAttr):
    """The dimensions of a grouped product.

    `starts` and `ends` have the last dimension of `rhs` that is `group` (`sums` is false), or the first one of the
    result, and before it the `prefix` dimensions of lhs that ranges depend on. Ranges are clamped to the extent of the
    dimension `ragged` of lhs. Without `sums`, `ragged` is a free dimension, and the products of all groups are added
    up. With `sums`, it is the only contracting dimension, and each group has a result of its own."""

    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    lhs_sum: tuple[int, ...]
    rhs_sum: tuple[int, ...]
    ragged: int
    group: int | None
    """The dimension of rhs that has a matrix for each group; None with `sums`."""
    prefix: tuple[int, ...]

    @classmethod
    def of(
        cls,
        batch: tuple[tuple[int, ...], tuple[int, ...]],
        summed: tuple[tuple[int, ...], tuple[int, ...]],
        ragged: int,
        group: int | None,
        prefix: tuple[int, ...],
    ) -> Grouped:
        """Creates the attribute. `batch` and `summed`: dimensions of lhs and rhs."""
        return cls("#shlo_jit.grouped", *batch, *summed, ragged, group, prefix)

    @property
    def sums(self) -> bool:
        """Whether groups are ranges of the contracting dimension."""
        return self.group is None

    def lhs_free(self, rank: int) -> tuple[int, ...]:
        """The dimensions of lhs that the result has, besides batch dimensions."""
        return tuple(d for d in range(rank) if d not in self.lhs_batch + self.lhs_sum)

    def rhs_free(self, rank: int) -> tuple[int, ...]:
        """The dimensions of rhs that the result has, besides batch dimensions."""
        return tuple(d for d in range(rank) if d not in self.rhs_batch + self.rhs_sum and d != self.group)

    def result_shape(self, lhs: tuple[int, ...], rhs: tuple[int, ...], groups: int) -> tuple[int, ...]:
        """The groups if each has a result, batch dimensions, free dimensions of lhs and of rhs."""
        batch = tuple(lhs[d] for d in self.lhs_batch)
        rows, columns = (lhs[d] for d in self.lhs_free(len(lhs))), (rhs[d] for d in self.rhs_free(len(rhs)))
        return (*((groups,) if self.sums else ()), *batch, *rows, *columns)


def grouped_of(op: Op) -> Grouped | None:
    """Returns the dimensions of a grouped product; None for other ops."""
    found = op.attributes.get("grouped") if op.name == "stablehlo.custom_call" else None
    return found if isinstance(found, Grouped) else None


def grouped_product(op: Op, lhs: Array, rhs: Array, starts: Array, ends: Array) -> Array:
    """The meaning of a call in numpy."""
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
