"""Where the operands of a fused op are read, given where its result is wanted."""

from __future__ import annotations

from shlo_jit.fuse.choices import CONCATENATE, UPDATE, concatenate_places, update_places
from shlo_jit.ir.core import Op
from shlo_jit.ir.index import At, Places
from shlo_jit.ops import OPS


def operand_places(op: Op, at: At, extents: list[int]) -> Places:
    """By the record's index map; of an op without one, all operands where the result is (scalars where they are).

    Raises Split or NotAffine (see ir/index.py).
    """
    index_map = OPS[op.name].index_map
    if index_map is not None:
        return index_map(op, at, extents)
    if op.name == CONCATENATE:
        return concatenate_places(op, at)
    if op.name == UPDATE:
        return update_places(op, at)
    scalar = At((), at.conditions)
    return [(o, scalar if o.tensor.shape == () and at.index else at) for o in op.operands]
