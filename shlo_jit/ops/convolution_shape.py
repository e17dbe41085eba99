"""The shape of a convolution: its dimension numbers as strides."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.attributes import ConvDims, Dense, DenseArray
from shlo_jit.ir.core import Op
from shlo_jit.ir.index import strides_of
from shlo_jit.kernels.convolution.shape import ConvShape
from shlo_jit.sizes import NotSymbolic, Size

MAX_SPATIAL = 3
"""Number of spatial dimensions that the routine has loops for."""


def reversals(op: Op) -> list[bool]:
    """For each spatial dimension of the kernel, whether it is reversed."""
    flags = op.attributes.get("window_reversal")
    return [bool(v) for v in _values(flags)] if flags is not None else [False] * (op.result.tensor.rank - 2)


def conv_shape(op: Op, xs: Sequence[int], ws: Sequence[int]) -> ConvShape:
    """Returns the extents and strides of a convolution, in elements. `xs`, `ws`: the strides of image and kernel along
    their dimensions. The pass `canonical_convolutions` has made the output [b, spatial..., f] or [b, f, spatial...].
    Raises UnsupportedError for more than MAX_SPATIAL spatial dimensions, and NotSymbolic if the number of windows is
    unknown."""
    d = op.attributes["dimension_numbers"]
    assert isinstance(d, ConvDims)
    n = len(d.input_spatial_dimensions)
    if n > MAX_SPATIAL:
        raise UnsupportedError(
            diagnose(
                f"convolution over {n} spatial dimensions; at most {MAX_SPATIAL} are supported",
                op.span,
                label="too-many-dimensions",
            )
        )
    x, w, y = op.operands[0].tensor.extents, op.operands[1].tensor.extents, op.result.tensor.extents
    ys = strides_of(y)
    feature_groups, batch_groups = op.int("feature_group_count", 1), op.int("batch_group_count", 1)
    groups = feature_groups * batch_groups
    ci, co = w[d.kernel_input_feature_dimension], w[d.kernel_output_feature_dimension] // groups
    batch = x[d.input_batch_dimension] // batch_groups
    in_feature, in_batch = xs[d.input_feature_dimension], xs[d.input_batch_dimension]
    out_feature, kernel_out = ys[d.output_feature_dimension], ws[d.kernel_output_feature_dimension]
    kernel_strides, offset = [], 0
    for flipped, k in zip(reversals(op), d.kernel_spatial_dimensions, strict=True):
        kernel_strides.append(-ws[k] if flipped else ws[k])
        offset += (w[k] - 1) * ws[k] if flipped else 0
    padding = op.ints("padding", (0, 0) * n)
    output = tuple(y[i] for i in d.output_spatial_dimensions)
    for extent in output:
        if isinstance(extent, Size):
            raise NotSymbolic("windows-unknown", f"the number of windows along {extent} pixels is not known")
    return ConvShape(
        batch=batch,
        groups=groups,
        ci=ci,
        co=co,
        input=tuple(x[i] for i in d.input_spatial_dimensions),
        window=tuple(w[i] for i in d.kernel_spatial_dimensions),
        output=output,
        in_strides=tuple(xs[i] for i in d.input_spatial_dimensions),
        in_batch=in_batch,
        in_feature=in_feature,
        in_group=batch * in_batch if batch_groups > 1 else ci * in_feature,
        kernel_strides=tuple(kernel_strides),
        kernel_in=ws[d.kernel_input_feature_dimension],
        kernel_out=kernel_out,
        kernel_group=kernel_out * co,
        out_pixel=ys[d.output_spatial_dimensions[-1]] if n else y[d.output_feature_dimension],
        out_image=ys[d.output_batch_dimension],
        out_feature=out_feature,
        out_group=out_feature * co,
        strides=op.ints("window_strides", (1,) * n),
        pad_low=tuple(padding[0::2]),
        lhs_dilation=op.ints("lhs_dilation", (1,) * n),
        rhs_dilation=op.ints("rhs_dilation", (1,) * n),
        kernel_offset=offset,
    )


def _values(attr: object) -> list:
    if isinstance(attr, DenseArray):
        return list(attr.values)
    if isinstance(attr, Dense):
        return list(attr.array.reshape(-1))
    return list(attr)  # type: ignore[call-overload]
