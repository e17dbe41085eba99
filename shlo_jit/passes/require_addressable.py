"""Refuse tensors that are larger than the address space: their sizes overflow in numpy and in loops over them.

Needs: nothing. Guarantees: no tensor of known extents has 2^47 bytes or more. As in numpy, an extent of 0 does not make
a tensor small: it is left out of the product.

    tensor<1048576x1048576x1024xf32>   ->   UnsupportedError
"""

from __future__ import annotations

import math

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op, walk
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops.type_algebra import type_text
from shlo_jit.passes.context import Context
from shlo_jit.sizes import equal

ADDRESS_BITS = 47
"""Bits of the addresses that a process may use; byte offsets in smaller tensors are far from overflow."""


def require_addressable(function: Op, _: Context) -> Op:
    """Returns the function unchanged. Raises UnsupportedError for a tensor that is too large."""
    known: dict[int, bool] = {}

    def too_large(t: Type) -> bool:
        if id(t) not in known:
            shape = (t.shape if isinstance(t, TensorType) else None) or ()
            extents = [n for n in shape if n is not None and not equal(n, 0)]
            known[id(t)] = bool(extents) and math.prod(extents) * t.storage.itemsize >= 1 << ADDRESS_BITS  # type: ignore[union-attr]
        return known[id(t)]

    for i, argument in enumerate(function.block().arguments):
        if too_large(argument.type):
            what = f"argument {i} (%{argument.name}) of type {type_text(argument.type)}"
            raise UnsupportedError(diagnose(f"{what} {_TOO_LARGE}", function.span, label="too-large"))
    for op in walk(function.block()):
        for result in op.results:
            if too_large(result.type):
                what = f"{op.name}: the result of type {type_text(result.type)}"
                raise UnsupportedError(diagnose(f"{what} {_TOO_LARGE}", op.span, label="too-large"))
    return function


_TOO_LARGE = f"has 2^{ADDRESS_BITS} bytes or more, which is more than a process can address"
