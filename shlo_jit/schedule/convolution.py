"""Schedules convolutions as calls of the shared routine: dimension numbers become strides, the shape becomes a
table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.aligned import zeros
from shlo_jit.ir.attributes import ConvDims, Dense, DenseArray
from shlo_jit.ir.core import Op
from shlo_jit.ir.digests import derived
from shlo_jit.ir.finite import is_finite
from shlo_jit.ir.index import strides_of
from shlo_jit.kernels.convolution.convolution import LEAVES_PADDING, ConvShape, conv_routine, conv_symbol, conv_table
from shlo_jit.kernels.convolution.decision import kernel_blocks, table_scratch_bytes
from shlo_jit.kernels.convolution.edge_tiles import has_idle_positions
from shlo_jit.kernels.convolution.padding_terms import has_padding_terms
from shlo_jit.kernels.convolution.prepacked import prepack_kernel
from shlo_jit.kernels.convolution.shape import FIELDS, conv_plan
from shlo_jit.kernels.gemm.precision import GemmPlan, GemmTypes
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.convolution_notes import convolution_notes, tasks_note
from shlo_jit.schedule.epilogue import WithEpilogue, schedule_epilogue
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.panels import PanelsSchedule
from shlo_jit.schedule.product_layout import Placed
from shlo_jit.schedule.products import gemm_types
from shlo_jit.schedule.scratch import Scratch
from shlo_jit.sizes import NotSymbolic, Size, surely

MAX_SPATIAL = 3
"""Number of spatial dimensions that the routine has loops for."""


@dataclass(frozen=True, kw_only=True)
class ConvolutionSchedule(WithEpilogue, PanelsSchedule):
    """Schedule of a convolution."""

    shape: ConvShape
    types: GemmTypes
    plan: GemmPlan
    """The register tile of the convolution's products."""
    table: tuple[int, ...]
    """The parameters of the routine; see `kernels/convolution/decision.py`."""
    tests_kernel: bool
    """Whether each call tests if the kernel is finite, because products with padding are skipped."""

    @property
    def kind(self) -> int:
        """The strategy: one of the numbers in `shape.py`."""
        return self.table[FIELDS.index("kind")]

    @property
    def symbol(self) -> str:
        """Name of the routine."""
        specialized, ends = (self.table[FIELDS.index(x)] for x in ("specialized", "ends"))
        return conv_symbol(self.types, self.kind, specialized, ends, self.tests_kernel)

    @property
    def kernel_notes(self) -> list[Note]:
        """Decisions about the kernel itself, without tasks and epilogue."""
        table: dict[str, int] = dict(zip(FIELDS, self.table, strict=True))
        return convolution_notes(self.shape, self.plan, self.symbol, table, tests_kernel=self.tests_kernel)

    @property
    def notes(self) -> list[Note]:
        tasks = tasks_note(self.shape, dict(zip(FIELDS, self.table, strict=True)))
        return [*self.kernel_notes, tasks, *(self.epilogue.notes if self.epilogue is not None else [])]


def schedule_convolution(step: OpStep, context: Context) -> KernelSchedule:
    return NOTHING if step.op.result.tensor.size == 0 else convolution_of(step, context)


