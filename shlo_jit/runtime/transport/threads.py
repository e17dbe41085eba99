"""Ranks as threads of this process: all memory is shared."""

from __future__ import annotations

import threading

from shlo_jit.codegen.abi import Status
from shlo_jit.runtime.transport.errors import Raised, raised_by
from shlo_jit.runtime.transport.layout import lay_out
from shlo_jit.runtime.transport.rank import Rank
from shlo_jit.runtime.transport.shared import Segment
from shlo_jit.runtime.transport.team import Crew, Team


class Threads(Team):
    """The caller's thread and others, started anew and ended with the team."""

    def __init__(self, crew: Crew) -> None:
        """Raises MemoryError, and ExecutionError when a custom call is not registered."""
        super().__init__(crew)
        self.layout = lay_out(crew.programs, crew.lane_count, crew.threads)
        self.memory = Segment(self.layout.nbytes)
        self.memory.close_file()
        self.kept = None
        self._make_own()
        address = self.memory.address
        at = address + self.layout.board.offset
        others = {
            n: Rank(
                crew.programs[n],
                crew.target,
                crew.code,
                crew.place(n, at, address),
                self.layout.ranks[n],
                crew.custom_calls,
                crew.hosts[n],
                self.memory,
            )
            for n in range(1, crew.ranks)
        }
        self._threads = [
            threading.Thread(target=_serve, args=(rank, n, self.raised), name=f"shlo_jit-{n}", daemon=True)
            for n, rank in others.items()
        ]
        for thread in self._threads:
            thread.start()

    def dead(self) -> tuple[int, str] | None:
        return next(((n, "has ended") for n, t in enumerate(self._threads, 1) if not t.is_alive()), None)

    def hear(self) -> None:
        pass

    def end(self, patiently: bool) -> None:
        if self.dead() is None and patiently:
            self.leave()
            for thread in self._threads:
                thread.join(2)


def _serve(rank: Rank, number: int, raised: dict[int, Raised]) -> None:
    while True:
        status = rank.serve()
        if status == 0:
            return
        if status == Status.CALL_FAILED:
            raised[number] = raised_by(rank.failure(status))
        rank.end_call(status)
