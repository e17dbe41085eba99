"""An exchange of messages, as a program writes it: the tables that say what it is, and the calls of the communicator's
functions (`kernels/collective/messages.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.codegen import abi
from shlo_jit.kernels.collective import board
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.lower.control import leave_unless_ok
from shlo_jit.schedule.collective import CollectiveSchedule, number_of

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering


class Exchange:
    """One exchange at the place being written. `nbytes`: of each address that is posted; `parts`: where less of it is
    read, as WHAT_BYTES of `kernels/collective/board.py` says."""

    def __init__(
        self,
        low: ProgramLowering,
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
        """Of a number for each rank, that of this one."""
        if len(set(values)) == 1:
            return i64(values[0])
        b = self.low.b
        return b.load("i64", b.element(self.low.table(list(values)), "i64", self.rank))

    @property
    def sources(self) -> V:
        """How many ranks this one hears from."""
        return self.by_rank(tuple(len(m.sources) for m in self.schedule.meetings))

    @property
    def position(self) -> V:
        """In the group."""
        return self.by_rank(self.schedule.positions)

    def post(self, addresses: list[V]) -> V:
        """Publish addresses; the message's number."""
        assert len(addresses) == self.count
        b, low = self.low.b, self.low
        table = b.alloca("ptr", self.count, 8)
        for i, address in enumerate(addresses):
            b.store(address, b.element(table, "ptr", i))
        message = b.call_pointer("i64", self._function("post"), [self.communicator, self._what, self._place(), table])
        failed = b.icmp("slt", message, 0)
        status = b.select(failed, b.cast("trunc", b.sub(i64(0), message), "i32"), i32(abi.Status.OK))
        leave_unless_ok(low, status, abi.NO_CALL)
        return message

    def meet(self, message: V) -> V:
        """The table of what was found: for each source, its addresses."""
        b = self.low.b
        found = b.alloca("ptr", max(1, self.schedule.most_sources * self.count), 8)
        with self.low.timing.part("waiting"):
            status = b.call_pointer("i32", self._function("meet"), [self.communicator, self._what, message, found])
            leave_unless_ok(self.low, status, abi.NO_CALL)
        return found

    def leave(self, message: V) -> None:
        """Nothing is read any more, and what was posted in place may be changed afterwards."""
        with self.low.timing.part("waiting"):
            status = self.low.b.call_pointer("i32", self._function("leave"), [self.communicator, message])
            leave_unless_ok(self.low, status, abi.NO_CALL)

    def found(self, table: V, source: V | int, index: int) -> V:
        """An address of a source's."""
        b = self.low.b
        return b.load("ptr", b.element(table, "ptr", b.add(b.mul(source, self.count), index)))

    def ticket(self, site: int) -> V:
        """Address of where the rank keeps the number of a message, plus 1, until it is done with it."""
        b = self.low.b
        table = b.load("ptr", b.offset(self.communicator, board.COMMUNICATOR["tickets"]))
        return b.element(table, "i64", site)

    def _function(self, name: str) -> V:
        b = self.low.b
        return b.load("ptr", b.offset(self.communicator, board.COMMUNICATOR[name]))

    def _place(self) -> V:
        """This rank's row of the table of places."""
        rows, starts, b = [], [], self.low.b
        for meeting, group in zip(self.schedule.meetings, self.schedule.groups, strict=True):
            row = [len(meeting.sources), len(meeting.targets), group, *meeting.sources, *meeting.targets]
            starts.append(8 * len(rows))
            rows += row
        return b.offset(self.low.table(rows), self.by_rank(tuple(starts)))
