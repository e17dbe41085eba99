"""Code around the exchange of a collective op, shared by all kinds of op."""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Op, Value
from shlo_jit.kernels.collective.fetching import fetch, is_far
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.kernels.collective.exchange import Exchange
from shlo_jit.lower.kernels.collective.reduction import Reduction, counts_of, table_of
from shlo_jit.lower.kernels.copy import copy
from shlo_jit.lower.scratch import shared_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.collective import CollectiveSchedule, copy_of, data_operands, rows_of
from shlo_jit.schedule.copies import schedule_copy
from shlo_jit.schedule.scratch import ALIGN


class Collective:
    """The exchange of one op, and the code around it."""

    def __init__(self, low: Services, step: OpStep, schedule: CollectiveSchedule) -> None:
        self.low, self.step, self.schedule = low, step, schedule
        self.op: Op = step.op
        self.operands: list[Value] = data_operands(step.op)
        self.results: list[Value] = step.op.results
        self.site = low.site(step, schedule.site)
        nbytes = [v.tensor.nbytes for v in self.operands]
        parts = self._parts()
        if schedule.pushes:
            nbytes, parts = nbytes * 2, [0] * (2 * len(nbytes))
        self.exchange = Exchange(low, schedule, self.site, nbytes, parts)

    def _parts(self) -> list[int]:
        """For each operand, the bytes that each target reads of it, if that is only the target's part; otherwise 0."""
        t, size = self.operands[0].tensor, self.schedule.most_sources
        kind = self.schedule.kind
        if kind == "all_reduce" and self.schedule.in_parts.value:
            return [part_elements(v, size) * v.tensor.storage.itemsize for v in self.operands]
        is_cut = kind == "reduce_scatter" and rows_of(self.op) == 1
        if is_cut or kind == "all_to_all":
            return [t.nbytes // size]
        return [0] * len(self.operands)

    # ------------------------------------------------------------------ messages
    def post(self) -> V:
        addresses = self.reachable()
        if self.schedule.pushes:
            addresses += [self.low.pointer(v) for v in self.results]
        return self.exchange.post(addresses)

    def posted_before(self) -> V:
        """The number of the message that the start of the op has posted."""
        b = self.low.b
        return b.sub(b.load("i64", self.exchange.ticket(self.site)), 1)

    def reachable(self) -> list[V]:
        """Addresses of the operands. Operands that other ranks cannot reach are copied first."""
        low, b = self.low, self.low.b
        addresses = [low.pointer(v) for v in self.operands]
        for i in self.schedule.copied:
            copy_address = shared_fields(b, self.schedule.scratch, low.scratch(self.step))[copy_of(i)]
            copy(low, copy_address, addresses[i], schedule_copy(self.operands[i].tensor.nbytes))
            addresses[i] = copy_address
        return addresses

    # ------------------------------------------------------------------ shared by most algorithms
    def sources_of(self, found: V, index: int, shift: V | int = 0) -> V:
        """A table of each source's address of an operand, plus `shift` bytes."""
        b, most = self.low.b, self.schedule.most_sources
        table = b.alloca("ptr", most, 8)
        with b.loop(0, self.exchange.sources) as j:
            b.store(b.offset(self.exchange.found(found, j, index), shift), b.element(table, "ptr", j))
        return table

    def each_source(self, write: Callable[[V], None]) -> None:
        with self.low.b.loop(0, self.exchange.sources) as j:
            write(j)

    def reduce_all(self, found: V, index: int) -> None:
        """Reduces a whole operand of all sources into this rank's result."""
        result = self.results[index]
        self.reduce(self.sources_of(found, index), [self.low.pointer(result)], result.tensor.size, result.tensor.size)

    def reduction(self, most: int, targets: int | None) -> Reduction:
        """A reduction of at most `most` elements to `targets` targets."""
        schedule = self.schedule
        reach = self.exchange.communicator if schedule.fetches else None
        return Reduction(self.low, self.op, schedule, most, targets, reach)

    def reduce(self, sources: V, targets: list[V], count: V | int, most: int) -> None:
        reduction = self.reduction(most, len(targets))
        counts = counts_of(self.low, count, self.exchange.sources, len(targets))
        reduction.run(sources, table_of(self.low, targets), counts)

    def fetch(self, target: V, source: V, nbytes: int) -> None:
        """Copies an operand of another rank, which may have to be fetched."""
        low, b = self.low, self.low.b
        if not self.schedule.fetches:
            copy(low, target, source, schedule_copy(nbytes))
            return

        def far() -> list[V]:
            fetch(b, self.exchange.communicator, target, source, i64(nbytes))
            return []

        def near() -> list[V]:
            copy(low, target, source, schedule_copy(nbytes))
            return []

        b.if_else(is_far(b, self.exchange.communicator, source), far, near)

    def zeros(self, value: Value) -> None:
        self.low.b.memset(self.low.pointer(value), 0, value.tensor.nbytes)

    def where_heard(self, write: Callable[[], None]) -> None:
        """Emits `write` for ranks with sources; the results of other ranks are zeros."""
        if self.schedule.sources:
            write()
            return
        b = self.low.b

        def heard() -> list[V]:
            write()
            return []

        def none() -> list[V]:
            for value in self.results:
                self.zeros(value)
            return []

        b.if_else(b.icmp("sgt", self.exchange.sources, 0), heard, none)


def part_elements(value: Value, size: int) -> int:
    """Elements per part of an operand that `size` ranks share: whole cache lines. The last part may be shorter."""
    t = value.tensor
    line = max(1, ALIGN // t.storage.itemsize)
    return -(-t.size // (size * line)) * line
