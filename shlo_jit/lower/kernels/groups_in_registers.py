"""Lowers sums over groups of products of bytes by a few vectors, as `schedule/groups_in_registers.py` has decided.

The vectors are copied first, so that their terms lie as those of an output do in a register:

    x[r, g, 2 * i], then x[r, g, 2 * i + 1]       with i along all groups, for two elements of a byte
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from shlo_jit.fuse.plan import ComputedOperandStep
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.gemm.dot_instructions import dot_bytes, multiply_byte_pairs, multiply_bytes, multiply_pairs
from shlo_jit.kernels.gemm.micro import fold
from shlo_jit.kernels.llvm_values import V, const, i64, is_float, lanes, vector
from shlo_jit.lower.elements.registers import memory_type, register_type, to_memory
from shlo_jit.lower.kernels.bytes_in_registers import less_smallest
from shlo_jit.lower.kernels.units import run_units
from shlo_jit.lower.kernels.units_in_registers import Variables, combinations, load_common_indices, moved_pointers
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.nest import check_supported
from shlo_jit.lower.nest.position import Position
from shlo_jit.lower.scratch import shared_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.groups_in_registers import LANE, GroupsSchedule

OUTPUTS = 16
"""Outputs whose terms stay in a cache for several passes."""
LEAST = 16
"""Bytes of the shortest registers that instructions multiply."""
IN_LANE = 4
"""Numbers of 32 bits within which the fastest shuffles move them."""


def lower_groups(low: Services, step: ComputedOperandStep, s: GroupsSchedule) -> None:
    """Copies the vectors, and runs the tasks."""
    own = s.totals.epilogue.schedule.nest
    check_supported(s.nest)
    check_supported(own)
    fields = shared_fields(low.b, s.scratch, low.scratch(step))
    vectors, sums = fields["vectors"], fields["sums"]
    source = low.pointer(step.product.op.operands[1 - s.side])
    low.b.call("void", _copying(low, s), [source, vectors, sums], declare=False)
    made = {s.totals.buffer, s.totals.total}
    values = list(dict.fromkeys(v for v, _ in (*s.nest.loads, *own.loads) if v not in made))
    pointers = [*map(low.pointer, values), vectors, sums, low.pointer(s.totals.total)]
    write = partial(_write, s=s, values=values)
    run_units(low, f"{step.producer.hint}_groups", pointers, write, s.tasks)


def _copying(low: Services, s: GroupsSchedule) -> str:
    """Writes `void @name(ptr from, ptr to, ptr sums)`, which copies the vectors, and sums up the terms of each group
    times the number that is subtracted from the elements of M. Returns its name."""
    name = low.new_name("vectors")
    params = [("ptr", "from"), ("ptr", "to"), ("ptr", "sums")]
    b = low.module.function(name, params, noalias=True, attributes="nounwind")
    source, to, sums = b.params
    row, step, batch = _strides(s)
    is_run = step == 1 and s.along[s.lanes] == len(list(_elements(s)))
    n = min(s.group_bytes, s.register) if is_run else 1
    with b.loop(0, s.rows, hint="vector") as r, b.loop(0, s.groups, hint="group") as g:
        of = b.offset(source, b.add(b.mul(r, row), b.mul(g, batch)))
        at = b.offset(to, b.add(b.mul(r, s.row), b.mul(g, s.group_bytes)))
        with b.loop_carry(0, s.group_bytes, [const(vector("i32", n), 0)], n, "terms") as carry:
            total = carry.values[0]
            first = b.offset(of, b.mul(carry.index, s.along[s.lanes] * step))
            for i, x in enumerate(_terms(b, s, first, step, n)):
                b.store(x, b.offset(at, b.add(carry.index, i * s.run)), align=1)
                total = b.add(total, b.cast("sext", x, "i32"))
            carry.next(total)
        total = b.mul(fold(b, carry.values[0]), const("i32", s.dots.low))
        b.store(total, b.offset(sums, b.mul(b.add(b.mul(r, s.groups), g), 4)), align=4)
    b.ret()
    return low.share("vectors", name)


def _terms(b: Builder, s: GroupsSchedule, first: V, step: int, n: int) -> Iterator[V]:
    """The terms for each element of n bytes of M, which are adjacent if there are several."""
    places = [sum(s.along[v] * k for v, k in inner.items()) for inner in _elements(s)]
    if n == 1:
        yield from (b.load("i8", b.offset(first, place * step)) for place in places)
        return
    run = b.load(vector("i8", n * len(places)), first, align=1)
    for place in places:
        yield b.shuffle(run, None, range(place, n * len(places), len(places)))


def _strides(s: GroupsSchedule) -> tuple[int, int, int]:
    """Elements from one vector, term and group to the next, in the product's operand."""
    of = s.strides
    return (of.a_rs, of.a_cs, of.a_bs) if s.side else (of.b_cs, of.b_rs, of.b_bs)


