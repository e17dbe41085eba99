"""Addresses of operands that products and convolutions read where they lie in another array."""

from __future__ import annotations

from shlo_jit.ir.core import Value
from shlo_jit.kernels.llvm_values import V
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.position import Position
from shlo_jit.lower.services import Services
from shlo_jit.schedule.product_layout import Viewed


def operand_address(low: Services, viewed: Viewed | None, side: int, operand: Value) -> V:
    """Returns the address of the first element of operand `side`: its own, or that in the array of which it is a
    view."""
    if viewed is None or viewed.side != side:
        return low.pointer(operand)
    view, nest = viewed.view, viewed.nest
    pointers = {v: low.pointer(v) for v in dict.fromkeys(v for v, _ in nest.loads)}
    first = Evaluator(low.b, nest, viewed.space, pointers).base(Position({}, 1), view.first)
    return low.b.offset(low.pointer(view.value), low.b.mul(first, view.value.tensor.storage.itemsize))
