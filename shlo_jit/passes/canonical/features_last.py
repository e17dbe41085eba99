"""Write convolutions that have features before pixels with features last, between transposes.

With features last, lanes run along features: images of few pixels fill them, windows are read in place, and depthwise
convolutions read vectors. Loops that compute the image or read the result take in the transposes, and those between two
convolutions cancel out or move (`moved_transposes.py`).

Needs: static shapes. Guarantees: nothing; convolutions of little work stay as they are, and so do depthwise ones of
large planes or few features that meet no other convolution: nothing shares the cost of their transposes.

The gradient of a kernel adds up over images and pixels, and is written such that features of the image and of the
gradient, which are its images and output features, are last in both operands. Those are read in place, then.

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
        n = len(d.output_spatial_dimensions)
        spatial, last = tuple(range(1, n + 1)), n + 1
        numbers = replace(d, output_batch_dimension=0, output_spatial_dimensions=spatial, output_feature_dimension=last)
        image, numbers = _image(rw, op, operands[0], numbers)
        kernel, numbers = _kernel(rw, op, operands[1], numbers)
        extents = op.result.tensor.extents
        order = (d.output_batch_dimension, *d.output_spatial_dimensions, d.output_feature_dimension)
        t = tensor(tuple(extents[i] for i in order), op.result.tensor.dtype)
        found = rw.emit1(op.name, [image, kernel], t, {**op.attributes, "dimension_numbers": numbers})
        return [mk.transpose(rw, found, [order.index(i) for i in range(n + 2)])]

    return rewrite(function, visit)


def _image(rw: Rewriter, op: Op, image: Value, d: ConvDims) -> tuple[Value, ConvDims]:
    """The image with features last, or with images last for the gradient of a kernel, and the dimension numbers."""
    last = len(d.input_spatial_dimensions) + 1
    spatial = tuple(range(1, last))
    if is_kernel_gradient(op) and _fills_tiles(op):
        order = (d.input_feature_dimension, *d.input_spatial_dimensions, d.input_batch_dimension)
        roles = {"input_feature_dimension": 0, "input_batch_dimension": last}
    elif d.input_feature_dimension < max(d.input_spatial_dimensions):
        order = (d.input_batch_dimension, *d.input_spatial_dimensions, d.input_feature_dimension)
        roles = {"input_batch_dimension": 0, "input_feature_dimension": last}
    else:
        return image, d
    return mk.transpose(rw, image, order), replace(d, input_spatial_dimensions=spatial, **roles)


def _kernel(rw: Rewriter, op: Op, kernel: Value, d: ConvDims) -> tuple[Value, ConvDims]:
    """The kernel, with output features last for the gradient of a kernel or with groups, and the dimension numbers."""
    n, window = len(d.kernel_spatial_dimensions), d.kernel_spatial_dimensions
    if is_kernel_gradient(op):  # a gradient with features last
        order = (d.kernel_input_feature_dimension, *window, d.kernel_output_feature_dimension)
        roles = {"kernel_input_feature_dimension": 0, "kernel_spatial_dimensions": tuple(range(1, n + 1))}
    elif op.int("feature_group_count", 1) > 1:  # lanes read kernels of few input features along output features
        order = (*window, d.kernel_input_feature_dimension, d.kernel_output_feature_dimension)
        roles = {"kernel_input_feature_dimension": n, "kernel_spatial_dimensions": tuple(range(n))}
    else:
        return kernel, d
    return mk.transpose(rw, kernel, order), replace(d, **roles, kernel_output_feature_dimension=n + 1)


def has_features_first(op: Op) -> bool:
    """Whether the features of a convolution's result are before pixels, and it has enough work."""
    d, kernel = op.attributes["dimension_numbers"], op.operands[1].tensor.extents
    assert isinstance(d, ConvDims)
    spatial, feature = d.output_spatial_dimensions, d.output_feature_dimension
    if not spatial or feature > max(spatial) or equal(op.result.tensor.extents[feature], 1):
        return False
    terms = math.prod(hint_of(n) for i, n in enumerate(kernel) if i != d.kernel_output_feature_dimension)
    return hint_of(op.result.tensor.size) * terms >= tuning.FEATURES_LAST_WORK


def is_kernel_gradient(op: Op) -> bool:
    """Whether a convolution has the shape of a kernel's gradient: a window with more positions than the result. Its
    images are the features of the image that the kernel was applied to, its input features the images of that, and its
    kernel the gradient of the result."""
    d, kernel = op.attributes["dimension_numbers"], op.operands[1].tensor.extents
    assert isinstance(d, ConvDims)
    if op.int("feature_group_count", 1) != 1 or op.int("batch_group_count", 1) != 1:
        return False
    window = math.prod(hint_of(kernel[i]) for i in d.kernel_spatial_dimensions)
    return window > math.prod(hint_of(op.result.tensor.extents[i]) for i in d.output_spatial_dimensions)


def _fills_tiles(op: Op) -> bool:
    """Whether tiles with images as rows are filled, which read images that are adjacent in place."""
    d = op.attributes["dimension_numbers"]
    assert isinstance(d, ConvDims)
    images, kernel = hint_of(op.operands[0].tensor.extents[d.input_batch_dimension]), op.operands[1].tensor.extents
    window = math.prod(hint_of(kernel[i]) for i in d.kernel_spatial_dimensions)
    return images >= tuning.CONV_ADJACENT_IMAGES and window >= tuning.CONV_ADJACENT_WINDOW


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
