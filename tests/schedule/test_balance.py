"""Tests of load balance: how the work of a convolution is cut where tasks are few."""

from __future__ import annotations

import random

import pytest

from shlo_jit import tuning
from shlo_jit.schedule import convolution_balance as balance
from shlo_jit.schedule.convolution_balance import even_cut, even_tasks

LARGE = 1 << 30
"""So many multiply-adds that the overhead of a task is negligible."""


def longest(lines: int, chunk: int, columns: int, each: int, threads: int) -> float:
    """Returns the work of the slowest thread, relative to a perfect balance."""
    heights = [min(chunk, lines - i) for i in range(0, lines, chunk)]
    tasks = [height * min(each, columns - j) for j in range(0, columns, each) for height in heights]
    return balance._longest(tasks, threads) * threads / sum(tasks)


@pytest.mark.parametrize(
    "lines,chunk,columns,each",
    [(14, 14, 288, 64), (14, 14, 320, 64), (7, 8, 320, 64), (14, 2, 208, 224), (20, 3, 80, 96), (13, 14, 448, 64), (5, 1, 100, 128)],
)  # fmt: skip
def test_two_threads_are_done_together(lines: int, chunk: int, columns: int, each: int) -> None:
    assert longest(lines, chunk, columns, each, 2) > 1.05
    found = even_tasks(lines, chunk, columns, each, 32, LARGE)
    assert longest(lines, found[0], columns, found[1], 2) <= 1.05


def test_never_worse_than_what_was_given() -> None:
    pick = random.Random(0)
    for _ in range(300):
        lines, columns, vector = pick.randint(1, 60), pick.randint(1, 600), pick.choice([8, 16, 32, 64])
        chunk, each = pick.randint(1, 60), vector * pick.randint(1, 12)
        height, width = even_tasks(lines, chunk, columns, each, vector, LARGE)
        assert width % vector == 0 and 0 < width <= each and height > 0

        def time(h: int, w: int, given: tuple[int, int] = (lines, columns)) -> float:
            return sum(weight * longest(given[0], h, given[1], w, n) for n, weight in balance.THREADS)

        assert time(height, width) <= time(chunk, each) + 1e-6


def test_many_tasks_stay() -> None:
    lines = 7 * tuning.CONV_FEW_TASKS + 3
    assert even_tasks(lines, 7, 100, 128, 32, LARGE) == (7, 128)


def test_little_work_is_cut_less() -> None:
    """Two threads get 14 tasks of one line each, unless the overhead of a task takes as long as a line."""
    assert even_tasks(14, 14, 32, 32, 32, LARGE)[0] < 7
    assert even_tasks(14, 14, 32, 32, 32, 4 * tuning.CONV_EACH_TASK)[0] >= 7


def test_equal_parts_of_lines_and_channels() -> None:
    assert even_cut(16, 3, 4) == (4, 1)
    assert even_cut(7, 4, 4) == (1, 4)
    assert even_cut(7, 3, 4) == (4, 1)
