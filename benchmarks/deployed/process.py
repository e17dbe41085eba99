"""An engine with a model, in a process of its own, controlled by lines, with answers in JSON.

    python -m benchmarks.deployed.process ENGINE FOLDER CACHE THREADS FLOATS

The first answer follows the first result. A line is `results FILE`, `size SECONDS` (the number of calls of a block of
that duration), or `block COUNT`.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

TIMEOUT = 900.0
"""Seconds after which an engine that does not answer has failed: some programs take minutes to compile."""


class Process:
    """The controlling side. Raises RuntimeError with the engine's message if it fails."""

    def __init__(self, engine: str, folder: Path, cache: Path, threads: int, floats: str) -> None:
        cache.mkdir(exist_ok=True)
        environment = {**os.environ, "SHLO_JIT_CACHE_DIR": str(cache), "OMP_NUM_THREADS": str(threads),
                       "JAX_PLATFORMS": "cpu"}  # fmt: skip
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a second start has compiled modules, as after installation
        command = [
            sys.executable,
            "-m",
            "benchmarks.deployed.process",
            engine,
            *map(str, (folder, cache, threads, floats)),
        ]
        self.failure = ""
        """Reason why there are no more answers; empty while there are."""
        began = time.perf_counter()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         stderr=subprocess.DEVNULL, env=environment)  # fmt: skip
        self.peak: float = self._receive()["peak"]
        """Megabytes of memory, up to the first result."""
        self.start_seconds = time.perf_counter() - began
        """Seconds from the start of the process to the first result."""
        self._calls = 1

    def results(self, file: Path) -> list[Any]:
        from benchmarks.deployed.files import load

        self._ask(f"results {file}")
        return load(file)

    def prepare_blocks(self, seconds: float) -> None:
        self._calls = self._ask(f"size {seconds}")["count"]

    def block(self) -> float:
        """Seconds per call, for a block of calls."""
        return self._ask(f"block {self._calls}")["seconds"]

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except OSError:
            pass  # the output of the process has the reason
        return self._receive()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], TIMEOUT)[0]:
            self._fail(f"no answer in {TIMEOUT:g} s")
        line = self._process.stdout.readline()
        if not line:
            self._fail(f"the process ended with {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            self._fail(answer["error"])
        return answer

    def _fail(self, reason: str) -> NoReturn:
        self.failure = reason
        self.end()
        raise RuntimeError(reason)


# ---------------------------------------------------------------------- the controlled side
def serve(engine: str, folder: str, cache: str, threads: int, floats: str) -> None:
    """Answers commands. Engines may print anything: only answers go to the pipe."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        _serve(engine, Path(folder), Path(cache), threads, floats, say)
    except Exception as problem:
        say(error=f"{type(problem).__name__}: {problem}".splitlines()[0])


def _serve(engine: str, folder: Path, cache: Path, threads: int, floats: str, say: Any) -> None:
    if threads < len(os.sched_getaffinity(0)):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    from benchmarks.deployed.engines import ENGINES
    from benchmarks.start import megabytes

    ready = ENGINES[engine](folder, cache, threads, floats)
    first = ready.call()
    say(peak=megabytes("VmHWM"))
    from benchmarks.deployed.files import save
    from benchmarks.timing import block, block_size

    for line in sys.stdin:
        verb, _, argument = line.strip().partition(" ")
        if verb == "results":
            save(Path(argument), ready.arrays(first))
            say()
        elif verb == "size":
            say(count=block_size(ready.call, float(argument)))
        else:
            ready.call()  # brings its data back into the caches
            say(seconds=block(ready.call, int(argument)))


if __name__ == "__main__":
    _, *words, count, kind = sys.argv
    serve(words[0], words[1], words[2], int(count), kind)
