"""Random static programs with dimensions made unknown: calls with arrays return the same bits as the static
programs."""

from __future__ import annotations

import numpy as np
import pytest
from random_programs import random_program
from unknown_dimensions import with_unknown

import shlo_jit

FEW, MANY = 60, 2000


def check(seed: int) -> int:
    """Returns how many unknown dimensions the program had."""
    text, arrays = random_program(seed)
    module = with_unknown(shlo_jit.parse(text), np.random.default_rng(seed))
    assert shlo_jit.verify(module) == []
    got, want = shlo_jit.compile(module)(*arrays), shlo_jit.compile(text)(*arrays)
    pairs = zip(*(r if isinstance(r, tuple) else (r,) for r in (got, want)), strict=True)
    assert all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)
    return str(module).count("?")


@pytest.mark.slow
def test_some_programs() -> None:
    unknown = [check(seed) for seed in range(FEW)]
    assert np.median(unknown) > 10


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_programs(block: int) -> None:
    size = MANY // 20
    for seed in range(FEW + block * size, FEW + (block + 1) * size):
        check(seed)
