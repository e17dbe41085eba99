"""Ops whose elements come from one operand or another, by where they are: nests read what they choose from.

Each operand is read under the condition that it is the one; the last without one of its own where the others leave no
doubt. A pad is always computed so. A concatenation is where it moves the elements of one tensor about (rolls, borders),
and an update where it replaces most of a tensor by what is computed of neighbours, as in `u.at[1:-1].add(...)`: it can
not be made in place, and what is written beside is as large.
"""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.index import At, Condition, Places
from shlo_jit.ops import OPS, is_elementwise
from shlo_jit.sizes import Size

PAD, CONCATENATE, UPDATE = "stablehlo.pad", "stablehlo.concatenate", "stablehlo.dynamic_update_slice"
CHOICES = (PAD, CONCATENATE, UPDATE)
NEAR = (*CHOICES, "stablehlo.slice", "stablehlo.reshape", "stablehlo.broadcast_in_dim")
"""Ops of which neighbours have neighbours, mostly."""


def concatenate_places(op: Op, at: At) -> Places:
    """Each piece under the condition that the element is in it."""
    places: Places = []
    d, offset = op.int("dimension"), 0
    for piece in op.operands:
        moved, n = ix.shift(at.index[d], -offset), piece.tensor.extents[d]
        index = (*at.index[:d], moved, *at.index[d + 1 :])
        places.append((piece, At(index, (*at.conditions, Condition(moved, 0, n)))))
        offset += n
    return places


def update_places(op: Op, at: At) -> Places:
    """The update where it is, then the operand."""
    operand, update = op.operands[:2]
    index, conditions = [], list(at.conditions)
    shapes = operand.tensor.extents, update.tensor.extents
    for e, start, n, k in zip(at.index, starts_of(op) or (), *shapes, strict=True):
        moved = ix.shift(e, -start)
        if k < n:
            conditions.append(Condition(moved, 0, k))
        index.append(moved)
    return [(update, At(tuple(index), tuple(conditions))), (operand, at)]


def starts_of(op: Op) -> tuple[int, ...] | None:
    """Where an update begins, if that is known."""
    starts = op.operands[2:]
    if any(s.op is None or s.op.name != "stablehlo.constant" for s in starts):
        return None
    if any(isinstance(n, Size) for o in op.operands[:2] for n in o.tensor.extents):
        return None
    room = [n - k for n, k in zip(op.operands[0].tensor.extents, op.operands[1].tensor.extents, strict=True)]
    asked = [int(s.op.constant.array.reshape(-1)[0]) for s in starts if s.op is not None]
    return tuple(max(0, min(x, most)) for x, most in zip(asked, room, strict=True))


class Choices:
    """Which ops of a block are choices, and what tensors values are rearrangements of. Each answer is kept: chains of
    concatenations of parts would be walked twice as often with every op."""

    def __init__(self, block: Block) -> None:
        self._sources: dict[Value, Value] = {}
        self._rearranged: dict[Op, Value | None] = {}
        for op in block.ops:  # in order, so that the answer for one op needs those for earlier ones only
            if op.name == CONCATENATE:
                self.rearranged(op)

    def chooses(self, op: Op) -> bool:
        """Whether nests that read a concatenation or an update choose from its operands."""
        if op.name == CONCATENATE:
            return self.rearranged(op) is not None
        return op.name == UPDATE and self.replaces_most(op)

    def rearranged(self, op: Op) -> Value | None:
        """The tensor that a concatenation's few pieces are all parts of."""
        if op not in self._rearranged:
            self._rearranged[op] = self._find_rearranged(op)
        return self._rearranged[op]

    def _find_rearranged(self, op: Op) -> Value | None:
        if not 1 < len(op.operands) <= tuning.CHOICE_PIECES:
            return None
        if any(isinstance(n, Size) or not n for piece in op.operands for n in piece.tensor.extents):
            return None
        first, *others = (self.source_of(piece) for piece in op.operands)
        return first if all(s is first for s in others) else None

    def source_of(self, value: Value) -> Value:
        """The tensor whose elements a value has in other places."""
        if value not in self._sources:
            self._sources[value] = self._find_source(value)
        return self._sources[value]

    def _find_source(self, value: Value) -> Value:
        for _ in range(tuning.CHOICE_DEPTH):
            op = value.op
            if op is None:
                break
            if op.name == CONCATENATE:
                source = self.rearranged(op)
                if source is None:
                    break
                value = source
            elif OPS[op.name].index_map is not None and len(op.operands) == 1:
                value = op.operands[0]
            else:
                break
        return value

    def replaces_most(self, op: Op) -> bool:
        """An update of most of a tensor by what is computed from its elements elsewhere."""
        operand, update = op.operands[:2]
        starts = starts_of(op)
        if starts is None or tuning.UPDATE_SHARE * update.tensor.size < operand.tensor.size:
            return False
        todo, seen = [update], set[Value]()
        while todo and len(seen) < tuning.CHOICE_DEPTH:
            value = todo.pop()
            if value in seen or value.op is None:
                continue
            seen.add(value)
            inner = value.op
            if is_elementwise(inner):
                todo += inner.operands
            elif OPS[inner.name].index_map is not None or inner.name == CONCATENATE:
                here = inner.name == "stablehlo.slice" and inner.ints("start_indices") == starts
                if any(self.source_of(o) is operand for o in inner.operands) and not here:
                    return True
                todo += inner.operands
        return False
