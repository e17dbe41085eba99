"""Lowers sums over groups of products of bytes by a few vectors, as `schedule/groups_in_registers.py` has decided.

The vectors are copied first, so that their terms lie as those of an output do in a register:

    x[r, g, 2 * i], then x[r, g, 2 * i + 1]       with i along all groups, for two elements of a byte
    x[r, 2 * g, i], then x[r, 2 * g + 1, i]       likewise if two groups share bytes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from shlo_jit.fuse.plan import ComputedOperandStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.lane_sums import fold
from shlo_jit.kernels.llvm_values import V, const, vector
from shlo_jit.lower.kernels.group_terms import GroupTerms
from shlo_jit.lower.kernels.groups_by_outputs import LanesOfOutputs
from shlo_jit.lower.kernels.groups_in_lanes import LanesOfGroups
from shlo_jit.lower.kernels.units import run_units
from shlo_jit.lower.kernels.units_in_registers import combinations
from shlo_jit.lower.nest.nest import check_supported
from shlo_jit.lower.scratch import shared_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.groups_in_registers import GroupsSchedule

OUTPUTS = 16
"""Outputs whose terms stay in a cache for several passes."""


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
    each = list(combinations(s.nest, s.short))
    is_run = step == 1 and s.along[s.lanes] == len(each)
    n = min(s.group_bytes, s.register) if is_run else 1
    with (
        b.loop(0, s.rows, hint="vector") as r,
        b.loop(0, s.groups // s.groups_in_byte, hint="group") as g,
        b.loop(0, s.groups_in_byte, hint="shared") as h,
    ):
        number = b.add(b.mul(g, s.groups_in_byte), h)
        of = b.offset(source, b.add(b.mul(r, row), b.mul(number, batch)))
        at = b.offset(to, b.add(b.mul(r, s.row), b.add(b.mul(g, s.group_bytes), b.mul(h, len(each) * s.run))))
        with b.loop_carry(0, s.group_bytes, [const(vector("i32", n), 0)], n, "terms") as carry:
            total = carry.values[0]
            first = b.offset(of, b.mul(carry.index, s.along[s.lanes] * step))
            places = [sum(s.along[v] * k for v, k in inner.items()) for inner in each]
            for i, x in enumerate(_terms(b, places, first, step, n)):
                b.store(x, b.offset(at, b.add(carry.index, i * s.run)), align=1)
                total = b.add(total, b.cast("sext", x, "i32"))
            carry.next(total)
        total = b.mul(fold(b, carry.values[0]), const("i32", s.dots.low))
        b.store(total, b.offset(sums, b.mul(b.add(b.mul(r, s.groups), number), 4)), align=4)
    b.ret()
    return low.share("vectors", name)


def _terms(b: Builder, places: Sequence[int], first: V, step: int, n: int) -> Iterator[V]:
    """The terms for each element of n bytes of M that is in a group, which are adjacent if there are several."""
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


def _write(b: Builder, pointers: list[V], first: V, last: V, s: GroupsSchedule, values: list[Value]) -> None:
    """Emits the loops over some units."""
    given = dict(zip(values, pointers[: len(values)], strict=True))
    terms = GroupTerms(b, s, given, *pointers[len(values) :])
    if s.block is None:
        _outputs(terms, first, last)
        return
    run, n = s.nest.extents[s.block.variable], s.block.outputs
    writer, units = LanesOfOutputs(terms, s.block), -(-run // n)
    writer.fetch_first(b.add(b.mul(b.udiv(first, units), run), b.mul(b.urem(first, units), n)))
    with b.loop(first, last, 1, "unit") as unit:
        start = b.mul(b.urem(unit, units), n)
        o = b.add(b.mul(b.udiv(unit, units), run), start)
        if run % n == 0:
            writer.write(o)
        else:
            is_block = b.icmp("sle", start, run - n)
            with b.if_(is_block):
                writer.write(o)
            with b.if_(b.xor(is_block, V("i1", "true"))):
                _outputs(terms, o, b.add(o, run % n))


def _outputs(terms: GroupTerms, first: V, last: V) -> None:
    """Emits the loops over some outputs, passes over their terms for some vectors each, and these outputs. The last
    vectors may have been among those before."""
    b, s = terms.b, terms.s
    writer = LanesOfGroups(terms)
    step = 1 if s.passes == 1 else OUTPUTS
    with b.loop(first, last, step, "block") as block:
        end = b.min_(b.add(block, step), last)
        with b.loop(0, s.passes, 1, "pass") as i, b.loop(block, end, 1, "output") as o:
            writer.write(o, b.min_(b.mul(i, s.count), s.rows - s.count))
