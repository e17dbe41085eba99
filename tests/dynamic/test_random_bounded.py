"""Random static programs whose arguments are slices of larger ones, with sizes that are known only at run time: results
equal those of the static programs, up to the order of sums, or the program is refused at an op's line."""

from __future__ import annotations

import numpy as np
import pytest
from bounded_dimensions import padded, with_bounded
from random_programs import random_program

import shlo_jit
from shlo_jit.runtime.bounded import BoundedExecutable
from shlo_jit.runtime.dynamic import DynamicExecutable

FEW, MANY = 20, 1000
CLOSE = 1e-3
"""Tolerance for floats, like `random_check.LOOSE`: a mask changes the order of sums."""


def check(seed: int) -> bool | None:
    """Returns whether the program ran with such sizes, or None if it is refused."""
    text, arrays = random_program(seed)
    generator = np.random.default_rng(seed)
    module = with_bounded(shlo_jit.parse(text), generator, share=generator.choice([0.1, 0.4]))
    assert shlo_jit.verify(module) == []
    function = module.function("main")
    assert function is not None
    given = [padded(x, v.tensor.extents) for x, v in zip(arrays, function.block().arguments, strict=False)]
    executable = shlo_jit.compile(module)
    try:
        got = executable(*given, np.float32(1))
    except shlo_jit.UnsupportedError as refusal:
        assert refusal.diagnostics[0].label in ("size", "dynamic-dimensions"), refusal
        return None
    want = shlo_jit.compile(text)(*arrays)
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, want)), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if a.tobytes() != b.tobytes():
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=CLOSE, atol=CLOSE)
    return isinstance(executable, DynamicExecutable) and isinstance(executable.executable(), BoundedExecutable)


def test_some_programs() -> None:
    ran = [check(seed) for seed in range(FEW)]
    assert ran.count(True) > FEW // 3
    assert ran.count(None) < FEW // 2


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_programs(block: int) -> None:
    size = MANY // 20
    for seed in range(FEW + block * size, FEW + (block + 1) * size):
        check(seed)
