"""Rewrite convolutions of single pixels as matrix products: the pixels of all images are rows. The GEMM kernel divides
rows into better tasks than the convolution kernel, whose tasks are lines of pixels.

Needs: static shapes. Guarantees: no convolution that `is_pointwise` remains.

    convolution(x, w) : [n, 7, 7, f] by [1, 1, f, o]   ->   dot_general(x, reshape(w)), contracting f
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.attributes import ConvDims
from shlo_jit.ir.core import Op, Value
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.byte_convolutions import window_of
from shlo_jit.passes.canonical.narrow_products import FLOATS, pays_along_k
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import surely


def pointwise_convolutions(function: Op, _: Context) -> Op:
    """The function with the convolutions that are pointwise rewritten as products."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != "stablehlo.convolution" or not is_pointwise(op):
            return None
        d = op.attributes["dimension_numbers"]
        pixels, kernel = operands
        order = (*d.kernel_spatial_dimensions, d.kernel_input_feature_dimension, d.kernel_output_feature_dimension)
        matrix = mk.transpose(rw, kernel, order)
        matrix = mk.reshape(rw, matrix, mk.shape_of(matrix)[-2:])
        roles = [(), (), (d.input_feature_dimension,), (0,)]
        return [mk.dot(rw, (pixels, matrix), roles, op.result.tensor.storage)]

    return rewrite(function, visit)


def is_pointwise(op: Op) -> bool:
    """Whether each result pixel, features last, depends only on the input pixel at the same place. Convolutions with
    few features are excluded: the convolution kernel has a dedicated strategy for them."""
    d = op.attributes["dimension_numbers"]
    assert isinstance(d, ConvDims)
    input_order = (d.input_batch_dimension, *d.input_spatial_dimensions, d.input_feature_dimension)
    output_order = (d.output_batch_dimension, *d.output_spatial_dimensions, d.output_feature_dimension)
    n = len(d.input_spatial_dimensions)
    window = window_of(op.attributes, n)
    sizes = {mk.shape_of(op.operands[1])[i] for i in d.kernel_spatial_dimensions}
    once = {*sizes, *window.strides, *window.lhs_dilation, window.groups, window.batch_groups} <= {1}
    unpadded = all(pair == (0, 0) for pair in window.padding)
    kernel = mk.shape_of(op.operands[1])
    ci, co = kernel[d.kernel_input_feature_dimension], kernel[d.kernel_output_feature_dimension]
    few = op.result.tensor.dtype in FLOATS and surely(lambda: pays_along_k(ci, co))
    return once and not few and unpadded and input_order == output_order == tuple(range(n + 2))
