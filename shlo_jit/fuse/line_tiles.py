"""Line tiles with line buffers (sliding windows): a convolution or product and the reader of its images run a few lines
at a time.

Needs: the ordered steps of a block, epilogues attached. A chain of steps, each of which reads the images that the
previous one writes, becomes one step. For a line tile of the last result, each step computes the lines that the next
one needs. So the lines between two steps stay in the L2 cache. An image without other readers is never materialized as
a whole.

    %y = convolution(%x)                 line tiles of %z: lines of %y, then the lines of %z that depend on them
    %z = reduce_window(%y)         ->
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.caches import Caches
from shlo_jit.fuse.grouping import has_plain_body
from shlo_jit.fuse.plan import LineTilesStep, OpStep, PlanBlock, Step
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.fuse.regroup import Steps
from shlo_jit.ir import index as ix
from shlo_jit.ir.attributes import ConvDims
from shlo_jit.ir.core import Op, Value
from shlo_jit.ops.runs import roles_of
from shlo_jit.ops.window import padding_pairs

CONVOLUTION, PRODUCT, WINDOW = "stablehlo.convolution", "stablehlo.dot_general", "stablehlo.reduce_window"
MAKERS = (CONVOLUTION, PRODUCT)


class Lines(NamedTuple):
    """Lines of an image that a step reads for its own line i: `reach` of them, from i * stride - low on. Lines outside
    of the image are padding."""

    stride: int
    low: int
    reach: int

    def is_each_once(self, lines: int, results: int) -> bool:
        """Whether `lines` lines are each read for exactly one of `results` lines."""
        return self.low == 0 and self.reach == self.stride and self.stride * results == lines


def form_line_tiles(block: PlanBlock, caches: Caches) -> None:
    """Makes chains of steps run in line tiles, for a CPU with these caches. The block's steps stay in a valid order."""
    if any(isinstance(step, OpStep) and step.op.name in MAKERS for step in block.steps):
        _Forming(block, caches).run()


class _Forming(Steps):
    def __init__(self, block: PlanBlock, caches: Caches):
        super().__init__(block)
        self.caches = caches

    def run(self) -> None:
        for step in self.block.steps:
            if id(step) not in self.gone:
                chain = self.chain(step)
                if len(chain) > 1:
                    self.replace(chain, self.joined(chain))
        self.finish()

    def chain(self, first: Step) -> list[OpStep]:
        """Returns the step, followed by those that run in line tiles with it."""
        chain: list[OpStep] = []
        step: Step | None = first
        while isinstance(step, OpStep):
            chain.append(step)
            step = self.next(chain)
        while len(chain) > 1 and (bad := self.written_twice(chain)):
            chain[bad - 1].not_line_tiled = Refusal(
                "lines-needed-twice",
                "other steps read its lines too, and consecutive line tiles of its reader share some",
            )
            chain = chain[:bad] if bad > 1 else chain[:1]
        return chain

    def next(self, chain: list[OpStep]) -> OpStep | None:
        """Returns the step that reads the images of the last one if the two can run in line tiles and gain from it."""
        maker = chain[-1]
        image = image_of(maker)
        if image is None or not is_large(image, self.caches):
            return None
        readers = self.readers.get(image, [])
        reader = next((s for s in readers if isinstance(s, OpStep) and reads_lines(s, image)), None)
        if reader is None:
            return None
        maker.not_line_tiled = unfit(maker, image, reader, self.caches)
        if maker.not_line_tiled is None and reader.op.name != WINDOW and self.outside(maker, reader):
            maker.not_line_tiled = Refusal(
                "other-readers", "other steps read its result too, so it is written to memory in any case"
            )
        if maker.not_line_tiled is None:
            order = self.order_around([*chain, reader])
            maker.not_line_tiled = order if isinstance(order, Refusal) else None
        return reader if maker.not_line_tiled is None else None

    def is_read_outside(self, value: Value, reader: Step) -> bool:
        return value in self.returned or any(s is not reader for s in self.readers.get(value, []))

    def outside(self, maker: OpStep, reader: OpStep) -> list[Value]:
        """Returns the values that a step of a chain writes for steps other than the next one."""
        product = None if maker.host is None else maker.op.result
        return [v for v in maker.writes if v is not product and self.is_read_outside(v, reader)]

    def written_twice(self, chain: list[OpStep]) -> int:
        """Returns how many of the first steps of the chain must be left out: up to the last one whose lines have other
        readers and are not needed exactly once each by the line tiles of the next step. 0 if there is none."""
        once = True
        for at in range(len(chain) - 1, 0, -1):
            maker, reader = chain[at - 1], chain[at]
            lines = lines_of(reader.op)
            assert isinstance(lines, Lines)
            once = once and lines.is_each_once(*(v.tensor.extents[1] for v in (maker.op.result, reader.op.result)))
            if not once and self.outside(maker, reader):
                return at
        return 0

    def joined(self, chain: list[OpStep]) -> LineTilesStep:
        """Returns the step that runs a chain."""
        outside = {v for part, reader in pairwise(chain) for v in self.outside(part, reader)}
        inside = tuple(v for part in chain[:-1] for v in part.writes if v not in outside)
        made = {v for part in chain for v in part.writes}
        return LineTilesStep(
            reads=[v for v in dict.fromkeys(v for part in chain for v in part.reads) if v not in made],
            writes=[v for part in chain for v in part.writes if v not in inside],
            position=max(part.position for part in chain),
            after=[step for part in chain for step in part.after],
            why={v: why for part in chain for v, why in part.why.items() if v not in inside},
            stages=tuple(chain),
            inside=inside,
        )


