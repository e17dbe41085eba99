"""Collective ops: one exchange of messages, then copies or a reduction of the operands received.

`schedule/collective.py` has decided which ranks exchange messages, and by which algorithm.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.kernels.collective import transfer
from shlo_jit.lower.kernels.collective.exchange import Exchange
from shlo_jit.lower.kernels.collective.frame import Collective, part_elements
from shlo_jit.lower.kernels.collective.reduction import counts_of
from shlo_jit.lower.kernels.units import run_units
from shlo_jit.lower.services import Services
from shlo_jit.schedule.collective import CollectiveSchedule, rows_of
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.tasks import cut


def lower(low: Services, step: OpStep, schedule: KernelSchedule) -> None:
    assert isinstance(schedule, CollectiveSchedule)
    if schedule.kind in transfer.WRITERS:
        transfer.WRITERS[schedule.kind](low, step, schedule)
        return
    writer = Collective(low, step, schedule)
    message = writer.posted_before() if "started" in step.op.attributes else writer.post()
    WRITERS[schedule.kind](writer, message)


# ---------------------------------------------------------------------- the ops
def _all_reduce(w: Collective, message: V) -> None:
    found = w.exchange.meet(message)
    if not w.schedule.in_parts.value:
        for i in range(len(w.operands)):
            w.reduce_all(found, i)
        w.exchange.leave(message)
    elif w.schedule.pushes:
        for i in range(len(w.operands)):
            _push_part(w, found, i)
        w.exchange.leave(message)
    else:
        for i in range(len(w.operands)):
            _reduce_part(w, found, i)
        w.exchange.leave(message)
        _gather_parts(w)


def _own_part(w: Collective, index: int) -> tuple[V, V, int]:
    """Returns the first element of this rank's part of a result, the part's length, and its maximum length."""
    b, t = w.low.b, w.results[index].tensor
    part = part_elements(w.results[index], w.schedule.most_sources)
    first = b.min_(b.mul(w.exchange.position, part), t.size)
    return first, b.min_(b.sub(i64(t.size), first), part), part


def _push_part(w: Collective, found: V, index: int) -> None:
    """Reduces this rank's part, into the results of all ranks."""
    b, count = w.low.b, len(w.operands)
    first, length, most = _own_part(w, index)
    shift = b.mul(first, w.results[index].tensor.storage.itemsize)
    sources, targets = w.sources_of(found, index, shift), w.sources_of(found, count + index, shift)
    w.reduction(most, w.schedule.unrolled_targets).run(
        sources, targets, counts_of(w.low, length, w.exchange.sources, w.exchange.sources)
    )


def _reduce_part(w: Collective, found: V, index: int) -> None:
    """Reduces this rank's part, into its own result."""
    b = w.low.b
    first, length, most = _own_part(w, index)
    shift = b.mul(first, w.results[index].tensor.storage.itemsize)
    w.reduce(w.sources_of(found, index, shift), [b.offset(w.low.pointer(w.results[index]), shift)], length, most)


def _gather_parts(w: Collective) -> None:
    """Copies the parts that other ranks have reduced."""
    low, b = w.low, w.low.b
    parts = [-part_elements(v, w.schedule.most_sources) * v.tensor.storage.itemsize for v in w.results]
    exchange = Exchange(low, w.schedule, w.site, [v.tensor.nbytes for v in w.results], parts, phase=1)
    message = exchange.post([low.pointer(v) for v in w.results])
    found = exchange.meet(message)
    for i, value in enumerate(w.results):
        size, itemsize = value.tensor.size, value.tensor.storage.itemsize
        part = part_elements(value, w.schedule.most_sources)
        home = low.pointer(value)
        with b.loop(0, exchange.sources) as j, b.if_(b.icmp("ne", j, exchange.position)):
            first = b.min_(b.mul(j, part), size)
            length = b.min_(b.sub(i64(size), first), part)
            shift = b.mul(first, itemsize)
            there = b.offset(exchange.found(found, j, i), shift)
            b.memcpy(b.offset(home, shift), there, b.mul(length, itemsize))
    exchange.leave(message)


def _all_gather(w: Collective, message: V) -> None:
    low, b = w.low, w.low.b
    (operand,), (result,) = w.operands, w.results
    rows, size = rows_of(w.op), result.tensor.nbytes // operand.tensor.nbytes
    run = operand.tensor.nbytes // rows
    found = w.exchange.meet(message)

    def one(j: V) -> None:
        to = b.offset(low.pointer(result), b.mul(j, run))
        _copy_rows(w, to, w.exchange.found(found, j, 0), rows, run, size * run)

    w.each_source(one)
    w.exchange.leave(message)


def _all_to_all(w: Collective, message: V) -> None:
    low, b = w.low, w.low.b
    (operand,), (result,) = w.operands, w.results
    block = operand.tensor.nbytes // w.schedule.most_sources
    found = w.exchange.meet(message)

    def one(j: V) -> None:
        there = b.offset(w.exchange.found(found, j, 0), b.mul(w.exchange.position, block))
        w.fetch(b.offset(low.pointer(result), b.mul(j, block)), there, block)

    w.each_source(one)
    w.exchange.leave(message)


