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

from shlo_jit import tuning
from shlo_jit.caches import Caches
from shlo_jit.fuse.image_lines import (
    CONVOLUTION,
    MAKERS,
    WINDOW,
    Lines,
    Stage,
    heights_of,
    image_of,
    images_of,
    is_depthwise,
    is_own,
    lines_of,
    lines_of_stage,
    pixels_written,
    reads_lines,
    same_places,
    visits_pixels,
)
from shlo_jit.fuse.plan import LineTilesStep, OpStep, PlanBlock, Step
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.fuse.regroup import Steps
from shlo_jit.ir.core import Value


def form_line_tiles(block: PlanBlock, caches: Caches) -> None:
    """Makes chains of steps run in line tiles, for a CPU with these caches. The block's steps stay in a valid order."""
    if any(isinstance(step, OpStep) and step.op.name in (*MAKERS, WINDOW) for step in block.steps):
        _Forming(block, caches).run()


class _Forming(Steps):
    def __init__(self, block: PlanBlock, caches: Caches):
        super().__init__(block)
        self.caches = caches

    def run(self) -> None:
        for step in self.block.steps:
            if id(step) not in self.gone and isinstance(step, Stage):
                chain = self.chain(step)
                if len(chain) > 1:
                    self.replace(chain, self.joined(chain))
        self.finish()

    def chain(self, first: Stage) -> list[Stage]:
        """Returns the step, followed by those that run in line tiles with it."""
        chain: list[Stage] = []
        step: Stage | None = first
        while step is not None:
            chain.append(step)
            step = self.next(chain)
        while len(chain) > 1 and (bad := self.written_twice(chain)):
            _refuse(
                chain[bad - 1],
                Refusal(
                    "lines-needed-twice",
                    "other steps read its lines too, and consecutive line tiles of its reader share some",
                ),
            )
            chain = chain[:bad] if bad > 1 else chain[:1]
        return chain if is_of_images(chain) else chain[:1]

    def next(self, chain: list[Stage]) -> Stage | None:
        """Returns the next step of a chain: one that reads images of the last step, or of those before that compute
        the same lines. None if no such step can run in line tiles and gains from it."""
        members = {id(s) for s in chain}
        run = range(self.same_lines(chain), len(chain))
        found = [(s, v) for at in run for v in self.images(chain, at) for s in self.readers.get(v, [])]
        first: Refusal | None = None
        for reader, image in sorted(found, key=lambda pair: self.place[id(pair[0])]):
            if id(reader) in members or not isinstance(reader, Stage) or not self.may_read(reader, image, chain):
                continue
            refusal = self.unfit(chain, image, reader)
            if refusal is None:
                _refuse(chain[-1], None)
                return reader
            first = first or refusal
        _refuse(chain[-1], first)
        return None

    def may_read(self, reader: Stage, image: Value, chain: list[Stage]) -> bool:
        """Whether all that a step reads of a chain are lines in its buffers: a step that reads other lines than its own
        reads the last images, and nothing else."""
        if isinstance(reader, OpStep) and reader.op.name not in (*MAKERS, WINDOW):
            return False
        others = [v for part in chain for v in part.writes if v in reader.reads and v is not image]
        if is_own(reader):
            run = chain[self.same_lines(chain) :]
            lasting = {v for part in run for v in pixels_written(part, image) if self.writer(v) is part}
            return lasting >= {*others} and reads_lines(reader, image, others)
        return not others and image in self.images(chain, len(chain) - 1) and reads_lines(reader, image, ())

    def unfit(self, chain: list[Stage], image: Value, reader: Stage) -> Refusal | None:
        """Returns why a step should not follow the steps of a chain."""
        is_window = isinstance(reader, OpStep) and reader.op.name == WINDOW
        refusal = unfit(chain[-1], image, reader, self.caches)
        if refusal is None and not is_window and self.is_read_elsewhere(image, [*chain, reader]):
            refusal = Refusal(
                "other-readers", "other steps read its result too, so it is written to memory in any case"
            )
        order = self.order_around([*chain, reader]) if refusal is None else None
        return order if isinstance(order, Refusal) else refusal

    def is_read_elsewhere(self, image: Value, chain: list[Stage]) -> bool:
        """Whether a step reads an image that cannot be one of the chain with its next step."""
        others = [s for s in self.readers.get(image, []) if s not in chain]
        own = is_own(chain[-1])
        return image in self.returned or any(not own or not self.may_join(s, image) for s in others)

    def may_join(self, step: Step, image: Value) -> bool:
        return isinstance(step, Stage) and visits_pixels(step, image, ())

    # ------------------------------------------------------------------ what a chain shares
    def same_lines(self, chain: list[Stage]) -> int:
        """The number of the first of the last steps, which compute the same lines: each after it reads only its own."""
        return next((i for i in range(len(chain) - 1, 0, -1) if not is_own(chain[i])), 0)

    def images(self, chain: list[Stage], at: int) -> list[Value]:
        """Returns the large images that a step of a chain writes line by line, as lines of the same numbers. Images of
        which other steps write a part are in memory as a whole."""
        step = chain[at]
        found = [v for v in images_of(step, self.caches) if self.writer(v) is step]
        if not found:
            return []
        before = next((s.op.result for s in chain[at::-1] if isinstance(s, OpStep)), None)
        if before is None:  # the images of the first loop number the lines
            before = next((v for v in images_of(chain[0], self.caches) if self.writer(v) is chain[0]), None)
        return [v for v in found if before is not None and v.tensor.extents[:2] == before.tensor.extents[:2]]

    def outside(self, chain: list[Stage], at: int) -> list[Value]:
        """Returns the values that a step of a chain writes for others than those that may read its lines: steps that
        compute the same lines, and the next one that does not."""
        part, allowed = chain[at], list[Stage]()
        for reader in chain[at + 1 :]:
            allowed.append(reader)
            if not is_own(reader):
                break
        product = None if part.host is None else part.host.op.result
        found = [v for v in part.writes if v is not product]
        kept = [v for v in found if v not in self.returned and self.writer(v) is part]
        return [v for v in found if v not in kept or any(s not in allowed for s in self.readers.get(v, []))]

    def written_twice(self, chain: list[Stage]) -> int:
        """Returns how many of the first steps of the chain must be left out: up to the last one whose lines have other
        readers and are not needed exactly once each by the line tiles of the next step. 0 if there is none."""
        once = True
        for at in range(len(chain) - 1, 0, -1):
            reader = chain[at]
            if isinstance(reader, OpStep) and not is_own(reader):
                lines = lines_of(reader.op)
                assert isinstance(lines, Lines)
                once = once and lines.is_each_once(*heights_of(reader.op))
            if not once and self.outside(chain, at - 1):
                return at
        return 0

    def joined(self, chain: list[Stage]) -> LineTilesStep:
        """Returns the step that runs a chain."""
        outside = {v for at in range(len(chain) - 1) for v in self.outside(chain, at)}
        inside = tuple(v for part in chain[:-1] for v in part.writes if v not in outside)
        made = {v for part in chain for v in part.writes}
        return LineTilesStep(
            reads=[v for v in dict.fromkeys(v for part in chain for v in part.reads) if v not in made],
            writes=[v for part in chain for v in part.writes if v not in inside],
            position=max(part.position for part in chain),
            after=[step for part in chain for step in part.after],
            why={v: why for part in chain for v, why in part.why.items() if v not in inside},
            stages=tuple(chain),
            images=tuple(self.shapes(chain)),
            inside=inside,
        )

    def shapes(self, chain: list[Stage]) -> list[Value]:
        """For each step of a chain, images with the lines that it computes: those that the next step reads, or others
        that it writes, or that it reads."""
        found: list[Value] = []
        for at, step in enumerate(chain):
            is_last = at + 1 == len(chain)
            reads = [] if is_last else chain[at + 1].reads
            if isinstance(step, OpStep):
                image = step.op.result if is_last else image_of(step)
                assert image is not None, "a stage that writes no images"
                found.append(image)
                continue
            own = sorted(self.images(chain, at), key=lambda v: v not in reads)
            before = [*found, *(v for earlier in range(at) for v in self.images(chain, earlier))]
            found.append((own or [v for v in before if v in step.reads and visits_pixels(step, v, ())])[0])
        return found


