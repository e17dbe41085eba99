"""What a command shows on a terminal while it takes long."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

PROGRESS_AFTER = 0.3
"""Seconds after which waiting is worth a word."""

Tell = Callable[[str, int, int], None]
"""Takes what is being done, and of how many bytes how many are written (0 of 0 where that says nothing)."""


@contextlib.contextmanager
def steps(first: str) -> Iterator[Tell]:
    """A spinner with the time and what is being done, which begins with `first`, and a bar while bytes are written."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    waiting = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    bytes_written = BarColumn(), DownloadColumn(binary_units=True)
    shown = Progress(*waiting, console=Console(stderr=True), transient=True)
    task = shown.add_task(first, total=None)

    def tell(what: str, done: int, total: int) -> None:
        shown.columns = (*waiting, *bytes_written) if total else waiting
        shown.update(task, description=what, completed=done, total=total or None)

    timer = threading.Timer(PROGRESS_AFTER, shown.start)
    timer.start()
    try:
        yield tell
    finally:
        timer.cancel()
        timer.join()
        shown.stop()


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """A spinner with the time, on a terminal, once it takes long."""
    with steps(what):
        yield
