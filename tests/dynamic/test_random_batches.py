"""Random programs of any batch size: code for all sizes agrees with code for each, within rounding, and stays within its
memory."""

from __future__ import annotations

import guarded
import numpy as np
import pytest
from random_batches import random_batches

import shlo_jit
from shlo_jit.runtime.executable import Executable

FEW, MANY = 40, 2000
SIZES = (4, 5, 17)


def check(seed: int) -> bool:
    """Returns whether there was code for any size."""
    program = random_batches(seed, SIZES)
    dynamic = shlo_jit.compile(program.dynamic, dynamic="symbolic", cache=False, threads=2)
    any_size = False
    for size in SIZES:
        arguments = program.arguments(size, np.random.default_rng(size))
        code = dynamic.executable(arguments)
        any_size = isinstance(code, Executable) and code.symbol is not None
        got = dynamic(*arguments)
        want = shlo_jit.compile(program.static[size], cache=False, threads=2)(*arguments)
        for x, y in zip(got, want, strict=True):
            assert x.shape == y.shape
            largest = max(1.0, float(np.abs(y).max(initial=0)))
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5 * largest)
        if any_size and size == SIZES[-1]:
            for at_end in (True, False):
                again = guarded.call(code, arguments, at_end)
                assert [x.tobytes() for x in again] == [x.tobytes() for x in got]
    return any_size


@pytest.mark.slow
def test_some_programs() -> None:
    any_size = [check(seed) for seed in range(FEW)]
    assert np.mean(any_size) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_programs(block: int) -> None:
    size = MANY // 20
    any_size = [check(seed) for seed in range(FEW + block * size, FEW + (block + 1) * size)]
    assert np.mean(any_size) > 0.9
