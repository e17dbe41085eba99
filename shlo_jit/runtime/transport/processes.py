"""Ranks as this process and its workers, on memory that they share."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
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
from shlo_jit.runtime.transport import worker, worker_start
from shlo_jit.runtime.transport.errors import Death, Raised
from shlo_jit.runtime.transport.layout import Layout, RankLayout, lay_out
from shlo_jit.runtime.transport.rank import Place, needed_routines
from shlo_jit.runtime.transport.remote_queues import answer
from shlo_jit.runtime.transport.shared import Segment
from shlo_jit.runtime.transport.shared_results import Kept
from shlo_jit.runtime.transport.team import END_SECONDS, Crew, Team

START_SECONDS = 60.0
"""Time limit for a worker to start and load its program."""


class Work(NamedTuple):
    """Description of a worker's task."""

    program: tuple[dict[str, Any], list[bytes]]
    """Program as `program_entry` writes it."""
    constants: tuple[tuple[str, int, int], ...]
    """Digest, offset and bytes of each of its constants in the segment of constants."""
    routines: list[CompiledRoutine]
    code: CompiledRoutine
    target: Target
    place: Place
    """Place in the grid. Its addresses are offsets in the segment."""
    layout: RankLayout
    nbytes: tuple[int, int]
    """Sizes of the two segments."""
    custom_calls: bytes
    """A pickled dictionary."""
    probe: tuple[int, int]
    """Address of a number in the calling process, which workers may be permitted to read, and the number."""


class Processes(Team):
    """The caller and its workers, which are started for the team and end with it."""

    def __init__(self, crew: Crew) -> None:
        """Raises MemoryError, ExecutionError if a worker fails to start or load, and TypeError for custom calls that
        cannot be sent to other processes."""
        super().__init__(crew)
        worker_start.check()
        calls = worker_start.pickled(dict(crew.custom_calls))
        self.layout: Layout = lay_out(crew.programs, crew.lane_count, crew.threads)
        self.memory = Segment(self.layout.nbytes)
        self.kept = Kept(self.memory, self.layout.results)
        self._workers: dict[int, Any] = {}
        self._probe = ctypes.c_int64(int.from_bytes(os.urandom(7), "little"))
        self.can_fetch = crew.ranks > 1
        self._lines: dict[int, Connection] = {}
        self._watcher: threading.Thread | None = None
        self._has_death = threading.Event()
        self._needs_main = worker_start.needs_main(calls)
        try:
            with self._in_time():
                self._start()
                self._make_own()
                self._load(calls)
            sentinels = [process.sentinel for process in self._workers.values()]
            self.pids = (os.getpid(), *(process.pid for process in self._workers.values()))
            """Process ids by rank."""
            watcher = threading.Thread(target=_watch, args=(weakref.ref(self), sentinels, self._has_death), daemon=True)
            watcher.start()
            self._watcher = watcher
        except BaseException:
            self.end(patiently=False)
            raise
        finally:
            self.memory.close_file()

    # ------------------------------------------------------------------ beginning
    def _start(self) -> None:
        for rank in range(1, self.crew.ranks):
            try:
                process, line, queues = worker_start.start(worker.main, rank, self._needs_main)
            except (OSError, RuntimeError) as error:
                raise ExecutionError(f"cannot start the process of rank {rank}: {error}") from None
            self._workers[rank], self._lines[rank] = process, line
            if any(c.target in HOST_CALLS for c in self.crew.programs[rank].callbacks):
                _serve_queues(queues, self.crew.hosts[rank])
            else:
                queues.close()

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        """Limits the start of workers: those that take too long are killed, which also ends any wait for them."""
        self._is_late = False
        timer = threading.Timer(START_SECONDS, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def _give_up(self) -> None:
        self._is_late = True
        for process in list(self._workers.values()):
            process.kill()

    def _load(self, calls: bytes) -> None:
        crew = self.crew
        constants = {c.digest: c.data for p in crew.programs for c in p.constants if c.digest}
        at, places = 0, {}
        for digest, data in constants.items():
            places[digest] = at
            at += -(-data.nbytes // 64) * 64
        shared = Segment(at)
        try:
            for digest, data in constants.items():
                shared.view(places[digest], data.nbytes)[...] = data
            self._send_work(calls, shared, places)
        finally:
            shared.close_file()
        for rank, line in self._lines.items():
            with self._checked_line(rank):
                loaded = line.recv()
            if isinstance(loaded, Raised):
                raise loaded.as_error(rank, ())
            self.can_fetch = self.can_fetch and loaded

    def _send_work(self, calls: bytes, shared: Segment, places: dict[str, int]) -> None:
        """Sends each worker the program to load."""
        crew = self.crew
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
                place=crew.place(rank, self.layout.board.offset, 0)._replace(
                    reach=self.memory.nbytes, caller=(os.getpid(), self.memory.address)
                ),
                layout=self.layout.ranks[rank],
                nbytes=(self.memory.nbytes, shared.nbytes),
                custom_calls=calls,
                probe=(ctypes.addressof(self._probe), self._probe.value),
            )
            with self._checked_line(rank):
                line.send(work)
                for segment in (self.memory, shared):
                    reduction.send_handle(line, segment.fd, self._workers[rank].pid)

    @contextlib.contextmanager
    def _checked_line(self, rank: int) -> Iterator[None]:
        """Converts the errors of a dead worker's line."""
        try:
            yield
        except (EOFError, OSError):
            self._workers[rank].join(END_SECONDS)
            how = f"{_end_of(self._workers[rank])} before it had loaded the program"
            if self._is_late:
                how = f"did not start within {START_SECONDS:g} s"
            if self._needs_main:
                how += f". {worker_start.MAIN_HINT}"
            raise ExecutionError(f"the process of rank {rank} {how}") from None

    # ------------------------------------------------------------------ calls
    def dead(self) -> Death | None:
        if not self._has_death.is_set():
            return None
        for rank, process in self._workers.items():
            if wait([process.sentinel], 0):
                return Death(rank, f"the process of rank {rank} {_end_of(process)}")
        return None

    def receive_reports(self) -> None:
        for rank, line in self._lines.items():
            with contextlib.suppress(EOFError, OSError):
                while rank not in self.raised and line.poll(0):
                    self.raised[rank] = line.recv()

    def end(self, patiently: bool) -> None:
        workers = self._workers
        if patiently:
            self.leave()
        deadline = time.monotonic() + (END_SECONDS if patiently else 0.0)
        for process in workers.values():
            if not wait([process.sentinel], max(0.0, deadline - time.monotonic())):
                process.kill()
        for process in workers.values():
            process.join()
        if self._watcher is not None:
            self._watcher.join()  # it reads what is closed now
        for rank in [*workers]:
            worker_start.forget(workers.pop(rank))
            self._lines.pop(rank).close()


def _watch(team: weakref.ref[Processes], sentinels: list[int], has_death: threading.Event) -> None:
    """Wakes threads that wait for a worker that has died."""
    if sentinels:
        wait(sentinels)
        has_death.set()
        here = team()
        if here is not None and not here.broken:
            here.own.stop_all(Status.STOPPED)


def _end_of(process: Any) -> str:
    """Describes how a process has ended."""
    process.join(END_SECONDS)  # its end is visible a moment before the system has its exit code
    code = process.exitcode
    if code is None:  # another caller has already collected it, and the system reports it once
        return "has ended"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _serve_queues(line: Connection, host: Host) -> None:
    """Answers the requests of a worker's program to its queues, until the worker ends."""
    threading.Thread(target=answer, args=(line, host), name="shlo_jit-queues", daemon=True).start()