def convolution_of(step: OpStep, context: Context, lines: int = 0) -> ConvolutionSchedule:
    """Schedules a convolution. With `lines`, a call computes at most that many lines of one image; otherwise it
    computes all lines of all images."""
    op, target = step.op, context.target
    whole, types = conv_shape(op), gemm_types(op)
    shape, calls = whole, 1
    if lines:
        height, *others = whole.output
        # A single line of pixels might be cut into several parts, and a call could not tell them apart.
        shape = replace(whole, batch=1, output=(max(2, lines), *others), lines=height)
        calls = -(-whole.batch * height // lines)
    kernel = op.operands[1].op
    # A kernel without elements has nothing to prepare.
    is_constant = kernel is not None and kernel.name == "stablehlo.constant" and kernel.result.tensor.size != 0
    has_idle = any(has_idle_positions(whole, axis) for axis in (1, 2))
    leaves_padding = kernel is not None and is_constant and has_idle and is_finite(kernel.constant)
    table = tuple(conv_table(shape, types, target, is_constant, calls, leaves_padding))
    t = dict(zip(FIELDS, table, strict=True))
    blocks = kernel_blocks(shape, types, target) if t["w_prepacked"] else []
    tests_kernel = t["kind"] in LEAVES_PADDING and has_padding_terms(types) and _meets_padding(whole)
    if tests_kernel and kernel is not None and is_constant:
        tests_kernel = not is_finite(kernel.constant)
    pixels, features = prod(whole.output), whole.co * whole.groups
    if whole.features_last:
        numbers = 1, whole.batch * pixels, features
    else:
        numbers = whole.batch, features, pixels
    return ConvolutionSchedule(
        shape=shape,
        types=types,
        plan=conv_plan(types, target),
        table=table,
        prepacked=_panels(op, t["w_width"], blocks, types, context) if blocks else None,
        tests_kernel=tests_kernel,
        first_block=t["w_group_bytes"] * blocks[0] // sum(blocks) if blocks else 0,
        epilogue=schedule_epilogue(step, target, Placed.dense(*numbers)),
        scratch=Scratch.of(lambda threads: table_scratch_bytes(table, threads)),
        routines=(conv_routine(types, target, t["kind"], t["specialized"], t["ends"], tests_kernel),),
    )


def _meets_padding(shape: ConvShape) -> bool:
    """Whether a window may reach beyond the image."""
    ones = (1,) * len(shape.window)
    columns = zip(shape.output, shape.window, shape.strides or ones, shape.rhs_dilation or ones, strict=True)
    ends = [(o - 1) * stride + (k - 1) * apart + 1 for o, k, stride, apart in columns]
    inside = zip(ends, shape.pad_low or (0,) * len(ones), shape.input, strict=True)
    return not all(low <= 0 and surely(lambda: end - low <= n) for end, low, n in inside)  # noqa: B023


def _panels(op: Op, width: int, blocks: list[int], types: GemmTypes, context: Context) -> np.ndarray:
    """Returns the constant kernel as panels. Releases the constant if the convolution is its only reader."""
    d, kernel = op.attributes["dimension_numbers"], op.operands[1].op
    assert isinstance(d, ConvDims) and kernel is not None
    order = (*d.kernel_spatial_dimensions, d.kernel_input_feature_dimension, d.kernel_output_feature_dimension)
    reversals = tuple(slice(None, None, -1 if flipped else 1) for flipped in _reversals(op))
    groups = op.int("feature_group_count", 1) * op.int("batch_group_count", 1)

    key = (width, *blocks, types, context.target, order, tuple(_reversals(op)), groups)

    def packed(array: np.ndarray) -> np.ndarray:
        kernel = array.transpose(order)[reversals]
        *_, ci, co = kernel.shape
        by_group = kernel.reshape(-1, ci, groups, co // groups).transpose(2, 0, 1, 3)
        return prepack_kernel(by_group, width, blocks, types, context.target, zeros)

    def make(array: np.ndarray) -> np.ndarray:
        return derived(array, f"convolution {array.dtype} {array.shape} {key}", lambda: packed(array))

    panels = kernel.constant.derived(key, make)
    if context.read[op.operands[1]] == 1:
        kernel.constant.release()
    return panels


def _reversals(op: Op) -> list[bool]:
    """For each spatial dimension of the kernel, whether it is reversed."""
    flags = op.attributes.get("window_reversal")
    return [bool(v) for v in _values(flags)] if flags is not None else [False] * (op.result.tensor.rank - 2)


def conv_shape(op: Op) -> ConvShape:
    """Returns the extents and strides of a convolution, in elements. The pass `canonical_convolutions` has made the
    output [b, spatial..., f] or [b, f, spatial...]. Raises UnsupportedError for more than MAX_SPATIAL spatial
    dimensions, and NotSymbolic if the number of windows is unknown."""
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
    xs, ws, ys = strides_of(x), strides_of(w), strides_of(y)
    feature_groups, batch_groups = op.int("feature_group_count", 1), op.int("batch_group_count", 1)
    groups = feature_groups * batch_groups
    ci, co = w[d.kernel_input_feature_dimension], w[d.kernel_output_feature_dimension] // groups
    batch = x[d.input_batch_dimension] // batch_groups
    in_feature, in_batch = xs[d.input_feature_dimension], xs[d.input_batch_dimension]
    out_feature, kernel_out = ys[d.output_feature_dimension], ws[d.kernel_output_feature_dimension]
    kernel_strides, offset = [], 0
    for flipped, k in zip(_reversals(op), d.kernel_spatial_dimensions, strict=True):
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
