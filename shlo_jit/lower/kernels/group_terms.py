"""What both writers of sums over groups of products of bytes need: elements of the matrix, their products with those of
the vectors, and the places of the sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shlo_jit.fuse.nest import Key
from shlo_jit.ir.core import Value
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.gemm.dot_instructions import dot_bytes, multiply_byte_pairs, multiply_bytes, multiply_pairs
from shlo_jit.kernels.llvm_values import V, const, i64, lanes, vector
from shlo_jit.lower.elements.registers import register_type
from shlo_jit.lower.kernels.units_in_registers import Variables, combinations, load_common_indices, moved_pointers
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.position import Position
from shlo_jit.schedule.groups_in_registers import GroupsSchedule
from shlo_jit.schedule.run_time_offsets import bits_in_memory
from shlo_jit.schedule.space import Space, linear


class GroupTerms:
    """The loops of a sum over groups: `ev` computes the matrix M, and evaluators of `totals` the loop f."""

    def __init__(self, b: Builder, s: GroupsSchedule, given: Mapping[Value, V], vectors: V, sums: V, out: V):
        """`given`: addresses of arrays. `vectors`, `sums`: what `groups_in_registers.py` has copied and summed up.
        `out`: address of the result."""
        self.b, self.s, self.vectors, self.sums = b, s, vectors, sums
        self.elements = list(elements_of_byte(s))
        given = dict(given)
        self.ev = Evaluator(b, s.nest, s.space, given | moved_pointers(b, s.nest, s.space, s.offsets, given))
        self.known = Position({}, 1)
        load_common_indices(self.ev, self.known)
        self.nest, totals = s.totals.epilogue.schedule.nest, s.totals
        self.pointers = given | {totals.total: out}
        (self.store,) = self.nest.stores
        (self.dot,) = [key for key in self.nest.loads if key[0] is totals.buffer]
        (self.total,) = [key for key in self.nest.loads if key[0] is totals.total]
        self.kind = register_type(self.store.target.tensor.storage)

    def totals(self, space: Space) -> Evaluator:
        """What computes f in some lanes."""
        return Evaluator(self.b, self.nest, space, self.pointers)

    def first_byte(self, here: Variables, key: Key) -> tuple[V, int]:
        """The address of the first byte of an output in an array of M, and the bytes to that of the next iteration of
        its last variable."""
        b, s, bits, offset = self.b, self.s, bits_in_memory(key[0]), linear(key)
        zeros = dict.fromkeys((*s.outer, s.group, *s.in_byte, s.lanes, *s.short), i64(0))
        first = self.ev.base(Position(here | zeros, 1), offset)
        step = offset.coefficient([*s.free][-1]) * bits // 8
        return b.offset(self.ev.pointers[key[0]], b.ashr(b.mul(first, bits), 3)), step

    def places(self, o: V, rows: Sequence[V]) -> list[Variables]:
        """The iterations of f for an output and some vectors."""
        of_rows, outputs, _ = self.s.variables
        output = place_of(self.b, o, outputs, self.nest.extents)
        return [output | place_of(self.b, r, of_rows, self.nest.extents) for r in rows]

    def multiply(self, elements: Sequence[V], factors: Sequence[V], total: V) -> V:
        """Adds the products of registers of bytes to lanes of 32 bits."""
        b, s = self.b, self.s
        pairs = list(zip(elements, factors, strict=True))
        if s.dots.kind == "pairs":
            n = lanes(elements[0].type) // 2
            ones = const(vector("i16", n), 1)
            for first in range(0, len(pairs), s.dots.together):
                short = const(ones.type, 0)
                for x, y in pairs[first : first + s.dots.together]:
                    short = b.add(short, multiply_byte_pairs(b, x, y))
                total = multiply_pairs(b, short, ones, total)
            return total
        for x, y in pairs:
            if s.dots.kind == "vnni":
                total = multiply_bytes(b, x, y, total)
            else:
                total = dot_bytes(b, y, "i8", x, s.key[0].tensor.storage.name, total)
        return total


def elements_of_byte(s: GroupsSchedule) -> Iterator[dict[int, int]]:
    """The elements of a byte, those of a group after those of the one before."""
    return combinations(s.nest, [*s.in_byte, *s.short])


def place_of(b: Builder, number: V, over: Sequence[int], extents: Mapping[int, int] | Sequence[int]) -> Variables:
    """The iterations of some variables, outermost first, of which this is the number."""
    found: Variables = {}
    for v in reversed(over):
        found[v], number = b.urem(number, extents[v]), b.udiv(number, extents[v])
    return found
