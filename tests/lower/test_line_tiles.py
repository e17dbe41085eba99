"""Line tiles give the bits of the same steps run one after the other: chains of convolutions, products and pooling of
random shapes, for any number of threads."""

from __future__ import annotations

import platform
import random
from collections.abc import Callable

import guarded
import numpy as np
import pytest
from image_chains import Program, bottleneck, column, pooled, skipped, stem

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
        in_bands, plan = outcome(program, patch, 1, threads, target)
        assert "1 line_tiles" in plan.splitlines()[0], plan
        for a, b in zip(in_bands, one_by_one, strict=True):
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


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.sampled(4)
def test_random_chains(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pick = random.Random(seed)
    shape = (pick.randint(1, 3), pick.randint(18, 40), pick.randint(10, 40), pick.choice([3, 8, 16, 20]))
    program = Program(shape, seed)
    for _ in range(pick.randint(2, 4)):
        stride, size = pick.randint(1, 2), pick.choice([2, 3, 5])
        pads = pick.randint(0, size - 1), pick.randint(0, size - 1)
        kind = pick.choice(["convolution", "depthwise", "product", "pool"])
        if min(program.shape[1:3]) < 8:
            break
        if kind == "pool" and program.lines:
            program.pool(size, pick.randint(1, size), pads, pick.choice(["maximum", "add"]))
            continue
        if kind in ("convolution", "depthwise"):
            dilation = pick.choice([1, 1, 1, 2])
            features = 0 if kind == "depthwise" else pick.choice([2, 8, 17, 32])
            program.convolution(size, stride, pads, features, dilation)
        else:
            program.product(pick.choice([4, 16, 33]))
        if pick.random() < 0.7:
            program.finish()
    monkeypatch.setattr(tuning, "LINE_BUFFER_BYTES", pick.choice([24 << 10, 100 << 10, 512 << 10]))
    monkeypatch.setattr(tuning, "LINE_TILE_TASKS", pick.choice([1, 2, 5]))
    monkeypatch.setattr(tuning, "LINE_TILE_LINES", pick.choice([1, 4]))
    monkeypatch.setattr(tuning, "LINE_TILE_KEPT", pick.choice([0, 8]))
    one_by_one, _ = outcome(program, monkeypatch, 1 << 60)
    for threads in (1, 2, 3):
        in_bands, _ = outcome(program, monkeypatch, 1, threads)
        np.testing.assert_array_equal(in_bands[0], one_by_one[0])
