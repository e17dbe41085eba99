"""Random programs: compiled equals the reference interpreter, for the native target and for one without masks."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_check import check, compared_closely
from random_programs import random_program

import shlo_jit

CLOSELY = 0.97
"""Minimum share of some hundred programs that are compared closely; it is 99 % in runs of thousands."""
few = partial(settings, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def test_compiled_equals_reference() -> None:
    with compared_closely(0.9) as closely:

        @few(max_examples=25)
        @given(st.integers(0, 10**6), st.integers(3, 14))
        def run(seed: int, size: int) -> None:
            closely.append(check(*random_program(seed, size), donate=(0, 2) if seed % 4 == 1 else ()))

        run()


def test_without_masked_vectors() -> None:
    with compared_closely(0.9) as closely:

        @few(max_examples=12)
        @given(st.integers(0, 10**6), st.integers(3, 12))
        def run(seed: int, size: int) -> None:
            closely.append(check(*random_program(seed, size), target="x86-64-v3"))

        run()


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_programs(block: int) -> None:
    with compared_closely(CLOSELY) as closely:
        for seed in range(block * 200, block * 200 + 200):
            donate = (0, 2) if seed % 4 == 1 else ()
            closely.append(check(*random_program(seed + 10**7, 4 + seed % 30), donate=donate))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_texts_are_valid_and_round_trip(seed: int) -> None:
    text, _ = random_program(seed, 15)
    assert shlo_jit.verify(text) == []
    module = shlo_jit.parse(text)
    assert shlo_jit.parse(str(module)) == module
