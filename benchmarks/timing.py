"""Times of several programs that take turns, so that what disturbs one disturbs all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

BLOCK = 0.015
"""Seconds that a block of calls takes, about."""
PAUSE = 0.002
"""Between blocks: the threads of the one before go to sleep."""
FEWEST, MOST = 5, 100
"""Rounds; fewer than FEWEST only where calls are so slow that three rounds exceed the budget many times."""


class Times(NamedTuple):
    """Seconds of a call: median, and the quarters around it, of its blocks."""

    median: float
    low: float
    high: float


def interleave(calls: Mapping[str, Callable[[], Any]], budget: float) -> dict[str, Times]:
    """Time the calls in rounds of one block each, for `budget` seconds a call."""
    return take_turns({name: partial(_warm_block, call, block_size(call)) for name, call in calls.items()}, budget)


def take_turns(blocks: Mapping[str, Callable[[], float]], budget: float, pause: float = PAUSE) -> dict[str, Times]:
    """Times of what gives, when it is its turn, the seconds a call of a block of calls."""
    found: dict[str, list[float]] = {name: [] for name in blocks}
    names = list(blocks)
    start = time.perf_counter()
    for turn in range(MOST):
        spent = time.perf_counter() - start
        if spent > budget * len(names) and (turn >= FEWEST or (turn >= 3 and spent > 6 * budget * len(names))):
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
    """Seconds a call, on average."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def block_size(call: Callable[[], Any], length: float = BLOCK) -> int:
    """Calls in a block that takes `length` seconds, after warming up."""
    call()
    seconds = min(block(call, 1) for _ in range(2))
    return max(1, min(20_000, round(length / max(seconds, 1e-7))))


def _times(blocks: list[float]) -> Times:
    if len(blocks) < 2:
        return Times(blocks[0], blocks[0], blocks[0])
    low, median, high = statistics.quantiles(blocks, n=4, method="inclusive")
    return Times(median, low, high)
