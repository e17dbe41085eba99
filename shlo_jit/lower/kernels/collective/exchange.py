"""An exchange of messages as a program emits it: tables that describe it, and calls of the communicator's functions
(`kernels/collective/messages.py`)."""

from __future__ import annotations

from shlo_jit.codegen import abi
from shlo_jit.kernels.collective import board
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.lower.services import Services
from shlo_jit.schedule.collective import CollectiveSchedule, number_of


class Exchange:
    """One exchange at the current place. `nbytes`: size of the memory at each posted address. `parts`: for memory that
    is read in part, the values of WHAT_BYTES in `kernels/collective/board.py`."""

    def __init__(
        self,
        low: Services,
        schedule: CollectiveSchedule,
        site: int,
        nbytes: list[int],
        parts: list[int] | None = None,
        phase: int = 0,
    ) -> None:
        self.low = low
        self.schedule = schedule
        self.count = len(nbytes)
        inline = schedule.inline.value and phase == 0
        signature = number_of(schedule.signature, phase) if phase else schedule.signature
        channel = low.channel_number(schedule.channel)
        self._what = low.table(
            [site, signature, self.count, int(inline), channel, *nbytes, *(parts or [0] * self.count)]
        )
        self.communicator = low.scope.field("communicator")
        self.rank = low.scope.field("rank")

    def by_rank(self, values: tuple[int, ...]) -> V:
        """Selects this rank's number from one number for each rank."""
        if len(set(values)) == 1:
            return i64(values[0])
        b = self.low.b
        return b.load("i64", b.element(self.low.table(list(values)), "i64", self.rank))

    @property
    def sources(self) -> V:
        """Number of ranks that this rank receives from."""
        return self.by_rank(tuple(len(m.sources) for m in self.schedule.peers))

    @property
    def position(self) -> V:
        """Position of this rank in its group."""
        return self.by_rank(self.schedule.positions)

    def post(self, addresses: list[V]) -> V:
        """Publishes addresses. Returns the number of the message."""
        assert len(addresses) == self.count
        b, low = self.low.b, self.low
        table = b.alloca("ptr", self.count, 8)
        for i, address in enumerate(addresses):
            b.store(address, b.element(table, "ptr", i))
        message = b.call_pointer("i64", self._function("post"), [self.communicator, self._what, self._place(), table])
        failed = b.icmp("slt", message, 0)
        status = b.select(failed, b.cast("trunc", b.sub(i64(0), message), "i32"), i32(abi.Status.OK))
        low.scope.leave_unless_ok(status, abi.NO_CALL)
        return message

    def meet(self, message: V) -> V:
        """Waits for the sources. Returns the table of the addresses that each of them posted."""
        b = self.low.b
        found = b.alloca("ptr", max(1, self.schedule.most_sources * self.count), 8)
        with self.low.timing.part(self.low.scope, "waiting"):
            status = b.call_pointer("i32", self._function("meet"), [self.communicator, self._what, message, found])
            self.low.scope.leave_unless_ok(status, abi.NO_CALL)
        return found

    def leave(self, message: V) -> None:
        """Ends the exchange: nothing is read any more, and memory that was posted in place may change afterwards."""
        with self.low.timing.part(self.low.scope, "waiting"):
            status = self.low.b.call_pointer("i32", self._function("leave"), [self.communicator, message])
            self.low.scope.leave_unless_ok(status, abi.NO_CALL)

    def found(self, table: V, source: V | int, index: int) -> V:
        """An address that a source posted."""
        b = self.low.b
        return b.load("ptr", b.element(table, "ptr", b.add(b.mul(source, self.count), index)))

    def ticket(self, site: int) -> V:
        """Address at which the rank keeps the number of a message, plus 1, until it is done with it."""
        b = self.low.b
        table = b.load("ptr", b.offset(self.communicator, board.COMMUNICATOR["tickets"]))
        return b.element(table, "i64", site)

    def _function(self, name: str) -> V:
        b = self.low.b
        return b.load("ptr", b.offset(self.communicator, board.COMMUNICATOR[name]))

    def _place(self) -> V:
        """This rank's row of the table of sources, targets and groups."""
        rows, starts, b = [], [], self.low.b
        for rank_peers, group in zip(self.schedule.peers, self.schedule.groups, strict=True):
            row = [len(rank_peers.sources), len(rank_peers.targets), group, *rank_peers.sources, *rank_peers.targets]
            starts.append(8 * len(rows))
            rows += row
        return b.offset(self.low.table(rows), self.by_rank(tuple(starts)))
