"""Reports of MPI processes about the ends of calls. They are sent to all, and received by any process that waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from shlo_jit import tuning
from shlo_jit.kernels.collective import board
from shlo_jit.runtime.transport.board import Outcome
from shlo_jit.runtime.transport.errors import UNKNOWN, Raised
from shlo_jit.runtime.transport.world import World


class End(NamedTuple):
    """End of a rank's call."""

    outcome: Outcome
    raised: Raised | None
    """Exception of Python code in it."""


class Fault(Exception):
    """Reason why a rank stops inside a function that its program calls: a status, the peer that caused it, and that
    one's site."""

    def __init__(self, status: int, peer: int = board.NONE, peer_site: int = board.NONE) -> None:
        self.status, self.peer, self.peer_site = status, peer, peer_site


class Ends:
    """Ends of calls of one program. Calls are numbered; 0 is its loading."""

    def __init__(self, world: World, tag: int, time_out: float) -> None:
        self._world, self._tag, self.time_out = world, tag, time_out
        self._others = [rank for rank in range(world.size) if rank != world.rank]
        self._reports: dict[tuple[int, int], Any] = {}
        """Reports by rank and call."""
        self._sent: list[Any] = []
        self.call = 0
        """Number of the current call."""
        self.is_closed = False
        """Whether another thread closed the executable, during a call."""
        polls = tuning.MPI_POLLS
        self._polls, self._yields = polls, world.near > (os.cpu_count() or 1)

    def begin(self, call: int) -> None:
        """Starts a call, and discards the reports of earlier ones."""
        self.call = call
        if any(key[1] < call - 1 for key in self._reports):
            self._reports = {key: end for key, end in self._reports.items() if key[1] >= call - 1}
        self._sent = [request for request in self._sent if not request.Test()]

    def report(self, what: Any) -> None:
        """Reports on the current call to all others: an End or, for the loading, a number that must be equal
        everywhere."""
        for rank in self._others:
            self._sent.append(self._world.comm.isend((self.call, what), rank, self._tag))

    def receive_reports(self) -> None:
        """Receives the reports of others."""
        comm, mpi = self._world.comm, self._world.mpi
        status = mpi.Status()
        while (message := comm.improbe(mpi.ANY_SOURCE, self._tag, status)) is not None:
            call, what = message.recv()  # written by a process of the same program
            self._reports[status.Get_source(), call] = what

    def of(self, rank: int) -> Any:
        """Returns the report of a rank on the current call; None if there is none yet."""
        return self._reports.get((rank, self.call))

    def reported(self) -> dict[int, End]:
        """Returns the ends of the current call, and those that prevent further calls, by rank."""
        ended = {rank: end for (rank, call), end in self._reports.items() if call == self.call > 0}
        return ended | self.failed()

    def failed(self) -> dict[int, End]:
        """Returns the ends that prevent further calls, by rank: also those of earlier calls, which others may have left
        earlier."""
        ended = {rank: end for (rank, call), end in self._reports.items() if 0 < call <= self.call}
        return {rank: end for rank, end in ended.items() if end.outcome.status != board.OK}

    def look(self) -> None:
        """Raises Fault if another rank has failed."""
        self.receive_reports()
        if self.is_closed or self.failed():
            raise Fault(board.STOPPED)

    def until(self, ready: Callable[[], Any], peer: int, *, has_ended: bool = False) -> Any:
        """Returns the result of `ready` once it is true. Raises Fault if another rank has failed, and if the peer makes
        no progress or has ended the call (unless it is known to have)."""
        for _ in range(self._polls):
            found = ready()
            if found:
                return found
            if self._yields:
                os.sched_yield()
        since, ended = time.monotonic(), 0.0
        while True:
            self.look()
            found = ready()
            if found:
                return found
            now = time.monotonic()
            if has_ended or self.of(peer) is None:
                ended = now
            elif now - ended > tuning.MPI_ENDED_SECONDS:
                raise Fault(board.ENDED_EARLY, peer)
            if now - since > self.time_out:
                raise Fault(board.TIMED_OUT, peer, UNKNOWN)
            time.sleep(tuning.MPI_NAP)

    def until_done(self, requests: list[Any], peer: int, *, has_ended: bool = False) -> None:
        """Waits for requests, as `until`."""
        testall = self._world.mpi.Request.Testall
        self.until(lambda: testall(requests), peer, has_ended=has_ended)

    def until_all_reported(self, seconds: float, is_enough: Callable[[], bool]) -> int | None:
        """Waits until all ranks have reported on the current call, or `is_enough`. Otherwise, `seconds` after the last
        report, returns the first rank without one."""
        since, missing = time.monotonic(), [*self._others]
        while True:
            self.receive_reports()
            left = [rank for rank in missing if self.of(rank) is None]
            if not left or is_enough():
                return None
            now = time.monotonic()
            if len(left) < len(missing):
                since, missing = now, left
            elif now - since > seconds:
                return left[0]
            os.sched_yield() if now - since < tuning.MPI_AWAKE_SECONDS else time.sleep(tuning.MPI_NAP)
