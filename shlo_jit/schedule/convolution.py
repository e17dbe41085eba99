"""Schedules convolutions as calls of the shared routine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from shlo_jit.fuse.plan import ComputedOperandStep, OpStep
from shlo_jit.ir.aligned import zeros
from shlo_jit.ir.attributes import ConvDims
from shlo_jit.ir.core import Op
from shlo_jit.ir.digests import derived
from shlo_jit.ir.finite import is_finite
from shlo_jit.ir.index import strides_of
from shlo_jit.kernels.convolution.convolution import conv_routine, conv_symbol, leaves_padding
from shlo_jit.kernels.convolution.description import Description, Variant
from shlo_jit.kernels.convolution.geometry import Geometry
from shlo_jit.kernels.convolution.padding_terms import has_padding_terms
from shlo_jit.kernels.convolution.prepacked import prepack_kernel
from shlo_jit.kernels.convolution.shape import FIELDS, ConvShape
from shlo_jit.kernels.convolution.table import conv_scratch_bytes, form_of, kernel_blocks
from shlo_jit.kernels.gemm.known_sizes import WORDS
from shlo_jit.kernels.gemm.policy import PREPACKED
from shlo_jit.kernels.gemm.precision import GemmTypes
from shlo_jit.ops.convolution_shape import conv_shape, reversals
from shlo_jit.reasons import Reason
from shlo_jit.schedule.boxes import Boxes
from shlo_jit.schedule.choice import Note, count
from shlo_jit.schedule.computed_kernel import COMPUTED, boxes_of_kernel, order_of
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.convolution_decisions import Decisions, Problem, decide
from shlo_jit.schedule.epilogue import WithEpilogue, move_of_epilogue, place_epilogue
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.moves import ComputeAt, EdgeTiles, Move, Pack, SkipPadding, Unroll, UseLeaf, Vectorize, of_kind
from shlo_jit.schedule.panels import PanelsSchedule
from shlo_jit.schedule.product_decisions import check_used
from shlo_jit.schedule.product_layout import READ_IN_PLACE, Placed, Viewed, gemm_types
from shlo_jit.schedule.scratch import Scratch
from shlo_jit.sizes import Size, equal


@dataclass(frozen=True, kw_only=True)
class ConvolutionSchedule(WithEpilogue, PanelsSchedule):
    """Schedule of a convolution."""

    problem: Problem
    decisions: Decisions
    moves: tuple[Move, ...]
    """The decisions as moves, and where the epilogue runs."""
    tests_kernel: bool
    """Whether each call tests if the kernel is finite, because products with padding are skipped."""
    viewed: Viewed | None = None
    computed: Boxes | None = None
    """The loop that computes the kernel while it is packed."""

    @property
    def shape(self) -> ConvShape:
        return self.problem.geometry.shape

    @property
    def description(self) -> Description:
        return self.decisions.description

    @property
    def table(self) -> tuple[int, ...]:
        """The parameters of the routine."""
        return self.decisions.table

    @property
    def symbol(self) -> str:
        """Name of the routine."""
        g = self.problem.geometry
        return conv_symbol(g.types, form_of(g, self.description), self.tests_kernel)

    @property
    def is_tasks(self) -> bool:
        return not self.decisions.is_alone and (self.epilogue is None or not self.epilogue.is_late)

    @property
    def kernel_notes(self) -> list[Note]:
        """Decisions about the kernel itself, without tasks and epilogue."""
        return [*_notes(self)]

    @property
    def notes(self) -> list[Note]:
        tasks = f"{count(_field(self, 'main_tasks'), 'task')} of {_task(self)}"
        found = [*self.kernel_notes, Note("tasks", tasks, self.decisions.why_tasks)]
        view = [Note("operand", "read where it lies", READ_IN_PLACE)] if self.viewed is not None else []
        if self.computed is not None:
            inner = [Note(f"  {n.what}", n.value, n.why) for n in self.computed.producer.notes]
            view = [Note("operand", "computed while it is packed", COMPUTED), *inner]
        return [*view, *found, *(self.epilogue.notes if self.epilogue is not None else [])]


def schedule_convolution(
    step: OpStep, context: Context, viewed: Viewed | None = None, computing: ComputedOperandStep | None = None
) -> KernelSchedule:
    """Returns the schedule of a convolution. `viewed`: an operand that is read where it lies in another array.
    `computing`: the step, if it computes the kernel."""
    moves = context.given.get(id(step))
    if step.op.result.tensor.size == 0:
        check_used(moves or (), ())
        return NOTHING
    return convolution_of(step, context, moves=moves, viewed=viewed, computing=computing)


def convolution_of(
    step: OpStep,
    context: Context,
    lines: int = 0,
    moves: Sequence[Move] | None = None,
    viewed: Viewed | None = None,
    computing: ComputedOperandStep | None = None,
) -> ConvolutionSchedule:
    """Schedules a convolution. With `lines`, a call computes at most that many lines of one image; otherwise it
    computes all lines of all images. `moves`: those of a caller, if there are any. `viewed`: an operand that is read
    where it lies in another array. `computing`: the step, if it computes the kernel."""
    op, target = step.op, context.target
    strides = [strides_of(o.tensor.extents) for o in op.operands]
    if viewed is not None:
        pairs = zip(op.operands[viewed.side].tensor.extents, viewed.view.strides, strides[viewed.side], strict=True)
        strides[viewed.side] = tuple(dense if equal(n, 1) else given for n, given, dense in pairs)
    whole, types = conv_shape(op, *strides), gemm_types(op)
    shape, calls = whole, 1
    if lines:
        height, *others = whole.output
        # A single line of pixels might be cut into several parts, and a call could not tell them apart.
        shape = replace(whole, batch=1, output=(max(2, lines), *others), lines=height)
        calls = -(-whole.batch * height // lines)
    kernel, of_all = op.operands[1].op, Geometry(whole, types, target)
    # A kernel without elements has nothing to prepare.
    is_constant = kernel is not None and kernel.name == "stablehlo.constant" and kernel.result.tensor.size != 0
    has_idle = any(of_all.has_idle_positions(axis) for axis in (1, 2))
    leaves_out = kernel is not None and is_constant and has_idle and is_finite(kernel.constant)
    computes = "" if computing is None else order_of(computing)
    problem = Problem(Geometry(shape, types, target), is_constant, leaves_out, calls, computes)
    d = decide(problem, moves)
    form = form_of(problem.geometry, d.description)
    blocks = kernel_blocks(d.table) if d.description.kernel == "ahead" else []
    tests_kernel = leaves_padding(form.variant) and has_padding_terms(types) and of_all.meets_padding
    if tests_kernel and kernel is not None and is_constant:
        tests_kernel = not is_finite(kernel.constant)
    place = next(iter(of_kind(moves or (), ComputeAt)), None)
    epilogue = place_epilogue(step, target, result_of(whole), place)
    made = (*d.moves, *move_of_epilogue(epilogue, None, place))
    check_used(moves or (), made)
    fields = dict(zip(FIELDS, d.table, strict=True))
    return ConvolutionSchedule(
        problem=problem,
        decisions=d,
        moves=made,
        prepacked=_panels(op, fields["w_width"], blocks, types, context) if blocks else None,
        tests_kernel=tests_kernel,
        viewed=viewed,
        computed=None if computing is None else boxes_of_kernel(computing, problem.geometry, d.description),
        first_block=fields["w_group_bytes"] * blocks[0] // sum(blocks) if blocks else 0,
        epilogue=epilogue,
        scratch=Scratch.of(lambda threads: conv_scratch_bytes(d.table, threads)),
        routines=(conv_routine(types, target, form, tests_kernel),),
    )


def result_of(s: ConvShape) -> Placed:
    """The result as the matrices whose rectangles the routine reports."""
    pixels, features = prod(s.output), s.co * s.groups
    return Placed.dense(*((1, s.batch * pixels, features) if s.features_last else (s.batch, features, pixels)))


def _panels(op: Op, width: int, blocks: list[int], types: GemmTypes, context: Context) -> np.ndarray:
    """Returns the constant kernel as panels. Releases the constant if the convolution is its only reader."""
    d, kernel = op.attributes["dimension_numbers"], op.operands[1].op
    assert isinstance(d, ConvDims) and kernel is not None
    order = (*d.kernel_spatial_dimensions, d.kernel_input_feature_dimension, d.kernel_output_feature_dimension)
    reversed_ = tuple(slice(None, None, -1 if flipped else 1) for flipped in reversals(op))
    groups = op.int("feature_group_count", 1) * op.int("batch_group_count", 1)

    key = (width, *blocks, types, context.target, order, tuple(reversals(op)), groups)

    def packed(array: np.ndarray) -> np.ndarray:
        kernel = array.transpose(order)[reversed_]
        *_, ci, co = kernel.shape
        by_group = kernel.reshape(-1, ci, groups, co // groups).transpose(2, 0, 1, 3)
        return prepack_kernel(by_group, width, blocks, types, context.target, zeros)

    def make(array: np.ndarray) -> np.ndarray:
        return derived(array, f"convolution {array.dtype} {array.shape} {key}", lambda: packed(array))

    panels = kernel.constant.derived(key, make)
    if context.read[op.operands[1]] == 1:
        kernel.constant.release()
    return panels


# ---------------------------------------------------------------------- as notes
def _field(s: ConvolutionSchedule, name: str) -> int:
    return s.table[FIELDS.index(name)]


def _notes(s: ConvolutionSchedule) -> Iterator[Note]:
    """The moves as notes, without those about tasks."""
    shape, v, plan = s.shape, s.description.variant, s.problem.geometry.plan
    window, size = (" x ".join(map(str, extents)) or "1" for extents in (shape.window, shape.output))
    size = f"{count(shape.batch, 'image')} of {size} pixels"
    yield Note("convolution", f"window {window}, {_channels(shape)}, {size} by {s.symbol}")
    packed = {"shared": f"packed, {count(_field(s, 'weight_tasks'), 'task')}", "ahead": WORDS[PREPACKED]}
    images = {"shared": f"copied with its padding, {count(_field(s, 'copy_tasks'), 'task')}", "margins": _MARGINS}
    for move in s.moves:
        if isinstance(move, UseLeaf):
            yield Note("strategy", _strategy(v), move.why)
        elif isinstance(move, Vectorize) and v.leaf == "direct":
            yield Note("tile", f"{plan.lanes} {CHANNELS.get(v.lanes, v.lanes)} per vector")
        elif isinstance(move, Unroll) and v.leaf != "direct":
            yield Note("tile", _tile(s, move.by), move.why)
        elif isinstance(move, Pack) and move.operand in ("image", "kernel") and move.where != "in_place":
            what, words = ("input", images) if move.operand == "image" else ("weights", packed)
            yield Note(what, words[move.where], move.why)
        elif isinstance(move, SkipPadding):
            yield Note("window", "lines that read only padding are left out", move.why)
        elif isinstance(move, EdgeTiles) and move.height:
            yield Note("window", "columns that read only padding are left out in edge tiles", move.why)
    if s.tests_kernel:
        yield _TESTED


CHANNELS = {"features": "channels"}
"""The loop over features in words."""
_MARGINS = "read in place, copied at the image's margins"
_TESTED = Note(
    "window",
    "positions in the padding are left out, and corrected if the kernel is not finite",
    Reason("kernel-may-be-non-finite", "the kernel may hold NaN or infinities, and 0 * NaN is NaN"),
)


def _channels(shape: ConvShape) -> str:
    if shape.groups == 1:
        return f"{shape.ci} to {shape.co} channels"
    if shape.ci == 1:
        each = "" if shape.co == 1 else f" to {shape.co}"
        return f"each of {count(shape.groups, 'channel')}{each}"
    return f"{count(shape.groups, 'group')} of {shape.ci} to {shape.co} channels"


def _strategy(v: Variant) -> str:
    """The variant in words."""
    lanes = CHANNELS.get(v.lanes, v.lanes)
    if v.leaf == "direct":
        what = "small groups of channels" if v.has_groups else "depthwise"
        return f"{what}, lanes along {lanes}{', windows in registers' if v.window else ''}"
    if v.leaf == "dot":
        return "skinny product, lanes along the window"
    read = {"images": ", both read in place", "pixels": f", pixels {'gathered' if v.gathers else 'read in place'}"}
    return f"product of {CHANNELS.get(v.rows, v.rows)} and {lanes}{read.get(v.rows, '')}"


def _tile(s: ConvolutionSchedule, rows: int) -> str:
    """Register tile: the results that are computed simultaneously in vector registers."""
    v, plan = s.description.variant, s.problem.geometry.plan
    if v.leaf == "dot":
        return f"{count(rows, 'pixel')} x {count(s.shape.co, 'channel')}, {plan.lanes} lanes along the window"
    return f"{rows} {CHANNELS.get(v.rows, v.rows)} x {plan.nr} {CHANNELS.get(v.lanes, v.lanes)} in registers"


def _task(s: ConvolutionSchedule) -> str:
    """Extent of one task."""
    d, v = s.description, s.description.variant
    if v.rows == "images":
        return f"{count(d.rows, 'pixel')} of all images and channels"
    if v.rows == "features":
        channels = count(_at_most(d.rows, s.shape.co), "channel")
        return f"{count(_at_most(d.columns, _field(s, 'rows')), 'pixel')} x {channels}"
    lines, results = (_field(s, "batch") * _field(s, "od") * _field(s, "oh"), s.shape.groups * s.shape.co)
    if v.leaf == "direct" and v.lanes == "pixels":
        return f"{count(_at_most(d.rows, lines * results), 'line')} of single channels"
    of_task = s.shape.co if v.leaf != "direct" else results
    channels = count(_at_most(d.columns or of_task, of_task), "channel")
    if v.gathers:
        return f"{count(_at_most(d.rows, _field(s, 'rows')), 'pixel')} x {channels}"
    pixels = f" of {count(_field(s, 'ow'), 'pixel')}" if v.leaf != "direct" else ""
    return f"{count(_at_most(d.rows, lines), 'line')}{pixels} x {channels}"


def _at_most(number: int, limit: int) -> int:
    """A chunk size, clipped to `limit`. Values known only at the call are not clipped."""
    return number if isinstance(number, Size) or isinstance(limit, Size) else min(number, limit)
