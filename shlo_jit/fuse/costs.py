"""What ops cost to compute once an element, in units of an addition; the figures only steer fusion and task sizes."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.maps import MAPS
from shlo_jit.ir.core import Op

FREE = set(MAPS)
HEAVY = 12
_COSTS = {
    "stablehlo.divide": 4, "stablehlo.sqrt": 4, "stablehlo.rsqrt": 5, "stablehlo.remainder": 8,
    "stablehlo.exponential": HEAVY, "stablehlo.log": HEAVY, "stablehlo.log_plus_one": HEAVY, "stablehlo.cbrt": 16,
    "stablehlo.exponential_minus_one": HEAVY, "stablehlo.tanh": 16, "stablehlo.logistic": 16, "stablehlo.sine": 20,
    "stablehlo.cosine": 20, "stablehlo.tan": 24, "stablehlo.atan2": 24, "stablehlo.power": 40,
}  # fmt: skip


def cost(op: Op) -> int:
    """0 for index maps and constants, 1 for simple arithmetic, more for the rest."""
    if op.name in FREE:
        return 0
    known = _COSTS.get(op.name)
    if known is not None:
        return known
    return 20 if op.name.startswith("chlo.") else 1


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
