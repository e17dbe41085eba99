"""Choices: ops whose elements come from one operand or another, depending on the index. Nests read the operands
directly.

Each operand is read under the condition that the element comes from it. The last one needs no condition if the others
decide. A pad is always computed this way. A concatenation is a choice if it rearranges the elements of one tensor
(rolls, borders), or if its segments are computed from the same elements (numbers of a few bits that are unpacked). An
update is one if it replaces most of a tensor by values computed from neighbours, as in `u.at[1:-1].add(...)`. Such an
update cannot run in place, and a separate buffer would be as large.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit import tuning
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.index import At, Condition, Expr, NotAffine, Places, Split
from shlo_jit.ops import OPS, is_elementwise
from shlo_jit.sizes import Size

PAD, CONCATENATE, UPDATE = "stablehlo.pad", "stablehlo.concatenate", "stablehlo.dynamic_update_slice"
CHOICES = (PAD, CONCATENATE, UPDATE)
NEAR = (*CHOICES, "stablehlo.slice", "stablehlo.reshape", "stablehlo.broadcast_in_dim")
"""Ops that mostly map adjacent elements to adjacent elements."""


def concatenate_places(op: Op, at: At) -> Places:
    """Returns each segment with the condition that the element is in it."""
    places: Places = []
    d, offset = op.int("dimension"), 0
    for segment in op.operands:
        moved, n = ix.shift(at.index[d], -offset), segment.tensor.extents[d]
        index = (*at.index[:d], moved, *at.index[d + 1 :])
        places.append((segment, At(index, (*at.conditions, Condition(moved, 0, n)))))
        offset += n
    return places


def unpacked_places(op: Op, at: At, extents: Sequence[int]) -> Places:
    """Returns each segment of a concatenation of segments of equal length, with the condition that the element has the
    number of the segment. All are read at the same index. `extents`: those of the loops. Raises Split if a loop runs
    through several segments."""
    d = op.int("dimension")
    number, inside = _segment_number(at.index[d], op.operands[0].tensor.extents[d], extents)
    index = (*at.index[:d], inside, *at.index[d + 1 :])
    conditions = (Condition(ix.shift(number, -i), 0, 1) for i in range(len(op.operands)))
    return [(s, At(index, (*at.conditions, c))) for s, c in zip(op.operands, conditions, strict=True)]


def _segment_number(e: Expr, length: int, extents: Sequence[int]) -> tuple[Expr, Expr]:
    """Splits an index along segments of equal length into the number of the segment and the index in it. Raises Split
    if a loop has to be split for that, and NotAffine if that does not help."""
    outer = tuple((v, c // length) for v, c in e.terms if c % length == 0)
    inner = tuple((v, c) for v, c in e.terms if c % length)
    number, first = divmod(e.const, length)
    if e.syms or any(c < 0 for _, c in inner):
        raise NotAffine
    if first + sum(c * (extents[v] - 1) for v, c in inner) < length:
        return Expr(number, outer), Expr(first, inner)
    for v, c in inner:
        step = length // c
        if c * step == length and extents[v] > step > 1 and extents[v] % step == 0 and first == 0:
            raise Split(v, step)
    raise NotAffine


def update_places(op: Op, at: At) -> Places:
    """Returns the update with the condition that the element is in it, then the operand."""
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
    """Returns the start indices of an update, or None if they are not known."""
    starts = op.operands[2:]
    if any(s.op is None or s.op.name != "stablehlo.constant" for s in starts):
        return None
    if any(isinstance(n, Size) for o in op.operands[:2] for n in o.tensor.extents):
        return None
    room = [n - k for n, k in zip(op.operands[0].tensor.extents, op.operands[1].tensor.extents, strict=True)]
    asked = [int(s.op.constant.array.reshape(-1)[0]) for s in starts if s.op is not None]
    return tuple(max(0, min(x, most)) for x, most in zip(asked, room, strict=True))


def _unpacks(op: Op) -> bool:
    first = op.operands[0].tensor
    if not 1 < len(op.operands) <= tuning.UNPACKED_SEGMENTS or any(isinstance(n, Size) or not n for n in first.extents):
        return False
    if any(v.tensor.extents != first.extents for v in op.operands):
        return False
    sources = [_packed_source(v) for v in op.operands]
    return sources[0] is not None and all(s is sources[0] for s in sources)


def _packed_source(value: Value) -> Value | None:
    """Returns the tensor that a value is computed from element by element, with constants, or None. Only ops on
    integers count, which are cheap: a loop that chooses may compute all segments."""
    size = value.tensor.size
    for _ in range(tuning.UNPACKING_DEPTH):
        op = value.op
        if op is None or not op.operands:
            break
        if is_elementwise(op):
            if not op.operands[0].tensor.storage.is_integer:
                break
            operands = [v for v in op.operands if not _is_same_everywhere(v)]
        elif op.name in ("stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.transpose"):
            operands = op.operands
        else:
            break
        if len(operands) != 1 or operands[0].tensor.size != size:
            break
        value = operands[0]
    return value if value.tensor.size == size else None


def _is_same_everywhere(value: Value) -> bool:
    """Whether a value is a constant with equal elements, or repeats one."""
    op = value.op
    while op is not None and op.name == "stablehlo.broadcast_in_dim":
        op = op.operands[0].op
    return op is not None and op.name == "stablehlo.constant" and op.constant.is_splat


class Choices:
    """The ops of a block that are choices, and the tensors that values rearrange. Each answer is cached: otherwise,
    chains of concatenations of parts would take exponential time."""

    def __init__(self, block: Block) -> None:
        self._sources: dict[Value, Value] = {}
        self._rearranged: dict[Op, Value | None] = {}
        self._unpacks: dict[Op, bool] = {}
        for op in block.ops:  # in order, so that the answer for an op needs only those for earlier ops
            if op.name == CONCATENATE:
                self.rearranged(op)

    def chooses(self, op: Op) -> bool:
        """Whether nests that read a concatenation or an update choose from its operands."""
        if op.name == CONCATENATE:
            return self.rearranged(op) is not None or self.unpacks(op)
        return op.name == UPDATE and self.replaces_most(op)

    def unpacks(self, op: Op) -> bool:
        """Whether the segments of a concatenation have equal shapes and are computed from the same elements of one
        tensor, element by element and by few ops: numbers of a few bits, of which an element holds several."""
        if op not in self._unpacks:
            self._unpacks[op] = op.name == CONCATENATE and _unpacks(op)
        return self._unpacks[op]

    def rearranged(self, op: Op) -> Value | None:
        """Returns the tensor that all of a concatenation's few segments are parts of, or None."""
        if op not in self._rearranged:
            self._rearranged[op] = self._find_rearranged(op)
        return self._rearranged[op]

    def _find_rearranged(self, op: Op) -> Value | None:
        if not 1 < len(op.operands) <= tuning.CHOICE_SEGMENTS:
            return None
        if any(isinstance(n, Size) or not n for segment in op.operands for n in segment.tensor.extents):
            return None
        first, *others = (self.source_of(segment) for segment in op.operands)
        return first if all(s is first for s in others) else None

    def source_of(self, value: Value) -> Value:
        """Returns the tensor of which a value is a rearrangement."""
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
        """Whether an update replaces most of a tensor by values computed from its elements at other indices."""
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
