"""Starts worker processes: each has a new interpreter, which receives only the data that it is sent."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import process, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from shlo_jit.errors import ExecutionError

THREADS_HINT = "transport='threads' needs no processes"
MAIN_HINT = (
    "It imports the main script, where a custom call is defined: everything there that is not to run again must be "
    "under `if __name__ == '__main__':`"
)


def check() -> None:
    """Raises ExecutionError if this process cannot start any."""
    here = process.current_process()
    if getattr(here, "_inheriting", False):
        raise ExecutionError(f"a process that is still starting compiled a program for several processes. {MAIN_HINT}")
    if here.daemon:
        raise ExecutionError(f"daemonic processes of multiprocessing cannot start others ({THREADS_HINT})")


def pickled(calls: dict[str, Any]) -> bytes:
    """Returns pickled custom calls. Raises TypeError if they cannot be found by name from another process."""
    for name, target in calls.items():
        if any(isinstance(t, int) for t in (target.values() if isinstance(target, Mapping) else [target])):
            what = f"custom_calls: {name!r} is given by address, which is not valid in worker processes"
            raise TypeError(f"{what} ({THREADS_HINT})")
    try:
        made = pickle.dumps(calls)
    except Exception as error:  # whatever an object's own pickling raises
        what = f"custom_calls: worker processes import them by name, which failed: {error}"
        raise TypeError(f"{what} ({THREADS_HINT}, and takes any callable)") from None
    main = sys.modules["__main__"]
    is_file = getattr(main, "__spec__", None) is not None or getattr(main, "__file__", "<stdin>") != "<stdin>"
    if needs_main(made) and not is_file:
        what = "custom_calls: worker processes import them by name, but __main__ is not a file here"
        raise TypeError(f"{what}: define them in a module ({THREADS_HINT}, and takes any callable)")
    return made


def needs_main(calls: bytes) -> bool:
    """Whether the pickled objects may be defined in the main module."""
    return b"__main__" in calls


def start(target: Callable[..., None], rank: int, needs_main: bool) -> tuple[Any, Connection, Connection]:
    """Starts a process that calls `target(line, queues, rank)`. Returns it, and the other ends of its two lines. Raises
    OSError."""
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        (line, theirs), (queues, their_queues) = context.Pipe(), context.Pipe()
        for end in (theirs, their_queues):
            stack.callback(end.close)
        made = context.Process(target=target, args=(theirs, their_queues, rank), name=f"shlo_jit-{rank}", daemon=True)
        stack.enter_context(_interrupts_blocked())
        if not needs_main:
            stack.enter_context(_without_main())
        made.start()
    # Otherwise, a fork of this process would end the worker at its exit, as multiprocessing ends all children it knows.
    process._children.discard(made)  # type: ignore[attr-defined]
    return made, line, queues


def forget(process: Any) -> None:
    """Closes the resources of a process that has ended."""
    with contextlib.suppress(ValueError):  # another caller has collected its exit code: it seems to run
        process.close()


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Blocks Ctrl-C while processes start, until they ignore it."""
    resource_tracker.ensure_running()  # it unblocks the signal when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_main_lock = threading.Lock()


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Starts worker processes without the user's main module: nothing of it is needed there, and a script without `if
    __name__ == "__main__"` would run again."""
    with _main_lock:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main
