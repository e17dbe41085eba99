"""The ranks of a grid, as the calling process sees them: it runs one call after the other, and ends them.

The calling thread runs rank 0 itself. With as many ranks as CPUs, every CPU then has one thread to run, and only the
other ranks have to be woken. A call of four bytes takes a third of the time that it takes if all ranks are others.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from shlo_jit import tuning
from shlo_jit.codegen.abi import Status
from shlo_jit.codegen.objects import Compiled, CompiledRoutine
from shlo_jit.errors import ExecutionError
from shlo_jit.kernels.collective import board
from shlo_jit.kernels.target import Target
from shlo_jit.runtime.cpus import usable_cpus
from shlo_jit.runtime.fastcall import call_library
from shlo_jit.runtime.host import Host
from shlo_jit.runtime.transport.board import Board, Outcome, Unread
from shlo_jit.runtime.transport.errors import Death, Raised, failure_of, raised_by, site_of
from shlo_jit.runtime.transport.layout import Layout
from shlo_jit.runtime.transport.rank import Place, Rank, load_code
from shlo_jit.runtime.transport.shared import Segment
from shlo_jit.runtime.transport.shared_results import Kept

LOOK_SECONDS = 0.02
"""Interval of the checks of the workers' health, and of signals."""
GRACE_SECONDS = 2.0
"""Time that ranks have to end when they are asked to."""
END_SECONDS = 2.0
"""Time that idle ranks have to leave."""
WITNESS_SECONDS = 0.2
"""Time that ranks have to report a peer without progress, before this process notices it."""


@dataclass(frozen=True)
class Crew:
    """Programs to run, one per rank, and the parameters of their execution."""

    programs: tuple[Compiled, ...]
    """Equal programs are the same object."""
    target: Target
    code: CompiledRoutine
    """Code of `kernels/collective/routine.py`."""
    threads: int
    """Threads per rank."""
    time_out: float
    """Seconds without progress after which a rank counts as lost."""
    custom_calls: Mapping[str, Any]
    hosts: tuple[Host, ...]

    @property
    def ranks(self) -> int:
        return len(self.programs)

    @property
    def channels(self) -> list[int]:
        """The handles of all programs, in order. Each has a lane; lane 0 is reserved."""
        return sorted({handle for program in self.programs for handle in program.channels})

    def lanes(self, rank: int) -> tuple[int, ...]:
        handles = self.channels
        return tuple(1 + handles.index(handle) for handle in self.programs[rank].channels)

    @property
    def lane_count(self) -> int:
        return 1 + len(self.channels)

    def place(self, rank: int, board_address: int, base: int) -> Place:
        """Returns the place of a rank, with addresses of its process."""
        return Place(
            rank=rank,
            ranks=self.ranks,
            board=board_address,
            base=base,
            lanes=self.lanes(rank),
            lane_count=self.lane_count,
            threads=self.threads,
            patience=self.patience,
            time_out=self.time_out,
        )

    @property
    def patience(self) -> tuple[int, int]:
        """Number of polls before a rank sleeps, and the interval of those at which it yields."""
        return tuning.MEETING_PATIENCE if self.ranks <= usable_cpus() else tuning.CROWDED_PATIENCE


