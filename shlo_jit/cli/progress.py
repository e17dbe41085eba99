"""Progress display of a command on a terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

PROGRESS_AFTER = 0.3
"""Seconds after which progress is displayed."""

OnStep = Callable[[str, int, int], None]
"""Callback for progress: the activity, the bytes written and the total bytes (0 of 0 if unknown)."""


@contextlib.contextmanager
def steps(first: str) -> Iterator[OnStep]:
    """Displays a spinner with the time and the activity, initially `first`, and a bar while bytes are written."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    waiting = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    bytes_written = BarColumn(), DownloadColumn(binary_units=True)
    shown = Progress(*waiting, console=Console(stderr=True), transient=True)
    task = shown.add_task(first, total=None)

    def on_step(what: str, done: int, total: int) -> None:
        shown.columns = (*waiting, *bytes_written) if total else waiting
        shown.update(task, description=what, completed=done, total=total or None)

    timer = threading.Timer(PROGRESS_AFTER, shown.start)
    timer.start()
    try:
        yield on_step
    finally:
        timer.cancel()
        timer.join()
        shown.stop()


@contextlib.contextmanager
def seconds_bar(first: str) -> Iterator[Callable[[str, float, float], None]]:
    """Displays a bar of the seconds that an activity may take. The callback takes the current activity, the seconds
    that have passed, and the total."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(first, total=None)
        yield lambda what, done, total: shown.update(task, description=what, completed=done, total=total)


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """Displays a spinner with the time on a terminal, after PROGRESS_AFTER seconds."""
    with steps(what):
        yield