def _reduce_scatter(w: Collective, message: V) -> None:
    low, b = w.low, w.low.b
    (operand,), (result,) = w.operands, w.results
    rows = rows_of(w.op)
    itemsize, length = result.tensor.storage.itemsize, result.tensor.size // rows
    there = operand.tensor.size // rows * itemsize
    found = w.exchange.meet(message)
    shift = b.mul(w.exchange.position, length * itemsize)
    with b.loop(0, rows) as row:
        sources = w.sources_of(found, 0, b.add(shift, b.mul(row, there)))
        target = b.offset(low.pointer(result), b.mul(row, length * itemsize))
        w.reduce(sources, [target], length, length)
    w.exchange.leave(message)


def _collective_permute(w: Collective, message: V) -> None:
    found = w.exchange.meet(message)
    (result,) = w.results
    first = w.exchange.found(found, 0, 0)
    w.where_heard(lambda: w.fetch(w.low.pointer(result), first, result.tensor.nbytes))
    w.exchange.leave(message)


def _root(w: Collective, index: int) -> V:
    """The group member that is the root of an op with a dynamic root, clamped to the group."""
    b, roots = w.low.b, w.op.operands[-1]
    root = b.cast("sext", b.load("i32", b.element(w.low.pointer(roots), "i32", index)), "i64")
    return b.max_(b.min_(root, b.sub(w.exchange.sources, 1)), 0)


def _collective_broadcast(w: Collective, message: V) -> None:
    low, is_dynamic = w.low, bool(w.op.attributes.get("has_dynamic_root"))
    found = w.exchange.meet(message)

    def heard() -> None:
        for i, result in enumerate(w.results):
            root = _root(w, i) if is_dynamic else i64(0)
            w.fetch(low.pointer(result), w.exchange.found(found, root, i), result.tensor.nbytes)

    w.where_heard(heard)
    w.exchange.leave(message)


def _collective_reduce(w: Collective, message: V) -> None:
    b = w.low.b
    found = w.exchange.meet(message)

    def heard() -> None:
        for i, result in enumerate(w.results):
            if not w.op.attributes.get("has_dynamic_root"):
                w.reduce_all(found, i)
                continue

            def root(i: int = i) -> list[V]:
                w.reduce_all(found, i)
                return []

            def other(result: Value = result) -> list[V]:
                w.zeros(result)
                return []

            b.if_else(b.icmp("eq", _root(w, i), w.exchange.position), root, other)

    w.where_heard(heard)
    w.exchange.leave(message)


def _copy_rows(w: Collective, to: V, source: V, rows: int, run: int, to_row: int) -> None:
    """Copies `rows` rows of `run` contiguous bytes each to places that are `to_row` bytes apart."""
    if rows == 1:
        w.fetch(to, source, run)
        return

    def write(b: Builder, pointers: list[V], first: V, last: V) -> None:
        with b.loop(first, last) as row:
            here, there = b.offset(pointers[0], b.mul(row, to_row)), b.offset(pointers[1], b.mul(row, run))
            b.memcpy(here, there, run)

    run_units(w.low, "copy_rows", [to, source], write, cut(rows, rows * run // 8))


def _ragged_all_to_all(w: Collective, message: V) -> None:
    """Copies rows from every source, which defines which of its rows go where in this rank's result. Rows outside of
    either array are skipped."""
    low, b = w.low, w.low.b
    given, offsets, *_ = (v.tensor for v in w.operands)
    (result,) = w.results
    row = given.nbytes // given.extents[0]
    updates = offsets.size // w.schedule.most_sources
    rows, room = given.extents[0], result.tensor.extents[0]
    found = w.exchange.meet(message)
    with b.loop(0, w.exchange.sources) as j, b.loop(0, updates) as k:
        index = b.add(b.mul(w.exchange.position, updates), k)
        first, count, home = (_integer(w, found, j, i, index) for i in (1, 2, 3))
        inside = b.and_(_within(b, first, count, rows), _within(b, home, count, room))
        with b.if_(inside, "rows"):
            there = b.offset(w.exchange.found(found, j, 0), b.mul(first, row))
            b.memcpy(b.offset(low.pointer(result), b.mul(home, row)), there, b.mul(count, row))
    w.exchange.leave(message)


def _integer(w: Collective, found: V, source: V, operand: int, index: V) -> V:
    """An integer element of a source's operand, as i64."""
    b, dtype = w.low.b, w.operands[operand].tensor.storage
    address = w.exchange.found(found, source, operand)
    x = b.load(f"i{dtype.bits}", b.element(address, f"i{dtype.bits}", index))
    return x if dtype.bits == 64 else b.cast("zext" if dtype.kind == "u" else "sext", x, "i64")


def _within(b: Builder, first: V, count: V, extent: int) -> V:
    """Whether all `count` elements starting at `first` are among the first `extent`."""
    enough = b.and_(b.icmp("ult", first, extent + 1), b.icmp("ult", count, extent + 1))
    return b.and_(enough, b.icmp("ule", b.add(first, count), extent))


WRITERS: dict[str, Callable[[Collective, V], None]] = {
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
    "collective_broadcast": _collective_broadcast,
    "collective_permute": _collective_permute,
    "collective_reduce": _collective_reduce,
    "ragged_all_to_all": _ragged_all_to_all,
    "reduce_scatter": _reduce_scatter,
}
