"""Ranks as threads of this process: all memory is shared."""

from __future__ import annotations

import threading
import time

from shlo_jit.codegen.abi import Status
from shlo_jit.errors import ExecutionError
from shlo_jit.runtime.transport.errors import Death, raised_by
from shlo_jit.runtime.transport.layout import lay_out
from shlo_jit.runtime.transport.rank import Rank
from shlo_jit.runtime.transport.shared import Segment
from shlo_jit.runtime.transport.team import END_SECONDS, Crew, Team


class Threads(Team):
    """The caller's thread and others, which are started for the team and end with it."""

    def __init__(self, crew: Crew) -> None:
        """Raises MemoryError, and ExecutionError if a custom call is not registered or a thread cannot start."""
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
        self._threads: list[threading.Thread] = []
        try:
            for n, rank in others.items():
                thread = threading.Thread(target=_serve, args=(self, rank, n), name=f"shlo_jit-{n}", daemon=True)
                thread.start()
                self._threads.append(thread)
        except RuntimeError as error:
            self.end(patiently=True)
            raise ExecutionError(f"cannot start a thread for rank {len(self._threads) + 1}: {error}") from None

    def dead(self) -> Death | None:
        ended = (n for n, thread in enumerate(self._threads, 1) if not thread.is_alive())
        return next((Death(n, f"the thread of rank {n} has ended") for n in ended), None)

    def receive_reports(self) -> None:
        pass

    def end(self, patiently: bool) -> None:
        """Ends the threads. A thread in a custom call cannot be ended: it leaves when the call returns."""
        self.leave()
        deadline = time.monotonic() + (END_SECONDS if patiently else 0.1)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _serve(team: Threads, rank: Rank, number: int) -> None:
    """Serves calls of a rank. `team`, and with it the memory of a call, lives as long as the thread."""
    while True:
        status = rank.serve()
        if status == 0:
            return
        if status == Status.CALL_FAILED:
            team.raised[number] = raised_by(rank.failure(status), rank.failed_call)
        rank.end_call(status)
