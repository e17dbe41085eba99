"""`reproducible=True` for convolutions: the bits of an image's result depend neither on the other images of the batch,
nor on the number of threads, nor on the target.

pytest -m slow tests/test_reproducible_convolutions.py     more random ones
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from random_convolutions import NUMPY, random_convolution

import shlo_jit
from shlo_jit.codegen.target import check_runs_here, resolve

TYPES = (("f32", "f32"), ("f32", "f32"), ("f64", "f64"), ("bf16", "f32"), ("bf16", "bf16"), ("f16", "f16"))
IMAGES = 9
THREADS = (1, 2, 3, 8)
SEEDS = 60
TARGETS = ("x86-64-v3", "x86-64-v4")


def values(rng: random.Random, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers. Many are zeros, as after a ReLU, and some underflow in products."""
    made = np.random.default_rng(rng.randrange(1 << 30))
    x = made.standard_normal(shape)
    kind = rng.random()
    if kind < 0.3:
        x = np.maximum(x, 0)
    elif kind < 0.4:
        x *= 1e-30
    return x.astype(NUMPY[dtype])


def results(text: str, arguments: Sequence[np.ndarray], **options: Any) -> list[np.ndarray]:
    exe = shlo_jit.compile(text, cache=False, reproducible=True, **options)
    found = exe(*arguments)
    return [np.asarray(x) for x in (found if isinstance(found, tuple | list) else [found])]


def part(x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The first images, which is the only dimension that is longer."""
    return x[tuple(slice(n) for n in shape)]


def check(seed: int, images: int, threads: int, **options: Any) -> None:
    """Compares the results of some images with those of more."""
    whole, given = random_convolution(seed, IMAGES, TYPES, values)
    fewer, likes = random_convolution(seed, images, TYPES, values)
    # The same kernel: a constant one is in the text, and drawn before anything that has the images.
    arguments = [part(x, like.shape) for x, like in zip(given, likes, strict=True)]
    (all_of_them,) = results(whole, given, threads=2)
    (found,) = results(fewer, arguments, threads=threads, **options)
    assert found.tobytes() == part(all_of_them, found.shape).tobytes()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_images(seed: int) -> None:
    check(seed, 1 + seed % 2 * 3, THREADS[seed % 4])


def runs_here(target: str) -> bool:
    try:
        check_runs_here(resolve(target))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(0, SEEDS, 2))
def test_targets(seed: int, target: str) -> None:
    if not runs_here(target):
        pytest.skip(f"this machine is no {target}")
    check(seed, 1 + seed % 4, THREADS[seed // 2 % 4], target=target)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS, 20 * SEEDS))
def test_more_images(seed: int) -> None:
    check(seed, 1 + seed % 2 * 3, THREADS[seed % 4], target=("native", *TARGETS)[seed % 3])
