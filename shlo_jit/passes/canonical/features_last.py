"""Write convolutions that have features before pixels with features last, between transposes.

With features last, lanes run along features: images of few pixels fill them, windows are read in place, and depthwise
convolutions read vectors. Loops that compute the image or read the result take in the transposes, and those between two
convolutions cancel out or move (`moved_transposes.py`).

Needs: static shapes. Guarantees: nothing; convolutions of little work stay as they are, and so do depthwise ones of
large planes or few features that meet no other convolution: nothing shares the cost of their transposes.

    convolution(x, w) : [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]
    ->
    transpose(convolution(transpose(x), w) : [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from shlo_jit import tuning
from shlo_jit.caches import Caches
from shlo_jit.ir.attributes import ConvDims
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.moved_transposes import CONVOLUTION, moves_across
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import equal, hint_of


def features_last(function: Op, context: Context) -> Op:
    """The function with convolutions whose results have features first written with features last."""
    neighbours = _Neighbours(function)

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != CONVOLUTION or not has_features_first(op):
            return None
        if prefers_planes(op, context.caches) and not neighbours.share_layout(op, context.caches):
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


def prefers_planes(op: Op, caches: Caches) -> bool:
    """Whether a convolution with features first is depthwise, and transposes would cost more than lanes along features
    gain: few features, which leave lanes idle, or an image and a result that caches near the core do not hold."""
    image, kernel = (o.tensor for o in op.operands)
    d, groups = op.attributes["dimension_numbers"], op.int("feature_group_count", 1)
    assert isinstance(d, ConvDims)
    if groups == 1 or not equal(kernel.extents[d.kernel_input_feature_dimension], 1):
        return False
    nbytes = sum(hint_of(t.size) * t.storage.itemsize for t in (image, op.result.tensor))
    return groups < tuning.FEATURES_LAST_LANES or nbytes > caches.bytes_of(tuning.FEATURES_LAST_BYTES)


class _Neighbours:
    """The convolutions of a function that others meet, with only ops between them that transposes move across."""

    def __init__(self, function: Op):
        self.readers: dict[Value, list[Op]] = {}
        for op in walk(function.block()):
            for operand in op.operands:
                self.readers.setdefault(operand, []).append(op)

    def share_layout(self, op: Op, caches: Caches) -> bool:
        """Whether a convolution meets one that has features last, or gets them for its own sake."""
        seen, left = {op}, [op]
        while left:
            values = [v for o in (left.pop(),) for v in (*o.operands, *o.results)]
            around = [o for v in values for o in (v.op, *self.readers.get(v, ())) if o is not None and o not in seen]
            seen.update(around)
            for other in around:
                if moves_across(other):
                    left.append(other)
                elif other.name == CONVOLUTION:
                    if not has_features_first(other) or not prefers_planes(other, caches):
                        return True
                    left.append(other)
        return False
