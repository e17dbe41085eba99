"""Costs: computing an op once per element, and the longest row that may be traversed several times."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.ir.core import Op
from shlo_jit.ops import OPS


def cost(op: Op) -> int:
    """Returns the cost of one element, in units of one addition; 0 if it is only read from elsewhere."""
    return OPS[op.name].cost


def longest_row(op: Op) -> int:
    """Returns the longest row for which a reduction is fused into a nest. If elements are not adjacent in memory, each
    occupies a cache line, so fewer fit. Still fewer fit at strides that are multiples of half a page, which map to the
    same cache sets."""
    source, last = op.operands[0].tensor, max(op.ints("dimensions"), default=-1)
    stride = source.storage.itemsize
    for n in source.extents[last + 1 :]:
        stride *= n
    if stride == source.storage.itemsize:
        return tuning.ROW_ELEMENTS
    return tuning.COLUMN_ELEMENTS if stride % 2048 else tuning.COLUMN_ELEMENTS // 4
