"""Times of programs with `reproducible=True`, relative to those without.

    python -m benchmarks.reproducible                     the cases of `python -m benchmarks` that are not refused
    python -m benchmarks.reproducible attention "sum of"  those whose names contain one of these words
    python -m benchmarks.reproducible --deployed ResNet   deployed models instead of cases

Both programs run on one thread, in turns. Times are CPU times of the process, so that a busy machine disturbs them
less; the least of several counts.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import shlo_jit
from benchmarks.cases import select
from benchmarks.deployed import catalogue
from benchmarks.many_cores_models import Built, from_graph
from shlo_jit.runtime.executable import Executable

SECONDS = 0.5
"""CPU time for a case."""
SAMPLES = 8
"""Minimum samples of a case."""
LEAST_SECONDS = 0.01
"""CPU time of a sample: shorter calls are repeated."""


def cases() -> Iterator[tuple[str, Callable[[], Built]]]:
    """Yields the names of the cases, and what builds them."""
    for case in select():
        yield case.name, lambda case=case: Built(case.lower().as_text(), {}, [])


def deployed() -> Iterator[tuple[str, Callable[[], Built]]]:
    """Yields the names of the deployed models in f32 and int8, and what builds them."""
    for model in catalogue.MODELS:
        if model.floats == "f32":
            yield model.name, lambda model=model: from_graph(lambda g: model.build(g, **model.sizes))


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


def measure(built: Built) -> tuple[float, float] | None:
    """Returns the seconds without and with the option; None if the program is refused."""
    options: dict[str, Any] = {"threads": 1, "constants": dict(built.constants)}
    try:
        new = shlo_jit.compile(built.program, reproducible=True, **options)
    except shlo_jit.StableHLOError:
        return None
    old = shlo_jit.compile(built.program, **options)
    assert isinstance(old, Executable)
    given = built.inputs or arguments(old)
    calls = [lambda: old(*given), lambda: new(*given)]
    count = max(1, int(LEAST_SECONDS / max(1e-7, *(seconds(call, 1) for call in calls))))
    found: list[list[float]] = [[], []]
    while len(found[0]) < SAMPLES or sum(map(sum, found)) * count < SECONDS:
        for call, times in zip(calls, found, strict=True):
            times.append(seconds(call, count))
    return min(found[0]), min(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--deployed", action="store_true")
    options = parser.parse_args()
    ratios = []
    for name, build in deployed() if options.deployed else cases():
        if options.words and not any(word in name for word in options.words):
            continue
        found = measure(build())
        if found is None:
            print(f"{name:36} refused", flush=True)
            continue
        old, new = found
        ratios.append(new / old)
        print(f"{name:36} {old * 1e6:10.1f} us {new * 1e6:10.1f} us {new / old:6.2f}", flush=True)
    if ratios:
        print(f"{len(ratios)} programs, geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}")


if __name__ == "__main__":
    main()
