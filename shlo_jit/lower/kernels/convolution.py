"""convolution through the shared routine: dimension numbers become strides, the shape becomes a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.attributes import ConvDims
from shlo_jit.ir.core import Op
from shlo_jit.ir.index import strides_of
from shlo_jit.kernels.builder import V
from shlo_jit.kernels.convolution.convolution import ConvShape, conv_routine, conv_scratch_bytes, conv_symbol
from shlo_jit.lower.kernels import Kernel
from shlo_jit.lower.kernels.dot import gemm_types, tile_of
from shlo_jit.memory.scratch import Scratch
from shlo_jit.schedule.space import Tile

if TYPE_CHECKING:
    from shlo_jit.kernels.routine import Routine
    from shlo_jit.kernels.target import Target
    from shlo_jit.lower.program import ProgramLowering

MAX_SPATIAL = 3


def conv_shape(op: Op) -> ConvShape:
    """The op's extents and strides, in elements. The output has been brought to [b, spatial..., f] or
    [b, f, spatial...] before (`passes/canonical/canonical_convolutions.py`)."""
    d = op.attributes["dimension_numbers"]
    assert isinstance(d, ConvDims)
    n = len(d.input_spatial_dimensions)
    if n > MAX_SPATIAL:
        raise UnsupportedError(diagnose(f"convolution over {n} spatial dimensions; at most {MAX_SPATIAL}", op.span))
    x, w, y = op.operands[0].tensor.extents, op.operands[1].tensor.extents, op.result.tensor.extents
    xs, ws, ys = strides_of(x), strides_of(w), strides_of(y)
    feature_groups, batch_groups = op.int("feature_group_count", 1), op.int("batch_group_count", 1)
    groups = feature_groups * batch_groups
    ci, co = w[d.kernel_input_feature_dimension], w[d.kernel_output_feature_dimension] // groups
    batch = x[d.input_batch_dimension] // batch_groups
    in_feature, in_batch = xs[d.input_feature_dimension], xs[d.input_batch_dimension]
    out_feature, kernel_out = ys[d.output_feature_dimension], ws[d.kernel_output_feature_dimension]
    flags = op.attributes.get("window_reversal")
    reverse = [bool(v) for v in _values(flags)] if flags is not None else [False] * n
    kernel_strides, offset = [], 0
    for flipped, k in zip(reverse, d.kernel_spatial_dimensions, strict=True):
        kernel_strides.append(-ws[k] if flipped else ws[k])
        offset += (w[k] - 1) * ws[k] if flipped else 0
    padding = op.ints("padding", (0, 0) * n)
    output = tuple(y[i] for i in d.output_spatial_dimensions)
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
    from shlo_jit.ir.attributes import Dense, DenseArray

    if isinstance(attr, DenseArray):
        return list(attr.values)
    if isinstance(attr, Dense):
        return list(attr.array.reshape(-1))
    return list(attr)  # type: ignore[call-overload]


def scratch(low: ProgramLowering, step: OpStep) -> Scratch:
    if step.op.result.tensor.size == 0:
        return Scratch()
    shape, types = conv_shape(step.op), gemm_types(step.op)
    return Scratch.of(lambda threads: conv_scratch_bytes(shape, types, low.target, threads))


def epilogue_tile(step: OpStep, shape: ConvShape) -> Tile | None:
    """How the routine numbers rectangles, as batch, rows, columns of the output's memory."""
    assert step.epilogue is not None
    pixels = 1
    for n in shape.output:
        pixels *= n
    features = shape.co * shape.groups
    nest, product = step.epilogue.nest, step.op.result
    if shape.features_last:
        return tile_of(nest, product, 1, shape.batch * pixels, features)
    return tile_of(nest, product, shape.batch, features, pixels)


def routines(op: Op, target: Target) -> list[Routine]:
    return [conv_routine(gemm_types(op), target)] if op.result.tensor.size else []


def lower(low: ProgramLowering, step: OpStep) -> None:
    op, b = step.op, low.b
    if op.result.tensor.size == 0:
        return
    shape, types = conv_shape(op), gemm_types(op)
    table = shape.pack(types, low.target)
    name = low.table(table)
    epilogue, frame, late = V("ptr", "null"), V("ptr", "null"), None
    if step.epilogue is not None:
        tile = epilogue_tile(step, shape)
        if tile is None:
            late = step.epilogue
        else:
            epilogue, frame = low.epilogue(step.epilogue, tile)
    work = low.scratch(step) if id(step) in low.memory.scratch else V("ptr", "null")
    x, w, y = (low.pointer(v) for v in (*op.operands, op.result))
    b.call("void", conv_symbol(types), [V("ptr", f"@{name}"), x, w, y, work, epilogue, frame, low.thread_count])
    if late is not None:
        low.nest(late)


KERNEL = Kernel(lower, scratch, routines)
