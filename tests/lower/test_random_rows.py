"""Random programs with rows and short dimensions between the lanes: the reference's results, with the same bits for any
number of threads.

    RANDOM_PROGRAMS=20000 pytest -m slow tests/lower/test_random_rows.py
"""

from __future__ import annotations

from typing import Any

import guarded
import numpy as np
import pytest
import random_check
from random_rows import random_rows
from random_runs import seeds

import shlo_jit
from shlo_jit import tuning
from shlo_jit.reference.interpreter import evaluate


def compare(text: str, arguments: list[np.ndarray]) -> Any:
    """Compares the program, compiled for one thread, with the reference."""
    module = shlo_jit.parse(text)
    with np.errstate(all="ignore"):
        wants = [np.asarray(w) for w in evaluate(module, *arguments)]
        exe = shlo_jit.compile(text, threads=1, cache=False)
        random_check.judge(module, arguments, guarded.outputs(exe(*arguments)), wants)
    return exe


def compare_threads(text: str, arguments: list[np.ndarray]) -> None:
    """Checks that the bits are the same for 1, 2, 3 and 8 threads, with work cut as if there were more of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "PARALLEL_WORK", 1 << 8)
        patch.setattr(tuning, "TASK_WORK", 1 << 7)
        compare(text, arguments)
        found = [shlo_jit.compile(text, threads=n, cache=False)(*arguments) for n in (1, 2, 3, 8)]
    for other in found[1:]:
        for x, y in zip(guarded.outputs(found[0]), guarded.outputs(other), strict=True):
            assert x.tobytes() == y.tobytes(), "the bits depend on the number of threads"


def run(numbers: range) -> int:
    """Returns how many of every tenth program have a batch of rows whose elements are stored interleaved."""
    batches = 0
    for seed in numbers:
        text, arguments = random_rows(seed)
        try:
            if seed % 10 == 3:
                random_check.check(text, arguments)  # in guarded memory
            elif seed % 20 == 7:
                compare_threads(text, arguments)
            elif seed % 10 == 0:
                batches += "row batch" in compare(text, arguments).text("schedule")
            else:
                compare(text, arguments)
        except Exception as e:
            e.add_note(f"program {seed}:\n{text}")
            raise
    return batches


def test_random_rows() -> None:
    run(range(24))


@pytest.mark.slow
def test_many_random_rows() -> None:
    numbers = seeds(2000)
    assert run(numbers) > len(numbers) // 300
