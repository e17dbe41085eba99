"""Ranks as this process and workers of it, on memory that they share."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import types
import weakref
from collections.abc import Iterator
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from shlo_jit.codegen.abi import Status
from shlo_jit.codegen.objects import CompiledRoutine, program_entry
from shlo_jit.errors import ExecutionError
from shlo_jit.kernels.target import Target
from shlo_jit.runtime.host import HOST_CALLS, Host
from shlo_jit.runtime.transport import worker
from shlo_jit.runtime.transport.errors import WorkerError
from shlo_jit.runtime.transport.kept import Kept
from shlo_jit.runtime.transport.layout import Layout, RankLayout, lay_out
from shlo_jit.runtime.transport.lines import answer
from shlo_jit.runtime.transport.rank import Place, needed_routines
from shlo_jit.runtime.transport.shared import Segment
from shlo_jit.runtime.transport.team import Crew, Team

START_SECONDS = 60.0
"""That a worker has to start and load its program."""
END_SECONDS = 2.0
"""That workers have to end by themselves."""


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
    """The caller and its workers, started anew and ended with the team."""

    def __init__(self, crew: Crew) -> None:
        """Raises MemoryError, ExecutionError when a worker cannot start or load, and TypeError for custom calls that
        cannot be sent to other processes."""
        super().__init__(crew)
        self.layout: Layout = lay_out(crew.programs, crew.lane_count, crew.threads)
        self.memory = Segment(self.layout.nbytes)
        self.kept = Kept(self.memory, self.layout.results)
        self._workers: dict[int, Any] = {}
        self._lines: dict[int, Connection] = {}
        calls = _pickled(dict(crew.custom_calls))
        try:
            self._start(needs_main=bool(crew.custom_calls))
            self._make_own()
            self._load(calls)
        except BaseException:
            self.end(patiently=False)
            raise
        finally:
            self.memory.close_file()
        threading.Thread(target=_watch, args=(weakref.ref(self), self._sentinels()), daemon=True).start()

    @property
    def pids(self) -> tuple[int, ...]:
        """By rank."""
        return (os.getpid(), *(process.pid for process in self._workers.values()))

    def _sentinels(self) -> list[int]:
        return [process.sentinel for process in self._workers.values()]

    # ------------------------------------------------------------------ beginning
    def _start(self, needs_main: bool) -> None:
        context = multiprocessing.get_context("spawn")
        with contextlib.nullcontext() if needs_main else _without_main():
            for rank in range(1, self.crew.ranks):
                ours, theirs = context.Pipe()
                queues, their_queues = context.Pipe()
                arguments = theirs, their_queues, rank
                process = context.Process(target=worker.main, args=arguments, name=f"shlo_jit-{rank}", daemon=True)
                process.start()
                theirs.close()
                their_queues.close()
                self._workers[rank] = process
                self._lines[rank] = ours
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
        names = {*crew.code.needs, *(name for program in crew.programs for name in program.routines)}
        routines = needed_routines(sorted(names), crew.target)
        written: dict[int, Any] = {}
        for rank, line in self._lines.items():
            program = crew.programs[rank]
            if id(program) not in written:
                header, blobs = program_entry(program)
                written[id(program)] = header, [bytes(blob) for blob in blobs]
            work = Work(
                program=written[id(program)],
                constants=tuple((c.digest, places[c.digest], c.data.nbytes) for c in program.constants if c.digest),
                routines=routines,
                code=crew.code,
                target=crew.target,
                place=crew.place(rank, self.layout.board.offset, 0),
                layout=self.layout.ranks[rank],
                nbytes=(self.memory.nbytes, shared.nbytes),
                custom_calls=calls,
            )
            with self._telling(rank):
                line.send(work)
                for segment in (self.memory, shared):
                    reduction.send_handle(line, segment.fd, self._workers[rank].pid)
        shared.close_file()
        deadline = time.monotonic() + START_SECONDS
        for rank, line in self._lines.items():
            with self._telling(rank):
                if not line.poll(max(0.0, deadline - time.monotonic())):
                    raise ExecutionError(f"the process of rank {rank} did not start within {START_SECONDS:g} s")
                raised = line.recv()
            if raised is not None:
                raise WorkerError(f"rank {rank}: {raised.text}", rank, remote=raised.traceback)

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
        for rank, process in self._workers.items():
            if process.exitcode is not None:
                return rank, _end_of(process)
        return None

    def hear(self) -> None:
        for rank, line in self._lines.items():
            with contextlib.suppress(EOFError, OSError):
                while rank not in self.raised and line.poll(0):
                    self.raised[rank] = line.recv()

    def end(self, patiently: bool) -> None:
        workers = list(self._workers.values())
        if patiently and self.dead() is None:
            self.leave()
        deadline = time.monotonic() + (END_SECONDS if patiently else 0)
        for process in workers:
            if patiently:
                process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                process.kill()
        for process in workers:
            process.join()
        for line in self._lines.values():
            line.close()


def _watch(team: weakref.ref[Processes], sentinels: list[int]) -> None:
    """Wake who waits for a worker that is no more."""
    if sentinels:
        wait(sentinels)
        here = team()
        if here is not None and here.broken is None:
            here.own.stop_all(Status.STOPPED)


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
