"""Random loops that may run several iterations on a stripe at a time. Results are compared bit for bit with the
reference and with the untiled loop, in guarded memory, and for different numbers of threads.

    RANDOM_PROGRAMS=5000 pytest -m slow tests/fuse/test_random_temporal_tiling.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import guarded
import numpy as np
import pytest
from random_runs import seeds
from random_stencils import random_stencil

import shlo_jit
from shlo_jit import tuning
from shlo_jit.reference.interpreter import evaluate


def same(gots: Any, wants: Sequence[Any]) -> None:
    for got, want in zip(guarded.outputs(gots), wants, strict=True):
        np.testing.assert_array_equal(got, np.asarray(want))


def is_blocked(exe: Any) -> bool:
    """Whether the schedule says that several iterations run at a time; the code follows the schedule."""
    lines = [line for line in exe.text("schedule").splitlines() if line.split()[:2] == ["temporal", "tiling"]]
    says = any("at a time" in line for line in lines)
    assert says == (".stripes." in exe.text("lowered")), lines
    return says


def compile_small(text: str, seed: int, threads: int) -> tuple[Any, bool]:
    """Compiles as if the arrays were large. Returns the program, and whether several iterations run at a time."""
    r = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "TEMPORAL_TILE_LOOP_BYTES", 1)
        patch.setattr(tuning, "TEMPORAL_TILE_WAVEFRONT", int(r.choice([1, 1024, 4096])))
        patch.setattr(tuning, "TEMPORAL_TILE_STRIPES", int(r.choice([1, 2, 3])))
        patch.setattr(tuning, "TEMPORAL_TILE_ITERATIONS", int(r.choice([2, 3, 6, 16])))
        patch.setattr(tuning, "TEMPORAL_TILE_CHUNK", int(r.choice([16, 64])))
        patch.setattr(tuning, "PING_PONG_BYTES", int(r.choice([1, 4096])))
        patch.setattr(tuning, "TASK_WORK", int(r.choice([1 << 7, 1 << 10, 1 << 12])))
        exe = guarded.plain_compile(text, cache=False, threads=threads)
        return exe, is_blocked(exe)


def check(seed: int) -> bool:
    """Checks one program. Returns whether its loop runs several iterations at a time."""
    text, arrays = random_stencil(seed)
    module = shlo_jit.parse(text)
    r = np.random.default_rng(seed)
    numbers = [np.int32(n) for n in (r.integers(0, 4), r.integers(4, 24))]
    with np.errstate(all="ignore"):
        wants = [evaluate(module, n, *arrays) for n in numbers]
    exe, blocked = compile_small(text, seed, 1)
    for n, want in zip(numbers, wants, strict=True):
        same(exe(n, *arrays), want)
        for at_end in (True, False):
            same(tuple(guarded.call(exe, [n, *arrays], at_end)), want)
    if seed % 4 == 1 and blocked:
        plain = guarded.plain_compile(text, threads=1, cache=False)
        assert "at a time" not in plain.text("schedule")
        same(plain(numbers[1], *arrays), wants[1])
    if seed % 4 == 3 and blocked:
        for threads in (2, 3, 8):
            same(compile_small(text, seed, threads)[0](numbers[1], *arrays), wants[1])
    return blocked


def run(numbers: range) -> int:
    """Returns how many of the loops run several iterations at a time."""
    blocked = 0
    for seed in numbers:
        try:
            blocked += check(seed)
        except Exception as e:
            e.add_note(f"program {seed}:\n{random_stencil(seed)[0]}")
            raise
    return blocked


@pytest.mark.slow
def test_random_loops() -> None:
    assert run(range(24)) > 4


@pytest.mark.slow
def test_many_random_loops() -> None:
    numbers = seeds(1000)
    assert run(numbers) > len(numbers) // 5
