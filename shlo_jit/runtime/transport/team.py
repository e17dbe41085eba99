"""The ranks of a grid at work, seen from the process that calls them: one call after the other, and its end.

The thread that calls runs rank 0 itself. With as many ranks as CPUs, every CPU then has one thread to run, none has to
be woken but for the others, and a call of four bytes takes a third of what it takes when all ranks are others."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shlo_jit import tuning
from shlo_jit.codegen.abi import Status
from shlo_jit.codegen.objects import Compiled, CompiledRoutine
from shlo_jit.errors import ExecutionError
from shlo_jit.kernels.collective import board
from shlo_jit.kernels.target import Target
from shlo_jit.runtime.cpus import usable_cpus
from shlo_jit.runtime.fastcall import call_library
from shlo_jit.runtime.host import Host
from shlo_jit.runtime.transport.board import Board
from shlo_jit.runtime.transport.errors import Raised, WorkerError, WorkerTimeoutError, failure_of, raised_by
from shlo_jit.runtime.transport.kept import Kept
from shlo_jit.runtime.transport.layout import Layout
from shlo_jit.runtime.transport.rank import Place, Rank, load_code
from shlo_jit.runtime.transport.shared import Segment

LOOK_SECONDS = 0.02
"""Between looks at the workers' health, and at signals."""
GRACE_SECONDS = 2.0
"""That ranks have to end once they shall."""


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
    """Rank 0."""
    memory: Segment
    layout: Layout
    kept: Kept | None
    """Room for results in memory that all ranks reach; None where they reach all memory."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.sites = [program.sites for program in crew.programs]
        self.raised: dict[int, Raised] = {}
        """Of the call under way."""
        self.broken: BaseException | None = None
        """Why no further call is possible."""
        self._process = os.getpid()

    def _make_own(self) -> None:
        """Load rank 0 here."""
        crew, address = self.crew, self.memory.address
        at = address + self.layout.board.offset
        self.board = Board(at, crew.ranks, load_code(crew.code, crew.target), crew.patience)
        calls = crew.custom_calls, crew.hosts[0]
        own = call_library(crew.target, None)
        place, layout = crew.place(0, at, address), self.layout.ranks[0]
        self.own = Rank(crew.programs[0], crew.target, crew.code, place, layout, *calls, self.memory, own)

    # ------------------------------------------------------------------ what kinds of teams differ in
    @abstractmethod
    def dead(self) -> tuple[int, str] | None:
        """A rank that is no more, and what is known of its end."""

    @abstractmethod
    def hear(self) -> None:
        """Put into `raised` what ranks have said."""

    @abstractmethod
    def end(self, patiently: bool) -> None:
        """End all ranks; `patiently`: they wait for a call. May be called again."""

    # ------------------------------------------------------------------ calls
    def run(self) -> None:
        """Make a call, whose arguments are in place. Raises WorkerError, after which there is no other, and what a
        handler of signals raises."""
        self.check()
        self.raised.clear()
        self.board.call()
        try:
            self._run_own()
            self._until_ended()
        except WorkerError as error:
            self._break(error)
            raise
        except BaseException as error:  # an interrupt
            self.own.stop_all(Status.INTERRUPTED)
            if not self._settled() or self.dead() is not None:
                self._break(error)
            raise
        failed = any(self.board.outcome(rank).status != board.OK for rank in range(self.crew.ranks))
        if failed:
            self._fail()

    def check(self) -> None:
        """Raises ExecutionError unless a call is possible."""
        if self._process != os.getpid():
            raise ExecutionError("the processes belong to the process that this one was forked from: compile here")
        if self.broken is not None:
            why = str(self.broken).partition("\n")[0] or type(self.broken).__name__
            raise ExecutionError(f"its processes have ended ({why}): compile the program again")
        gone = self.dead()
        if gone is not None:
            error = self._death(*gone)
            self._break(error)
            raise error

    def close(self) -> None:
        """End the ranks."""
        if self.broken is None and self._process == os.getpid():
            self.broken = ExecutionError("closed")
            self.end(patiently=True)

    def _run_own(self) -> None:
        status = Status.INTERRUPTED
        try:
            status = self.own.run()
        finally:
            if status != Status.OK:
                self.own.stop_all(status)
            if status == Status.CALL_FAILED:
                self.raised[0] = raised_by(self.own.failure(status))
            self.own.end_call(status)

    def leave(self) -> None:
        """Begin the call by which all ranks leave."""
        self.board.call(board.LEAVE)
        self.own.begin()
        self.own.end_call(Status.OK)

    def _until_ended(self) -> None:
        ranks = range(self.crew.ranks)
        hearts, since, stopping = [0] * self.crew.ranks, time.monotonic(), None
        while not self.board.wait(LOOK_SECONDS):
            now = time.monotonic()
            gone = self.dead()
            if gone is not None:
                raise self._death(*gone)
            if any(self.board.has_ended(r) and self.board.outcome(r).status != board.OK for r in ranks):
                self.hear()
                stopping = now if stopping is None else stopping
                if now - stopping > GRACE_SECONDS:
                    self._fail()
            beats = [0 if self.board.has_ended(r) else self.board.heart(r) for r in ranks]
            if beats != hearts:
                hearts, since = beats, now
            elif now - since > self.crew.time_out + LOOK_SECONDS:
                lost = next(r for r in ranks if not self.board.has_ended(r))
                raise WorkerTimeoutError(f"rank {lost} did not get on for {self.crew.time_out:g} s", lost)

    def _fail(self) -> None:
        self.hear()
        ranks = range(self.crew.ranks)
        outcomes = [self.board.outcome(r) if self.board.has_ended(r) else None for r in ranks]
        error = failure_of(outcomes, self.sites, self.raised, self.crew.time_out)
        self._break(error)
        raise error

    def _death(self, rank: int, how: str) -> WorkerError:
        return WorkerError(f"the process of rank {rank} {how}", rank)

    def _settled(self) -> bool:
        """Whether all ranks have ended the call after it was stopped."""
        try:
            return self.board.wait(GRACE_SECONDS)
        except BaseException:
            return False

    def _break(self, error: BaseException) -> None:
        self.own.stop_all(Status.STOPPED)
        settled = self._settled() and self.dead() is None
        self.broken = error
        self.end(patiently=settled)
