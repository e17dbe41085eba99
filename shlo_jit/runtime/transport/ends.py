"""What processes of MPI tell each other about calls: how they ended. Sent to all, and heard by whoever waits."""

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
    """Of a rank's call."""

    outcome: Outcome
    raised: Raised | None
    """By Python in it."""


class Fault(Exception):
    """Why a rank stops, inside of what its program calls: a status, because of whom, and at which of that one's
    sites."""

    def __init__(self, status: int, peer: int = board.NONE, peer_site: int = board.NONE) -> None:
        self.status, self.peer, self.peer_site = status, peer, peer_site


class Ends:
    """The ends of calls of one program, which are numbered; 0 is its loading."""

    def __init__(self, world: World, tag: int, time_out: float) -> None:
        self._world, self._tag, self.time_out = world, tag, time_out
        self._others = [rank for rank in range(world.size) if rank != world.rank]
        self._heard: dict[tuple[int, int], Any] = {}
        """By rank and call."""
        self._sent: list[Any] = []
        self.call = 0
        """The one under way."""
        self.is_closed = False
        """By another thread, during a call."""
        polls = tuning.MPI_POLLS
        self._polls, self._yields = polls, world.near > (os.cpu_count() or 1)

    def begin(self, call: int) -> None:
        """Forget the calls before."""
        self.call = call
        if any(key[1] < call - 1 for key in self._heard):
            self._heard = {key: end for key, end in self._heard.items() if key[1] >= call - 1}
        self._sent = [request for request in self._sent if not request.Test()]

    def tell(self, what: Any) -> None:
        """Of the call under way, to all others: an End, or of the loading a number that all shall have."""
        for rank in self._others:
            self._sent.append(self._world.comm.isend((self.call, what), rank, self._tag))

    def hear(self) -> None:
        """Take what others have told."""
        comm, mpi = self._world.comm, self._world.mpi
        status = mpi.Status()
        while (message := comm.improbe(mpi.ANY_SOURCE, self._tag, status)) is not None:
            call, what = message.recv()  # written by a process of the same program
            self._heard[status.Get_source(), call] = what

    def of(self, rank: int) -> Any:
        """What a rank has told of the call under way; None before."""
        return self._heard.get((rank, self.call))

    def told(self) -> dict[int, End]:
        """The ends of the call under way, and those that let nobody go on, by rank."""
        ended = {rank: end for (rank, call), end in self._heard.items() if call == self.call > 0}
        return ended | self.failed()

    def failed(self) -> dict[int, End]:
        """The ends that let nobody go on, by rank: also of calls before, which others may have left earlier."""
        ended = {rank: end for (rank, call), end in self._heard.items() if 0 < call <= self.call}
        return {rank: end for rank, end in ended.items() if end.outcome.status != board.OK}

    def look(self) -> None:
        """Raises Fault when another rank has failed."""
        self.hear()
        if self.is_closed or self.failed():
            raise Fault(board.STOPPED)

    def until(self, ready: Callable[[], Any], peer: int, *, has_ended: bool = False) -> Any:
        """What `ready` gives, once it is true. Raises Fault when another rank has failed, and when the one that is
        waited for does not get on, or has ended the call (unless it is known to have)."""
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
        """Wait for requests, as `until`."""
        testall = self._world.mpi.Request.Testall
        self.until(lambda: testall(requests), peer, has_ended=has_ended)

    def until_all_told(self, seconds: float, is_enough: Callable[[], bool]) -> int | None:
        """Wait until all ranks have told of the call under way, or it is enough; else, so long after the last was
        heard of, the first that is missing."""
        since, missing = time.monotonic(), [*self._others]
        while True:
            self.hear()
            left = [rank for rank in missing if self.of(rank) is None]
            if not left or is_enough():
                return None
            now = time.monotonic()
            if len(left) < len(missing):
                since, missing = now, left
            elif now - since > seconds:
                return left[0]
            os.sched_yield() if now - since < tuning.MPI_AWAKE_SECONDS else time.sleep(tuning.MPI_NAP)
