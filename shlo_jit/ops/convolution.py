"""convolution and dynamic_conv (specification, "convolution")."""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.attributes import ConvDims
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import QuantizedType, TensorType, Type
from shlo_jit.ops.contract import PRECISION, check_precision, check_quantized_product, multiply_matrices
from shlo_jit.ops.numeric import Array, result_dtype
from shlo_jit.ops.record import Violation, define, optional, required
from shlo_jit.ops.shape import pad
from shlo_jit.ops.type_algebra import (
    check_shape,
    compatible_elements,
    compatible_shapes,
    constant_value,
    is_quantized,
    operand_types,
    shape_text,
    stated_result,
    type_text,
    with_bounds,
)
from shlo_jit.ops.window import (
    Window,
    check_positive,
    make_window,
    optional_ints,
    padding_pairs,
    take_windows,
    window_counts,
)

_LABELS = {
    "window": "C25", "strides size": "C2", "strides": "C3", "base size": "C5", "base": "C6",
    "dilation size": "C7", "dilation": "C8", "padding": "C4",
}  # fmt: skip

_PRODUCT_LABELS = {"which": "C28", "storage": "C31", "expressed": "C32", "axis": "C33", "hybrid": "C34"}

ATTRIBUTES = {
    "dimension_numbers": required("conv"),
    "feature_group_count": required("i64 > 0", "C21"),
    "batch_group_count": required("i64 > 0", "C22"),
    "window_strides": optional("ints"),
    "lhs_dilation": optional("ints"),
    "rhs_dilation": optional("ints"),
    "window_reversal": optional("bools"),
    **PRECISION,
}


def _check_dimensions(numbers: ConvDims, rank: int) -> None:
    """Checks C12, C13, C17 to C20: every dimension of lhs, rhs and result has one role."""
    inputs, kernels, outputs = (
        numbers.input_spatial_dimensions,
        numbers.kernel_spatial_dimensions,
        numbers.output_spatial_dimensions,
    )
    if not len(inputs) == len(kernels) == len(outputs):
        of_each = (("C12", inputs), ("C17", kernels), ("C19", outputs))
        raise Violation(
            next(label for label, dims in of_each if len(dims) != rank - 2),
            "expects the same size for input, kernel and output spatial-dimensions, "
            f"but got {len(inputs)}, {len(kernels)}, and {len(outputs)} resp.",
        )
    if len(inputs) != rank - 2:
        raise Violation("C12", f"expects convolution arguments to have {len(inputs) + 2} dimensions. Got: {rank}")
    for label, what, dims in (
        ("C13", "input", (numbers.input_batch_dimension, numbers.input_feature_dimension, *inputs)),
        ("C18", "kernel", (numbers.kernel_input_feature_dimension, numbers.kernel_output_feature_dimension, *kernels)),
        ("C20", "output", (numbers.output_batch_dimension, numbers.output_feature_dimension, *outputs)),
    ):
        if any(not 0 <= d < rank for d in dims):
            raise Violation(label, f"expects input, kernel, and output dimension-numbers to be in-range [0, {rank}).")
        if len(set(dims)) != rank:
            raise Violation(
                label, f"expects {what} dimension-numbers to be unique, got {{{', '.join(map(str, dims))}}}."
            )


def _check_groups(op: Op, lhs: TensorType, rhs: TensorType, numbers: ConvDims) -> None:
    """Checks C10, C11, C14 to C16, C21 to C23."""
    features, batches = op.int("feature_group_count"), op.int("batch_group_count")
    if features > 1 and batches > 1:
        raise Violation(
            "C23",
            "expects batch_group_count and feature_group_count not to be both greater than 1. "
            f"Got {batches} and {features} resp.",
        )
    assert lhs.shape is not None and rhs.shape is not None
    batch, feature = lhs.shape[numbers.input_batch_dimension], lhs.shape[numbers.input_feature_dimension]
    inner, outer = (
        rhs.shape[numbers.kernel_input_feature_dimension],
        rhs.shape[numbers.kernel_output_feature_dimension],
    )
    if batch is not None and batch % batches:
        raise Violation(
            "C10", f"expects input batch dimension ({batch}) to be divisible by batch_group_count. "
            f"Got batch_group_count = {batches}."
        )  # fmt: skip
    if feature is not None:
        if feature % features:
            raise Violation(
                "C11", f"expects input feature dimension ({feature}) to be a multiple of feature_group_count. "
                f"Got feature_group_count = {features}."
            )  # fmt: skip
        if inner is not None and feature // features != inner:
            raise Violation(
                "C14", f"expects input feature dimension ({feature}) / feature_group_count = "
                f"kernel input feature dimension ({inner}). Got feature_group_count = {features}."
            )  # fmt: skip
    if outer is not None:
        for label, what, groups in (("C15", "batch", batches), ("C16", "feature", features)):
            if outer % groups:
                raise Violation(
                    label, f"expects output feature dimension size ({outer}) to be a multiple of {what}_group_count. "
                    f"Got {what}_group_count = {groups}."
                )  # fmt: skip


