"""Comparisons: what counts as faster, with and without noise."""

from __future__ import annotations

import random

import pytest

from shlo_jit.autotune.comparison import LEAST_PAIRS, Comparison


def compared(before: list[float], after: list[float]) -> Comparison:
    made = Comparison()
    for pair in zip(before, after, strict=True):
        made.add(*pair)
    return made


def test_a_gain_needs_several_pairs() -> None:
    few, many = (compared([2.0] * n, [1.0] * n) for n in (LEAST_PAIRS - 1, LEAST_PAIRS))
    assert not few.wins and many.wins and many.ratio == pytest.approx(2.0)
    assert not many.loses and many.is_faster and few.is_faster


def test_a_gain_within_the_noise_is_none() -> None:
    """The machine is a fifth slower half of the time."""
    times = [1.0, 1.2] * LEAST_PAIRS
    assert not compared(times, [0.97 * t for t in reversed(times)]).wins
    assert compared(times, [0.97 * t for t in times]).wins, "pairs are alike, so the gain is certain"
    assert not compared([1.0] * 20, [0.99] * 20).wins, "a hundredth is too small a gain to change a schedule for"


def test_outliers_do_not_matter() -> None:
    before, after = [1.0] * 20, [0.8] * 20
    after[3] = after[11] = 50.0
    assert compared(before, after).wins and compared(before, after).ratio == pytest.approx(1.25)


def test_what_is_clearly_slower_loses_early() -> None:
    assert compared([1.0] * 3, [1.5] * 3).loses
    assert not compared([1.0] * 3, [1.05] * 3).loses
    assert compared([1.0] * 5, [1.05] * 5).loses and not compared([1.0] * 2, [9.0] * 2).loses


def test_equal_code_wins_rarely() -> None:
    rng, wins = random.Random(0), 0
    for _ in range(1000):
        before, after = ([1 + 0.3 * rng.random() for _ in range(20)] for _ in range(2))
        wins += compared(before, after).wins
    assert wins < 20


def test_slower_is_more_than_the_noise() -> None:
    slower = compared([1.0] * 10, [1.02] * 10)
    assert slower.is_slower and not slower.is_faster
    equal = compared([1.0, 1.1] * 5, [1.1, 1.0] * 5)
    assert not equal.is_faster and not equal.is_slower


def test_times_too_short_for_the_clock() -> None:
    assert compared([0.0] * 10, [0.0] * 10).ratio == 1.0
