"""Memory of a plan's values, as data: storages, copies between them, and the arena's layout."""

from __future__ import annotations

from dataclasses import dataclass, field

from shlo_jit.fuse import index as ix
from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.plan import ControlStep, PlanBlock, ViewStep
from shlo_jit.ir.core import Value
from shlo_jit.ir.types import TensorType, TokenType, TupleType

ALIGN = 64


@dataclass(eq=False)
class Storage:
    """Memory of one or more values. `kind`: argument, result, constant, arena, none (tokens)."""

    kind: str
    nbytes: int
    number: int = 0
    """Which argument, result or constant; of the arena, the offset in bytes."""
    first: int = 1 << 60
    last: int = -1
    values: list[Value] = field(default_factory=list)

    def live(self, at: int) -> None:
        self.first, self.last = min(self.first, at), max(self.last, at)


@dataclass
class Copy:
    """Copy one value's memory to another's, at a place the plan names."""

    source: Value
    target: Value


@dataclass
class MemoryPlan:
    storage: dict[Value, Storage]
    arena_bytes: int
    constants: list[Value]
    before: dict[int, list[Copy]]
    """Copies to run before the step with this id() (updates that could not be in place, initial loop state)."""
    block_end: dict[int, list[Copy]]
    """Copies to run at the end of the block with this id() (loop state, branch results, program results)."""
    scratch: dict[int, Storage]
    """Scratch memory of the step with this id()."""
    aliases: dict[int, int]
    """Result -> donated argument whose memory it has taken over."""
    overwritten: tuple[int, ...]
    """Donated arguments that have values of the program in their memory on the way, but no result."""
    exchanges: dict[int, list[tuple[Storage, Storage]]]
    """Of the while with this id(): storages whose memory changes places at the end of every turn."""


def nbytes(value: Value) -> int:
    t = value.type
    if isinstance(t, TensorType):
        return t.nbytes
    assert isinstance(t, (TokenType, TupleType)), t
    return 0


def place(storages: list[Storage]) -> int:
    """First fit by size: each storage at the lowest offset where no storage alive at the same time lies."""
    placed: list[Storage] = []
    total = 0
    for s in sorted((s for s in storages if s.kind == "arena"), key=lambda s: (-s.nbytes, s.first)):
        meeting = [p for p in placed if p.first <= s.last and s.first <= p.last]
        offset = 0
        for p in sorted(meeting, key=lambda p: p.number):
            if p.number >= offset + s.nbytes:
                break
            offset = max(offset, -(-(p.number + p.nbytes) // ALIGN) * ALIGN)
        s.number = offset
        placed.append(s)
        total = max(total, offset + s.nbytes)
    return -(-total // ALIGN) * ALIGN


def read_inside(step: ControlStep) -> set[Value]:
    """What the regions of a control step read or return: their own values, and those of the blocks around."""
    found: set[Value] = set()
    for block in step.blocks:
        found.update(block.results)
        for inner in block.steps:
            found.update(inner.reads)
            if isinstance(inner, ControlStep):
                found |= read_inside(inner)
    return found


def view_closure(body: PlanBlock, value: Value) -> set[Value]:
    """The value and everything that is a view of it in the block."""
    out = {value}
    for step in body.steps:
        if isinstance(step, ViewStep) and step.op.operands[0] in out:
            out.add(step.op.results[0])
    return out


def pointwise(nest: Nest, operand: Value, index: tuple[ix.Expr, ...], target: Value) -> bool:
    """Every element of `operand` is read only by the turn that writes the same element of the target, before it."""
    phases = len(nest.reduce_vars) > 0
    want = ix.linearize(index, target.tensor.extents)
    places = [at for v, at in nest.loads if v is operand]
    if phases or any(at.conditions for at in places):
        return False
    if operand.tensor.storage.itemsize != target.tensor.storage.itemsize:
        return False
    return all(ix.linearize(at.index, operand.tensor.extents) == want for at in places)
