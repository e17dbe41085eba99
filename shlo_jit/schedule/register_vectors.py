"""Layout of the vectors that a matrix computed in registers is multiplied by (see `operand_in_registers.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from shlo_jit.fuse.nest import Nest
from shlo_jit.ir.types import DType
from shlo_jit.schedule.byte_dots import ByteDots
from shlo_jit.schedule.product_layout import ProductLayout


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
    dots: ByteDots | None,
) -> Vectors:
    """Returns where the loops read the vectors: where they lie, or in a copy, in the order of the loops."""
    s = layout.operands
    row, step, batch = (s.a_rs, s.a_cs, s.a_bs) if side else (s.b_cs, s.b_rs, s.b_bs)
    if dots is None and source == acc and (lanes not in along or along[lanes] * step == 1):
        return Vectors(False, row, batch, {v: c * step for v, c in along.items()})
    order = [*(v for v in along if v != lanes), *(v for v in along if v == lanes)]
    strides: dict[int, int] = {}
    size = 1
    for v in reversed(order):
        strides[v] = size
        size *= nest.extents[v]
    row = size + (dots.row_padding if dots is not None and lanes in along else 0)
    return Vectors(True, row, row * rows, strides)
