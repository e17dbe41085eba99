"""What ops cost to compute once an element, and how long a row may be that is passed over several times."""

from __future__ import annotations

from shlo_jit.ir.core import Op
from shlo_jit.ops import OPS

ROW_LIMIT = 1 << 16
"""Elements of a row that is passed over several times: it has to stay in the cache."""
COLUMN_LIMIT = 2048
"""The same for rows whose elements are not adjacent."""


def cost(op: Op) -> int:
    """Additions that computing one element takes as long as; 0 where it is only read elsewhere."""
    return OPS[op.name].cost


def longest_row(op: Op) -> int:
    """Elements of the longest row that a reduce may join a nest with. Where they are not adjacent in memory, a line of
    the cache each: fewer fit, and fewer still a multiple of half a page apart, since they fall into the same sets."""
    source, last = op.operands[0].tensor, max(op.ints("dimensions"), default=-1)
    stride = source.storage.itemsize
    for n in source.extents[last + 1 :]:
        stride *= n
    if stride == source.storage.itemsize:
        return ROW_LIMIT
    return COLUMN_LIMIT if stride % 2048 else COLUMN_LIMIT // 4
