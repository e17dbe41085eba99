"""Random programs: compiled equals the reference interpreter, for the native target and for one without masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_programs import random_program

import shlo_jit
from shlo_jit.reference.interpreter import evaluate


def check(text: str, arguments: list[np.ndarray], target: str = "native") -> None:
    with np.errstate(all="ignore"):
        want = [np.asarray(w) for w in evaluate(shlo_jit.parse(text), *arguments)]
    exe = shlo_jit.compile(text, cache=False, threads=2, target=target)
    first = exe(*arguments)
    second = exe(*arguments)
    for g, again, w in zip(first, second, want, strict=True):
        assert g.tobytes() == again.tobytes()
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        if w.dtype.kind != "f":
            assert np.array_equal(g, w)
            continue
        finite = np.isfinite(w)
        assert np.array_equal(g[~finite], w[~finite], equal_nan=True)
        scale = max(1e-3, float(np.abs(w[finite]).max(initial=0)))
        assert float(np.abs(g[finite] - w[finite]).max(initial=0)) <= 1e-4 * scale


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.integers(4, 30))
def test_compiled_equals_reference(seed: int, size: int) -> None:
    check(*random_program(seed, size))


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.integers(4, 20))
def test_without_masked_vectors(seed: int, size: int) -> None:
    check(*random_program(seed, size), target="x86-64-v3")


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_programs(block: int) -> None:
    for seed in range(block * 200, block * 200 + 200):
        check(*random_program(seed + 10**7, 12 + seed % 30))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_texts_are_valid_and_round_trip(seed: int) -> None:
    text, _ = random_program(seed, 15)
    assert shlo_jit.verify(text) == []
    module = shlo_jit.parse(text)
    assert shlo_jit.parse(str(module)) == module
