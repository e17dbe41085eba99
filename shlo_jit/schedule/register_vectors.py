"""Layout of the vectors that a matrix computed in registers is multiplied by (see `operand_in_registers.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from shlo_jit.fuse.nest import Nest
from shlo_jit.ir.types import DType
from shlo_jit.schedule.product_layout import ProductLayout
from shlo_jit.schedule.register_dots import RegisterDots

LINE = 64
"""Bytes of a line of the cache."""
ALIASED = 1 << 10
"""Rows that are a multiple of so many bytes share a quarter of the lines of a first-level cache of 32 KiB, or less."""
COPIED_FOR = 1024
"""Minimum outputs for several vectors to be copied where that is all that is gained. Chosen: one thread copies, element
by element."""


class Vectors(NamedTuple):
    """The vectors that M is multiplied by, as the loops read them."""

    is_copied: bool
    """Whether they are copied before, in the order of the loops and the type of the sums."""
    row: int
    """Elements from one vector to the next."""
    batch: int
    """Elements from the vectors of one product to those of the next."""
    along: Mapping[int, int]
    """Elements that an iteration of each variable along k advances."""


def lay_out(
    source: DType,
    acc: DType,
    nest: Nest,
    along: dict[int, int],
    lanes: int,
    layout: ProductLayout,
    side: int,
    rows: int,
    outputs: int,
    dots: RegisterDots | None,
) -> Vectors:
    """Returns where the loops read the vectors: where they lie, or in a copy, in the order of the loops. All vectors
    are read for each of `outputs` outputs, so several are copied to whole lines of the cache, and apart from each
    other: rows of an array are often a power of two bytes apart, and the first-level cache keeps few such lines."""
    s = layout.operands
    row, step, batch = (s.a_rs, s.a_cs, s.a_bs) if side else (s.b_cs, s.b_rs, s.b_bs)
    is_read_in_place = dots is None and source == acc and (lanes not in along or along[lanes] * step == 1)
    pays = rows > 1 and outputs >= COPIED_FOR and (lanes in along or row * acc.itemsize % ALIASED == 0)
    if is_read_in_place and not pays:
        return Vectors(False, row, batch, {v: c * step for v, c in along.items()})
    order = [*(v for v in along if v != lanes), *(v for v in along if v == lanes)]
    strides: dict[int, int] = {}
    size = 1
    for v in reversed(order):
        strides[v] = size
        size *= nest.extents[v]
    if dots is not None:
        row = size + (dots.row_padding if lanes in along else 0)
    else:
        line = LINE // acc.itemsize
        row = -(-size // line) * line
        row += line if row * acc.itemsize % ALIASED == 0 else 0
    return Vectors(True, row, row * rows, strides)
