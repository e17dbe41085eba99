"""Line tiles give the bits of the same steps run one after the other: chains of convolutions, products, pooling,
normalizations and loops of random shapes, for any number of threads.

    RANDOM_PROGRAMS=2000 pytest -m slow tests/lower/test_line_tiles.py -k more_random
"""

from __future__ import annotations

import platform
from collections.abc import Callable

import guarded
import numpy as np
import pytest
from image_chains import (
    Program,
    added,
    block,
    bottleneck,
    column,
    gated,
    halved,
    joined,
    joined_before,
    joined_products,
    narrowed,
    normalized,
    normalized_between,
    patches,
    pooled,
    random_chain,
    skipped,
    softmax,
    stacked,
    stem,
)
from random_runs import seeds

from shlo_jit import tuning


def outcome(
    program: Program, patch: pytest.MonkeyPatch, nbytes: int, threads: int = 1, target: str = "native"
) -> tuple[list[np.ndarray], str]:
    """Returns the results if images of at least `nbytes` bytes are cut into line tiles, and the plan."""
    patch.setattr(tuning, "LINE_TILE_IMAGE_BYTES", nbytes)
    exe = guarded.compile(program.text(), threads=threads, cache=False, target=target)
    x = np.random.default_rng(1).standard_normal(program.input).astype(np.float32)
    found = exe(x)
    return list(found) if isinstance(found, (tuple, list)) else [found], exe.text("plan")


def check(program: Program, patch: pytest.MonkeyPatch, target: str = "native") -> None:
    """Checks that line tiles have the bits of separate steps, and that the whole program is one chain of line tiles."""
    patch.setattr(tuning, "LINE_TILE_LINES", 2)
    one_by_one, plan = outcome(program, patch, 1 << 60, target=target)
    assert "line_tiles" not in plan
    for threads in (1, 2, 3):
        in_lines, plan = outcome(program, patch, 1, threads, target)
        assert "1 line_tiles" in plan.splitlines()[0], plan
        for a, b in zip(in_lines, one_by_one, strict=True):
            np.testing.assert_array_equal(a, b)


CHAINS: list[tuple[Callable[[Program], None], tuple[int, int, int, int]]] = [
    (bottleneck, (1, 30, 19, 6)),
    (bottleneck, (3, 9, 40, 8)),
    (pooled, (1, 24, 32, 5)),
    (pooled, (2, 22, 13, 16)),
    (column, (1, 24, 32, 5)),
    (column, (2, 31, 7, 16)),
    (skipped, (1, 24, 28, 7)),
    (skipped, (2, 16, 26, 3)),
    (stem, (1, 61, 60, 3)),
    (stem, (2, 40, 33, 3)),
]


