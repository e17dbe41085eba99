"""The bits of results do not depend on the sizes of the caches that code is tuned for.

RANDOM_PROGRAMS=2000 pytest -m slow tests/lower/test_bits_of_cache_sizes.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import guarded
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from image_chains import Program, bottleneck, pooled, stem
from random_programs import random_program
from random_rows import random_rows
from random_runs import seeds
from random_stencils import random_stencil

import shlo_jit
from shlo_jit import check_options, tuning
from shlo_jit.caches import Caches
from shlo_jit.codegen.cpu_caches import caches_of
from shlo_jit.codegen.target import resolve

SIZES = (
    Caches(l1=4 << 10, l2=16 << 10, last_level=64 << 10),
    Caches(l1=16 << 10, l2=100 << 10, last_level=1 << 20),
    caches_of("znver3"),
    caches_of("apple-m2"),
    Caches(l1=1 << 20, l2=64 << 20, last_level=4 << 30),
)
SMALL = {"GEMM_CHUNK_BYTES": 48 << 10, "ATTENTION_BLOCK_BYTES": 1 << 10, "TEMPORAL_TILE_BYTES": 4 << 10}
"""Thresholds that have a minimum, below it."""


@contextmanager
def tuned_for(sizes: Caches) -> Iterator[None]:
    """Compiles for this machine as if its caches had these sizes."""
    target = replace(resolve(), caches=sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_options, "_target", lambda *_: target)
        if sizes is SIZES[0]:
            for name, nbytes in SMALL.items():
                patch.setattr(tuning, name, nbytes)
            patch.setattr(tuning, "TEMPORAL_TILE_WAVEFRONT", 512)
        yield


def outcome(text: str, arguments: Sequence[np.ndarray], sizes: Caches, *, guard: bool) -> tuple[list[bytes], str]:
    """Returns the bits of the results, and the schedule without reasons."""
    with tuned_for(sizes):
        exe = (guarded.compile if guard else shlo_jit.compile)(text, threads=2, cache=False)
        found = guarded.outputs(exe(*arguments))
        lines = [line.partition("   (")[0] for line in exe.text("schedule").splitlines()]
    return [x.tobytes() for x in found], "\n".join(lines)


def check(text: str, arguments: Sequence[np.ndarray], *, guard: bool = True) -> int:
    """Checks that all sizes give the same bits. Returns how many different schedules they give."""
    found = [outcome(text, arguments, sizes, guard=guard) for sizes in SIZES]
    assert all(bits == found[0][0] for bits, _ in found), f"the bits depend on the sizes of caches:\n{text}"
    return len({schedule for _, schedule in found})


def lowered(function: Callable[..., object], *arguments: np.ndarray) -> tuple[str, Sequence[np.ndarray]]:
    return jax.jit(function).lower(*arguments).as_text(), arguments


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32), dtype)


def chain(write: Callable[[Program], None], *shape: int) -> tuple[str, Sequence[np.ndarray]]:
    program = Program((shape[0], shape[1], shape[2], shape[3]), 1)
    write(program)
    return program.text(), [normal(*shape)]


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.swapaxes(-1, -2)) @ v


def wave(x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 12, lambda _, u: u + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) - 2 * u), x)


WEIGHTS = normal(300, 700)
KERNEL = normal(3, 3, 48, 96)


def convolution(x: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, jnp.asarray(KERNEL), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


CASES = {
    "product": lambda: lowered(jnp.matmul, normal(200, 700), normal(700, 600)),
    "constant matrix": lambda: lowered(lambda x: jnp.tanh(x @ WEIGHTS), normal(900, 300)),
    "half precision": lambda: lowered(jnp.matmul, normal(90, 700, dtype=jnp.bfloat16), normal(700, 600, dtype=jnp.bfloat16)),
    "vectors": lambda: lowered(jnp.matmul, normal(3, 700), normal(700, 900)),
    "vector": lambda: lowered(jnp.matmul, normal(700), normal(700, 5000)),
    "convolution": lambda: lowered(convolution, normal(2, 28, 30, 48)),
    "bottleneck": lambda: chain(bottleneck, 1, 30, 19, 6),
    "pooling": lambda: chain(pooled, 2, 22, 13, 16),
    "stem": lambda: chain(stem, 1, 61, 60, 3),
    "attention": lambda: lowered(attention, normal(2, 2, 100, 32), normal(2, 2, 90, 32), normal(2, 2, 90, 32)),
    "gradient": lambda: lowered(jax.grad(lambda *x: attention(*x).sum(), (0, 1, 2)), *[normal(2, 4, 100, 32)] * 3),
    "wave": lambda: lowered(wave, normal(400, 64)),
    "fft": lambda: lowered(jnp.fft.fft2, normal(24, 512)),
    "softmax": lambda: lowered(jax.nn.softmax, normal(40, 3000)),
    "strided sums": lambda: lowered(lambda x: x.sum(0), normal(300, 500)),
    "update": lambda: lowered(lambda x, y: jax.lax.dynamic_update_slice(x, y, (3, 0)), normal(700, 500), normal(90, 500)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_cases(case: str) -> None:
    check(*CASES[case]())


def test_sizes_do_change_schedules() -> None:
    """Otherwise the bits above would say nothing."""
    cases = ("product", "bottleneck", "pooling", "attention", "wave", "fft")
    assert [check(*CASES[case](), guard=False) > 1 for case in cases] == [True] * len(cases)


def stencil(seed: int) -> tuple[str, Sequence[np.ndarray]]:
    """Returns a random loop over stencils, for some iterations."""
    text, states = random_stencil(seed)
    return text, [np.asarray(1 + seed % 9, np.int32), *states]


RANDOM = {"rows": random_rows, "stencils": stencil, "programs": random_program}


@pytest.mark.parametrize("kind", RANDOM)
@pytest.mark.parametrize("seed", range(2))
def test_random(kind: str, seed: int) -> None:
    check(*RANDOM[kind](seed))


@pytest.mark.slow
@pytest.mark.parametrize("kind", RANDOM)
def test_many_random(kind: str) -> None:
    for seed in seeds(200):
        check(*RANDOM[kind](seed), guard=seed % 10 == 0)
