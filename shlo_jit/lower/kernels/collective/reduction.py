"""The kernel that reduces operands of several ranks, element by element, in the order of the group."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.collective.fetching import fetch, is_far
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.elements.reducers import Reducer, reducer_of
from shlo_jit.lower.elements.registers import Reg
from shlo_jit.lower.kernels.access import Buffer, lanes_loop
from shlo_jit.lower.services import Services
from shlo_jit.schedule.collective import CollectiveSchedule


class Reduction:
    """Reduction of at most `most` elements, from a number of sources (None: known only at run time) to a number of
    targets. `communicator` is given if sources may have to be fetched first."""

    def __init__(
        self,
        low: Services,
        op: Op,
        schedule: CollectiveSchedule,
        most: int,
        targets: int | None,
        communicator: V | None = None,
    ) -> None:
        self.low, self.schedule, self.most = low, schedule, most
        self.communicator = communicator
        self.reducer: Reducer = reducer_of(op)
        self.dtype: DType = op.results[0].tensor.storage
        self.sources, self.targets = schedule.sources, targets

    def run(self, sources: V, targets: V, counts: V) -> None:
        """Reduces elements. `sources` and `targets` are tables of addresses. `counts` is a table of i64: the numbers of
        elements, of sources, and of targets."""
        low, name = self.low, self.low.new_name("reduce")
        pointers = [("ptr", "sources"), ("ptr", "targets"), ("ptr", "counts")]
        given = [sources, targets, counts]
        if self.communicator is not None:
            pointers.append(("ptr", "communicator"))
            given.append(self.communicator)
        b = low.module.function(name, [*pointers, ("i64", "first"), ("i64", "last")], attributes="nounwind")
        if self.communicator is None:
            self._write(b, *b.params)
        else:
            self._write_fetched(b, *b.params)
        b.ret()
        low.run_units(low.share("reduce", name), given, self.schedule.reduction_tasks(self.most))

    def _write_fetched(self, b: Builder, sources: V, targets: V, counts: V, communicator: V, first: V, last: V) -> None:
        """Reduces block by block: sources that are out of reach are fetched to the stack."""
        assert self.sources is not None
        unit, units, itemsize = self.schedule.block, self.schedule.fetched_blocks, self.dtype.itemsize
        near = [b.alloca("i8", units * unit * itemsize) for _ in range(self.sources)]
        here = b.alloca("ptr", self.sources, 8)
        stop = b.min_(b.mul(last, unit), b.load("i64", counts))
        with b.loop(first, last, units) as at:
            start = b.mul(at, unit)
            size = b.min_(b.sub(stop, start), units * unit)
            shift, nbytes = b.mul(start, itemsize), b.mul(size, itemsize)
            for j in range(self.sources):
                source = b.offset(b.load("ptr", b.element(sources, "ptr", j)), shift)
                b.store(source, b.element(here, "ptr", j))
                with b.if_(is_far(b, communicator, source), "far"):
                    fetch(b, communicator, near[j], source, nbytes)
                    b.store(near[j], b.element(here, "ptr", j))
            self._reduce(b, here, targets, counts, i64(0), size, shift)

    def _write(self, b: Builder, sources: V, targets: V, counts: V, first: V, last: V) -> None:
        block = self.schedule.block
        start, stop = b.mul(first, block), b.min_(b.mul(last, block), b.load("i64", counts))
        self._reduce(b, sources, targets, counts, start, stop, i64(0))

    def _reduce(self, b: Builder, sources: V, targets: V, counts: V, start: V, stop: V, shift: V) -> None:
        """Reduces elements of the sources from `start` on, to the targets plus `shift` bytes."""
        known = self.schedule.unrolls_sources
        at_hand = [self._buffer(b, sources, j) for j in range(self.sources or 0)] if known else []
        out = [self._buffer(b, targets, j, shift) for j in range(self.targets or 0)]
        count = b.load("i64", b.offset(counts, 8))
        receivers = b.load("i64", b.offset(counts, 16))

        def body(i: V, n: int, mask: V | None) -> None:
            if known:
                acc = self.reducer.enter(b, [at_hand[0].load(i, n, mask)])
                for source in at_hand[1:]:
                    acc = self.reducer.combine(b, acc, self.reducer.enter(b, [source.load(i, n, mask)]))
            else:
                acc = self._over_sources(b, sources, count, i, n, mask)
            (value,) = self.reducer.leave(b, acc)
            for target in out:
                target.store(i, value, n, mask)
            if self.targets is None:
                with b.loop(0, receivers) as j:
                    self._buffer(b, targets, j, shift).store(i, value, n, mask)

        lanes_loop(b, self.low.target, start, stop, self.schedule.width, body, 2 if known else 1)

    def _over_sources(self, b: Builder, sources: V, count: V, i: V, n: int, mask: V | None) -> list[Reg]:
        first = self.reducer.enter(b, [self._buffer(b, sources, 0).load(i, n, mask)])
        parts, pack = _flat(first[0])
        with b.loop_carry(1, count, parts) as carry:
            element = self.reducer.enter(b, [self._buffer(b, sources, carry.index).load(i, n, mask)])
            carry.next(*_flat(self.reducer.combine(b, [pack(carry.values)], element)[0])[0])
        return [pack(carry.values)]

    def _buffer(self, b: Builder, table: V, index: V | int, shift: V | int = 0) -> Buffer:
        return Buffer(b, self.dtype, b.offset(b.load("ptr", b.element(table, "ptr", index)), shift))


def _flat(x: Reg) -> tuple[list[V], Callable[[list[V]], Reg]]:
    """The parts of a register, and the function that builds the register from them."""
    if isinstance(x, V):
        return [x], itemgetter(0)
    return list(x), tuple  # type: ignore[return-value]


def table_of(low: Services, addresses: list[V]) -> V:
    """A table of addresses on the stack."""
    b = low.b
    table = b.alloca("ptr", max(1, len(addresses)), 8)
    for i, address in enumerate(addresses):
        b.store(address, b.element(table, "ptr", i))
    return table


def counts_of(low: Services, *values: V | int) -> V:
    """A table of i64 on the stack."""
    b = low.b
    table = b.alloca("i64", len(values), 8)
    for i, value in enumerate(values):
        b.store(value if isinstance(value, V) else i64(value), b.element(table, "i64", i))
    return table
