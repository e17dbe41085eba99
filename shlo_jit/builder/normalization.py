"""Batch normalization.

`feature_index`: the dimension of the operand that scale, offset, mean and variance, each a vector, are along. All other
dimensions are the batch. All are floats of one element type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shlo_jit.builder.arguments import TensorLike, axis, real_number, same_elements, shape_of
from shlo_jit.builder.scope import emit, emit1

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value


def batch_norm_training(
    operand: TensorLike, scale: TensorLike, offset: TensorLike, epsilon: float, feature_index: int
) -> tuple[Value, Value, Value]:
    """Returns the operand normalized by its mean and variance, scaled and shifted; the mean; and the variance
    (document: BatchNormTraining)."""
    values = same_elements({"operand": operand, "scale": scale, "offset": offset})
    output, mean, variance = emit(
        "stablehlo.batch_norm_training", values, _attributes(values[0], epsilon, feature_index)
    )
    return output, mean, variance


def batch_norm_inference(
    operand: TensorLike,
    scale: TensorLike,
    offset: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    epsilon: float,
    feature_index: int,
) -> Value:
    """Returns the operand normalized by a given mean and variance, scaled and shifted (document:
    BatchNormInference)."""
    given = {"operand": operand, "scale": scale, "offset": offset, "mean": mean, "variance": variance}
    values = same_elements(given)
    return emit1("stablehlo.batch_norm_inference", values, _attributes(values[0], epsilon, feature_index))


def batch_norm_grad(
    operand: TensorLike,
    scale: TensorLike,
    batch_mean: TensorLike,
    batch_var: TensorLike,
    grad_output: TensorLike,
    epsilon: float,
    feature_index: int,
) -> tuple[Value, Value, Value]:
    """Returns the gradients of `batch_norm_training` with respect to operand, scale and offset, for the gradient of its
    output (document: BatchNormGrad)."""
    given = {"operand": operand, "scale": scale, "batch_mean": batch_mean, "batch_var": batch_var}
    values = same_elements({**given, "grad_output": grad_output})
    names = {"mean": "batch_mean", "variance": "batch_var"}
    attributes = _attributes(values[0], epsilon, feature_index)
    grad_operand, grad_scale, grad_offset = emit("stablehlo.batch_norm_grad", values, attributes, names=names)
    return grad_operand, grad_scale, grad_offset


def _attributes(operand: Value, epsilon: float, feature_index: int) -> dict[str, Any]:
    return {
        "epsilon": real_number(epsilon, "epsilon"),
        "feature_index": axis(feature_index, len(shape_of(operand)), "feature_index"),
    }
