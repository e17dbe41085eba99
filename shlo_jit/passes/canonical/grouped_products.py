"""Multiply repeated matrices only once, by the rows of all of their repetitions: several heads of queries may share
keys and values.

Needs: static shapes. Guarantees: nothing; a matrix that is repeated along the last batch dimension is read without its
copies.

    k' = reshape(broadcast_in_dim(k : [b, kv, t, d]) : [b, kv, group, t, d]) : [b, kv * group, t, d]
    dot_general(q, k') : [b, kv * group, s, t]
      ->   reshape(dot_general(reshape(q) : [b, kv, group, s, d], k) : [b, kv, group, s, t])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit.ir.core import Op, Value
from shlo_jit.ops.runs import Roles, roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import equal

BROADCAST = "stablehlo.broadcast_in_dim"


class Repeated(NamedTuple):
    """An operand that has each of its matrices several times in succession."""

    broadcast: Op
    """Op that produces the operand, up to its shape and the order of its dimensions."""
    copies: int
    """The broadcast's dimension along which all elements are the same. Merged with the one before it, it is one
    dimension of the operand."""
    order: tuple[int, ...]
    """The operand's dimensions, in the order of the reshaped broadcast."""


def grouped_products(function: Op, _: Context) -> Op:
    """The function with products of repeated matrices replaced by products of the matrices themselves."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != "stablehlo.dot_general":
            return None
        r = roles_of(op)
        for side, batch in ((1, r.rhs_batch), (0, r.lhs_batch)):
            found = _repeated(op.operands[side], batch[-1]) if batch else None
            if found is not None:
                return [_product(rw, op, operands[1 - side], found, r if side else _exchanged(r), bool(side))]
        return None

    return rewrite(function, visit)


def _exchanged(r: Roles) -> Roles:
    return Roles(r.rhs_batch, r.lhs_batch, r.rhs_contracting, r.lhs_contracting, r.rhs_free, r.lhs_free)


def _repeated(value: Value, dimension: int) -> Repeated | None:
    """Returns the operand's matrices before they are repeated along a dimension, or None if they are not repeated."""
    order = tuple(range(value.tensor.rank))
    while value.op is not None and value.op.name == "stablehlo.transpose":
        p = value.op.ints("permutation")
        order, value = tuple(p[d] for d in order), value.op.operands[0]
    reshape = value.op
    if reshape is None or reshape.name != "stablehlo.reshape":
        return None
    source, at, shape = reshape.operands[0], order[dimension], value.tensor.extents
    inside, broadcast = source.tensor.extents, source.op
    if broadcast is None or broadcast.name != BROADCAST or len(inside) != len(shape) + 1:
        return None
    copies, without = at + 1, mk.drop_dim(inside, at + 1)
    if not equal(mk.drop_dim(without, at), mk.drop_dim(shape, at)) or equal(inside[copies], 1):
        return None
    return Repeated(broadcast, copies, order) if _is_same_along(source, copies) else None


def _is_same_along(value: Value, dimension: int) -> bool:
    """Whether the elements of a broadcast along a dimension are all the same element of its operand."""
    op = value.op
    assert op is not None
    dims = op.ints("broadcast_dimensions")
    if dimension not in dims:
        return True
    operand, own = op.operands[0], dims.index(dimension)
    if not equal(operand.tensor.extents[own], value.tensor.extents[dimension]):
        return True
    return operand.op is not None and operand.op.name == BROADCAST and _is_same_along(operand, own)


def _once(rw: Rewriter, broadcast: Op, copies: int) -> Value:
    """Returns a broadcast's result without one of its dimensions, along which all elements are the same."""
    operand, where = broadcast.operands[0], list(broadcast.ints("broadcast_dimensions"))
    value = rw.get(operand)
    if copies in where:
        own = where.index(copies)
        if operand.op is not None and operand.op.name == BROADCAST:
            value = _once(rw, operand.op, own)
        else:
            value = mk.reshape(rw, value, mk.drop_dim(mk.shape_of(value), own))
        del where[own]
    shape = mk.drop_dim(broadcast.result.tensor.extents, copies)
    return mk.broadcast(rw, value, shape, [d - (d > copies) for d in where])


def _product(rw: Rewriter, op: Op, rows: Value, found: Repeated, r: Roles, is_right: bool) -> Value:
    """Multiplies the rows of all repetitions with each matrix. In `r` the rows are the left operand; `is_right` says
    whether they are also the left operand of the op."""
    inside, (last, shape) = found.broadcast.result.tensor.extents, (r.lhs_batch[-1], mk.shape_of(rows))
    matrix = mk.transpose(rw, _once(rw, found.broadcast, found.copies), found.order)
    rows = mk.reshape(rw, rows, (*shape[:last], *inside[found.copies - 1 : found.copies + 1], *shape[last + 1 :]))
    batch, contracting, free = ([d + (d > last) for d in dims] for dims in (r.lhs_batch, r.lhs_contracting, r.lhs_free))
    free = [last + 1, *free]
    if free != sorted(free):  # so that a reshape is enough to produce the result
        rows = mk.transpose(rw, rows, (*batch, *free, *contracting))
        n, m = len(batch), len(free)
        batch, free, contracting = [*range(n)], [*range(n, n + m)], [*range(n + m, rows.tensor.rank)]
    extra = {k: v for k, v in op.attributes.items() if k != "dot_dimension_numbers"}
    roles = (batch, r.rhs_batch, contracting, r.rhs_contracting)
    product = mk.dot(rw, (rows, matrix), roles, op.result.tensor.storage, extra)
    n, m, shape = len(batch), len(free) - 1, mk.shape_of(product)
    product = mk.reshape(rw, product, (*shape[: n - 1], shape[n - 1] * shape[n], *shape[n + 1 :]))
    order = (*range(n), *range(n + m, product.tensor.rank), *range(n, n + m))
    return product if is_right else mk.transpose(rw, product, order)
