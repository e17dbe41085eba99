"""Images and their lines: which lines of an image a step reads for each line of its own, and which images it writes
line by line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.caches import Caches
from shlo_jit.fuse.grouping import has_plain_body
from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.plan import NestStep, OpStep, RowBlocksStep
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.fuse.row_places import Rows, in_row_order, rows_of, width_of
from shlo_jit.ir import index as ix
from shlo_jit.ir.attributes import ConvDims
from shlo_jit.ir.core import Op, Value
from shlo_jit.ops.runs import roles_of
from shlo_jit.ops.window import padding_pairs

CONVOLUTION, PRODUCT, WINDOW = "stablehlo.convolution", "stablehlo.dot_general", "stablehlo.reduce_window"
MAKERS = (CONVOLUTION, PRODUCT)
Stage = NestStep | OpStep | RowBlocksStep
"""A step that may run in line tiles."""


class Lines(NamedTuple):
    """Lines of an image that a step reads for its own line i: `reach` of them, from i * stride - low on. Lines outside
    of the image are padding."""

    stride: int
    low: int
    reach: int

    def is_each_once(self, lines: int, results: int) -> bool:
        """Whether `lines` lines are each read for exactly one of `results` lines."""
        return self.low == 0 and self.reach == self.stride and self.stride * results == lines


OWN = Lines(1, 0, 1)


def lines_of_stage(step: Stage) -> Lines | Refusal:
    """Returns the lines that a step reads of its images: loops and row blocks read the pixels that they compute."""
    return lines_of(step.op) if isinstance(step, OpStep) else OWN


def is_own(step: Stage) -> bool:
    """Whether a step computes each line from the line of the same number."""
    if not isinstance(step, OpStep):
        return True
    if lines_of(step.op) != OWN:
        return False
    lines, results = heights_of(step.op)
    return lines == results


def heights_of(op: Op) -> tuple[int, int]:
    """The lines of the images that a convolution, product or window reads, and of those that it computes."""
    return op.operands[0].tensor.extents[1], op.result.tensor.extents[1]


# ---------------------------------------------------------------------- pixels
def pixels_of(image: Value) -> int:
    """The number of pixels of all images."""
    return math.prod(image.tensor.extents[:3])


def visits_pixels(step: Stage, image: Value, others: Iterable[Value]) -> bool:
    """Whether a step computes each pixel from the same pixel of an image, and of other values that line tiles share. It
    reads the image, or writes it."""
    if not is_image(image):
        return False
    units, shared = pixels_of(image), [image, *others]
    if isinstance(step, NestStep):
        return _visits_rows(step.nest, [*shared, *(s.target for s in step.nest.stores)], units)
    if isinstance(step, RowBlocksStep):
        return _blocks_visit_rows(step, shared, image)
    if step.kind != PRODUCT:
        return False
    left, right = step.op.operands
    if left is not image or right in shared or not is_own(step):
        return False
    epilogue = step.epilogue.nest if step.epilogue is not None else None
    return epilogue is None or _visits_rows(epilogue, [*shared, step.op.result], units)


def _visits_rows(nest: Nest, shared: Iterable[Value], units: int) -> bool:
    """Whether each iteration of a nest visits one row of the shared values, the same in all of them."""
    touched = {v for v, _ in nest.loads} | {s.target for s in nest.stores}
    widths = {v: width_of(v, units) for v in shared if v in touched}
    known = {v: width for v, width in widths.items() if width is not None}
    return bool(known) and len(known) == len(widths) and isinstance(rows_of(nest, known, units), Rows)


def _blocks_visit_rows(step: RowBlocksStep, shared: list[Value], image: Value) -> bool:
    """Whether the rows of row blocks are pixels of an image, and those of one image are rows of one batch."""
    n, height, width = image.tensor.extents[:3]
    if step.sums or step.moved or not isinstance(step.batch, int) or not isinstance(step.rows, int):
        return False
    if step.batch * step.rows != n * height * width or step.rows % (height * width):
        return False
    read = {step.source(v) for stage in step.stages for v in stage.reads}
    between = [v for stage in step.stages for v in stage.writes if v in read]
    for stage in step.stages:
        touched = [v for v in (*stage.reads, *stage.writes) if v in shared]
        if not touched:
            continue
        if isinstance(stage, NestStep):
            targets = [s.target for s in stage.nest.stores]
            if not _visits_rows(stage.nest, [*shared, *between, *step.views, *targets], n * height * width):
                return False
        elif not _multiplies_rows(stage, touched):
            return False
    return True


def _multiplies_rows(step: OpStep, shared: list[Value]) -> bool:
    """Whether a product reads shared values only as rows of its left operand."""
    left, right = step.op.operands
    return not any(v in shared for v in step.parts_of(right)) and (left not in shared or in_row_order(step.op))


# ---------------------------------------------------------------------- images
def is_image(value: Value) -> bool:
    """Whether a value has the shape [image, line, pixel, feature], known at compile time."""
    return value.tensor.rank == 4 and has_known_extents(value) and value.tensor.size > 0


def images_of(step: Stage, caches: Caches) -> list[Value]:
    """Returns the large images that a step writes line by line."""
    if isinstance(step, OpStep):
        image = image_of(step)
        return [image] if image is not None and is_large(image, caches) else []
    return [v for v in step.writes if is_image(v) and is_large(v, caches) and visits_pixels(step, v, ())]


def pixels_written(step: Stage, image: Value) -> list[Value]:
    """Returns the values that a step writes pixel by pixel, if it reads or writes the pixels of an image."""
    if isinstance(step, RowBlocksStep):
        return [v for v in step.writes if visits_pixels(step, image, [v])]
    if isinstance(step, NestStep):
        return step.writes
    return same_places(step) if step.epilogue is not None else step.writes


def is_large(image: Value, caches: Caches) -> bool:
    """Whether an image does not fit into the caches of the cores that compute it."""
    return has_known_extents(image) and image.tensor.nbytes >= caches.bytes_of(tuning.LINE_TILE_IMAGE_BYTES)


def image_of(step: OpStep) -> Value | None:
    """Returns the images that a convolution or product computes, of shape [image, line, pixel, feature]: its own
    result, or that of its epilogue at the same place. Else None."""
    op = step.op
    if step.kind not in MAKERS:
        return None
    if step.epilogue is None:
        return op.result if op.result.tensor.rank == 4 else None
    found = same_places(step)
    return found[0] if found and op.result.tensor.rank == 4 else None


def same_places(step: OpStep) -> list[Value]:
    """Returns the values of known extents that a step's epilogue writes once, at the index where it reads the
    result."""
    assert step.epilogue is not None
    nest, result = step.epilogue.nest, step.op.result
    if not has_known_extents(result):
        return []
    ((_, at),) = [k for k in nest.loads if k[0] is result]
    targets = [s.target for s in nest.stores]
    here = ix.linearize(at.index, result.tensor.extents)
    return [
        s.target
        for s in nest.stores
        if targets.count(s.target) == 1
        and has_known_extents(s.target)
        and s.target.tensor.extents == result.tensor.extents
        and s.value is s.target
        and ix.linearize(s.index, s.target.tensor.extents) == here
    ]


def has_known_extents(value: Value) -> bool:
    """Whether all extents are known at compile time: sizes that depend on the call are not compared."""
    return all(isinstance(n, int) for n in value.tensor.extents)


def reads_lines(step: Stage, image: Value, others: Iterable[Value]) -> bool:
    """Whether a step may read an image line by line: a window or convolution only as its first operand, other steps at
    the pixels that they compute. `others`: further values of the line tile that it reads."""
    if not isinstance(step, OpStep):
        return visits_pixels(step, image, others)
    if step.kind not in (*MAKERS, WINDOW):
        return False
    beside = [*step.op.operands[1:], *(v for v, _ in (step.epilogue.nest.loads if step.epilogue is not None else []))]
    if step.op.operands[0] is image and not any(v in beside for v in (image, *others)):
        return True
    return visits_pixels(step, image, others)


# ---------------------------------------------------------------------- ops
def lines_of(op: Op) -> Lines | Refusal:
    """Returns the lines that an op on images [image, line, pixel, feature] reads for each line of its result."""
    shapes = op.operands[0].tensor.extents, op.result.tensor.extents
    if any(len(s) != 4 or not all(isinstance(n, int) and n > 0 for n in s) for s in shapes) or shapes[1][3] < 2:
        return Refusal(
            "not-images", "it does not compute images [batch, line, pixel, channel] of several channels and known size"
        )
    of = {CONVOLUTION: _of_convolution, PRODUCT: _of_product, WINDOW: _of_window}[op.name]
    found = of(op)
    if isinstance(found, Lines):
        (_, height, *_), (_, lines, *_) = shapes
        if not 0 <= found.low < found.reach or (lines - 1) * found.stride - found.low >= height:
            return Refusal("window-all-padding", "some windows have only padding, and no line of the image")
    return found


def _of_product(op: Op) -> Lines | Refusal:
    r, w = roles_of(op), op.operands[1]
    plain = not r.lhs_batch and r.lhs_contracting == (3,) and r.rhs_contracting == (0,) and w.tensor.rank == 2
    if not plain or not _is_constant(w):
        return Refusal("product-not-by-channels", "the product does not multiply the channels by a constant matrix")
    return Lines(1, 0, 1)


def _of_convolution(op: Op) -> Lines | Refusal:
    d, w = op.attributes["dimension_numbers"], op.operands[1]
    assert isinstance(d, ConvDims)
    last = (0, 3, (1, 2))
    inputs = d.input_batch_dimension, d.input_feature_dimension, tuple(d.input_spatial_dimensions)
    outputs = d.output_batch_dimension, d.output_feature_dimension, tuple(d.output_spatial_dimensions)
    groups = op.int("feature_group_count", 1)
    dilated = op.ints("lhs_dilation", (1, 1)) != (1, 1) or op.int("batch_group_count", 1) != 1
    if inputs != last or outputs != last or dilated:
        return Refusal(
            "channels-not-last", "the channels are not the last dimension, or the input is dilated or grouped by batch"
        )
    if not is_depthwise(op) and (groups != 1 or not _is_constant(w)):
        return Refusal(
            "grouped-or-variable-weights", "the convolution has several groups, or weights that are not constant"
        )
    size = w.tensor.extents[d.kernel_spatial_dimensions[0]]
    reach = (size - 1) * op.ints("rhs_dilation", (1, 1))[0] + 1
    return Lines(op.ints("window_strides", (1, 1))[0], op.ints("padding", (0, 0, 0, 0))[0], reach)


def is_depthwise(op: Op) -> bool:
    """Whether each output feature depends only on the same input feature, for convolutions that `lines_of` supports."""
    features = [v.tensor.extents[3] for v in (op.operands[0], op.result)]
    return features == [op.int("feature_group_count", 1)] * 2


def _of_window(op: Op) -> Lines | Refusal:
    ones = (1, 1, 1, 1)
    window, strides = op.ints("window_dimensions", ones), op.ints("window_strides", ones)
    padding = padding_pairs(op.attributes.get("padding"), 4, "")
    plain = all((window[k], strides[k], tuple(padding[k])) == (1, 1, (0, 0)) for k in (0, 3))
    dilated = op.ints("base_dilations", ones) != ones
    if len(op.results) != 1 or not plain or dilated or not has_plain_body(op) or 1 in window[1:3]:
        return Refusal(
            "windows-not-spatial",
            "the windows cover the batch or channel dimension, or are not plain windows of lines and pixels",
        )
    reach = (window[1] - 1) * op.ints("window_dilations", ones)[1] + 1
    return Lines(strides[1], padding[1][0], reach)


def _is_constant(value: Value) -> bool:
    return value.op is not None and value.op.name == "stablehlo.constant"
