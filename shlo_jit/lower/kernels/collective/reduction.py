"""The kernel that reduces what several ranks have, element by element, in the order of the group."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING

from shlo_jit import tuning
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import Builder, V, i64
from shlo_jit.lower.elements.reducers import Reducer, reducer_of
from shlo_jit.lower.elements.registers import Reg
from shlo_jit.lower.kernels.access import Buffer, lanes_loop
from shlo_jit.schedule.tasks import Tasks, cut

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering


class Reduction:
    """Of `most` elements at most, of a number of sources (None: known at run time only), to a number of targets."""

    def __init__(self, low: ProgramLowering, op: Op, width: int, most: int, sources: int | None, targets: int | None):
        self.low, self.width, self.most = low, width, most
        self.reducer: Reducer = reducer_of(op)
        self.dtype: DType = op.results[0].tensor.storage
        self.sources, self.targets = sources, targets

    def run(self, sources: V, targets: V, counts: V) -> None:
        """Reduce elements. `sources`, `targets`: tables of addresses; `counts`: a table of i64: of elements, of
        sources, and of targets."""
        low, name = self.low, self.low.new_name("reduce")
        b = low.module.function(
            name,
            [("ptr", "sources"), ("ptr", "targets"), ("ptr", "counts"), ("i64", "first"), ("i64", "last")],
            attributes="nounwind",
        )
        self._write(b)
        b.ret()
        low.run_units(low.share("reduce", name), [sources, targets, counts], self.tasks())

    def tasks(self) -> Tasks:
        blocks = -(-self.most // tuning.REDUCTION_BLOCK)
        return cut(blocks, self.most * (self.sources or 2))

    def _write(self, b: Builder) -> None:
        sources, targets, counts, first, last = b.params
        block = tuning.REDUCTION_BLOCK
        start, stop = b.mul(first, block), b.min_(b.mul(last, block), b.load("i64", counts))
        known = self.sources is not None and self.sources <= tuning.UNROLLED_SOURCES
        at_hand = [self._buffer(b, sources, j) for j in range(self.sources or 0)] if known else []
        out = [self._buffer(b, targets, j) for j in range(self.targets or 0)]
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
                    self._buffer(b, targets, j).store(i, value, n, mask)

        lanes_loop(b, self.low.target, start, stop, self.width, body, 2 if known else 1)

    def _over_sources(self, b: Builder, sources: V, count: V, i: V, n: int, mask: V | None) -> list[Reg]:
        first = self.reducer.enter(b, [self._buffer(b, sources, 0).load(i, n, mask)])
        parts, pack = _flat(first[0])
        with b.loop_carry(1, count, parts) as carry:
            element = self.reducer.enter(b, [self._buffer(b, sources, carry.index).load(i, n, mask)])
            carry.next(*_flat(self.reducer.combine(b, [pack(carry.values)], element)[0])[0])
        return [pack(carry.values)]

    def _buffer(self, b: Builder, table: V, index: V | int) -> Buffer:
        return Buffer(b, self.dtype, b.load("ptr", b.element(table, "ptr", index)))


def _flat(x: Reg) -> tuple[list[V], Callable[[list[V]], Reg]]:
    """The parts of a register, and the function that makes it of them."""
    if isinstance(x, V):
        return [x], itemgetter(0)
    return list(x), tuple  # type: ignore[return-value]


def table_of(low: ProgramLowering, addresses: list[V]) -> V:
    """A table of addresses on the stack."""
    b = low.b
    table = b.alloca("ptr", max(1, len(addresses)), 8)
    for i, address in enumerate(addresses):
        b.store(address, b.element(table, "ptr", i))
    return table


def counts_of(low: ProgramLowering, *values: V | int) -> V:
    """A table of i64 on the stack."""
    b = low.b
    table = b.alloca("i64", len(values), 8)
    for i, value in enumerate(values):
        b.store(value if isinstance(value, V) else i64(value), b.element(table, "i64", i))
    return table
