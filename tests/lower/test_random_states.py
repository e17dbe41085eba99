"""Random programs with states: the bits of the reference, in guarded memory, for any number of threads and donated."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence

import guarded
import numpy as np
import pytest
from random_states import random_states

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

COUNT = int(os.environ.get("SHLO_JIT_RANDOM_STATES", "400"))
"""Number of programs of the slow test."""
FIRST = int(os.environ.get("SHLO_JIT_RANDOM_STATES_FIRST", "1000000"))


def check_exactly(text: str, arguments: Sequence[np.ndarray], donate: tuple[int, ...]) -> None:
    """All arithmetic in these programs is exact, so results have the reference's bits; signs of zeros included."""
    wants = [np.asarray(w) for w in evaluate(shlo_jit.parse(text), *[x.copy() for x in arguments])]
    apart = zlib.crc32(text.encode()) % 2 == 0
    for threads in (1, 2, 3):
        exe = guarded.compile(text, threads=threads, apart=apart and threads > 1, cache=False, donate=donate)
        for _ in range(2):
            passed = [x.copy() for x in arguments]
            out = exe(*passed)
            gots = [np.asarray(x) for x in (out if isinstance(out, (tuple, list)) else (out,))]
            for i, (got, want) in enumerate(zip(gots, wants, strict=True)):
                assert got.dtype == want.dtype and got.shape == want.shape
                same = got.tobytes() == want.tobytes()
                assert same, f"result {i}, {threads} threads: got {got}, expected {want}"
            for i, (x, y) in enumerate(zip(passed, arguments, strict=True)):
                assert i in donate or x.tobytes() == y.tobytes(), f"argument {i} was written to"


def run(seed: int) -> None:
    text, arguments, states = random_states(seed, 6 + seed % 8)
    check_exactly(text, arguments, tuple(states) if seed % 3 == 1 else ())


@pytest.mark.parametrize("seed", range(12))
def test_some_programs(seed: int) -> None:
    run(seed)


@pytest.mark.slow
def test_many_programs() -> None:
    for seed in range(FIRST, FIRST + COUNT):
        try:
            run(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
