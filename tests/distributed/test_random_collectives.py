"""Random programs of collective ops have the specified results, over both transports, whatever their length."""

from __future__ import annotations

import random
import time

import pytest
from collective_programs import arguments_of_ranks, assert_same, check, meaning
from random_collectives import RandomProgram
from test_rank_arrays import resident

import shlo_jit

GRIDS = [(2, 1), (1, 3), (2, 2), (5, 1), (2, 3), (4, 2)]


def program(seed: int, count: int, grid: tuple[int, int]) -> RandomProgram:
    return RandomProgram(seed, count, *grid)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sampled(4)
def test_over_threads(seed: int) -> None:
    grid = GRIDS[seed % len(GRIDS)]
    p = program(seed, 10 + 3 * seed, grid)
    check(p.text(), arguments_of_ranks(seed, grid[0] * grid[1], p.writer.arguments), *grid, "threads")


@pytest.mark.parametrize("seed", [100, 101, 102])
def test_over_processes(seed: int) -> None:
    grid = GRIDS[seed % 3]
    p = program(seed, 30, grid)
    check(p.text(), arguments_of_ranks(seed, grid[0] * grid[1], p.writer.arguments), *grid, "processes")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_many_over_threads(seed: int) -> None:
    test_over_threads(seed)


@pytest.mark.slow
def test_a_hundred_thousand(transport: str) -> None:
    """Collective ops of random groups and shapes: every call is checked, and memory use is constant."""
    total, begun, rng = 0, time.monotonic(), random.Random(0)
    for seed in range(20):
        grid = GRIDS[seed % 3]
        ranks = grid[0] * grid[1]
        p = program(5000 + seed, 50, grid)
        given = [arguments_of_ranks(n, ranks, p.writer.arguments) for n in range(3)]
        want = [meaning(p.text(), arguments, *grid) for arguments in given]
        options = {"num_replicas": grid[0], "num_partitions": grid[1], "transport": transport, "time_out": 60.0}
        with shlo_jit.compile(p.text(), **options) as exe:
            before = 0
            for call in range(100):
                n = rng.randrange(3)
                assert_same(exe(given[n]), want[n])
                total += p.collectives
                before = resident() if call == 20 else before
            assert resident() - before < 8 << 20
    assert total >= 100_000
    print(f"{total:,} collective ops over {transport} in {time.monotonic() - begun:.0f} s")
