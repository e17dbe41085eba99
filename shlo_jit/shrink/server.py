"""A process that reports how programs fail: `python -m shlo_jit.shrink.server crash|wrong ENTRY SEED SECONDS`.

For each file named on a line of stdin it prints a line of JSON: a string, empty if there is no failure. Each program
runs in a process forked from this one, which has imported everything and compiles nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from shlo_jit import api
from shlo_jit.errors import InternalError
from shlo_jit.reference.compare import difference
from shlo_jit.reference.flattened import evaluate_flattened
from shlo_jit.reference.random_argument import random_argument


def crash(path: str, entry: str, seed: int) -> str:
    """Function of the compiler that an InternalError was raised in. The parent detects crashes of the process."""
    try:
        exe: Any = api.compile(path, entry, cache=False)
    except InternalError as error:
        return f"InternalError{_origin(error)}"
    with contextlib.suppress(Exception):
        exe(*_arguments(exe, seed))
    return ""


def _origin(error: BaseException) -> str:
    """The innermost function of the compiler, and the exception that was raised there."""
    while error.__cause__ is not None:
        error = error.__cause__
    ours = [f for f in traceback.extract_tb(error.__traceback__) if f"{os.sep}shlo_jit{os.sep}" in f.filename]
    where = f" in {ours[-1].filename.rpartition(f'{os.sep}shlo_jit{os.sep}')[2]}, {ours[-1].name}" if ours else ""
    return f": {type(error).__name__}{where}"


def wrong(path: str, entry: str, seed: int) -> str:
    """Whether a result differs from the reference interpreter's by more than rounding."""
    module = api.parse(path)
    exe: Any = api.compile(module, entry, cache=False)
    arguments = _arguments(exe, seed)
    got = exe(*arguments)
    function = module.function(entry)
    assert function is not None  # the program was compiled
    want = evaluate_flattened(function, *arguments, module=module)
    pairs = zip(got if isinstance(got, tuple) else (got,), want, strict=True)
    return "" if all(difference(g, w).is_close for g, w in pairs) else "a result differs"


def _arguments(exe: Any, seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [random_argument(generator, signature.shape, signature.dtype) for signature in exe.inputs]


TESTS: dict[str, Callable[[str, str, int], str]] = {"crash": crash, "wrong": wrong}


def outcome_of(test: Callable[[], str], seconds: float) -> str:
    """Result of a test in a separate process, or the signal that ended it; empty if it raises or exceeds the time
    limit."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _run(test, writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        in_time = bool(select.select([pipe], [], [], seconds)[0])
        if not in_time:
            os.kill(child, signal.SIGKILL)
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if in_time and os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return said if in_time else ""


def _run(test: Callable[[], str], writing: int) -> None:
    """Runs the test in the child, whose output must not go to the pipes of this process."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    try:
        os.write(writing, test().encode())
    except Exception:
        os._exit(1)
    os._exit(0)


STAGES = "passes fuse.fuse schedule.schedule schedule.products memory.planner lower.program codegen.optimize".split()
"""Modules that are imported to compile a program: once here, rather than in every child."""


def main() -> None:
    for name in STAGES:
        import_module(f"shlo_jit.{name}")
    test, entry, seed, seconds = TESTS[sys.argv[1]], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    for line in sys.stdin:
        print(json.dumps(outcome_of(partial(test, line.rstrip("\n"), entry, seed), seconds)), flush=True)


if __name__ == "__main__":
    main()
