"""The ranks of a grid at work, seen from the process that calls them: one call after the other, and its end.

The thread that calls runs rank 0 itself. With as many ranks as CPUs, every CPU then has one thread to run, none has to
be woken but for the others, and a call of four bytes takes a third of what it takes when all ranks are others."""

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
from shlo_jit.runtime.transport.kept import Kept
from shlo_jit.runtime.transport.layout import Layout
from shlo_jit.runtime.transport.rank import Place, Rank, load_code
from shlo_jit.runtime.transport.shared import Segment

LOOK_SECONDS = 0.02
"""Between looks at the workers' health, and at signals."""
GRACE_SECONDS = 2.0
"""That ranks have to end once they shall."""
END_SECONDS = 2.0
"""That ranks which are idle have to leave."""
WITNESS_SECONDS = 0.2
"""That ranks which wait for one that does not get on have to say so before this process notices it."""


@dataclass(frozen=True)
class Crew:
    """What is to be run: a program for each rank, and how."""

    programs: tuple[Compiled, ...]
    """Equal ones are the same object."""
    target: Target
    code: CompiledRoutine
    """Of `kernels/collective/routine.py`."""
    threads: int
    """Of a rank."""
    time_out: float
    """Seconds without progress after which a rank counts as lost."""
    custom_calls: Mapping[str, Any]
    hosts: tuple[Host, ...]

    @property
    def ranks(self) -> int:
        return len(self.programs)

    @property
    def channels(self) -> list[int]:
        """The handles of all programs, in order: each has the lane behind the first."""
        return sorted({handle for program in self.programs for handle in program.channels})

    def lanes(self, rank: int) -> tuple[int, ...]:
        handles = self.channels
        return tuple(1 + handles.index(handle) for handle in self.programs[rank].channels)

    @property
    def lane_count(self) -> int:
        return 1 + len(self.channels)

    def place(self, rank: int, board_address: int, base: int) -> Place:
        """Of a rank, with addresses of its process."""
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
        """Looks before a rank sleeps, and at which of them it yields."""
        return tuning.MEETING_PATIENCE if self.ranks <= usable_cpus() else tuning.CROWDED_PATIENCE