@pytest.mark.parametrize("buffer", [1 << 10, 20 << 10, 512 << 10])
@pytest.mark.parametrize("case", range(len(CHAINS)))
@pytest.mark.sampled(4)
def test_chains(case: int, buffer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    write, shape = CHAINS[case]
    program = Program(shape, case)
    write(program)
    monkeypatch.setattr(tuning, "LINE_BUFFER_BYTES", max(buffer, 5 * max(shape[1:3]) * 24 * 4))
    monkeypatch.setattr(tuning, "LINE_TILE_KEPT", 0)
    check(program, monkeypatch)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other targets of x86-64")
@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("case", [0, 4, 6, 9])
def test_other_targets(case: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write, shape = CHAINS[case]
    program = Program(shape, case)
    write(program)
    monkeypatch.setattr(tuning, "LINE_TILE_KEPT", 0)
    check(program, monkeypatch, target)


ROWS: list[tuple[Callable[[Program], None], tuple[int, int, int, int]]] = [
    (block, (1, 20, 19, 6)),
    (block, (3, 16, 17, 8)),
    (normalized, (2, 22, 13, 5)),
    (patches, (1, 24, 32, 5)),
    (normalized_between, (1, 30, 19, 6)),
    (normalized_between, (2, 32, 26, 8)),
    (gated, (1, 30, 19, 6)),
    (gated, (2, 16, 26, 8)),
    (added, (1, 30, 19, 6)),
    (softmax, (1, 30, 19, 6)),
    (softmax, (2, 24, 9, 16)),
]


@pytest.mark.parametrize("least", [1, 1 << 60])
@pytest.mark.parametrize("case", range(len(ROWS)))
@pytest.mark.sampled(2)
def test_rows_of_pixels(case: int, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops and row programs over pixels are stages, alone or in row blocks of at least `least` bytes."""
    write, shape = ROWS[case]
    program = Program(shape, case)
    write(program)
    monkeypatch.setattr(tuning, "ROW_BLOCK_BYTES", least)
    monkeypatch.setattr(tuning, "LINE_BUFFER_BYTES", 20 << 10)
    monkeypatch.setattr(tuning, "LINE_TILE_KEPT", 0)
    check(program, monkeypatch)


@pytest.mark.parametrize("least", [1, 3 << 10])
@pytest.mark.parametrize("write", [joined, joined_before, stacked, halved, narrowed])
@pytest.mark.sampled(4)
def test_parts_of_images(write: Callable[[Program], None], least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that write a part of images, or number their lines in another way, are stages of separate chains."""
    monkeypatch.setattr(tuning, "LINE_TILE_LINES", 2)
    monkeypatch.setattr(tuning, "LINE_BUFFER_BYTES", 20 << 10)
    monkeypatch.setattr(tuning, "LINE_TILE_KEPT", 0)
    for shape in ((1, 24, 24, 6), (3, 20, 12, 5)):
        program = Program(shape, 1)
        write(program)
        one_by_one, _ = outcome(program, monkeypatch, 1 << 60)
        for threads in (1, 3):
            in_lines, plan = outcome(program, monkeypatch, least, threads)
            assert "line_tiles" in plan.splitlines()[0]
            for a, b in zip(in_lines, one_by_one, strict=True):
                np.testing.assert_array_equal(a, b)


def test_parts_of_images_after_row_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that write no images of their own have the lines of those that they read, of any result of an earlier
    step."""
    monkeypatch.setattr(tuning, "ROW_BLOCK_BYTES", 1)
    monkeypatch.setattr(tuning, "LINE_TILE_KEPT", 0)
    program = Program((2, 20, 21, 8), 1)
    joined_products(program)
    check(program, monkeypatch)


def run_random_chain(seed: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Checks a random chain, and returns its plan."""
    program, pick = random_chain(seed)
    monkeypatch.setattr(tuning, "LINE_BUFFER_BYTES", pick.choice([24 << 10, 100 << 10, 512 << 10]))
    monkeypatch.setattr(tuning, "LINE_TILE_TASKS", pick.choice([1, 2, 5]))
    monkeypatch.setattr(tuning, "LINE_TILE_LINES", pick.choice([1, 4]))
    monkeypatch.setattr(tuning, "LINE_TILE_KEPT", pick.choice([0, 8]))
    monkeypatch.setattr(tuning, "ROW_BLOCK_BYTES", pick.choice([1, 1 << 60]))
    least = pick.choice([1, 1, 20 << 10])
    one_by_one, _ = outcome(program, monkeypatch, 1 << 60)
    plan = ""
    for threads in (1, 2, 3):
        in_lines, plan = outcome(program, monkeypatch, least, threads)
        for a, b in zip(in_lines, one_by_one, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"chain {seed}, {threads} threads:\n{plan}")
    return plan


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.sampled(4)
def test_random_chains(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_random_chain(seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_more_random_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = seeds(200)
    plans = [run_random_chain(seed, monkeypatch) for seed in numbers]
    tiled = sum("line_tiles" in plan.splitlines()[0] for plan in plans)
    rows = sum("stage   row" in plan for plan in plans)
    print(f"{len(plans)} chains, {tiled} with line tiles, {rows} with rows as stages")
    assert tiled > len(plans) // 3 and rows > len(plans) // 10
