"""Write convolutions that have features before pixels with features last, between transposes.

With features last, lanes run along features: images of few pixels fill them, windows are read in place, and depthwise
convolutions read vectors. Loops that compute the image or read the result take in the transposes, and those between two
convolutions cancel out or move (`moved_transposes.py`).

Needs: static shapes. Guarantees: nothing; convolutions of little work stay as they are.

    convolution(x, w) : [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]
    ->
    transpose(convolution(transpose(x), w) : [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from shlo_jit import tuning
from shlo_jit.ir.attributes import ConvDims
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import equal, hint_of


def features_last(function: Op, _: Context) -> Op:
    """The function with convolutions whose results have features first written with features last."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != "stablehlo.convolution" or not has_features_first(op):
            return None
        d = op.attributes["dimension_numbers"]
        assert isinstance(d, ConvDims)
        image, kernel = operands
        n = len(d.output_spatial_dimensions)
        spatial, last, window = tuple(range(1, n + 1)), n + 1, tuple(range(n))
        numbers = replace(d, output_batch_dimension=0, output_spatial_dimensions=spatial, output_feature_dimension=last)
        if d.input_feature_dimension < max(d.input_spatial_dimensions):
            order = (d.input_batch_dimension, *d.input_spatial_dimensions, d.input_feature_dimension)
            image = mk.transpose(rw, image, order)
            roles = {"input_batch_dimension": 0, "input_feature_dimension": last}
            numbers = replace(numbers, input_spatial_dimensions=spatial, **roles)
        if op.int("feature_group_count", 1) > 1:  # lanes read kernels of few input features along output features
            order = (*d.kernel_spatial_dimensions, d.kernel_input_feature_dimension, d.kernel_output_feature_dimension)
            kernel = mk.transpose(rw, kernel, order)
            roles = {"kernel_input_feature_dimension": n, "kernel_output_feature_dimension": last}
            numbers = replace(numbers, kernel_spatial_dimensions=window, **roles)
        extents = op.result.tensor.extents
        order = (d.output_batch_dimension, *d.output_spatial_dimensions, d.output_feature_dimension)
        t = tensor(tuple(extents[i] for i in order), op.result.tensor.dtype)
        found = rw.emit1(op.name, [image, kernel], t, {**op.attributes, "dimension_numbers": numbers})
        return [mk.transpose(rw, found, [order.index(i) for i in range(n + 2)])]

    return rewrite(function, visit)


def has_features_first(op: Op) -> bool:
    """Whether the features of a convolution's result are before pixels, and it has enough work."""
    d, kernel = op.attributes["dimension_numbers"], op.operands[1].tensor.extents
    assert isinstance(d, ConvDims)
    spatial, feature = d.output_spatial_dimensions, d.output_feature_dimension
    if not spatial or feature > max(spatial) or equal(op.result.tensor.extents[feature], 1):
        return False
    terms = math.prod(hint_of(n) for i, n in enumerate(kernel) if i != d.kernel_output_feature_dimension)
    return hint_of(op.result.tensor.size) * terms >= tuning.FEATURES_LAST_WORK
