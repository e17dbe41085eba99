"""Columns of row blocks that several tasks share, if the batches do not fill all threads evenly.

Attention of a decoder's step has a task for each head of keys, and often few of these: three, for two threads. Those
that are left when each thread has had the same number are cut into parts of the columns of the last product. Each part
computes the stages before that product for itself. A column has the same bits in any part, so the number of parts may
depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from shlo_jit.fuse.plan import RowBlocksStep
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import At
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.row_buffers import Buffers
from shlo_jit.schedule.row_division import Division
from shlo_jit.sizes import Size

if TYPE_CHECKING:
    from shlo_jit.schedule.row_blocks import RowNest, RowProduct

UNEVEN = Reason("uneven-batches", "threads share the batches that are left when each has had the same number")


class SharedColumns(NamedTuple):
    """The columns of the last product, which tasks may share."""

    columns: int
    width: int
    """Columns of a vector: parts have whole vectors."""
    loops: frozenset[int]
    """The steps of the loops after the product, by id(): they compute the same columns."""

    @property
    def most_parts(self) -> int:
        """Maximum tasks that share a batch."""
        return -(-self.columns // self.width)

    @property
    def note(self) -> Note:
        return Note("columns", f"up to {self.most_parts} tasks of a batch", UNEVEN)


def shared_columns(
    step: RowBlocksStep, stages: Sequence[RowProduct | RowNest], buffers: Buffers, division: Division
) -> SharedColumns | None:
    """Returns the columns that tasks may share; None if a task has several batches or a part of the rows of one, if a
    column of the last product needs more than its own terms, or if a stage before it writes to the program's memory."""
    at = max((i for i, s in enumerate(stages) if s.step in step.products), default=0)
    before, last, after = stages[:at], stages[at], stages[at + 1 :]
    is_whole = division.parts == division.each == 1 and division.finer is None
    keys = getattr(last, "keys", None)
    if isinstance(step.batch, Size) or division.tasks.is_one or not is_whole or keys is None or not keys.is_terms:
        return None
    if any(buffers.of(v) is None for s in before for v in s.step.writes):
        return None
    rows, n = frozenset(buffers.rows.values()), keys.units.output_count
    if not all(_is_by_columns(s.schedule, rows, n) for s in after):  # type: ignore[union-attr]
        return None
    found = SharedColumns(n, keys.units.space.width, frozenset(id(s.step) for s in after))
    return found if found.most_parts > 1 else None


def _is_by_columns(s: NestSchedule, buffers: frozenset[Value], n: int) -> bool:
    """Whether a loop has n columns, and reads and writes buffers only in the column that it computes."""
    if s.tile is None:
        return False
    terms, count = dict[int, int](), 1
    for v in reversed(s.tile.columns):
        terms[v] = count
        count *= s.nest.extents[v]
    places = [at for value, at in s.nest.loads if value in buffers]
    places += [At(store.index) for store in s.nest.stores if store.target in buffers]
    if not places or count != n:
        return False
    return all(dict(at.index[1].terms) == terms and not (at.index[1].const or at.index[1].syms) for at in places)
