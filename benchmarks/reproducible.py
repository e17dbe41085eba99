"""Times of programs with `reproducible=True`, relative to those without.

    python -m benchmarks.reproducible                     the cases of `python -m benchmarks` that are not refused
    python -m benchmarks.reproducible attention "sum of"  those whose names contain one of these words

Both programs run on one thread, in turns. Times are CPU times of the process, so that a busy machine disturbs them
less; the least of several counts.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np

import shlo_jit
from benchmarks.cases import Case, select
from shlo_jit.runtime.executable import Executable

SECONDS = 0.5
"""CPU time for a case."""
LEAST_SECONDS = 0.01
"""CPU time of a sample: shorter calls are repeated."""


def arguments(exe: Executable) -> list[np.ndarray]:
    """Returns random arguments: normally distributed floats, integers from 0 to 2."""
    rng = np.random.default_rng(0)
    numbers = [
        rng.integers(0, 3, s.shape) if s.dtype.kind in "iub" else rng.standard_normal(s.shape) for s in exe.inputs
    ]
    return [np.asarray(x).astype(s.dtype) for x, s in zip(numbers, exe.inputs, strict=True)]


def seconds(call: Callable[[], object], count: int) -> float:
    """Returns the CPU time of a call, as the mean of `count` calls."""
    start = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - start) / count


def measure(case: Case) -> tuple[float, float] | None:
    """Returns the seconds without and with the option; None if the program is refused."""
    text = case.lower().as_text()
    try:
        new = shlo_jit.compile(text, threads=1, reproducible=True)
    except shlo_jit.StableHLOError:
        return None
    old = shlo_jit.compile(text, threads=1)
    assert isinstance(old, Executable)
    given = arguments(old)
    calls = [lambda: old(*given), lambda: new(*given)]
    count = max(1, int(LEAST_SECONDS / max(1e-7, *(seconds(call, 1) for call in calls))))
    found: list[list[float]] = [[], []]
    while sum(map(sum, found)) * count < SECONDS:
        for call, times in zip(calls, found, strict=True):
            times.append(seconds(call, count))
    return min(found[0]), min(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    words = parser.parse_args().words
    ratios = []
    for case in select():
        if words and not any(word in case.name for word in words):
            continue
        found = measure(case)
        if found is None:
            print(f"{case.name:36} refused", flush=True)
            continue
        old, new = found
        ratios.append(new / old)
        print(f"{case.name:36} {old * 1e6:10.1f} us {new * 1e6:10.1f} us {new / old:6.2f}", flush=True)
    if ratios:
        print(f"{len(ratios)} programs, geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}")


if __name__ == "__main__":
    main()
