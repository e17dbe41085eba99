"""Hoist products of one slice per iteration: compute them for all iterations before the loop.

A recurrent network transforms its input independently of its state: x[t] @ W in iteration t of T. These are T small
products with one matrix. They become one product of all rows, on all cores, and each iteration reads its part.

Needs: nothing. Guarantees: nothing. A product is hoisted out of a while loop of at least T iterations if it multiplies
an element of a tensor with T of them by a matrix. Both must come from outside the loop, and the product must have few
rows. The result of all iterations must not be too large.

    while t < T { h = tanh(dot_general(x[t], w) + h) }   ->   y = dot_general(x, w); while t < T { h = tanh(y[t] + h) }
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_jit import tuning
from shlo_jit.ir.core import Op, Value
from shlo_jit.ops.runs import roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.regions.unroll import trip_count_of
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import Size


def hoist_products(function: Op, _: Context) -> Op:
    """The function with such products before their loops."""
    hoisted: dict[Op, Value] = {}

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name == "stablehlo.while":
            for product, slice_ in _products(op):
                hoisted[product] = _hoisted_product(rw, product, slice_)
        elif op in hoisted:
            return [_iteration_part(rw, op, hoisted[op])]
        return None

    return rewrite(function, visit)


def _products(loop: Op) -> list[tuple[Op, Op]]:
    """Returns the products of a loop that can be hoisted, each with the slice that is its first operand."""
    body = loop.block(1)
    inside = {*body.arguments, *(v for op in body.ops for v in op.results)}
    dots = [op for op in body.ops if op.name == "stablehlo.dot_general" and op.operands[1] not in inside]
    slices = [(op, _slice_of(op.operands[0])) for op in dots]
    found = [(op, s) for op, s in slices if s is not None and s.operands[0] not in inside and _pays(op, s)]
    trip_count = trip_count_of(loop) if found else None
    return [] if trip_count is None else [(op, s) for op, s in found if s.operands[0].tensor.extents[0] <= trip_count]


def _slice_of(value: Value) -> Op | None:
    """Returns the dynamic_slice of one element along the first dimension that a value is a reshape of, or None."""
    taken = value.op.operands[0].op if value.op is not None and value.op.name == "stablehlo.reshape" else None
    if taken is None or taken.name != "stablehlo.dynamic_slice":
        return None
    whole, part = taken.operands[0].tensor.extents, taken.result.tensor.extents
    is_element = part[:1] == (1,) and part[1:] == whole[1:] == value.tensor.extents
    return taken if is_element and not any(isinstance(n, Size) for n in whole) else None


def _pays(product: Op, slice_: Op) -> bool:
    """Whether one product of all rows is faster than many skinny ones, and reading the parts does not cancel the
    gain."""
    roles, result = roles_of(product), product.result.tensor
    lhs = product.operands[0].tensor.extents
    if roles.lhs_batch or result.size == 0 or any(isinstance(n, Size) for n in result.extents):
        return False
    rows, steps = (math.prod(lhs[d] for d in dims) for dims in (roles.lhs_free, roles.lhs_contracting))
    nbytes = slice_.operands[0].tensor.extents[0] * result.size * result.storage.itemsize
    return rows <= tuning.HOISTED_ROWS and steps >= tuning.HOISTED_TERMS and nbytes <= tuning.HOISTED_BYTES


def _hoisted_product(rw: Rewriter, product: Op, slice_: Op) -> Value:
    """Emits the product for every element of the sliced tensor; the iteration is its first dimension."""
    roles = roles_of(product)
    whole, matrix = rw.get(slice_.operands[0]), rw.get(product.operands[1])
    dims = [(), (), tuple(d + 1 for d in roles.lhs_contracting), roles.rhs_contracting]
    extra = {k: v for k, v in product.attributes.items() if k != "dot_dimension_numbers"}
    outer, rw.current = rw.current, product
    found = mk.dot(rw, (whole, matrix), dims, product.result.tensor.storage, extra)
    rw.current = outer
    return found


def _iteration_part(rw: Rewriter, product: Op, whole: Value) -> Value:
    """Returns the part of one iteration, by the index of the slice."""
    slice_ = _slice_of(product.operands[0])
    assert slice_ is not None
    index, extents = rw.get(slice_.operands[1]), product.result.tensor.extents
    zero = mk.constant(rw, index.tensor, 0)
    part = mk.window(rw, whole, [index, *[zero] * len(extents)], (1, *extents))
    return mk.reshape(rw, part, extents)
