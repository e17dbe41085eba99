"""Convolutions, in the general form and in the shorter forms of the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shlo_jit.builder.arguments import TensorLike, flag, integer, integers, listed, per_dimension, shape_of, unless
from shlo_jit.builder.contractions import PrecisionConfig, factors, precisions, preferred
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.records import ConvolutionDimensionNumbers, record_of
from shlo_jit.builder.scope import emit1
from shlo_jit.builder.shapes import DTypeLike, shape_text
from shlo_jit.builder.windows import PaddingLike, padding_of
from shlo_jit.ir.attributes import ConvDims

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value

DimensionNumbers = ConvolutionDimensionNumbers | Mapping[str, Any] | Sequence[str]
"""A record, a dictionary of its fields, or labels such as ("NHWC", "HWIO", "NHWC")."""
Pairs = Sequence[Sequence[int]]


def conv_general_dilated(
    lhs: TensorLike,
    rhs: TensorLike,
    window_strides: Sequence[int] | None = None,
    padding: PaddingLike = "VALID",
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: DimensionNumbers | None = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DTypeLike | None = None,
    window_reversal: Sequence[bool] | None = None,
) -> Value:
    """A convolution: sums of products of a kernel with every position of a window over the input.

    lhs: the input; rhs: the kernel, of the same rank and element type. Strides, dilations and `window_reversal` have an
    entry for each spatial dimension, by default 1 and False. `padding`: SAME, VALID, or pairs, which may be negative.
    dimension_numbers: the role of each dimension, by default (batch, features, spatial...), and (output features, input
    features, spatial...) for the kernel. precision_config: DEFAULT, HIGH or HIGHEST. preferred_element_type: the
    result's element type, by default the operands' (document: ConvGeneralDilated).
    """
    wanted = preferred(preferred_element_type)
    x, w = factors(lhs, rhs, wanted)
    dims = _dims(dimension_numbers, len(shape_of(x)), shape_text(x.type))
    count = len(dims.kernel_spatial_dimensions)
    strides = per_dimension(window_strides, count, "window_strides")
    base = per_dimension(lhs_dilation, count, "lhs_dilation")
    dilation = per_dimension(rhs_dilation, count, "rhs_dilation")
    for name, v, where in (("lhs", x, dims.input_spatial_dimensions), ("rhs", w, dims.kernel_spatial_dimensions)):
        if any(not 0 <= d < len(shape_of(v)) for d in where):
            raise wrong("dimension_numbers", f"{name}, {shape_text(v.type)}, has no dimensions {list(where)}")
    window = [shape_of(w)[d] for d in dims.kernel_spatial_dimensions]
    extents = [shape_of(x)[d] for d in dims.input_spatial_dimensions]
    if None in window:
        raise wrong("rhs", f"expected known extents, got {shape_text(w.type)}")
    known = [n for n in window if n is not None]
    attributes: dict[str, Any] = {
        "dimension_numbers": dims,
        "feature_group_count": integer(feature_group_count, "feature_group_count"),
        "batch_group_count": integer(batch_group_count, "batch_group_count"),
        "window_strides": unless(strides, 1),
        "padding": unless(padding_of(padding, extents, known, strides, base, dilation), (0, 0)),
        "lhs_dilation": unless(base, 1),
        "rhs_dilation": unless(dilation, 1),
        "window_reversal": unless(_reversal(window_reversal, count), False),
        "precision_config": precisions(precision_config),
    }
    return emit1("stablehlo.convolution", [x, w], attributes, elements=wanted)


def conv(
    lhs: TensorLike,
    rhs: TensorLike,
    window_strides: Sequence[int] | None = None,
    padding: PaddingLike = "VALID",
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DTypeLike | None = None,
) -> Value:
    """`conv_general_dilated` with default dimension numbers and no dilation (document: Conv)."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, None, None, None,
        feature_group_count, batch_group_count, precision_config, preferred_element_type,
    )  # fmt: skip


def conv_with_general_padding(
    lhs: TensorLike,
    rhs: TensorLike,
    window_strides: Sequence[int] | None,
    padding: Pairs,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DTypeLike | None = None,
) -> Value:
    """`conv` with explicit padding; the dilations are the older document's (documents: ConvWithGeneralPadding)."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, None,
        feature_group_count, batch_group_count, precision_config, preferred_element_type,
    )  # fmt: skip


def conv_with_general_dimensions(
    lhs: TensorLike,
    rhs: TensorLike,
    window_strides: Sequence[int] | None,
    padding: PaddingLike,
    dimension_numbers: DimensionNumbers,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DTypeLike | None = None,
) -> Value:
    """`conv` with dimension numbers (document: ConvWithGeneralDimensions)."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, None, None, dimension_numbers,
        feature_group_count, batch_group_count, precision_config, preferred_element_type,
    )  # fmt: skip


def conv_general(
    lhs: TensorLike,
    rhs: TensorLike,
    window_strides: Sequence[int] | None,
    padding: Pairs,
    dimension_numbers: DimensionNumbers,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DTypeLike | None = None,
) -> Value:
    """`conv` with dimension numbers and explicit padding (document: ConvGeneral)."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, None, None, dimension_numbers,
        feature_group_count, batch_group_count, precision_config, preferred_element_type,
    )  # fmt: skip


def _dims(given: DimensionNumbers | None, rank: int, text: str) -> ConvDims:
    if given is None:
        if rank < 2:
            raise wrong("lhs", f"expected a batch, features and spatial dimensions, got {text}")
        numbers = ConvolutionDimensionNumbers.default(rank)
    elif isinstance(given, list | tuple):
        if len(given) != 3 or not all(isinstance(labels, str) for labels in given):
            raise wrong("dimension_numbers", f'expected labels such as ("NHWC", "HWIO", "NHWC"), got {given!r}')
        try:
            numbers = ConvolutionDimensionNumbers.of_labels(*given)
        except ValueError:
            raise wrong("dimension_numbers", f"the labels do not name the same dimensions: {given!r}") from None
    else:
        numbers = record_of(given, ConvolutionDimensionNumbers, "dimension_numbers")
    said = {
        name: integers(value, "dimension_numbers") if name.endswith("s") else integer(value, "dimension_numbers")
        for name, value in vars(numbers).items()
    }
    return ConvDims(**said)  # type: ignore[arg-type]  fields of the two have the same names


def _reversal(window_reversal: Sequence[bool] | None, count: int) -> list[bool]:
    if window_reversal is None:
        return [False] * count
    found = [flag(x, "window_reversal") for x in listed(window_reversal, "window_reversal")]
    if len(found) != count:
        raise wrong(
            "window_reversal", f"expected {count} truth values, one for each spatial dimension, got {len(found)}"
        )
    return found
