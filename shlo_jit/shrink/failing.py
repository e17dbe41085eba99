"""Whether a program fails: by a command of the user's, or in ways that we know, each in a process of its own."""

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
"""In a command, what a file's name is put for."""


class Command:
    """A command that ends with status 0 for what fails in the way that is looked for."""

    def __init__(self, command: str, folder: Path, time_out: float) -> None:
        """`folder`: for files, which are there for as long as the command runs. One that takes longer than `time_out`
        seconds is ended, and says no."""
        self.command, self.folder, self.time_out = command, folder, time_out
        self._running: set[subprocess.Popen[Any]] = set()

    def __call__(self, text: str) -> bool:
        return self.status(text) == 0

    def status(self, text: str) -> int | None:
        """That of the command for a program; None of one that took too long."""
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
        """End the commands that run: what they say is not waited for."""
        for process in [*self._running]:
            _end(process)


def _end(process: subprocess.Popen[Any]) -> None:
    """With all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def _file(text: str, folder: Path) -> Iterator[Path]:
    """A file with a program, for the length of the `with`."""
    descriptor, name = tempfile.mkstemp(".mlir", "program-", folder)
    path = Path(name)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        yield path
    finally:
        path.unlink(missing_ok=True)


class ReadyMade:
    """Compiles and calls programs in processes that are forked for each, by `server.py`: one that dies takes nothing
    along. What counts is that a program fails in the way that the first one did."""

    def __init__(self, kind: str, entry: str, seed: int, folder: Path, time_out: float, jobs: int) -> None:
        """`kind`: `crash` or `wrong`; `seed`: of made-up arguments. As many threads as `jobs` may ask at once."""
        self.folder = folder
        self.signature = ""
        """What the program that is to be made smaller does."""
        self._servers: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        self._all: list[subprocess.Popen[str]] = []
        line = [sys.executable, "-m", "shlo_jit.shrink.server", kind, entry, str(seed), str(time_out)]
        environment: dict[str, Any] = {**os.environ, "TMPDIR": str(folder)}  # where failing programs are kept
        for _ in range(jobs):
            pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
            self._all.append(subprocess.Popen(line, start_new_session=True, text=True, env=environment, **pipes))
            self._servers.put(self._all[-1])

    def signature_of(self, text: str) -> str:
        """How a program fails; empty where it does not."""
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
        """End the processes at once."""
        for server in self._all:
            _end(server)

    def close(self) -> None:
        """End the processes, when they have said what they were asked."""
        for server in self._all:
            assert server.stdin is not None and server.stdout is not None
            server.stdin.close()
            server.wait()
            server.stdout.close()
