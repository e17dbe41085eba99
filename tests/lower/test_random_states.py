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
    # The arena as planned, or with its values separately at one end of their pages.
    apart = (None, True, False)[zlib.crc32(text.encode()) % 3]
    exe = guarded.compile(text, threads=3, apart=apart, cache=False, donate=donate)
    passed = [x.copy() for x in arguments]
    out = exe(*passed)
    for i, (x, y) in enumerate(zip(passed, arguments, strict=True)):
        assert i in donate or x.tobytes() == y.tobytes(), f"argument {i} was written to"
    found = [list(out) if isinstance(out, (tuple, list)) else [out]]
    found += [guarded.call(exe._exe, arguments, apart is not False, exe._layout, threads) for threads in (1, 2, 3, 8)]
    for gots in found:
        for i, (got, want) in enumerate(zip(map(np.asarray, gots), wants, strict=True)):
            assert got.dtype == want.dtype and got.shape == want.shape
            assert got.tobytes() == want.tobytes(), f"result {i}: got {got}, expected {want}"


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