def _elements(s: GroupsSchedule) -> Iterator[dict[int, int]]:
    """The elements of a byte."""
    return combinations(s.nest, s.short)


def _write(b: Builder, pointers: list[V], first: V, last: V, s: GroupsSchedule, values: list[Value]) -> None:
    """Emits the loops over some outputs, passes over their terms for some vectors each, and these outputs. The last
    vectors may have been among those before."""
    given = dict(zip(values, pointers[: len(values)], strict=True))
    writer = _Output(b, s, given, *pointers[len(values) :])
    step = 1 if s.passes == 1 else OUTPUTS
    with b.loop(first, last, step, "block") as block:
        end = b.min_(b.add(block, step), last)
        with b.loop(0, s.passes, 1, "pass") as i, b.loop(block, end, 1, "output") as o:
            writer.write(o, b.min_(b.mul(i, s.count), s.rows - s.count))


class _Output:
    """Writes the sums of an output and some vectors."""

    def __init__(self, b: Builder, s: GroupsSchedule, given: dict[Value, V], vectors: V, sums: V, out: V):
        self.b, self.s, self.vectors, self.sums = b, s, vectors, sums
        self.elements = list(_elements(s))
        moved = moved_pointers(b, s.nest, s.space, s.offsets, given)
        self.ev = Evaluator(b, s.nest, s.space, given | moved)
        nest, self.totals = s.totals.epilogue.schedule.nest, s.totals
        self.total_nest = nest
        self.pointers = given | {self.totals.total: out}
        self.total_ev = self.evaluator(s.together)
        self.known = Position({}, 1)
        load_common_indices(self.ev, self.known)
        (self.store,) = nest.stores
        (self.dot,) = [key for key in nest.loads if key[0] is self.totals.buffer]
        (self.total,) = [key for key in nest.loads if key[0] is self.totals.total]

    def evaluator(self, n: int) -> Evaluator:
        """What computes f for n groups."""
        return Evaluator(self.b, self.total_nest, self.s.total_space._replace(width=n), self.pointers)

    def write(self, o: V, first: V) -> None:
        """Emits the sums of an output and some vectors."""
        b, s = self.b, self.s
        rows, outputs, _ = s.variables
        extents = self.total_nest.extents
        self.here = _place(b, o, list(s.free), s.nest.extents)
        output = _place(b, o, outputs, extents)
        numbers = [b.add(first, r) for r in range(s.count)]
        self.sums_here = [b.offset(self.sums, b.mul(r, 4 * s.groups)) for r in numbers]
        self.factors = [b.offset(self.vectors, b.mul(r, s.row)) for r in numbers]
        self.places = [output | _place(b, r, rows, extents) for r in numbers]
        self.store_all(self.totals_of_groups())

    def totals_of_groups(self) -> list[V]:
        """The sums over all groups."""
        b, s = self.b, self.s
        n, whole = s.together, s.groups // s.together * s.together
        kind = register_type(self.store.target.tensor.storage)
        with b.loop_carry(0, whole, [const(vector(kind, n), 0)] * s.count, n, "groups") as carry:
            carry.next(*self.block(carry.index, n, carry.values))
        found = [fold(b, total) for total in carry.values]
        add = b.fadd if is_float(kind) else b.add
        while whole < s.groups:
            n = 1 << (s.groups - whole).bit_length() - 1
            more = self.block(i64(whole), n, [const(vector(kind, n), 0)] * s.count)
            found = [add(total, fold(b, x)) for total, x in zip(found, more, strict=True)]
            whole += n
        return found

    def store_all(self, totals: Sequence[V]) -> None:
        b, target = self.b, self.store.target
        offset, dtype = ix.linearize(self.store.index, target.tensor.extents), target.tensor.storage
        for place, total in zip(self.places, totals, strict=True):
            index = self.total_ev.base(Position(place | {self.s.variables[2]: i64(0)}, 1), offset)
            at = b.element(self.total_ev.pointers[target], memory_type(dtype), index)
            b.store(to_memory(b, dtype, total), at, align=dtype.itemsize)

    def block(self, g: V, n: int, totals: Sequence[V]) -> list[V]:
        """Adds what f computes from the sums of n groups to the totals of each vector, in lanes."""
        b, s = self.b, self.s
        products, ev = self.products(g, n), self.evaluator(n)
        found: list[V] = []
        for r, place in enumerate(self.places):
            dot = products[r]
            if s.dots.low:
                at = b.offset(self.sums_here[r], b.mul(g, 4))
                dot = b.add(dot, b.load(vector("i32", n), at, align=4))
            position = Position(place | {s.variables[2]: g}, n)
            position.memo.update({self.dot: dot, self.total: totals[r]})
            total = ev.value(position, (self.store.value, self.store.at))
            assert isinstance(total, V)
            found.append(total)
        return found

    def products(self, g: V, n: int) -> list[V]:
        """The products of n groups and each vector, in lanes. Registers with the sums of adjacent groups are added up
        in pairs as soon as there are two, so that few are alive."""
        b, s = self.b, self.s
        nbytes = n * s.group_bytes
        width = min(s.register, nbytes)
        per_group = max(1, s.group_bytes // width)
        waiting: list[_Parts] = []
        sums: list[V] = []
        for i in range(nbytes // width):
            if i % per_group == 0:
                sums = [const(vector("i32", max(width, LEAST) // LANE), 0)] * s.count
            sums = self.add_products(g, i * width, width, sums)
            if (i + 1) % per_group:
                continue
            if width < LEAST:
                sums = [b.shuffle(x, None, range(width // LANE)) for x in sums]
            found = _Parts(sums, [(i * width + LANE * lane) // s.group_bytes for lane in range(width // LANE)])
            while waiting and waiting[-1].per_group == found.per_group > 1:
                found = waiting.pop().paired(b, found)
            waiting.append(found)
        (found,) = waiting
        while found.per_group > 1:
            found = found.paired(b, None)
        return found.in_order(b)

    def add_products(self, g: V, first: int, width: int, sums: Sequence[V]) -> list[V]:
        """Adds the products of a register of M and each vector to lanes of 32 bits. `first`: bytes from the start of
        group g on."""
        b, s, found = self.b, self.s, list(sums)
        group = b.add(g, first // s.group_bytes)
        at = i64(first % s.group_bytes)
        place = b.add(b.mul(group, s.group_bytes), at)
        elements = [
            self.element({**self.here, s.group: group, s.lanes: at, **{v: i64(k) for v, k in inner.items()}}, width)
            for inner in self.elements
        ]
        for r in range(s.count):
            factors = [
                b.load(vector("i8", width), b.offset(self.factors[r], b.add(place, i * s.run)), align=1)
                for i in range(len(elements))
            ]
            found[r] = self.multiply([_filled(b, x) for x in elements], [_filled(b, x) for x in factors], found[r])
        return found

    def element(self, variables: Variables, width: int) -> V:
        """A register of M, less its smallest element."""
        s = self.s
        return less_smallest(self.b, self.ev, Position(variables, width, None, self.known), s.key, s.dots.low)

    def multiply(self, elements: Sequence[V], factors: Sequence[V], total: V) -> V:
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


def _filled(b: Builder, x: V) -> V:
    """The lanes, followed by zeros up to the shortest register."""
    n = lanes(x.type)
    return x if n >= LEAST else b.shuffle(x, const(x.type, 0), [*range(n), *[n] * (LEAST - n)])


class _Parts(NamedTuple):
    """Lanes with parts of the sums of groups, for each vector."""

    sums: list[V]
    groups: list[int]
    """The group of each lane."""

    @property
    def per_group(self) -> int:
        """Parts of a group."""
        return self.groups.count(self.groups[0])

    def paired(self, b: Builder, other: _Parts | None) -> _Parts:
        """Adds up lanes in pairs: adjacent ones or, once these belong to different groups, the nearest ones of the same
        group. Shuffles within 128 bits take less time than others."""
        n, step = len(self.groups), self.groups.index(self.groups[0], 1)
        size = n if other is None else 2 * n
        first = [i for i in range(size) if i % (2 * step) < step]
        if step == 1 and other is not None and n > IN_LANE:
            first = [q + o + i for q in range(0, n, IN_LANE) for o in (0, n) for i in range(0, IN_LANE, 2)]
        second = [i + step for i in first]
        sums = list[V]()
        for r, x in enumerate(self.sums):
            y = None if other is None else other.sums[r]
            sums.append(b.add(b.shuffle(x, y, first), b.shuffle(x, y, second)))
        groups = [*self.groups, *(other.groups if other is not None else [])]
        return _Parts(sums, [groups[i] for i in first])

    def in_order(self, b: Builder) -> list[V]:
        if len(self.groups) == 1:
            return [b.extract(x, 0) for x in self.sums]
        order = sorted(range(len(self.groups)), key=self.groups.__getitem__)
        return self.sums if order == list(range(len(order))) else [b.shuffle(x, None, order) for x in self.sums]


def _place(b: Builder, number: V, over: Sequence[int], extents: Mapping[int, int] | Sequence[int]) -> Variables:
    """The iterations of some variables, outermost first, of which this is the number."""
    found: Variables = {}
    for v in reversed(over):
        found[v], number = b.urem(number, extents[v]), b.udiv(number, extents[v])
    return found
