"""What ops cost to compute once an element, and how long a row may be that is passed over several times."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.ir.core import Op
from shlo_jit.ops import OPS


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
        return tuning.ROW_ELEMENTS
    return tuning.COLUMN_ELEMENTS if stride % 2048 else tuning.COLUMN_ELEMENTS // 4