class Team(ABC):
    """Ranks that communicate by a board. Calls run one at a time."""

    board: Board
    own: Rank
    """The rank that the calling thread runs."""
    number = 0
    """Number of that rank."""
    here: Sequence[int]
    """The ranks whose arguments and results are in this process."""
    memory: Segment
    layout: Layout
    kept: Kept | None
    """Room for results in memory that all ranks can access; None if they can access all memory."""
    can_fetch = False
    """Whether ranks that cannot access the caller's memory can copy from it."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.here = range(crew.ranks)
        self.sites = [program.sites for program in crew.programs]
        self.raised: dict[int, Raised] = {}
        """Exceptions of the current call, by rank."""
        self.broken = ""
        """Reason why no further call is possible: a text, because an exception refers to the frames of the caller."""
        self.lock = threading.Lock()
        """Held by a thread that prepares and makes a call."""
        self.held: object = None
        """Objects that live as long as ranks may be in a call."""
        self._in_call = False
        self._is_over = False
        self._process = os.getpid()

    def _make_own(self, messages: Mapping[str, int] | None = None) -> None:
        """Loads the rank of this process. `messages` as in `Rank`."""
        crew, address, number = self.crew, self.memory.address, self.number
        at = address + self.layout.board.offset
        library = load_code(crew.code, crew.target)
        self.board = Board(at, crew.ranks, crew.lane_count, library, crew.patience)
        calls = crew.custom_calls, crew.hosts[number]
        own = call_library(crew.target, None)
        place, layout = crew.place(number, at, address), self.layout.ranks[number]
        program = crew.programs[number]
        self.own = Rank(program, crew.target, crew.code, place, layout, *calls, self.memory, own, messages)

    # ------------------------------------------------------------------ differences between kinds of teams
    @abstractmethod
    def dead(self) -> Death | None:
        """Returns a rank that has died."""

    @abstractmethod
    def receive_reports(self) -> None:
        """Puts the reports of ranks into `raised`."""

    @abstractmethod
    def end(self, patiently: bool) -> None:
        """Ends all ranks; `patiently`: they wait for a call. May be called again, after an interrupt for example."""

    # ------------------------------------------------------------------ calls
    def check(self) -> None:
        """Raises ExecutionError unless a call is possible."""
        if self._process != os.getpid():
            raise ExecutionError(
                "the processes belong to the process that this one was forked from: compile again here"
            )
        if self._in_call and not self.broken:
            self._break("a call was interrupted where it could not be stopped", settled=False)
        if self.broken:
            raise ExecutionError(f"its processes have ended ({self.broken}): compile the program again")
        if self.dead() is not None:
            self._fail()

    def run(self, held: object) -> None:
        """Runs a call, whose arguments are in place; `held` has the objects that ranks use in it. Raises WorkerError,
        after which no other call is possible, and the exception of a signal handler."""
        self.raised.clear()
        self.held, self._in_call = held, True
        try:
            self.board.call()
            if self.dead() is not None:  # noticed before the call began, which resets it
                self.own.stop_all(Status.STOPPED)
            self._run_own()
            ended = self._until_ended()
        except BaseException:  # an interrupt
            if self._stopped():
                self.receive_reports()  # and discard: it is not about the next call
                self.held, self._in_call = None, False
            else:
                self._break("a call was interrupted, and not all could be stopped", settled=False)
            raise
        if not ended or any(self.board.outcome(rank).status != board.OK for rank in range(self.crew.ranks)):
            self._fail()
        if self.board.unread() is not None:
            self._fail()
        self.held, self._in_call = None, False

    def close(self) -> None:
        """Ends the ranks. A call that another thread is in is stopped, and raises ExecutionError."""
        if self._is_over or self._process != os.getpid():
            return
        self.broken = self.broken or "closed"
        is_idle = self.lock.acquire(blocking=False)
        if not is_idle:
            self.own.stop_all(Status.STOPPED)
            is_idle = self.lock.acquire(timeout=2 * GRACE_SECONDS)
        try:
            self._finish(patiently=is_idle and not self._in_call)
        finally:
            if is_idle:
                self.lock.release()

    def leave(self) -> None:
        """Makes all ranks leave."""
        self.board.call(board.LEAVE)

    def _run_own(self) -> None:
        status = Status.INTERRUPTED
        try:
            status = self._execute()
        finally:
            if status != Status.OK:
                self.own.stop_all(status)
            self.own.end_call(status)
        if status == Status.CALL_FAILED:
            error = self.own.failure(status)
            if not isinstance(error, Exception):  # an interrupt
                raise error
            self.raised[self.number] = raised_by(error, self.own.failed_call)

    def _execute(self) -> int:
        """Runs this process's rank. Returns the status."""
        return self.own.run()

    def gathered(self, made: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
        """Returns the results of all ranks, from those of the ranks here, after a successful call."""
        return made

    def _until_ended(self) -> bool:
        """Whether all ranks have ended the call. False if one has failed, is dead, or makes no progress. The time
        during which this process itself was stopped does not count."""
        ranks = range(self.crew.ranks)
        hearts, idle, before = [0], 0.0, time.monotonic()
        while not self.board.wait(LOOK_SECONDS):
            self.receive_reports()
            left = [rank for rank in ranks if not self.board.has_ended(rank)]
            failed = any(self.board.outcome(rank).status != board.OK for rank in ranks if rank not in left)
            if failed or self.broken or self.dead() is not None:
                return False
            now, beats = time.monotonic(), [self.board.heart(rank) for rank in left]
            idle = idle + min(now - before, 2 * LOOK_SECONDS) if beats == hearts else 0.0
            hearts, before = beats, now
            if idle > self.crew.time_out + WITNESS_SECONDS:
                return False
        return True

    def _stopped(self, seconds: float = GRACE_SECONDS) -> bool:
        """Asks all ranks to stop. Returns whether they have ended the call in time."""
        self.own.stop_all(Status.STOPPED)
        until = time.monotonic() + seconds
        while not self.board.wait(LOOK_SECONDS):
            self.receive_reports()
            if self.dead() is not None or time.monotonic() > until:
                return False
        return self.dead() is None

    def _fail(self) -> NoReturn:
        """Ends all ranks, and raises the reason of the failure. A rank without progress gets little time to end."""
        statuses = {outcome.status for outcome in self._outcomes() if outcome is not None}
        is_lost = board.TIMED_OUT in statuses or not statuses - {board.OK}
        settled = self._stopped(WITNESS_SECONDS if is_lost else GRACE_SECONDS)
        self.receive_reports()
        error = self._why(self._outcomes(), self.board.unread() if settled else None)
        self.raised.clear()
        self._break(str(error).partition("\n")[0], settled)
        raise error

    def _outcomes(self) -> list[Outcome | None]:
        """Returns the outcomes of ranks; None for those that have not ended the call."""
        ranks = range(self.crew.ranks)
        return [self.board.outcome(rank) if self.board.has_ended(rank) else None for rank in ranks]

    def _why(self, outcomes: Sequence[Outcome | None], unread: Unread | None) -> BaseException:
        """Returns the reason why the call failed."""
        if self.broken:
            return ExecutionError("the executable was closed during the call")
        programs = self.crew.programs
        if self.raised:
            rank, what = next(iter(self.raised.items()))
            return what.as_error(rank, programs[rank].callbacks)
        dead = self.dead()
        if dead is not None:
            site = board.NONE if self.board.has_ended(dead.rank) else self.board.site(dead.rank)
            return dead.as_error(site_of(self.sites[dead.rank], site))
        if unread is not None and all(outcome is not None and outcome.status == board.OK for outcome in outcomes):
            outcomes = list(outcomes)
            outcomes[unread.sender] = Outcome(board.ENDED_EARLY, unread.site, unread.receiver, board.NONE)
        return failure_of(outcomes, self.sites, self.crew.time_out)

    def _break(self, why: str, settled: bool) -> None:
        """Prevents further calls."""
        self.broken = self.broken or why
        self._finish(patiently=settled)

    def _finish(self, patiently: bool) -> None:
        if not self._is_over:
            self.end(patiently)
            self._is_over = True
