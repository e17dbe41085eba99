"""Times of programs whose loops update a small part of a large state, beside XLA:CPU, at two sizes 16 times apart.

    python -m benchmarks.stateful_loops             every program
    python -m benchmarks.stateful_loops stack heap  those with a word in their names
    python -m benchmarks.stateful_loops --sizes 4096 65536 --repeats 9

It prints a table with the ratio to XLA's time at both sizes. A ratio that grows is a copy of the state.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import shlo_jit
from benchmarks.stateful_inputs import Case
from benchmarks.stateful_programs import PROGRAMS


def best(function: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of several calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(case: Case, repeats: int) -> tuple[float, float, bool]:
    """Seconds of shlo_jit and of XLA, and whether the results agree."""
    function, arguments = case
    lowered = jax.jit(function, keep_unused=True).lower(*arguments)
    ours, theirs = shlo_jit.compile(lowered.as_text()), lowered.compile()
    there = [jax.numpy.asarray(a) for a in arguments]
    got, want = ours(*arguments), jax.tree.leaves(theirs(*there))
    got = got if isinstance(got, (tuple, list)) else (got,)
    same = all(np.allclose(a, np.asarray(b), rtol=1e-4, atol=1e-4) for a, b in zip(got, want, strict=True))
    times = [
        (best(lambda: ours(*arguments), 1), best(lambda: jax.block_until_ready(theirs(*there)), 1))
        for _ in range(repeats)
    ]
    mine, other = zip(*times, strict=True)
    return min(mine), min(other), same


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if a result differs from XLA's."""
    parser = argparse.ArgumentParser("benchmarks.stateful_loops", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="words in names of programs")
    parser.add_argument("--sizes", type=int, nargs=2, default=(4096, 65536), help="elements of the state")
    parser.add_argument("--repeats", type=int, default=9, help="calls of which the fastest counts")
    options = parser.parse_args(arguments)
    print("| program | n | shlo_jit ms | XLA ms | ratio | n | shlo_jit ms | XLA ms | ratio | agrees |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|---|", flush=True)
    wrong = 0
    for program in PROGRAMS:
        if options.words and not any(word in program.__name__ for word in options.words):
            continue
        cells, agrees = [], True
        for n in options.sizes:
            mine, other, same = measure(program(n), options.repeats)
            cells += [f"{n}", f"{1e3 * mine:.3f}", f"{1e3 * other:.3f}", f"{mine / other:.2f}"]
            agrees &= same
        wrong += not agrees
        print(f"| {program.__name__} | {' | '.join(cells)} | {'yes' if agrees else 'NO'} |", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