def _spatial_window(op: Op, rhs_shape: tuple[int | None, ...], padding: tuple[tuple[int, int], ...]) -> Window:
    numbers = op.attributes["dimension_numbers"]
    sizes = tuple(rhs_shape[d] for d in numbers.kernel_spatial_dimensions)
    return make_window(
        sizes,
        _LABELS,
        strides=optional_ints(op, "window_strides"),
        padding=padding,
        base_dilations=optional_ints(op, "lhs_dilation"),
        window_dilations=optional_ints(op, "rhs_dilation"),
    )


def _check_steps(op: Op, rhs_shape: tuple[int | None, ...]) -> None:
    """Checks the signs of a window whose padding is known only at run time. The lengths of its lists are not checked,
    since JAX writes one stride too many."""
    check_positive("value", [rhs_shape[d] for d in op.attributes["dimension_numbers"].kernel_spatial_dimensions], "C25")
    for name, what, label in (
        ("window_strides", "stride", "C3"),
        ("lhs_dilation", "base dilation factor", "C6"),
        ("rhs_dilation", "window dilation factor", "C8"),
    ):
        check_positive(what, op.ints(name, ()), label)


def _padding(op: Op, rank: int) -> tuple[tuple[int, int], ...] | None:
    """Returns the padding: the attribute of convolution, or the operand of dynamic_conv; None if that is not a
    constant."""
    if op.name == "stablehlo.dynamic_conv":
        shape = operand_types(op)[2].shape
        if not compatible_shapes(shape, (rank, 2)):
            raise Violation("C4", f"expects d_padding of shape [{rank}, 2], but got {shape_text(shape or ())}.")
        known = constant_value(op.operands[2])
        return tuple((int(a), int(b)) for a, b in known.reshape(-1, 2)) if known is not None else None
    return padding_pairs(op.attributes.get("padding"), rank, "C4")


def _infer_convolution(op: Op) -> list[Type]:
    lhs, rhs = operand_types(op)[:2]
    numbers = op.attributes["dimension_numbers"]
    result = stated_result(op)
    check_precision(op, "C24")
    if lhs.shape is None or rhs.shape is None:
        return [result]
    if len(lhs.shape) != len(rhs.shape):
        raise Violation(
            "C1",
            "expects convolution arguments to have same number of dimensions. "
            f"Got: '{type_text(lhs)}' and '{type_text(rhs)}'.",
        )
    _check_dimensions(numbers, lhs.rank)
    spatial = lhs.rank - 2
    reversal = op.attributes.get("window_reversal")
    if reversal is not None and len(op.ints("window_reversal")) != spatial:
        raise Violation(
            "C9", "expects window-reversal to have same dimension-size as size of window dimensions "
            f"({spatial}), but got: {len(op.ints('window_reversal'))}."
        )  # fmt: skip
    padding = _padding(op, spatial)
    counts: tuple[int | None, ...] = (None,) * spatial
    if padding is None:
        _check_steps(op, rhs.shape)
    else:
        window = _spatial_window(op, rhs.shape, padding)
        counts = window_counts(tuple(lhs.shape[d] for d in numbers.input_spatial_dimensions), window)
    _check_groups(op, lhs, rhs, numbers)
    shape: list[int | None] = [None] * lhs.rank
    batch = lhs.shape[numbers.input_batch_dimension]
    shape[numbers.output_batch_dimension] = None if batch is None else batch // op.int("batch_group_count")
    shape[numbers.output_feature_dimension] = rhs.shape[numbers.kernel_output_feature_dimension]
    for d, n in zip(numbers.output_spatial_dimensions, counts, strict=True):
        shape[d] = n
    check_shape("C25" if result.shape is None or result.rank == lhs.rank else "C26", tuple(shape), result)
    return [with_bounds(tuple(shape), result.dtype, None)]


def _verify_convolution(op: Op) -> None:
    lhs, rhs = operand_types(op)[:2]
    result = stated_result(op)
    numbers = op.attributes["dimension_numbers"]
    if is_quantized(lhs) or is_quantized(rhs) or is_quantized(result):
        check_quantized_product(lhs, rhs, result, _PRODUCT_LABELS)
        x, z = rhs.dtype, result.dtype
        assert isinstance(x, QuantizedType)
        if x.axis is not None and x.axis != numbers.kernel_output_feature_dimension:
            raise Violation("C29", "quantization dimension of rhs should be same with kernel_output_feature_dimension")
        if isinstance(z, QuantizedType) and z.axis is not None and z.axis != numbers.output_feature_dimension:
            raise Violation("C30", "quantization dimension of result should be same with output_feature_dimension")
    elif not compatible_elements(lhs.dtype, rhs.dtype):
        raise Violation(
            "C27",
            f"expects lhs and rhs to have compatible element type. Got: '{lhs.dtype}' and '{rhs.dtype}'",
        )


