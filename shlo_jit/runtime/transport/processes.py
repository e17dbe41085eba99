"""Ranks as worker processes of this one, on memory that they share with it."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from shlo_jit.codegen.objects import CompiledRoutine, program_entry
from shlo_jit.errors import ExecutionError
from shlo_jit.kernels.collective import board
from shlo_jit.kernels.target import Target
from shlo_jit.runtime.host import HOST_CALLS, Host
from shlo_jit.runtime.transport import worker
from shlo_jit.runtime.transport.board import Board
from shlo_jit.runtime.transport.errors import Raised
from shlo_jit.runtime.transport.kept import Kept
from shlo_jit.runtime.transport.layout import Layout, RankLayout, lay_out
from shlo_jit.runtime.transport.lines import answer
from shlo_jit.runtime.transport.rank import Place, needed_routines
from shlo_jit.runtime.transport.shared import Segment
from shlo_jit.runtime.transport.team import Crew, Team

START_SECONDS = 60.0
"""That a worker has to start and load its program."""


class Work(NamedTuple):
    """What a worker is told."""

    program: tuple[dict[str, Any], list[bytes]]
    """As `program_entry` writes it."""
    constants: tuple[tuple[str, int, int], ...]
    """Digest, offset and bytes of each of its constants in the segment of constants."""
    routines: list[CompiledRoutine]
    code: CompiledRoutine
    target: Target
    place: Place
    """Whose addresses are offsets in the segment."""
    layout: RankLayout
    nbytes: tuple[int, int]
    """Of the two segments."""
    custom_calls: bytes
    """A pickled dictionary."""


class Processes(Team):
    """Workers, started anew and ended with the team."""

    def __init__(self, crew: Crew) -> None:
        """Raises MemoryError, ExecutionError when a worker cannot start or load, and TypeError for custom calls that
        cannot be sent to other processes."""
        super().__init__(crew)
        self.layout: Layout = lay_out(crew.programs, crew.lane_count, crew.threads)
        self.memory = Segment(self.layout.nbytes)
        self.kept: Kept | None = Kept(self.memory, self.layout.results)
        self._workers: list[Any] = []
        self._lines: list[Connection] = []
        calls = _pickled(dict(crew.custom_calls))
        try:
            self._start(needs_main=bool(crew.custom_calls))
            self.board = Board(self.memory.address + self.layout.board.offset, crew.ranks, crew.code, crew.host_spins)
            self._load(calls)
        except BaseException:
            self.end(patiently=False)
            raise
        finally:
            self.memory.close_file()

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self._workers)

    # ------------------------------------------------------------------ beginning
    def _start(self, needs_main: bool) -> None:
        context = multiprocessing.get_context("spawn")
        with contextlib.nullcontext() if needs_main else _without_main():
            for rank in range(self.crew.ranks):
                ours, theirs = context.Pipe()
                queues, their_queues = context.Pipe()
                arguments = theirs, their_queues, rank
                process = context.Process(target=worker.main, args=arguments, name=f"shlo_jit-{rank}", daemon=True)
                process.start()
                theirs.close()
                their_queues.close()
                self._workers.append(process)
                self._lines.append(ours)
                if any(c.target in HOST_CALLS for c in self.crew.programs[rank].callbacks):
                    _serve_queues(queues, self.crew.hosts[rank])
                else:
                    queues.close()

    def _load(self, calls: bytes) -> None:
        crew = self.crew
        constants = {c.digest: c.data for p in crew.programs for c in p.constants if c.digest}
        at, places = 0, {}
        for digest, data in constants.items():
            places[digest] = at
            at += -(-data.nbytes // 64) * 64
        shared = Segment(at)
        for digest, data in constants.items():
            shared.view(places[digest], data.nbytes)[...] = data
        names = {name for program in crew.programs for name in program.routines}
        routines = needed_routines(sorted(names), crew.target)
        written: dict[int, Any] = {}
        for rank, program in enumerate(crew.programs):
            if id(program) not in written:
                header, blobs = program_entry(program)
                written[id(program)] = header, [bytes(blob) for blob in blobs]
            known = tuple((c.digest, places[c.digest], c.data.nbytes) for c in program.constants if c.digest)
            place = Place(
                rank, crew.ranks, self.layout.board.offset, 0, crew.lanes(rank), crew.lane_count, crew.threads,
                crew.spins, crew.time_out,
            )  # fmt: skip
            work = Work(
                written[id(program)], known, routines, crew.code, crew.target, place, self.layout.ranks[rank],
                (self.memory.nbytes, shared.nbytes), calls,
            )  # fmt: skip
            with self._telling(rank):
                self._lines[rank].send(work)
                for segment in (self.memory, shared):
                    reduction.send_handle(self._lines[rank], segment.fd, self._workers[rank].pid)
        shared.close_file()
        deadline = time.monotonic() + START_SECONDS
        for rank, line in enumerate(self._lines):
            with self._telling(rank):
                if not line.poll(max(0.0, deadline - time.monotonic())):
                    raise ExecutionError(f"the process of rank {rank} did not start within {START_SECONDS:g} s")
                raised = line.recv()
            if raised is not None:
                raise ExecutionError(f"rank {rank}: {raised.text}\n\n{raised.traceback}")

    @contextlib.contextmanager
    def _telling(self, rank: int) -> Iterator[None]:
        """Around what fails when a worker is gone."""
        try:
            yield
        except (EOFError, OSError) as error:
            self._workers[rank].join(1)
            how = _end_of(self._workers[rank]) or f"closed its connection ({error})"
            raise ExecutionError(f"the process of rank {rank} {how} before it had loaded the program") from None

    # ------------------------------------------------------------------ calls
    def dead(self) -> tuple[int, str] | None:
        for rank, process in enumerate(self._workers):
            if process.exitcode is not None:
                return rank, _end_of(process)
        return None

    def hear(self) -> None:
        for rank, line in enumerate(self._lines):
            with contextlib.suppress(EOFError, OSError):
                while rank not in self.raised and line.poll(0):
                    self.raised[rank] = line.recv()

    def end(self, patiently: bool) -> None:
        if patiently and self.dead() is None:
            self.board.call(board.LEAVE)
            wait([process.sentinel for process in self._workers], 2)
        for process in self._workers:
            if patiently:
                process.join(2)
            if process.exitcode is None:
                process.kill()
        for process in self._workers:
            process.join()
        for line in self._lines:
            line.close()


def _end_of(process: Any) -> str:
    """How a process has ended, for people."""
    code = process.exitcode
    if code is None:
        return ""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _pickled(calls: dict[str, Any]) -> bytes:
    try:
        return pickle.dumps(calls)
    except Exception as error:  # whatever an object's own pickling raises
        what = f"custom_calls: worker processes import them by name, and that cannot be: {error}"
        raise TypeError(f"{what} (transport='threads' takes any callable)") from None


_main_lock = threading.Lock()


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Where worker processes start without the user's main module: nothing of it is needed there, and a script without
    `if __name__ == "__main__"` would run again."""
    with _main_lock:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def _serve_queues(line: Connection, host: Host) -> None:
    """Answer what a worker's program asks of its queues, until it ends."""
    threading.Thread(target=answer, args=(line, host), name="shlo_jit-queues", daemon=True).start()


__all__ = ["Processes", "Raised", "Work"]