def image_of(step: OpStep) -> Value | None:
    """Returns the images that a convolution or product computes, of shape [image, line, pixel, feature]: its own
    result, or that of its epilogue at the same place. Else None."""
    op = step.op
    if op.name not in MAKERS or step.pieces is not None:
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


def is_large(image: Value, caches: Caches) -> bool:
    """Whether an image does not fit into the caches of the cores that compute it."""
    return has_known_extents(image) and image.tensor.nbytes >= caches.bytes_of(tuning.LINE_TILE_IMAGE_BYTES)


def has_known_extents(value: Value) -> bool:
    """Whether all extents are known at compile time: sizes that depend on the call are not compared."""
    return all(isinstance(n, int) for n in value.tensor.extents)


def reads_lines(step: OpStep, image: Value) -> bool:
    """Whether a step reads the image only as its first operand."""
    if step.op.name not in (*MAKERS, WINDOW) or step.pieces is not None:
        return False
    others = [*step.op.operands[1:], *(v for v, _ in (step.epilogue.nest.loads if step.epilogue is not None else []))]
    return step.op.operands[0] is image and image not in others


def unfit(maker: OpStep, image: Value, reader: OpStep, caches: Caches) -> Refusal | None:
    """Returns why two steps cannot run in line tiles, or would be slower."""
    own, lines = lines_of(maker.op), lines_of(reader.op)
    for found in (own, lines):
        if isinstance(found, Refusal):
            return found
    assert isinstance(lines, Lines)
    if reader.epilogue is not None and not same_places(reader):
        return Refusal(
            "epilogue-writes-elsewhere",
            "the epilogue of its reader writes to other indices than those of the reader's result",
        )
    most = caches.bytes_of(tuning.LINE_TILE_KERNEL_BYTES)
    for op in (maker.op, reader.op):
        nbytes = op.operands[1].tensor.nbytes if op.name in MAKERS else 0
        if nbytes > most:
            return Refusal("large-weights", f"every line tile re-reads {nbytes:,} bytes of weights, more than {most:,}")
    batch, height = image.tensor.extents[:2]
    line = image.tensor.nbytes // (batch * height)
    kept = max(0, lines.reach - lines.stride)
    if kept and reader.op.name == CONVOLUTION and not is_depthwise(reader.op):
        return Refusal(
            "overlapping-windows",
            "its reader is a convolution with overlapping windows, and computes more than reading costs",
        )
    room = caches.bytes_of(tuning.LINE_BUFFER_BYTES)
    if (least := line * max(lines.reach + lines.stride, kept * tuning.LINE_TILE_KEPT)) > room:
        return Refusal(
            "line-buffer-too-large",
            f"line tiles worth their shared lines need {least:,} bytes, more than {room:,}",
        )
    if batch * reader.op.result.tensor.extents[1] < (few := tuning.LINE_TILE_TASKS * tuning.LINE_TILE_LINES):
        return Refusal(
            "too-few-lines", f"its reader has fewer than {few} lines, too few for {tuning.LINE_TILE_TASKS} tasks"
        )
    return None


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
