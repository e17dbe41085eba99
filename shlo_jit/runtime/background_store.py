"""Writes programs to the object cache. Large constants take longer to write than the rest of a compilation: a thread
does that. The interpreter waits for it at its end, and other processes wait for the entry."""

from __future__ import annotations

import threading

from shlo_jit import tuning
from shlo_jit.codegen.objects import Compiled, program_entry
from shlo_jit.runtime import claims, constants
from shlo_jit.runtime.cache import ObjectCache

_threads: dict[str, threading.Thread] = {}
"""Threads by the key of the program that they write."""


def store(key: str, compiled: Compiled, cache: ObjectCache) -> None:
    """Stores a program under its key, after its constants: it is not in the cache without them."""
    shared = constants.to_store(compiled)

    def work() -> None:
        if constants.store(shared, cache):
            cache.store(key, *program_entry(compiled))

    if sum(c.data.nbytes for c in shared) < tuning.BACKGROUND_STORE_BYTES:
        work()
        return
    wait_for(key)
    claimed = claims.claim(key, cache)

    def work_in_background() -> None:
        try:
            work()
        finally:
            if claimed is not None:
                claimed.release()
            _threads.pop(key, None)

    _threads[key] = thread = threading.Thread(target=work_in_background, name="shlo_jit cache")
    try:
        thread.start()
    except RuntimeError:  # no more threads, or the interpreter is about to end
        work_in_background()


def wait_for(key: str | None = None) -> None:
    """Waits until a program, or all programs, that this process is writing are complete."""
    for one, thread in [*_threads.items()]:
        if key in (None, one) and thread.ident is not None:
            thread.join()
