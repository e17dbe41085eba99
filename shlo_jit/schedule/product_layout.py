"""Layout of a dot_general: the number of products, their extents, and the strides of operands and results.

If an operand is summed over a middle dimension, it has free dimensions before and after that one. One of these two
groups then becomes the batch, with stride 0 in the other operand, so that nothing has to be transposed:

    x[n, k, j] w[k, i]  ->  y[i, n, j]      n products of w with x[n], whose rows lie n * j apart
    x[i, k, j] w[k, n]  ->  y[i, j, n]      i products with j rows, or j with i rows
"""

from __future__ import annotations

import math
from typing import NamedTuple

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.operand_views import View, view_of
from shlo_jit.fuse.plan import ComputedOperand
from shlo_jit.ir.core import Op
from shlo_jit.kernels.gemm.known_sizes import Layout
from shlo_jit.kernels.gemm.precision import GemmTypes
from shlo_jit.kernels.target import Target
from shlo_jit.ops.runs import Roles, Run, outer_of, roles_of, run_of
from shlo_jit.reasons import Reason
from shlo_jit.schedule.space import Order, Space, make_space

READ_IN_PLACE = Reason("operand-view", "its elements are a constant stride apart in another array")


class Placed(NamedTuple):
    """The matrices of a result by their strides in elements; columns are adjacent."""

    batch: int
    m: int
    n: int
    row: int
    matrix: int
    """Stride from one product to the next."""

    @classmethod
    def dense(cls, batch: int, m: int, n: int) -> Placed:
        """The dense layout: one row after the other, one matrix after the other."""
        return cls(batch, m, n, n, m * n)


class Viewed(NamedTuple):
    """An operand that is read where it lies in another array."""

    side: int
    """0 for the first operand, 1 for the second."""
    view: View
    nest: Nest
    """The loop that would copy it, which computes the indices of its first element."""
    space: Space

    def strides(self, s: Layout) -> Layout:
        """The strides of a product with this operand."""
        batch, along, free = self.view.strides
        if self.side:
            return s._replace(b_rs=along, b_cs=free, b_bs=batch)
        return s._replace(a_rs=free, a_cs=along, a_bs=batch)


def viewed_operand(nest: Nest, operand: ComputedOperand, target: Target) -> Viewed:
    """Returns an operand that is a view, from the loop that would copy it."""
    view = view_of(nest, operand)
    assert view is not None
    return Viewed(operand.side, view, nest, make_space(nest, target, Order.ANY, given=()))


class ProductLayout(NamedTuple):
    looped: int
    """Leading batch dimensions that are looped over, with one call per index."""
    k: int
    operands: Layout
    result: Placed
    is_split: tuple[bool, bool]
    """For each operand, whether it has free dimensions on both sides of those that are summed over."""

    @property
    def extents(self) -> tuple[int, int, int, int]:
        return self.result.batch, self.result.m, self.result.n, self.k


def layout_of(op: Op) -> ProductLayout:
    """Returns the layout of a canonical dot_general."""
    r = roles_of(op)
    lhs, rhs = (o.tensor.extents for o in op.operands)
    splits = outer_of(lhs, r.lhs_free), outer_of(rhs, r.rhs_free)
    along = run_of(lhs, r.lhs_contracting), run_of(rhs, r.rhs_contracting)
    if None in splits or None in along or (any(splits) and (all(splits) or r.lhs_batch)):
        raise UnsupportedError(diagnose("dot_general: dimensions that do not form runs", op.span, label="no-lowering"))
    steps = [run.stride for run in along if run is not None]
    k = math.prod(lhs[d] for d in r.lhs_contracting)
    if splits[0]:
        return _of_split_rows(r, lhs, rhs, splits[0], k, steps)
    if splits[1]:
        outer, inner = _run(rhs, r.rhs_free[: splits[1]]), _run(rhs, r.rhs_free[splits[1] :])
        rows = _run(lhs, r.lhs_free)
        strides = Layout(rows.stride, steps[0], 0, steps[1], inner.stride, outer.stride)
        placed = Placed(outer.extent, rows.extent, inner.extent, outer.extent * inner.extent, inner.extent)
        return ProductLayout(0, k, strides, placed, (False, True))
    looped = _looped(lhs, rhs, r)
    a, b = _run(lhs, r.lhs_batch[looped:]), _run(rhs, r.rhs_batch[looped:])
    rows, columns = _run(lhs, r.lhs_free), _run(rhs, r.rhs_free)
    strides = Layout(rows.stride, steps[0], a.stride, steps[1], columns.stride, b.stride)
    return ProductLayout(looped, k, strides, Placed.dense(a.extent, rows.extent, columns.extent), (False, False))


def _of_split_rows(
    r: Roles, lhs: tuple[int, ...], rhs: tuple[int, ...], outer_dims: int, k: int, steps: list[int]
) -> ProductLayout:
    """The layout for an lhs with free dimensions on both sides. The greater of the two extents becomes the rows."""
    outer, inner = _run(lhs, r.lhs_free[:outer_dims]), _run(lhs, r.lhs_free[outer_dims:])
    columns = _run(rhs, r.rhs_free)
    n = columns.extent
    rows, batch = (outer, inner) if outer.extent > inner.extent else (inner, outer)
    row, matrix = (inner.extent * n, n) if rows is outer else (n, inner.extent * n)
    strides = Layout(rows.stride, steps[0], batch.stride, steps[1], columns.stride, 0)
    return ProductLayout(0, k, strides, Placed(batch.extent, rows.extent, n, row, matrix), (True, False))


def _run(shape: tuple[int, ...], dims: tuple[int, ...]) -> Run:
    run = run_of(shape, dims)
    assert run is not None
    return run


def _looped(lhs: tuple[int, ...], rhs: tuple[int, ...], roles: Roles) -> int:
    """Number of leading batch dimensions that are looped over, so that the others form one run in both operands."""
    for outer in range(len(roles.lhs_batch) + 1):
        if run_of(lhs, roles.lhs_batch[outer:]) and run_of(rhs, roles.rhs_batch[outer:]):
            return outer
    raise AssertionError("no batch dimension at all is one run")


def gemm_types(op: Op) -> GemmTypes:
    """Element types of a product or convolution: those of both operands, and that of the result, which is the
    accumulator."""
    a, b = (o.tensor.storage.name for o in op.operands)
    return GemmTypes(a, b, op.result.tensor.storage.name)
