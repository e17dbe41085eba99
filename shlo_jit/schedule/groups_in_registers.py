"""Schedule of a sum over groups of products of bytes, by few vectors, where each group has its own scales:

    y[r, o] = sum over g of f(sum over t of x[r, g, t] * M[o, g, t], scales[o, g], ...)

The bytes of an output are one run in memory, so a register holds terms of several short groups. The exact sums of as
many groups as there are lanes are computed together. Then the loop f runs once for all of them, with lanes along the
groups, as the scales of an output are contiguous too.

Groups may be numbered by several variables, as the blocks of superblocks that have scales of their own. The innermost
variable of f is the one along lanes. Some variables of M may number groups within a byte: a byte then holds terms of
several groups.

With more vectors, lanes are adjacent outputs. Their bytes are transposed first, so that a register holds some terms of
each of them. Then the sums of a group are in lanes as they are, and so are those over all groups.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.fuse.plan import ComputedOperandStep
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import I8
from shlo_jit.kernels.gemm.known_sizes import Layout
from shlo_jit.kernels.target import Target
from shlo_jit.ops.integer_ranges import range_of
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.moves import IllegalMove, Vectorize
from shlo_jit.schedule.operand_in_registers import ordered
from shlo_jit.schedule.product_layout import ProductLayout
from shlo_jit.schedule.register_dots import FACTOR, SHORT_SUM
from shlo_jit.schedule.register_vectors import ALIASED, LINE
from shlo_jit.schedule.run_time_offsets import Offsets, bits_in_memory, take_offsets
from shlo_jit.schedule.scratch import Field, Scratch
from shlo_jit.schedule.shared_units import split_units
from shlo_jit.schedule.space import Order, Space, linear, make_space
from shlo_jit.schedule.summed_products import SUMMED, Totals, schedule_totals
from shlo_jit.schedule.tasks import Tasks, cut, shared

LANE = 4
"""Terms that a lane of 32 bits adds up."""
TOGETHER = 4
"""Maximum vectors whose sums are in registers together."""
BLOCK_ROWS = 4
"""Minimum vectors for which bytes are transposed. Zen 4, 3072x576 of 4 bits from memory: 2 vectors would take 1.4 times
as long as without, 3 would take 1.15 times, and 8 take 0.6."""
UNITS = 4
"""Minimum blocks of a task, if there are many."""
FEW_TASKS = 4
"""Tasks from which on they are as long as that."""
BLOCK_BYTES = 1 << 14
"""Maximum bytes that are transposed at a time: they stay in a first-level cache."""
LONG = 4
"""Maximum registers of a group. Longer groups are multiplied one after the other (`operand_in_registers.py`)."""


class Dots(NamedTuple):
    """How registers of bytes are multiplied."""

    kind: str
    """`vnni` (`vpdpbusd`), `pairs` (`vpmaddubsw`) or `dot` (`sdot`)."""
    low: int
    """The number that is subtracted from the elements of M, so that they have no sign."""
    together: int = 1
    """Registers whose sums fit 16 bits together (`pairs`)."""


class Groups(NamedTuple):
    """The variables of M that number groups, outermost first."""

    outer: list[int]
    """Those outside of the groups whose sums are in lanes."""
    group: int
    """The one along which the bytes of groups follow one another in memory."""
    in_byte: list[int]
    """Those that number elements of a byte."""


class Block(NamedTuple):
    """How adjacent outputs are computed in lanes."""

    outputs: int
    """Number of lanes."""
    variable: int
    """The variable that numbers the outputs in the loops of M."""
    space: Space
    """The loops of f, with lanes along the outputs."""
    arranged: tuple[Key, ...]
    """Arrays of f that are contiguous along the groups, and are transposed too."""
    chunk: int
    """Groups whose terms are transposed at a time."""
    rows: int
    """Vectors whose sums are in registers together."""


@dataclass(frozen=True, kw_only=True)
class GroupsSchedule(KernelSchedule):
    """Schedule of a sum over groups of products of bytes."""

    nest: Nest
    """The loop that computes M, without the offsets."""
    offsets: Offsets
    key: Key
    """The element of M."""
    space: Space
    """Its loops, with lanes along the bytes of groups."""
    dots: Dots
    register: int
    """Bytes of a register."""
    group: int
    """The variable that numbers groups whose bytes follow one another."""
    outer: list[int]
    """The variables that number groups outside of it, outermost first."""
    in_byte: list[int]
    """The variables that number groups and elements of a byte, outermost first."""
    lanes: int
    """The variable that numbers bytes of a group."""
    along: dict[int, int]
    """The variables that number terms, with their coefficients, outermost first: that along the lanes, and those that
    number elements of a byte."""
    free: dict[int, int]
    """The variables that number outputs, with their coefficients, outermost first."""
    side: int
    """The operand that is M."""
    rows: int
    """Number of vectors."""
    strides: Layout
    """Strides of the product's operands."""
    totals: Totals
    """The loop f, which adds what it computes to the sums, and the buffer that it reads the products from."""
    total_space: Space
    """Its loops, with lanes along the groups."""
    variables: tuple[tuple[int, ...], tuple[int, ...], int]
    """Its variables that number vectors and outputs, outermost first, and groups along lanes."""
    outer_variables: tuple[int, ...]
    """Its other variables that number groups, outermost first."""
    block: Block | None
    """How most outputs are computed, if lanes are outputs: all but the last of each run that fill no register."""
    tasks: Tasks
    """Units are outputs, or runs of as many as a block has."""

    @property
    def passes(self) -> int:
        """How often the terms of an output are read, for `count` vectors each."""
        return -(-self.rows // TOGETHER)

    @property
    def count(self) -> int:
        return -(-self.rows // self.passes)

    @property
    def groups(self) -> int:
        return self.outer_groups * self.inner_groups

    @property
    def outer_groups(self) -> int:
        """Number of iterations of the variables outside of the groups that are numbered along lanes."""
        return math.prod(self.nest.extents[v] for v in self.outer)

    @property
    def inner_groups(self) -> int:
        """Number of groups that are numbered along lanes."""
        return self.nest.extents[self.group] * self.groups_in_byte

    @property
    def groups_in_byte(self) -> int:
        """Number of groups that share bytes."""
        return math.prod(self.nest.extents[v] for v in self.in_byte)

    @property
    def group_bytes(self) -> int:
        """Bytes of M in a group, and terms of a vector for each combination of the elements of a byte."""
        return self.nest.extents[self.lanes]

    @property
    def together(self) -> int:
        """Groups whose sums are computed together."""
        return self.total_space.width

    @property
    def short(self) -> list[int]:
        """The variables that number terms and elements of a byte."""
        return [v for v in self.along if v != self.lanes]

    @property
    def run(self) -> int:
        """Bytes of a vector for one combination of the elements of a byte."""
        return self.groups // self.groups_in_byte * self.group_bytes

    @property
    def row(self) -> int:
        """Bytes from one vector to the next: they share no lines of a first-level cache."""
        in_byte = (*self.short, *self.in_byte)
        size = -(-self.run * math.prod(self.nest.extents[v] for v in in_byte) // LINE) * LINE
        return size + (2 * LINE if size % ALIASED == 0 else 0)

    @property
    def outputs(self) -> int:
        return math.prod(self.nest.extents[v] for v in self.free)

    @property
    def is_tasks(self) -> bool:
        return True

    @property
    def notes(self) -> list[Note]:
        head = Note("operand", "computed in registers", Reason("few-rows-reuse", f"{self.rows} vectors use it"))
        text = "the arrays that the operand is computed from are contiguous along its terms"
        why = Reason("operand-contiguous", text)
        lanes = Note("lanes", f"{self.register} terms, then {self.together} groups", why)
        if self.block is not None:
            lanes = Note("lanes", f"{self.block.outputs} outputs, whose terms are transposed", why)
        unit = self.tasks.note("output" if self.block is None else "unit")
        return [head, lanes, unit, Note("sum", "over the products, in lanes", SUMMED)]


def schedule_groups(step: ComputedOperandStep, layout: ProductLayout, context: Context) -> GroupsSchedule | None:
    """Returns the schedule; None if the product is no such sum, or is computed in another way."""
    op, side, target = step.product.op, step.operand.side, context.target
    rows = layout.result.m if side else layout.result.n
    if step.summed is None or target.reproducible:
        return None
    dots = _dots_of(op, side, target)
    if dots is None:
        return None
    nest, offsets = take_offsets(step.producer.nest)
    nest, operand = split_units(nest, step.operand, target, are_bytes=True)
    batch, along, free = (ordered(nest, part) for part in operand.parts)
    *outer, number = step.summed.batch
    totals = schedule_totals(step, layout, target)
    if totals is None or not free:
        return None
    own = totals.epilogue.schedule.nest
    groups = _groups_of(nest, batch, along, own.extents[number])
    found = None if groups is None else _lanes_of(nest, groups, along, target)
    total_space = _with_lanes(own, number, target)
    if groups is None or found is None or total_space is None:
        return None
    lanes, space = found
    outputs = math.prod(nest.extents[v] for v in free)
    parts = (step.summed.rows, step.summed.columns) if side else (step.summed.columns, step.summed.rows)
    if [math.prod(own.extents[v] for v in part) for part in parts] != [rows, outputs]:
        return None
    each = sum(cost(n.op) for n in nest.nodes.values())
    terms = math.prod(nest.extents)
    found = GroupsSchedule(
        nest=nest,
        offsets=offsets,
        key=(nest.stores[0].value, nest.stores[0].at),
        space=space,
        dots=dots,
        register=target.vector_bits // 8,
        group=groups.group,
        outer=groups.outer,
        in_byte=groups.in_byte,
        lanes=lanes,
        along=along,
        free=free,
        side=side,
        rows=rows,
        strides=layout.operands,
        totals=totals,
        total_space=total_space,
        variables=(*parts, number),
        outer_variables=tuple(outer),
        block=None,
        tasks=cut(outputs, terms * (rows + each)),
    )
    block = _block_of(found, target) if not found.outer and not found.in_byte else None
    if block is not None:
        run = nest.extents[block.variable]
        units = outputs // run * -(-run // block.outputs)
        found = replace(found, block=block, tasks=_tasks_of_blocks(units, terms * (rows + each)))
    fields = Field("vectors", rows * found.row), Field("sums", rows * found.groups * 4)
    return replace(found, scratch=Scratch(shared=fields))


def _dots_of(op: Op, side: int, target: Target) -> Dots | None:
    """The instructions that multiply four terms in a lane of 32 bits; None if there are none for the types."""
    x, m = op.operands[1 - side], op.operands[side]
    ends = range_of(m, tuning.BYTE_SEARCH)
    if x.tensor.storage != I8 or op.result.tensor.storage.name != "i32" or ends is None:
        return None
    low, high = ends
    if m.tensor.storage.name not in ("i8", "ui8"):
        return None
    if not target.is_x86:
        return Dots("dot", 0) if target.has_byte_dot(same_sign=m.tensor.storage == I8) else None
    low = min(low, 0)
    if target.has_vnni:
        return Dots("vnni", low)
    together = SHORT_SUM // (2 * FACTOR * max(high - low, 1))
    return Dots("pairs", low, together) if target.has_byte_pairs and together else None


def _groups_of(nest: Nest, batch: dict[int, int], along: dict[int, int], inner: int) -> Groups | None:
    """The variables that number groups, of which `inner` are along lanes; None if their order in memory is another."""
    moving = [(linear(k), bits_in_memory(k[0])) for k in nest.loads if any(linear(k).coefficient(v) for v in along)]
    outer = [v for v in batch if batch[v] >= inner]
    in_byte = [v for v in batch if moving and all(0 <= e.coefficient(v) * bits < 8 for e, bits in moving)]
    others = [v for v in batch if v not in outer and v not in in_byte]
    if len(others) != 1 or set(outer) & set(in_byte):
        return None
    step = 1
    for v in reversed([*outer, *others, *in_byte]):
        if batch[v] != step:
            return None
        step *= nest.extents[v]
    each = math.prod(nest.extents[v] for v in in_byte)
    if nest.extents[others[0]] * each != inner or each & each - 1:
        return None
    return Groups(outer, others[0], in_byte)


def _lanes_of(nest: Nest, groups: Groups, along: dict[int, int], target: Target) -> tuple[int, Space] | None:
    """The variable along the bytes of a group, and the loops with lanes along it: if a group is shorter than a
    register, they go on in the next groups, which follow in memory. Other variables number elements of a byte."""
    places = [at for _, at in (*nest.nodes, *nest.loads)]
    if not along or any(at.conditions for at in places):
        return None
    if any(node.op.name == "stablehlo.iota" for node in nest.nodes.values()):
        return None
    group, register = groups.group, target.vector_bits // 8
    moving = [(linear(k), bits_in_memory(k[0])) for k in nest.loads if any(linear(k).coefficient(v) for v in along)]
    lanes = next((v for v in along if all(e.coefficient(v) * bits == 8 for e, bits in moving)), None)
    if not moving or lanes is None:
        return None
    others = [e.coefficient(v) * bits for e, bits in moving for v in along if v != lanes]
    if any(not 0 <= distance < 8 for distance in others):
        return None
    size = nest.extents[lanes]
    if (size % register and (size & size - 1 or size < LANE)) or size > LONG * register:
        return None
    if size < register and any(linear(k).coefficient(group) != size * linear(k).coefficient(lanes) for k in nest.loads):
        return None
    space = make_space(nest, target, Order.ANY, given=())
    return lanes, space._replace(vector=lanes, width=register)


def _with_lanes(nest: Nest, number: int, target: Target) -> Space | None:
    """The loops of f with lanes along the groups; None if that is not possible."""
    lanes = min(target.lanes(32), 1 << nest.extents[number].bit_length() - 1)
    with suppress(IllegalMove):
        return make_space(nest, target, Order.ANY, given=(Vectorize(number, lanes),))
    return None


def _block_of(s: GroupsSchedule, target: Target) -> Block | None:
    """How adjacent outputs are computed in lanes, if there are enough vectors, and all arrays can be transposed."""
    own, variable, lanes = s.totals.epilogue.schedule.nest, [*s.free][-1], s.register // LANE
    _, outputs, _ = s.variables
    run, groups = s.nest.extents[variable], s.groups
    if s.rows < BLOCK_ROWS or run < lanes or own.extents[outputs[-1]] % run or not _are_transposable(s, variable):
        return None
    with suppress(IllegalMove):
        space = make_space(own, target, Order.ANY, given=(Vectorize(outputs[-1], lanes),))
        arranged = _arranged(s, space)
        if arranged is None:
            return None
        most = max(2, BLOCK_BYTES // (lanes * s.group_bytes * math.prod(s.nest.extents[v] for v in s.short)))
        chunk = -(-groups // -(-groups // most))
        return Block(lanes, variable, space, arranged, chunk, _divided(s.rows, target.vector_registers // 4))
    return None


def _tasks_of_blocks(units: int, work: int) -> Tasks:
    """Tasks of several blocks, if there are enough: all but the first of a task are fetched by the one before."""
    tasks = cut(units, work)
    most = units // UNITS
    if tasks.tasks <= most or most < FEW_TASKS:
        return tasks
    return shared(units, most, Reason("tasks-by-work", f"a task has at least {UNITS} units, which fetch the next ones"))


def _divided(rows: int, most: int) -> int:
    """The number of vectors of a pass, if each has at most so many."""
    return -(-rows // -(-rows // most))


def _are_transposable(s: GroupsSchedule, variable: int) -> bool:
    """Whether M is computed from bytes only, one or several for each lane, which are contiguous along all terms of an
    output, and read once."""
    seen = set[Value]()
    for key in s.nest.loads:
        value, offset, bits = key[0], linear(key), bits_in_memory(key[0])
        along = offset.coefficient(s.lanes)
        if value in seen or offset.syms or along * bits != 8 or offset.coefficient(s.group) != s.group_bytes * along:
            return False
        if offset.const * bits % 8 or offset.coefficient(variable) * bits % 8:
            return False
        seen.add(value)
    return True


def _arranged(s: GroupsSchedule, space: Space) -> tuple[Key, ...] | None:
    """The arrays of f that are contiguous along the groups instead of the outputs; None if others are contiguous along
    neither of them."""
    found: list[Key] = []
    for key in s.totals.epilogue.schedule.nest.loads:
        offset, lanes = linear(key), {space.vector} if space.vector is not None else set[int]()
        if key[0] in (s.totals.buffer, s.totals.total) or not space.depends(key[1], lanes):
            continue
        if space.vector is not None and not offset.syms and offset.coefficient(space.vector) == 1:
            continue
        is_plain = not (offset.syms or key[1].conditions or key[0].tensor.is_packed or key[0].tensor.storage.is_complex)
        if not is_plain or offset.coefficient(s.variables[2]) != 1:
            return None
        found.append(key)
    return tuple(found)
