"""Extents that are known only when the program runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shlo_jit.builder.arguments import TensorLike, axis, extents, flag, listed, shape_of, tensor_of
from shlo_jit.builder.data import concatenate, reshape, scalars
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.scope import emit1
from shlo_jit.ir.types import I32
from shlo_jit.ops.type_algebra import with_bounds

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value


def get_dimension_size(operand: TensorLike, dimension: int) -> Value:
    """The extent of a dimension, a scalar of s32 (document: GetDimensionSize)."""
    x = tensor_of(operand, "operand")
    return emit1("stablehlo.get_dimension_size", [x], {"dimension": axis(dimension, len(shape_of(x)), "dimension")})


def set_dimension_size(operand: TensorLike, val: TensorLike, dimension: int) -> Value:
    """Limits a dimension of the operand to a size, a scalar of s32 that the program computes.

    The old extent becomes the bound of the new one, and following ops ignore the elements beyond the size (document:
    SetDimensionSize).
    """
    x = tensor_of(operand, "operand")
    d = axis(dimension, len(shape_of(x)), "dimension")
    return emit1(
        "stablehlo.set_dimension_size", [x, tensor_of(val, "val", I32)], {"dimension": d}, names={"size": "val"}
    )


def dynamic_reshape(
    operand: TensorLike,
    dim_sizes: Sequence[TensorLike],
    new_size_bounds: Sequence[int],
    dims_are_dynamic: Sequence[bool],
) -> Value:
    """The elements in another shape, whose extents are scalars of the program.

    `new_size_bounds`: upper bound of each extent. `dims_are_dynamic`: which extents may be less than the bound
    (document: DynamicReshape).
    """
    x = tensor_of(operand, "operand")
    sizes = scalars(dim_sizes, "dim_sizes")
    bounds = extents(new_size_bounds, "new_size_bounds")
    dynamic = [flag(d, "dims_are_dynamic") for d in listed(dims_are_dynamic, "dims_are_dynamic")]
    for name, given in (("new_size_bounds", bounds), ("dims_are_dynamic", dynamic)):
        if len(given) != len(sizes):
            raise wrong(name, f"expected {len(sizes)} entries, one for each of dim_sizes, got {len(given)}")
    shape = tuple(None if free else n for n, free in zip(bounds, dynamic, strict=True))
    most = [n if free else None for n, free in zip(bounds, dynamic, strict=True)]
    if not sizes:
        return reshape(x, ())
    output_shape = concatenate([reshape(s, (1,)) for s in sizes], 0)
    types = [with_bounds(shape, x.raw.tensor.dtype, most if any(dynamic) else None)]
    names = {"output_shape": "dim_sizes", "result": "new_size_bounds"}
    return emit1("stablehlo.dynamic_reshape", [x, output_shape], results=types, names=names)
