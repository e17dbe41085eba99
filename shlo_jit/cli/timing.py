"""Calls a program repeatedly, and takes the times: of whole calls, or of the steps of a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shlo_jit.cli.progress import progress

if TYPE_CHECKING:
    from shlo_jit.runtime.profile import Profile
    from shlo_jit.runtime.staged import Runnable

TIMING_SECONDS, TIMING_CALLS = 0.5, 1000
"""Maximum time and number of further calls by which `run` determines the best time."""


def profiled(
    executable: Runnable, arguments: Sequence[Any], repeat: int | None, seconds: float
) -> tuple[Profile, list[float]]:
    """Profiles `repeat` calls, or as many as take `seconds`; returns the profile and their times."""
    executable(*arguments)  # sizes that depend on data are known after this call
    with progress("compiling again, with a clock"):
        measured = executable.profile()
    with measured, progress("running"):
        executable(*arguments)
        measured.reset()  # the first call is a warm-up
        _, times = timed(lambda: executable(*arguments), repeat, seconds)
    return measured, times


def timed(call: Callable[[], Any], repeat: int | None, seconds: float = TIMING_SECONDS) -> tuple[Any, list[float]]:
    """Returns the result of the last of `repeat` calls, and the seconds of each.

    Without `repeat` there is one call, and more while their total is at most `seconds`.
    """
    times: list[float] = []
    end = time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        results = call()
        times.append(time.perf_counter() - start)
        if len(times) == repeat:
            return results, times
        if repeat is None and (len(times) == TIMING_CALLS or time.perf_counter() + times[-1] > end):
            return results, times