class Team(ABC):
    """Ranks that meet on a board. Calls come one at a time."""

    board: Board
    own: Rank
    """That which the calling thread runs."""
    number = 0
    """Of it."""
    here: Sequence[int]
    """The ranks whose arguments and results are in this process."""
    memory: Segment
    layout: Layout
    kept: Kept | None
    """Room for results in memory that all ranks reach; None where they reach all memory."""
    can_fetch = False
    """Whether ranks that do not reach the caller's memory can copy from it."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.here = range(crew.ranks)
        self.sites = [program.sites for program in crew.programs]
        self.raised: dict[int, Raised] = {}
        """Of the call under way."""
        self.broken = ""
        """Why no further call is possible: a text, because an exception refers to who has called."""
        self.lock = threading.Lock()
        """Held by who prepares and makes a call."""
        self.held: object = None
        """What lives as long as ranks may be in a call."""
        self._is_under_way = False
        self._is_over = False
        self._process = os.getpid()

    def _make_own(self, messages: Mapping[str, int] | None = None) -> None:
        """Load the rank of this process. `messages`: as `Rank` takes them."""
        crew, address, number = self.crew, self.memory.address, self.number
        at = address + self.layout.board.offset
        library = load_code(crew.code, crew.target)
        self.board = Board(at, crew.ranks, crew.lane_count, library, crew.patience)
        calls = crew.custom_calls, crew.hosts[number]
        own = call_library(crew.target, None)
        place, layout = crew.place(number, at, address), self.layout.ranks[number]
        program = crew.programs[number]
        self.own = Rank(program, crew.target, crew.code, place, layout, *calls, self.memory, own, messages)

    # ------------------------------------------------------------------ what kinds of teams differ in
    @abstractmethod
    def dead(self) -> Death | None:
        """A rank that is no more."""

    @abstractmethod
    def hear(self) -> None:
        """Put into `raised` what ranks have said."""

    @abstractmethod
    def end(self, patiently: bool) -> None:
        """End all ranks; `patiently`: they wait for a call. May be called again, after an interrupt for example."""

    # ------------------------------------------------------------------ calls
    def check(self) -> None:
        """Raises ExecutionError unless a call is possible."""
        if self._process != os.getpid():
            raise ExecutionError("the processes belong to the process that this one was forked from: compile here")
        if self._is_under_way and not self.broken:
            self._break("a call was interrupted where it could not be stopped", settled=False)
        if self.broken:
            raise ExecutionError(f"its processes have ended ({self.broken}): compile the program again")
        if self.dead() is not None:
            self._fail()

    def run(self, held: object) -> None:
        """Make a call, whose arguments are in place; `held`: what ranks use in it. Raises WorkerError, after which no
        other is possible, and what a handler of signals raises."""
        self.raised.clear()
        self.held, self._is_under_way = held, True
        try:
            self.board.call()
            if self.dead() is not None:  # that was noticed before the call began, which forgets it
                self.own.stop_all(Status.STOPPED)
            self._run_own()
            ended = self._until_ended()
        except BaseException:  # an interrupt
            if self._stopped():
                self.hear()  # and forget: it is not about the next call
                self.held, self._is_under_way = None, False
            else:
                self._break("a call was interrupted, and not all could be stopped", settled=False)
            raise
        if not ended or any(self.board.outcome(rank).status != board.OK for rank in range(self.crew.ranks)):
            self._fail()
        if self.board.unread() is not None:
            self._fail()
        self.held, self._is_under_way = None, False

    def close(self) -> None:
        """End the ranks. A call that another thread is in is stopped, and raises ExecutionError."""
        if self._is_over or self._process != os.getpid():
            return
        self.broken = self.broken or "closed"
        is_idle = self.lock.acquire(blocking=False)
        if not is_idle:
            self.own.stop_all(Status.STOPPED)
            is_idle = self.lock.acquire(timeout=2 * GRACE_SECONDS)
        try:
            self._finish(patiently=is_idle and not self._is_under_way)
        finally:
            if is_idle:
                self.lock.release()

    def leave(self) -> None:
        """Let all ranks leave."""
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
        """Run this process's rank; the status."""
        return self.own.run()

    def gathered(self, made: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
        """The results of all ranks, from those of the ranks here, after a call that has ended well."""
        return made

    def _until_ended(self) -> bool:
        """Whether all ranks have ended the call: not when one has failed, is dead, or does not get on. The time while
        this process was stopped itself does not count."""
        ranks = range(self.crew.ranks)
        hearts, idle, before = [0], 0.0, time.monotonic()
        while not self.board.wait(LOOK_SECONDS):
            self.hear()
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
        """Ask all ranks to stop; whether they have ended the call in time."""
        self.own.stop_all(Status.STOPPED)
        until = time.monotonic() + seconds
        while not self.board.wait(LOOK_SECONDS):
            self.hear()
            if self.dead() is not None or time.monotonic() > until:
                return False
        return self.dead() is None

    def _fail(self) -> NoReturn:
        """End all ranks, and say why the call failed. One that does not get on is given little time to."""
        statuses = {outcome.status for outcome in self._outcomes() if outcome is not None}
        is_lost = board.TIMED_OUT in statuses or not statuses - {board.OK}
        settled = self._stopped(WITNESS_SECONDS if is_lost else GRACE_SECONDS)
        self.hear()
        error = self._why(self._outcomes(), self.board.unread() if settled else None)
        self.raised.clear()
        self._break(str(error).partition("\n")[0], settled)
        raise error

    def _outcomes(self) -> list[Outcome | None]:
        """How ranks have ended the call; None: not yet."""
        ranks = range(self.crew.ranks)
        return [self.board.outcome(rank) if self.board.has_ended(rank) else None for rank in ranks]

    def _why(self, outcomes: Sequence[Outcome | None], unread: Unread | None) -> BaseException:
        """What the call failed of."""
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
        """There will be no other call."""
        self.broken = self.broken or why
        self._finish(patiently=settled)

    def _finish(self, patiently: bool) -> None:
        if not self._is_over:
            self.end(patiently)
            self._is_over = True
