"""Views: an operand of a product that is a part of another array, or that array in another order, is read in place.

A loop that only moves elements computes it. If the products, terms and columns that it numbers are a constant stride
apart in the other array, the product reads that array with these strides, from an address on that may depend on indices
known at the call: a layer's weights in a stack of them, the heads in a cache, a transposed or repeated matrix.

Operands of convolutions are views by dimensions: an image that is a part of another one, of a batch or of its features,
and a kernel in a stack of kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from shlo_jit.fuse.nest import Key, Nest, is_wide
from shlo_jit.fuse.plan import ComputedOperand
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import Expr, variables
from shlo_jit.ops import OPS
from shlo_jit.sizes import Size


class View(NamedTuple):
    """Where the elements of an operand lie."""

    value: Value
    first: Expr
    """The offset of the first element, in elements: a constant and terms known at the call."""
    strides: tuple[int, ...]
    """Elements from one product to the next, along the terms, and from one row or column to the next; of a
    convolution's operand, along each dimension. 0 for a part with one element."""


def view_of(nest: Nest, operand: ComputedOperand) -> View | None:
    """Returns the view that an operand is, if the loop that computes it only moves elements that are a constant stride
    apart."""
    key = source_of(nest)
    if key is None:
        return None
    value, at = key
    if value.tensor.is_packed:
        return None
    offset = ix.linearize(at.index, value.tensor.extents)
    if any(variables(s.at) for s in offset.syms) or any(isinstance(n, Size) for n in value.tensor.extents):
        return None
    found = [_stride(nest, offset, part) for part in operand.parts]
    strides = tuple(s for s in found if s is not None)
    if len(strides) < len(found):
        return None
    first = Expr(offset.const, (), offset.syms)
    return View(value, first, strides) if _can_be_read(nest, operand, strides) else None


def is_contiguous(nest: Nest, operand: ComputedOperand) -> bool:
    """Whether the elements of an operand lie in another array as in a copy of it."""
    view = view_of(nest, operand)
    return view is not None and view.strides == _dense(nest, operand)


def _dense(nest: Nest, operand: ComputedOperand) -> tuple[int | None, ...]:
    """The strides of a copy of an operand."""
    store = nest.stores[0]
    copied = ix.linearize(store.index, store.target.tensor.extents)
    return tuple(_stride(nest, copied, part) for part in operand.parts)


def _can_be_read(nest: Nest, operand: ComputedOperand, strides: tuple[int, ...]) -> bool:
    """Whether a product or a convolution reads an operand with these strides as fast as a copy of it. Kernels are read
    in one piece, and images along the dimension that is contiguous in a copy."""
    if not operand.is_of_convolution:
        inner = (*operand.along, *operand.free)
        return 1 in strides[1:] or not any(is_wide(nest.extents[v]) for v in inner)
    dense = _dense(nest, operand)
    if operand.side:
        return strides == dense
    pairs = [(s, d) for s, d in zip(strides, dense, strict=True) if d]
    return (1, 1) in pairs and all(s > 0 for s, _ in pairs)


def is_gathered(nest: Nest, operand: ComputedOperand) -> bool:
    """Whether an operand consists of matrices of another array whose indices are read at run time: the expert of each
    row. Terms, rows or columns of such a matrix are contiguous in that array."""
    key = source_of(nest)
    if key is None or key[0].tensor.is_packed or any(isinstance(n, Size) for n in key[0].tensor.extents):
        return False
    offset = ix.linearize(key[1].index, key[0].tensor.extents)
    numbered = {v for s in offset.syms for v in variables(s.at)}
    inside = [v for v in (*operand.along, *operand.free) if is_wide(nest.extents[v]) and v not in numbered]
    return bool(numbered) and any(offset.coefficient(v) == 1 for v in inside)


def source_of(nest: Nest) -> Key | None:
    """The place that the loop reads its result from; None if it computes it, or chooses between several."""
    store = nest.stores[0]
    key: Key = (store.value, store.at)
    while key in nest.nodes:
        node = nest.nodes[key]
        if OPS[node.op.name].index_map is None or key[1].conditions or not node.operands:
            return None
        key = node.operands[0]
    return key if key in nest.loads and not key[1].conditions else None


def _stride(nest: Nest, offset: Expr, part: Mapping[int, int]) -> int | None:
    """Elements between neighbours that the variables of a part number; 0 for a part with one element. None if that is
    no constant."""
    steps = {(offset.coefficient(v), c) for v, c in part.items() if is_wide(nest.extents[v])}
    strides = {k // c if k % c == 0 else None for k, c in steps}
    if not strides:
        return 0
    return strides.pop() if len(strides) == 1 else None
