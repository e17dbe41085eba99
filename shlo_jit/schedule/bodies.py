"""Helpers that schedulers share: the cost of regions that kernels compute in registers, and lanes along memory."""

from __future__ import annotations

from collections.abc import Iterable

from shlo_jit.fuse.costs import cost
from shlo_jit.ir.core import Block
from shlo_jit.ir.types import DType
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.space import register_bits
from shlo_jit.sizes import hint_of


def body_cost(block: Block) -> int:
    """Estimated number of element operations of a region."""
    return sum(cost(op) for op in block.ops if not op.name.endswith(".return")) + 1


def choose_lanes(target: Target, dtypes: Iterable[DType], extent: int) -> int:
    """Lanes for a run of `extent` elements: a full register, or for a short run the power of two that fits."""
    extent = hint_of(extent)
    full = target.lanes(max(register_bits(t) for t in dtypes))
    width = 1
    while width < min(extent, full):
        width *= 2
    if width > extent and not target.has_masks:
        width //= 2
    return max(1, width)
