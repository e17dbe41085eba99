"""How the lines of images are divided into tasks and line tiles: decided, given as moves, and varied by a tuner.

split(loop=lines, by=8)    tiles of 8 lines of the last stage
parallel(grain=16)         tasks of at least 16 lines of an image, or of whole images; without this move, one task
                           does everything
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir.core import Value
from shlo_jit.kernels.target import Target
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Choice, Note, count
from shlo_jit.schedule.moves import IllegalMove, Move, Parallel, Split, check_once
from shlo_jit.schedule.space import GIVEN, OMITTED


class LineDivision(NamedTuple):
    """How the lines of the last stage's images are divided."""

    batch: int
    """Number of images."""
    height: int
    """Lines of an image."""
    tile: Choice[int]
    """Maximum number of lines in a tile."""
    grain: Choice[int]
    """Lines of a task: those of some whole images; or fewer than an image has, and then at least so many."""
    each: int
    """Tasks per thread of the call. The bits of the results do not depend on the number of tasks."""
    why_each: Reason

    @property
    def images(self) -> int:
        """Images in a task; 1 if several tasks may share an image."""
        return max(1, self.grain.value // self.height)

    @property
    def parts(self) -> int:
        """Maximum number of tasks that share an image."""
        return max(1, self.height // self.grain.value)

    @property
    def most_parts(self) -> int:
        """The same for many threads, whose tasks may have fewer lines than a few threads' tasks."""
        return 1 if self.parts == 1 else max(self.parts, self.height // tuning.LINE_TILE_LEAST_LINES)

    @property
    def is_serial(self) -> bool:
        """Whether one task does everything."""
        return self.parts == 1 and self.images >= self.batch

    @property
    def moves(self) -> tuple[Move, ...]:
        tile = Split("lines", self.tile.value, why=self.tile.why)
        return (tile,) if self.is_serial else (tile, Parallel(self.grain.value, why=self.grain.why))

    @property
    def notes(self) -> list[Note]:
        tiles = Note("line tiles", f"{count(self.tile.value, 'line')} of {self.height}", self.tile.why)
        if self.is_serial:
            return [tiles, Note("tasks", "1 task", self.grain.why)]
        if self.images > 1:
            tasks = -(-self.batch // self.images)
            text = f"{count(tasks, 'task')} of {count(self.images, 'image')}"
            return [tiles, Note("tasks", text, self.grain.why)]
        return [tiles, Note("tasks", f"{self.each} per thread, up to {self.parts} per image", self.why_each)]


def divide_lines(
    image: Value,
    nbytes: Callable[[int], int],
    shares: bool,
    target: Target,
    given: Sequence[Move] | None = None,
) -> LineDivision:
    """Returns the division of the last stage's images. `nbytes`: the bytes of all line buffers for tiles of so many
    lines; `shares`: whether tiles need lines of those before. `given`: the moves that decide instead. Raises
    IllegalMove if one of them is not allowed."""
    batch, height = image.tensor.extents[:2]
    each, why = tuning.LINE_TILE_TASKS, Reason("tiles-share-no-lines", "line tiles share no lines")
    if shares:
        each, why = 1, Reason("tiles-share-lines", "line tiles re-use lines of the tile before")
    if given is not None:
        whole = Choice(height, OMITTED), Choice(batch * height, OMITTED)
        return _given(LineDivision(batch, height, *whole, each, why), given)
    buffers = target.bytes_of(tuning.LINE_BUFFER_BYTES)
    tile = next((n for n in range(height, 1, -1) if nbytes(n) <= buffers), 1)
    size = Reason("line-buffer-bytes", f"line buffers of up to {buffers:,} bytes")
    grain = min(height, tuning.LINE_TILE_LINES)
    return LineDivision(batch, height, Choice(tile, size), Choice(grain, why), each, why)


def _given(found: LineDivision, given: Sequence[Move]) -> LineDivision:
    """The division that moves describe. `found`: that of no moves."""
    check_once(given)
    for move in given:
        if isinstance(move, Parallel):
            images, rest = divmod(move.grain, found.height)
            if move.grain < 1 or images > found.batch or (images and rest):
                whole = count(found.batch, "whole image")
                text = f"a task has fewer lines than the {found.height} of an image, or up to {whole}"
                raise IllegalMove(move, Reason("group-out-of-range", text))
            found = found._replace(grain=Choice(move.grain, GIVEN))
        elif isinstance(move, Split) and move.loop == "lines":
            if not 1 <= move.by <= found.height:
                text = f"a tile has 1 to {found.height} lines, those of an image"
                raise IllegalMove(move, Reason("split-out-of-range", text))
            found = found._replace(tile=Choice(move.by, GIVEN))
        else:
            raise IllegalMove(move, Reason("move-without-use", "line tiles have tiles of lines, and tasks"))
    return found


def other_line_divisions(now: LineDivision) -> Iterator[tuple[Move, ...]]:
    """Yields other divisions as moves, the most promising first: tiles and tasks of half and of twice the lines."""
    tile, *rest = now.moves
    for by in (2 * now.tile.value, now.tile.value // 2, 4 * now.tile.value, now.tile.value // 4):
        if by:
            yield (Split("lines", min(by, now.height)), *rest)
    grain, height = now.grain.value, now.height
    wholes = [n * height for n in (now.images // 2, 1, 2 * now.images) if 1 <= n <= now.batch]
    for lines in dict.fromkeys([2 * grain, grain // 2, *wholes]):
        if 0 < lines < height or lines in wholes:
            yield tile, Parallel(lines)
