"""Life of a worker process: it receives its task, runs the program at every call, and exits with its parent."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import sys
import threading
from functools import partial
from multiprocessing import parent_process, reduction
from multiprocessing.connection import Connection, wait
from typing import Any

from shlo_jit.kernels.collective import board
from shlo_jit.runtime.transport.errors import raised_by


def main(line: Connection, queues: Connection, rank: int) -> None:
    """Runs the process of that rank."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the calling process decides how to handle an interrupt
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for stream in (sys.stdout, sys.stderr):  # so that output of custom calls is visible even if this process is killed
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        work = line.recv()
        fds = [reduction.recv_handle(line) for _ in work.nbytes]
        serving = _load(work, fds, queues)
    except (EOFError, OSError):
        return
    except BaseException as error:
        _report(line, error)
        return
    line.send(serving.can_fetch(*work.probe))
    while True:
        status = serving.serve()
        if status == 0:
            return
        if status == CALL_FAILED:
            _report(line, serving.failure(status), serving.failed_call)
        serving.end_call(status)


CALL_FAILED = 1


def _load(work: Any, fds: list[int], queues: Connection) -> Any:
    from shlo_jit.codegen.objects import read_program
    from shlo_jit.runtime import routines
    from shlo_jit.runtime.transport.rank import Rank
    from shlo_jit.runtime.transport.remote_queues import RemoteHost
    from shlo_jit.runtime.transport.shared import Segment

    memory, constants = (Segment(nbytes, fd) for nbytes, fd in zip(work.nbytes, fds, strict=True))
    known = {digest: constants.view(at, nbytes) for digest, at, nbytes in work.constants}
    header, blobs = work.program
    compiled = read_program(header, [memoryview(blob) for blob in blobs], partial(dict.get, known))
    for routine in work.routines:
        routines.adopt(routine, work.target)
    place = work.place._replace(board=memory.address + work.place.board, base=memory.address)
    calls = pickle.loads(work.custom_calls)  # written by the process that started this one
    host = RemoteHost(queues)
    return Rank(compiled, work.target, work.code, place, work.layout, calls, host, (memory, constants))


def _report(line: Connection, error: BaseException, call: int = board.NONE) -> None:
    """Sends an exception of this process, raised in a custom call with that number."""
    with contextlib.suppress(OSError):
        line.send(raised_by(error, call, is_own=False))


def _end_with_parent() -> None:
    """Exits when the process that started this one ends, however it does."""
    parent = parent_process()
    assert parent is not None
    while not wait([parent.sentinel], 1.0) and os.getppid() == parent.pid:  # its children have the sentinel too
        pass
    os._exit(1)
