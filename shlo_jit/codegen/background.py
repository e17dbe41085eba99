"""Work that goes on beside the caller's: LLVM needs no Python, so it runs while Python lowers the rest of a program."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Job(Generic[T]):
    """Work that a thread will take up, or whoever asks for its result first."""

    def __init__(self, work: Callable[[], T], executor: ThreadPoolExecutor) -> None:
        self._work = work
        self._future = executor.submit(work)

    def result(self) -> T:
        """What the work returned. Raises what it raised."""
        return self._work() if self._future.cancel() else self._future.result()


class Background:
    """Threads for one compilation; leaving the `with` block drops what has not begun and waits for the rest."""

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(max(1, threads), "shlo_jit codegen")

    def start(self, work: Callable[[], T]) -> Job[T]:
        return Job(work, self._executor)

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(cancel_futures=True)