def _split(x: Array, groups: int, axis: int) -> list[Array]:
    return np.split(x, groups, axis=axis)


def convolution(op: Op, lhs: Array, rhs: Array, padding: tuple[tuple[int, int], ...]) -> Array:
    """Reference of convolution: input windows times the kernel, as one matrix product per group."""
    numbers: ConvDims = op.attributes["dimension_numbers"]
    dtype = result_dtype(op)
    spatial = len(numbers.input_spatial_dimensions)
    x = lhs.transpose(
        [numbers.input_batch_dimension, numbers.input_feature_dimension, *numbers.input_spatial_dimensions]
    )
    k = rhs.transpose(
        [
            numbers.kernel_output_feature_dimension,
            numbers.kernel_input_feature_dimension,
            *numbers.kernel_spatial_dimensions,
        ]
    )
    if op.attributes.get("window_reversal") is not None:
        k = np.flip(k, tuple(d + 2 for d, flip in enumerate(op.ints("window_reversal")) if flip))
    window = _spatial_window(op, rhs.shape, padding)
    features, batches = op.int("feature_group_count"), op.int("batch_group_count")
    groups = max(features, batches)
    inputs = _split(x, groups, 1 if features > 1 else 0)
    parts = [_convolve(a, b, window, dtype) for a, b in zip(inputs, _split(k, groups, 0), strict=True)]
    out = np.concatenate(parts, axis=1)
    order = [numbers.output_batch_dimension, numbers.output_feature_dimension, *numbers.output_spatial_dimensions]
    assert spatial + 2 == out.ndim
    return np.moveaxis(out, range(out.ndim), order)


def _convolve(x: Array, k: Array, window: Window, dtype: np.dtype) -> Array:
    """Convolves x (batch, feature, spatial) with k (output feature, input feature, spatial). Returns an array (batch,
    output feature, spatial)."""
    spatial = x.ndim - 2
    counts = window_counts(x.shape[2:], window)
    low, high = (tuple(p[i] for p in window.padding) for i in (0, 1))
    inner = tuple(b - 1 for b in window.base_dilations)
    padded = pad(x, np.zeros((), x.dtype), (0, 0, *low), (0, 0, *high), (0, 0, *inner))
    whole = Window(
        (1, 1, *window.dimensions), (1, 1, *window.strides), ((0, 0),) * (spatial + 2),
        (1,) * (spatial + 2), (1, 1, *window.window_dilations),
    )  # fmt: skip
    windows = take_windows(padded, (*x.shape[:2], *counts), whole)  # type: ignore[arg-type]
    sizes = k.shape[2:]
    windows = windows.reshape(*x.shape[:2], *counts, *sizes)
    columns = np.moveaxis(windows, 1, spatial + 1)  # batch, counts, feature, sizes
    rows = int(np.prod((x.shape[0], *counts), dtype=np.int64))  # type: ignore[arg-type]
    depth = int(np.prod(k.shape[1:], dtype=np.int64))
    product = multiply_matrices(columns.reshape(rows, depth), k.reshape(k.shape[0], depth).T, dtype)
    return np.moveaxis(product.reshape(x.shape[0], *counts, k.shape[0]), -1, 1)  # type: ignore[arg-type]


def _convolution(op: Op, lhs: Array, rhs: Array) -> Array:
    return convolution(op, lhs, rhs, padding_pairs(op.attributes.get("padding"), lhs.ndim - 2, "C4"))


def _dynamic_conv(op: Op, lhs: Array, rhs: Array, padding: Array) -> Array:
    return convolution(op, lhs, rhs, tuple((int(a), int(b)) for a, b in padding))


define(
    "stablehlo.convolution", section="convolution",
    operands=("lhs: tensor", "rhs: any_tensor"), results=("result: any_tensor",),
    attributes={**ATTRIBUTES, "padding": optional("pairs")},
    traits={"chooses_result"}, infer=_infer_convolution, verify=_verify_convolution, reference=_convolution,
)  # fmt: skip
define(
    "stablehlo.dynamic_conv", section="convolution",
    operands=("lhs: tensor", "rhs: any_tensor", "padding: int"), results=("result: any_tensor",),
    attributes=ATTRIBUTES, traits={"looks_at_operands", "chooses_result"},
    infer=_infer_convolution, verify=_verify_convolution, reference=_dynamic_conv,
)  # fmt: skip
