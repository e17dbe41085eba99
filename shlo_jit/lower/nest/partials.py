"""Partial results of a reduction that is split along its row: their place in memory, saving and combining them.

Chunk c of row r keeps accumulator a at scratch[a][c][r]. They are combined in the order of the chunks.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, bits, i64, lanes, vector
from shlo_jit.lower.elements.registers import Reg, flatten, regroup, widen
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.position import Position
from shlo_jit.lower.nest.reductions import RowReduction, finish, initial_of, row_reductions
from shlo_jit.lower.scratch import shared_fields
from shlo_jit.schedule.nest import NestSchedule


class Partials:
    def __init__(self, b: Builder, schedule: NestSchedule, scratch: V, chunk: V | None):
        self.b = b
        self.schedule = schedule
        split = schedule.split
        assert split is not None
        self.fields = shared_fields(b, schedule.scratch, scratch)
        self.chunk = chunk
        """Number of the chunk whose part of the row is being computed; None while chunks are combined."""
        self.reductions = row_reductions(schedule.passes, 0)
        types = [part.type for r in self.reductions for part in flatten(r.reducer.like)]
        self.parts = list(zip(types, [field.name for field in split.partials], strict=True))
        """Type and scratch field of every part of every accumulator."""

    def row_number(self, position: Position) -> V:
        """Number of the row (for a vector of rows, of the first)."""
        number, size = i64(0), 1
        for v in reversed(self.schedule.space.rows):
            number = self.b.add(number, self.b.mul(position.variables[v], size))
            size *= self.schedule.space.extents[v]
        return number

    def address(self, position: Position, chunk: V, part: tuple[str, str]) -> V:
        b, (kind, field) = self.b, part
        place = b.add(b.mul(chunk, self.schedule.nest.rows), self.row_number(position))
        return b.element(self.fields[field], memory_of(kind), place)

    def save(self, ev: Evaluator, positions: list[Position], values: list[V]) -> None:
        """Stores the accumulators of the current chunk, position by position."""
        assert self.chunk is not None
        n = len(self.parts)
        for i, f in enumerate(positions):
            for part, x in zip(self.parts, values[i * n : (i + 1) * n], strict=True):
                x = self.b.cast("zext", x, "i8") if bits(x.type) == 1 else x
                address = self.address(f, self.chunk, part)
                if f.mask is not None and lanes(x.type) > 1:
                    self.b.masked_store(x, address, f.mask)
                else:
                    self.b.store(x, address)

    def read(self, position: Position, chunk: V, width: int) -> list[V]:
        b, out = self.b, []
        for part in self.parts:
            address, kind = self.address(position, chunk, part), vector(memory_of(part[0]), width)
            mask = position.mask if width > 1 else None
            x = b.load(kind, address) if mask is None else b.masked_load(kind, address, mask)
            out.append(b.cast("trunc", x, "i1") if part[0] == "i1" else x)
        return out

    def load(self, ev: Evaluator, positions: list[Position], reductions: list[RowReduction]) -> None:
        """Combines the chunks in order, then with the initial values, and makes the results known in the positions."""
        b, space = self.b, self.schedule.space
        for f in positions:
            width = f.width if space.vector in space.rows else 1
            like = [[widen(b, x, width) for x in r.reducer.like] for r in reductions]
            with b.loop_carry(1, self.schedule.tasks.units, self.read(f, i64(0), width), 1, "chunks") as carry:
                before, here = regroup(carry.values, like), regroup(self.read(f, carry.index, width), like)
                new: list[Reg] = []
                for r, x, y in zip(reductions, before, here, strict=True):
                    new += r.reducer.combine(b, x, y)
                carry.next(*flatten(new))
            for r, total in zip(reductions, regroup(carry.values, like), strict=True):
                finish(b, f, r, r.reducer.combine(b, initial_of(b, ev, f, r, width), total))


def memory_of(kind: str) -> str:
    """Type in which an accumulator is stored."""
    return "i8" if kind == "i1" else kind
