"""Ranks as threads of this process: all memory is shared."""

from __future__ import annotations

import threading
import traceback

from shlo_jit.codegen.abi import Status
from shlo_jit.kernels.collective import board
from shlo_jit.runtime.transport.board import Board
from shlo_jit.runtime.transport.errors import Raised
from shlo_jit.runtime.transport.kept import Kept
from shlo_jit.runtime.transport.layout import lay_out
from shlo_jit.runtime.transport.rank import Place, Rank
from shlo_jit.runtime.transport.shared import Segment
from shlo_jit.runtime.transport.team import Crew, Team


class Threads(Team):
    """Threads, started anew and ended with the team."""

    def __init__(self, crew: Crew) -> None:
        """Raises MemoryError, and ExecutionError when a custom call is not registered."""
        super().__init__(crew)
        self.layout = lay_out(crew.programs, crew.lane_count, crew.threads)
        self.memory = Segment(self.layout.nbytes)
        self.memory.close_file()
        self.kept: Kept | None = None
        address = self.memory.address + self.layout.board.offset
        self.board = Board(address, crew.ranks, crew.code, crew.host_spins)
        ranks = [
            Rank(
                program,
                crew.target,
                crew.code,
                Place(
                    rank, crew.ranks, address, self.memory.address, crew.lanes(rank), crew.lane_count, crew.threads,
                    crew.spins, crew.time_out,
                ),
                self.layout.ranks[rank],
                crew.custom_calls,
                crew.hosts[rank],
                self.memory,
            )
            for rank, program in enumerate(crew.programs)
        ]  # fmt: skip
        self._threads = [
            threading.Thread(target=_serve, args=(rank, n, self.raised), name=f"shlo_jit-{n}", daemon=True)
            for n, rank in enumerate(ranks)
        ]
        for thread in self._threads:
            thread.start()

    def dead(self) -> tuple[int, str] | None:
        return next(((n, "has ended") for n, thread in enumerate(self._threads) if not thread.is_alive()), None)

    def hear(self) -> None:
        pass

    def end(self, patiently: bool) -> None:
        if self.dead() is None and patiently:
            self.board.call(board.LEAVE)
            for thread in self._threads:
                thread.join(2)


def _serve(rank: Rank, number: int, raised: dict[int, Raised]) -> None:
    while True:
        status = rank.serve()
        if status == 0:
            return
        error = rank.failure(status)
        if status == Status.CALL_FAILED:
            text = "".join(traceback.format_exception(error))
            raised[number] = Raised(error, f"{type(error).__name__}: {error}", text)
        rank.end_call(status)
