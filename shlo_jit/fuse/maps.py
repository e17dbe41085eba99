"""Index maps: the places where the operands of a fused op are read, given the places where its result is read."""

from __future__ import annotations

from shlo_jit.fuse.choices import CONCATENATE, UPDATE, concatenate_places, unpacked_places, update_places
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import At, NotAffine, Places
from shlo_jit.ops import OPS
from shlo_jit.sizes import NotSymbolic


def part_of(op: Op, at: At, extents: list[int]) -> tuple[Value, At]:
    """Returns the operand of a concatenation that has all elements read at `at`, and the place in it. Raises NotAffine
    if there is none."""
    dimension = op.int("dimension")
    wanted = at.index[dimension]
    if wanted.syms:
        raise NotAffine
    try:
        ends = [(0, c * (extents[v] - 1)) for v, c in wanted.terms]
        first, last = (wanted.const + sum(pick(end) for end in ends) for pick in (min, max))
        start = 0
        for operand in op.operands:
            end = start + operand.tensor.extents[dimension]
            if start <= first and last < end:
                index = list(at.index)
                index[dimension] = ix.shift(wanted, -start)
                return operand, At(tuple(index), at.conditions)
            start = end
    except NotSymbolic:
        pass
    raise NotAffine


def operand_places(op: Op, at: At, extents: list[int], *, unpacks: bool = False) -> Places:
    """Returns the places of an op's operands: by the index map of its record, or of the operands that elements may come
    from. Other ops read all operands at the index of the result (scalars at their only one). `unpacks`: the segments of
    a concatenation have equal lengths, and loops may be split at their boundaries.

    Raises Split or NotAffine (see ir/index.py).
    """
    index_map = OPS[op.name].index_map
    if index_map is not None:
        return index_map(op, at, extents)
    if op.name == CONCATENATE:
        try:
            return [part_of(op, at, extents)]
        except NotAffine:
            return unpacked_places(op, at, extents) if unpacks else concatenate_places(op, at)
    if op.name == UPDATE:
        return update_places(op, at)
    scalar = At((), at.conditions)
    return [(o, scalar if o.tensor.shape == () and at.index else at) for o in op.operands]
