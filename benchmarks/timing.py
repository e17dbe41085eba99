"""Times of several programs that alternate, so that a disturbance affects all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

BLOCK = 0.015
"""Approximate seconds of a block of calls."""
PAUSE = 0.002
"""Seconds between blocks, in which the threads of the previous one go to sleep."""
FEWEST, MOST = 5, 100
"""Minimum and maximum rounds. There are fewer than FEWEST only if three rounds exceed the budget many times."""


class Times(NamedTuple):
    """Seconds of a call: the median of its blocks, and their quartiles."""

    median: float
    low: float
    high: float


def interleave(calls: Mapping[str, Callable[[], Any]], budget: float) -> dict[str, Times]:
    """Times the calls in rounds of one block each, for `budget` seconds per call."""
    return take_turns({name: partial(_warm_block, call, block_size(call)) for name, call in calls.items()}, budget)


def take_turns(blocks: Mapping[str, Callable[[], float]], budget: float, pause: float = PAUSE) -> dict[str, Times]:
    """Times of functions that run a block of calls when it is their turn and return seconds per call."""
    found: dict[str, list[float]] = {name: [] for name in blocks}
    names = list(blocks)
    start = time.perf_counter()
    for n in range(MOST):
        spent = time.perf_counter() - start
        if spent > budget * len(names) and (n >= FEWEST or (n >= 3 and spent > 6 * budget * len(names))):
            break
        for name in names:
            time.sleep(pause)
            found[name].append(blocks[name]())
        names.append(names.pop(0))
    return {name: _times(times) for name, times in found.items()}


def _warm_block(call: Callable[[], Any], count: int) -> float:
    call()  # brings its data back into the caches
    return block(call, count)


def block(call: Callable[[], Any], count: int) -> float:
    """Average seconds per call."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def block_size(call: Callable[[], Any], length: float = BLOCK) -> int:
    """Number of calls of a block that takes `length` seconds; warms up first."""
    call()
    seconds = min(block(call, 1) for _ in range(2))
    return max(1, min(20_000, round(length / max(seconds, 1e-7))))


def _times(blocks: list[float]) -> Times:
    if len(blocks) < 2:
        return Times(blocks[0], blocks[0], blocks[0])
    low, median, high = statistics.quantiles(blocks, n=4, method="inclusive")
    return Times(median, low, high)
