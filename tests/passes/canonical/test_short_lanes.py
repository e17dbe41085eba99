"""Norms of groups of a few adjacent elements: loops have lanes across groups, and results are those of the reference."""

from __future__ import annotations

import random

import guarded
import numpy as np
import pytest

import shlo_jit
from shlo_jit import builder as b
from shlo_jit import tuning
from shlo_jit.builder import Value
from shlo_jit.ir.core import Module
from shlo_jit.ir.types import F32, F64, tensor
from shlo_jit.reference.interpreter import evaluate

RNG = np.random.default_rng(5)


def norm(shape: tuple[int, int, int, int], dtype=F32) -> Module:  # type: ignore[no-untyped-def]
    """A norm of groups over pixels and the features of a group, of x: [images, pixels, groups, features]."""
    with b.function("main", x=tensor(shape, dtype), w=tensor(shape[2:], dtype)) as f:
        x = f["x"]
        count = float(shape[1] * shape[3])

        def mean(y: Value) -> Value:
            return b.broadcast_in_dim(b.reduce_sum(y, (1, 3)) / count, shape, (0, 2))

        centered = x - mean(x)
        scaled = centered * b.rsqrt(mean(centered * centered) + 1e-5)
        f.returns(b.tanh(scaled * b.broadcast_in_dim(f["w"], shape, (2, 3))))
    return f.module


def arguments(module: Module) -> list[np.ndarray]:
    main = module.function("main")
    assert main is not None
    types = [v.tensor for v in main.block().arguments]
    return [RNG.standard_normal(t.extents).astype(t.dtype.numpy) for t in types]


SHAPES = [(2, 64, 8, 4), (1, 33, 5, 3), (3, 128, 7, 10), (2, 40, 2, 2), (2, 17, 3, 15), (4, 100, 8, 8)]


@pytest.mark.parametrize("shape", SHAPES)
def test_norms_of_groups(shape: tuple[int, int, int, int]) -> None:
    for dtype, tolerance in ((F32, 2e-5), (F64, 1e-12)):
        module = norm(shape, dtype)
        args = arguments(module)
        (want,) = evaluate(module, *args)
        found = [np.asarray(guarded.compile(module, threads=t)(*args)) for t in (1, 2, 3, 8)]
        np.testing.assert_allclose(found[0], want, rtol=tolerance, atol=tolerance)
        assert all(found[0].tobytes() == other.tobytes() for other in found)


def test_loops_have_lanes_across_groups() -> None:
    exe = shlo_jit.compile(norm((2, 64, 8, 4)), cache=False, target="x86-64-v4")
    steps = exe.text("schedule").split("\n  ")
    large = [line for line in steps if "lanes" in line and "along" in line]
    assert large and all(" 16 along" in line for line in large)
    assert "[repeated-in-lanes]" in exe.text("plan")


@pytest.mark.parametrize("shape", [(2, 64, 8, 16), (2, 64, 8, 1), (2, 64, 1, 4), (2, 4, 8, 4)])
def test_other_shapes_stay_as_they_are(shape: tuple[int, int, int, int]) -> None:
    """Groups that fill the lanes, of one element, one group, and few pixels."""
    exe = shlo_jit.compile(norm(shape), cache=False)
    assert "[repeated-in-lanes]" not in exe.text("plan")
    assert shape[3] in (1, tuning.GROUP_LANES) or shape[2] == 1 or shape[1] < tuning.GROUP_REPEATS


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.sampled(8)
def test_random_reductions_and_broadcasts(seed: int) -> None:
    """Reductions by several ops from several numbers over random dimensions, and broadcasts of their results."""
    pick = random.Random(seed)
    shape = tuple(pick.choice([1, 2, 3, 17, 24]) for _ in range(pick.randint(1, 2)))
    shape = (*shape, pick.choice([2, 3, 8]), pick.choice([2, 3, 4, 12]))
    over = sorted(pick.sample(range(len(shape)), pick.randint(1, len(shape) - 1)))
    kept = [d for d in range(len(shape)) if d not in over]
    combine, start = pick.choice([(b.add, 0.0), (b.add, -0.0), (b.add, 2.0), (b.max, -np.inf), (b.min, 0.5), (b.mul, 1.0)])
    with b.function("main", x=tensor(shape, F32)) as f:
        x = f["x"]
        found = b.reduce(b.tanh(x), b.constant(np.float32(start)), combine, over)
        assert isinstance(found, Value)
        spread = b.broadcast_in_dim(found, shape, kept)
        f.returns(b.exp(x) + spread, found, b.transpose(spread * x, pick.sample(range(len(shape)), len(shape))))
    args = arguments(f.module)
    for threads in (1, 3):
        results = guarded.compile(f.module, threads=threads)(*args)
        for got, want in zip(results, evaluate(f.module, *args), strict=True):
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=1e-5)
