"""batch_norm_inference, batch_norm_training, batch_norm_grad (specification, sections of the same names)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops.numeric import Array, convert
from shlo_jit.ops.record import Violation, define, required
from shlo_jit.ops.type_algebra import (
    bounds_of,
    compatible_elements,
    compatible_shapes,
    merge,
    operand_types,
    same_dim,
    types_text,
    with_bounds,
)

ATTRIBUTES = {"epsilon": required("f32"), "feature_index": required("i64 >= 0", "C1")}
_FLOAT = "float|quant"
_VECTOR = "1d float|quant"


def _check(
    op: Op, wide: list[TensorType], narrow: list[TensorType], sizes: Sequence[str], same: str = ""
) -> TensorType:
    """Checks that tensors have one shape, and vectors the length of the feature dimension. Returns a vector's type.

    `sizes` are the labels of the constraints on the extents of the vectors; `same` is the label of their equality, if
    there is one.
    """
    for t in [*wide, *narrow][1:]:
        if not compatible_elements(t.dtype, wide[0].dtype):
            every = types_text([*wide, *narrow])
            raise Violation("C2", f"requires the same element type for all operands, got {every}")
    for t in wide[1:]:
        if not compatible_shapes(t.shape, wide[0].shape):
            raise Violation("C3", "expects multi-dimensional operands to have compatible shapes")
    whole, index = merge(wide), op.int("feature_index")
    count = whole.shape[index] if whole.shape is not None and index < whole.rank else None
    for label, t in zip(sizes, narrow, strict=True):
        others = [u for u in narrow if not compatible_shapes(t.shape, u.shape)]
        if others and (same or not compatible_shapes(t.shape, (count,))):
            raise Violation(same or label, "expects single-dimensional operands to have compatible shapes")
    vector = merge(narrow)
    assert vector.shape is not None
    if whole.shape is None:
        return vector
    if index >= whole.rank:
        raise Violation(
            "C1",
            "expects featureIndex to be smaller than the rank of multi-dimensional operands; "
            f"got featureIndex {index}, and rank {whole.rank}.",
        )
    if not same_dim(count, vector.shape[0]):
        raise Violation(
            sizes[0],
            "expects the size of single-dimensional operands to be compatible with feature count, but the size of "
            f"single-dimensional operands is {vector.shape[0]} and the feature count is {count}.",
        )
    return with_bounds((count,), whole.dtype, [bounds_of(whole)[index]])


def _infer_inference(op: Op) -> list[Type]:
    operand, *vectors = operand_types(op)
    _check(op, [operand], vectors, ("C3", "C4", "C5", "C6"))
    return [operand]


def _infer_training(op: Op) -> list[Type]:
    operand, *vectors = operand_types(op)
    vector = _check(op, [operand], vectors, ("C3", "C4"))
    return [operand, vector, vector]


def _infer_grad(op: Op) -> list[Type]:
    operand, scale, mean, variance, grad = operand_types(op)
    vector = _check(op, [operand, grad], [scale, mean, variance], ("C5",) * 3, same="C4")
    return [merge([operand, grad]), vector, vector]


class _Layout:
    """Shapes of one normalization: broadcast of vectors along the feature dimension, and the axes summed over."""

    def __init__(self, op: Op, x: Array):
        self.feature = op.int("feature_index")
        self.axes = tuple(d for d in range(x.ndim) if d != self.feature)
        self.shape = [-1 if d == self.feature else 1 for d in range(x.ndim)]
        self.count = int(np.prod([x.shape[d] for d in self.axes], dtype=np.int64))
        self.epsilon = float(op.attributes["epsilon"].value)

    def spread(self, vector: Array) -> Array:
        return vector.astype(np.float64).reshape(self.shape)

    def sum(self, x: Array) -> Array:
        return np.sum(x, axis=self.axes)


def _normalize(layout: _Layout, x: Array, vectors: tuple[Array, ...]) -> Array:
    scale, offset, mean, variance = vectors
    deviation = np.sqrt(layout.spread(variance) + layout.epsilon)
    return layout.spread(scale) * ((x.astype(np.float64) - layout.spread(mean)) / deviation) + layout.spread(offset)


def _inference(op: Op, x: Array, *vectors: Array) -> Array:
    return convert(_normalize(_Layout(op, x), x, vectors), x.dtype)


def _training(op: Op, x: Array, scale: Array, offset: Array) -> tuple[Array, ...]:
    layout = _Layout(op, x)
    wide = x.astype(np.float64)
    mean = layout.sum(wide) / layout.count
    variance = layout.sum(np.square(wide - layout.spread(mean))) / layout.count
    out = _normalize(layout, x, (scale, offset, mean, variance))
    return convert(out, x.dtype), convert(mean, x.dtype), convert(variance, x.dtype)


def _grad(op: Op, x: Array, *others: Array) -> tuple[Array, ...]:
    """Reference of batch_norm_grad. The names i1 ... i6 are those of the specification."""
    scale, mean, variance, grad = others
    layout = _Layout(op, x)
    wide_grad = grad.astype(np.float64)
    centered = x.astype(np.float64) - layout.spread(mean)
    spread_variance = layout.spread(variance) + layout.epsilon
    deviation = np.sqrt(spread_variance)
    i1 = wide_grad * layout.count
    i2 = layout.spread(layout.sum(wide_grad))
    i3 = layout.spread(layout.sum(wide_grad * centered))
    i5 = i3 * centered / spread_variance
    i6 = i1 - i2 - i5
    grad_operand = layout.spread(scale) / deviation / layout.count * i6
    grad_scale = layout.sum(wide_grad * (centered / deviation))
    grad_offset = layout.sum(wide_grad)
    return tuple(convert(g, x.dtype) for g in (grad_operand, grad_scale, grad_offset))


define(
    "stablehlo.batch_norm_inference", section="batch_norm_inference",
    operands=(f"operand: {_FLOAT}", *(f"{n}: {_VECTOR}" for n in ("scale", "offset", "mean", "variance"))),
    results=(f"result: {_FLOAT}",), attributes=ATTRIBUTES, infer=_infer_inference, reference=_inference,
)  # fmt: skip
define(
    "stablehlo.batch_norm_training", section="batch_norm_training",
    operands=(f"operand: {_FLOAT}", f"scale: {_VECTOR}", f"offset: {_VECTOR}"),
    results=(f"output: {_FLOAT}", f"batch_mean: {_VECTOR}", f"batch_var: {_VECTOR}"),
    attributes=ATTRIBUTES, infer=_infer_training, reference=_training,
)  # fmt: skip
define(
    "stablehlo.batch_norm_grad", section="batch_norm_grad",
    operands=(f"operand: {_FLOAT}", *(f"{n}: {_VECTOR}" for n in ("scale", "mean", "variance")),
              f"grad_output: {_FLOAT}"),
    results=(f"grad_operand: {_FLOAT}", f"grad_scale: {_VECTOR}", f"grad_offset: {_VECTOR}"),
    attributes=ATTRIBUTES, infer=_infer_grad, reference=_grad,
)  # fmt: skip