def _refuse(step: Stage, refusal: Refusal | None) -> None:
    if isinstance(step, OpStep):
        step.refuse("line tiles", refusal)


def is_of_images(chain: list[Stage]) -> bool:
    """Whether a chain is not one of products and loops over rows, which run by row blocks."""
    ops = [s.op.name for s in chain if isinstance(s, OpStep)]
    return len(ops) == len(chain) or CONVOLUTION in ops or WINDOW in ops


def unfit(maker: Stage, image: Value, reader: Stage, caches: Caches) -> Refusal | None:
    """Returns why two steps cannot run in line tiles, or would be slower."""
    own, lines = lines_of_stage(maker), lines_of_stage(reader)
    for found in (own, lines):
        if isinstance(found, Refusal):
            return found
    assert isinstance(lines, Lines)
    if isinstance(reader, OpStep) and reader.epilogue is not None and not same_places(reader):
        return Refusal(
            "epilogue-writes-elsewhere",
            "the epilogue of its reader writes to other indices than those of the reader's result",
        )
    most = caches.bytes_of(tuning.LINE_TILE_KERNEL_BYTES)
    ops = [step.op for step in (maker, reader) if isinstance(step, OpStep)]
    for op in ops:
        nbytes = op.operands[1].tensor.nbytes if op.name in MAKERS else 0
        if nbytes > most:
            return Refusal("large-weights", f"every line tile re-reads {nbytes:,} bytes of weights, more than {most:,}")
    batch, height = image.tensor.extents[:2]
    line = image.tensor.nbytes // (batch * height)
    kept = max(0, lines.reach - lines.stride)
    is_dense = isinstance(reader, OpStep) and reader.op.name == CONVOLUTION and not is_depthwise(reader.op)
    if kept and is_dense:
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
    results = heights_of(reader.op)[1] if isinstance(reader, OpStep) else height
    if batch * results < (few := tuning.LINE_TILE_TASKS * tuning.LINE_TILE_LINES):
        return Refusal(
            "too-few-lines", f"its reader has fewer than {few} lines, too few for {tuning.LINE_TILE_TASKS} tasks"
        )
    return None
