"""Convolutions and their gradients, with features before pixels as in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit import builder as b
from shlo_jit.builder import ConvolutionDimensionNumbers, Value
from shlo_jit.torch.aten.reductions import total
from shlo_jit.torch.aten.registry import Call, Unsupported, aten
from shlo_jit.torch.aten.values import cast, filled, sizes, slice_along, wide


def _spread(given: Sequence[int], count: int) -> list[int]:
    """An entry for each spatial dimension."""
    return list(given) * count if len(given) == 1 else list(given)


@aten("convolution", "_convolution")
def convolution(
    call: Call, x: Value, weight: Value, bias: Value | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, *_: object,
) -> Value:  # fmt: skip
    """Sums of products of a kernel with every position of a window, also transposed."""
    batched = x if x.ndim == weight.ndim else b.reshape(x, (1, *sizes(x)))
    count = weight.ndim - 2
    stride, padding, dilation, more = (_spread(v, count) for v in (stride, padding, dilation, output_padding))
    if transposed:
        found = transposed_convolution(batched, weight, stride, padding, dilation, more, groups)
    else:
        pairs = [(p, p) for p in padding]
        found = _convolved(batched, weight, stride, pairs, dilation, groups)
    if bias is not None:
        spread = b.broadcast_in_dim(bias, sizes(found), (1,))
        dtype = wide(call.dtype)
        found = cast(cast(found, dtype) + cast(spread, dtype), call.dtype)
    return found if batched is x else b.reshape(found, sizes(found)[1:])


def _convolved(
    x: Value, weight: Value, stride: Sequence[int], padding: Sequence[tuple[int, int]], dilation: Sequence[int],
    groups: int, spread: Sequence[int] | None = None,
) -> Value:  # fmt: skip
    """The convolution of (batch, features, ...) with (out, in / groups, ...).

    spread: distances of the elements of `x`, with zeros between them; the kernel is reversed then.
    """
    return b.conv_general_dilated(
        x, weight, stride, padding, spread, dilation, None, groups,
        window_reversal=None if spread is None else [True] * (weight.ndim - 2),
    )  # fmt: skip


def transposed_convolution(
    x: Value, weight: Value, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    more: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    """The transposed convolution: that of the input, with zeros between its elements, by the reversed kernel."""
    shape = sizes(weight)
    window = [(k - 1) * d for k, d in zip(shape[2:], dilation, strict=True)]
    pairs = [(w - p, w - p + o) for w, p, o in zip(window, padding, more, strict=True)]
    if any(low < 0 or high < 0 for low, high in pairs):
        return _cropped(x, weight, stride, padding, dilation, more, groups)
    kernel = _input_features_first(weight, groups)
    return _convolved(x, kernel, [1] * (len(shape) - 2), pairs, dilation, groups, stride)


def _cropped(
    x: Value, weight: Value, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    more: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    """The transposed convolution without padding, of which the padding is cut off."""
    zeros = [0] * len(stride)
    found = transposed_convolution(x, weight, stride, zeros, dilation, zeros, groups)
    amounts = [(0, 0, 0), (0, 0, 0), *((-p, o - p, 0) for p, o in zip(padding, more, strict=True))]
    return b.pad(found, filled((), 0, x.element_type), amounts)


def _input_features_first(weight: Value, groups: int) -> Value:
    """The kernel (in, out / groups, ...) of a transposed convolution as (out, in / groups, ...)."""
    features, outs, *window = sizes(weight)
    split = b.reshape(weight, (groups, features // groups, outs, *window))
    order = (0, 2, 1, *range(3, 3 + len(window)))
    return b.reshape(b.transpose(split, order), (groups * outs, features // groups, *window))


# ---------------------------------------------------------------------------- gradients
@aten("convolution_backward")
def convolution_backward(
    call: Call, gradient: Value, x: Value, weight: Value, bias_sizes: Sequence[int] | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    mask: Sequence[bool],
) -> tuple[Value | None, Value | None, Value | None]:  # fmt: skip
    """The gradients of a convolution by its input, its kernel and its bias."""
    if x.ndim != weight.ndim:
        raise Unsupported("gradients of an input without a batch are not supported")
    count = weight.ndim - 2
    stride, padding, dilation = (_spread(v, count) for v in (stride, padding, dilation))
    dtype = gradient.element_type
    by_bias = cast(total(gradient, (0, *range(2, gradient.ndim)), dtype), dtype) if mask[2] else None
    by_input = _by_input(gradient, x, weight, stride, padding, dilation, transposed, groups) if mask[0] else None
    if not mask[1]:
        return by_input, None, by_bias
    if transposed:
        return by_input, _by_kernel(x, gradient, weight, stride, padding, dilation, groups), by_bias
    return by_input, _by_kernel(gradient, x, weight, stride, padding, dilation, groups), by_bias


def _by_input(
    gradient: Value, x: Value, weight: Value, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, groups: int,
) -> Value:  # fmt: skip
    """The gradient by the input: the convolution of the other kind."""
    if transposed:
        pairs = [(p, p) for p in padding]
        found = _convolved(gradient, weight, stride, pairs, dilation, groups)
        return _limited(found, sizes(x)[2:])
    more = []
    for d, (s, p, step) in enumerate(zip(stride, padding, dilation, strict=True)):
        reached = (sizes(gradient)[d + 2] - 1) * s - 2 * p + (sizes(weight)[d + 2] - 1) * step + 1
        more.append(sizes(x)[d + 2] - reached)
    return transposed_convolution(gradient, weight, stride, padding, dilation, more, groups)


def _limited(x: Value, extents: Sequence[int]) -> Value:
    for d, n in enumerate(extents):
        x = slice_along(x, d + 2, 0, n)
    return x


def _by_kernel(
    small: Value, large: Value, weight: Value, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    groups: int,
) -> Value:  # fmt: skip
    """The gradient by the kernel: the convolution of the larger tensor with the smaller one as the window, in which
    batches are the features that are added up."""
    count = len(stride)
    spatial = tuple(range(2, count + 2))
    numbers = ConvolutionDimensionNumbers(1, 0, spatial, 0, 1, spatial, 1, 0, spatial)
    pairs = []
    for d in range(count):
        wanted = (sizes(weight)[d + 2] - 1) * dilation[d] + (sizes(small)[d + 2] - 1) * stride[d] + 1
        pairs.append((padding[d], wanted - sizes(large)[d + 2] - padding[d]))
    return b.conv_general_dilated(large, small, dilation, pairs, None, stride, numbers, 1, groups)
