"""Products of all groups of which a mask selects a range of rows for each group, added up over the groups.

Needs: static shapes. Guarantees: nothing; such sums become grouped products (`ops/grouped.py`). The products that the
mask leaves out have no effect, so numbers need not be finite.

    reduce(add, select(starts <= m < ends, dot_general(x[m, k], w[g, k, n]), 0) : [m, g, n]) over g
      ->   grouped_product(x, w, starts, ends) : [m, n]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import DType
from shlo_jit.ops.grouped import Grouped
from shlo_jit.ops.runs import Roles, roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes import grouped
from shlo_jit.passes.context import Context
from shlo_jit.passes.intervals import bounds_of, range_of, splat, varying
from shlo_jit.passes.rewriter import Rewriter, rewrite


class Selected(NamedTuple):
    """A sum over the groups of selected products."""

    dot: Op
    order: tuple[int, ...]
    """The product's dimension of each dimension of the selection."""
    mask: Value
    group: int
    """The dimension of the selection that numbers the groups."""


def selected_products(function: Op, _: Context) -> Op:
    """The function with sums over groups of selected products replaced by grouped products."""

    def visit(rw: Rewriter, op: Op, _: list[Value]) -> Sequence[Value] | None:
        found = _selected(op)
        if found is None:
            return None
        r = roles_of(found.dot)
        return _product(rw, op, found, r, is_left=True) or _product(rw, op, found, r, is_left=False)

    return rewrite(function, visit)


def _selected(op: Op) -> Selected | None:
    """Returns the selected products that a reduction adds up over one dimension."""
    if op.name != "stablehlo.reduce" or len(op.results) != 1 or not op.operands[0].tensor.is_fixed:
        return None
    body, dims, chosen = op.block().ops, op.ints("dimensions"), op.operands[0].op
    if len(body) != 2 or body[0].name != "stablehlo.add" or len(dims) != 1 or splat(op.operands[1]) != 0:
        return None
    if chosen is None or chosen.name != "stablehlo.select" or splat(chosen.operands[2]) != 0:
        return None
    mask, value = chosen.operands[:2]
    order = tuple(range(value.tensor.rank))
    while value.op is not None and value.op.name == "stablehlo.transpose":
        p, value = value.op.ints("permutation"), value.op.operands[0]
        order = tuple(p[d] for d in order)
    is_product = value.op is not None and value.op.name == "stablehlo.dot_general" and mask.tensor.rank == len(order)
    return Selected(value.op, order, mask, dims[0]) if is_product and value.op is not None else None


def _product(rw: Rewriter, op: Op, s: Selected, r: Roles, *, is_left: bool) -> Sequence[Value] | None:
    """Emits the grouped product if the groups number matrices of one operand. `is_left`: the rows are the left one."""
    n, split = len(r.lhs_batch), len(r.lhs_batch) + len(r.lhs_free)
    rows, matrices = s.dot.operands
    places = (range(n, split), range(split, split + len(r.rhs_free)))
    if not is_left:
        rows, matrices, places = matrices, rows, places[::-1]
        r = Roles(r.rhs_batch, r.lhs_batch, r.rhs_contracting, r.lhs_contracting, r.rhs_free, r.lhs_free)
    group, varies = s.order[s.group], varying(s.mask)
    dims = {s.order[d]: d for d in varies}
    ragged = [d for d in dims if d in places[0]]
    prefix = sorted(d for d in dims if d < n)
    if group not in places[1] or len(ragged) != 1 or dims.keys() - {group, *ragged, *prefix}:
        return None
    bounds = bounds_of(s.mask, dims[ragged[0]])
    shape = mk.shape_of(s.mask)
    if not bounds or shape[s.group] < tuning.GROUPED_LEAST or not grouped.is_supported(rows, matrices, _type(s)):
        return None
    wanted = (*(dims[d] for d in prefix), s.group)
    found = range_of(rw, bounds, wanted, tuple(shape[d] for d in wanted), shape[dims[ragged[0]]])
    g = Grouped.of(
        (r.lhs_batch, r.rhs_batch),
        (r.lhs_contracting, r.rhs_contracting),
        r.lhs_free[places[0].index(ragged[0])],
        r.rhs_free[places[1].index(group)],
        tuple(r.lhs_batch[d] for d in prefix),
    )
    product = grouped.product(rw, g, (rw.get(rows), rw.get(matrices)), found, op.result.tensor.storage)
    made = [*range(n), *places[0], *(d for d in places[1] if d != group)]
    return [mk.transpose(rw, product, [made.index(d) for d in s.order if d != group])]


def _type(s: Selected) -> DType:
    return s.dot.result.tensor.storage
