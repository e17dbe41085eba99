"""Tests whether a program fails: by a command of the user, or by a known symptom, each in a separate process."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

PLACE = "{}"
"""Placeholder of the file's name in a command."""


class Command:
    """A command that exits with status 0 if the program fails as required."""

    def __init__(self, command: str, folder: Path, time_out: float) -> None:
        """`folder`: for files, which exist while the command runs.

        A command that takes longer than `time_out` seconds is killed and counts as not failing.
        """
        self.command, self.folder, self.time_out = command, folder, time_out
        self._running: set[subprocess.Popen[Any]] = set()

    def __call__(self, text: str) -> bool:
        return self.status(text) == 0

    def status(self, text: str) -> int | None:
        """Exit status of the command for a program; None if it took too long."""
        with _file(text, self.folder) as path:
            line = self.command.replace(PLACE, shlex.quote(str(path)))
            quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
            with subprocess.Popen(["/bin/sh", "-c", line], start_new_session=True, **quiet) as process:
                self._running.add(process)
                try:
                    return process.wait(self.time_out)
                except subprocess.TimeoutExpired:
                    _end(process)
                    return None
                finally:
                    self._running.discard(process)

    def stop(self) -> None:
        """Kills the running commands without waiting for their results."""
        for process in [*self._running]:
            _end(process)


def _end(process: subprocess.Popen[Any]) -> None:
    """Kills a process and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def _file(text: str, folder: Path) -> Iterator[Path]:
    """Writes a program to a file that exists within the `with`."""
    descriptor, name = tempfile.mkstemp(".mlir", "program-", folder)
    path = Path(name)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        yield path
    finally:
        path.unlink(missing_ok=True)


class ReadyMade:
    """Compiles and calls programs in processes that are forked by `server.py`: a crash affects no other program.

    A program counts as failing if it fails in the same way as the first one.
    """

    def __init__(self, kind: str, entry: str, seed: int, folder: Path, time_out: float, jobs: int) -> None:
        """`kind`: `crash` or `wrong`. `seed`: of random arguments. Up to `jobs` threads may call it simultaneously."""
        self.folder = folder
        self.signature = ""
        """Failure of the original program."""
        self._servers: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        self._all: list[subprocess.Popen[str]] = []
        line = [sys.executable, "-m", "shlo_jit.shrink.server", kind, entry, str(seed), str(time_out)]
        environment: dict[str, Any] = {**os.environ, "TMPDIR": str(folder)}  # folder of kept failing programs
        for _ in range(jobs):
            pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
            self._all.append(subprocess.Popen(line, start_new_session=True, text=True, env=environment, **pipes))
            self._servers.put(self._all[-1])

    def signature_of(self, text: str) -> str:
        """Identifies how a program fails; empty if it does not."""
        server = self._servers.get()
        try:
            with _file(text, self.folder) as path:
                assert server.stdin is not None and server.stdout is not None
                server.stdin.write(f"{path}\n")
                server.stdin.flush()
                return json.loads(server.stdout.readline())
        finally:
            self._servers.put(server)

    def __call__(self, text: str) -> bool:
        return self.signature_of(text) == self.signature

    def stop(self) -> None:
        """Kills the processes immediately."""
        for server in self._all:
            _end(server)

    def close(self) -> None:
        """Ends the processes after they have answered."""
        for server in self._all:
            assert server.stdin is not None and server.stdout is not None
            server.stdin.close()
            server.wait()
            server.stdout.close()
