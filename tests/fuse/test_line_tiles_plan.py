"""Steps that run in line tiles, and the reasons that the plan prints for the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from image_chains import Program, bottleneck, pooled, skipped
from printed_codes import codes

from shlo_jit import parse, tuning
from shlo_jit.codegen.target import resolve
from shlo_jit.options import CompileOptions
from shlo_jit.pipeline import lower
from shlo_jit.stages import show

SHAPE = (1, 48, 48, 8)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes small images count as large."""
    monkeypatch.setattr(tuning, "LINE_TILE_IMAGE_BYTES", 1)


def plan(*layers: Callable[[Program], None], shape: tuple[int, int, int, int] = SHAPE, stage: str = "plan") -> str:
    program = Program(shape, 0)
    for layer in layers:
        layer(program)
    return show(lower(parse(program.text()), CompileOptions(resolve())), stage, resolve())


def dense(p: Program) -> None:
    p.convolution(3, 1, (1, 1), 8)


def pool(p: Program) -> None:
    p.pool(2, 2, (0, 0))


def line_buffers(text: str) -> int:
    """Returns the number of tensors that are only stored in line buffers."""
    return codes(text).count("line-buffer")


def test_three_steps() -> None:
    """More features, a window over each, fewer features: the images in between are never materialized."""
    text = plan(bottleneck)
    assert text.startswith("1 step: 1 line_tiles") and line_buffers(text) == 2


def test_pooling() -> None:
    text = plan(pooled)
    assert "1 line_tiles" in text.splitlines()[0] and line_buffers(text) == 1


def test_images_with_other_readers_are_written() -> None:
    text = plan(skipped)
    assert "1 line_tiles" in text.splitlines()[0] and line_buffers(text) == 0


def test_images_with_other_readers_and_shared_lines() -> None:
    """Every task would write some lines of its neighbours."""
    text = plan(dense, Program.keep, lambda p: p.pool(3, 2, (1, 1)))
    assert "1 line_tiles" not in text.splitlines()[0]
    assert codes(text, "no line tiles") == ["lines-needed-twice"]


def test_a_product_of_an_image_with_other_readers() -> None:
    text = plan(dense, Program.keep, lambda p: p.product(4))
    assert codes(text, "no line tiles") == ["other-readers"]


def test_dense_convolution_of_overlapping_lines() -> None:
    assert codes(plan(dense, dense), "no line tiles") == ["overlapping-windows"]


def test_patches_do_not_overlap() -> None:
    assert plan(dense, lambda p: p.convolution(2, 2, (0, 0), 8)).startswith("1 step: 1 line_tiles")


def test_small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "LINE_TILE_IMAGE_BYTES", 48 * 48 * 8 * 4 + 1)
    assert "line" not in plan(dense, pool).splitlines()[0]
    assert not codes(plan(dense, pool), "no line tiles")


def test_few_lines() -> None:
    assert codes(plan(dense, pool, shape=(1, 30, 60, 8)), "no line tiles") == ["too-few-lines"]


def test_many_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "LINE_TILE_KERNEL_BYTES", 9 * 8 * 8 * 4 - 1)
    text = plan(dense, pool)
    assert codes(text, "no line tiles") == ["large-weights"] and "2,304" in text and "2,303" in text


def test_long_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "LINE_BUFFER_BYTES", 48 * 8 * 4 * 4 - 1)
    text = plan(dense, pool)
    assert codes(text, "no line tiles") == ["line-buffer-too-large"] and "6,144" in text and "6,143" in text
    monkeypatch.setattr(tuning, "LINE_BUFFER_BYTES", 48 * 8 * 4 * 4)
    assert "1 line_tiles" in plan(dense, pool).splitlines()[0]


def test_windows_of_one_line() -> None:
    """Windows along lines only may be computed as a scan."""
    assert codes(plan(dense, lambda p: p.pool(1, 1, (0, 0))), "no line tiles") == ["windows-not-spatial"]


def test_the_schedule_says_how_each_stage_runs() -> None:
    """For a convolution its strategy and register tile, for a product its tile, for a pooling its windows."""
    text = plan(bottleneck, pool, stage="schedule")
    _, *stages = text.split(" stage ")
    kinds = [stage.split()[0].rstrip(",") for stage in stages]
    assert len(stages) > 2 and {*kinds} <= {"convolution", "dot_general", "reduce_window"}, text
    for kind, stage in zip(kinds, stages, strict=True):
        labels = {line.split()[0] for line in stage.splitlines()[1:] if line.strip()}
        assert (
            labels
            >= {"convolution": {"strategy", "tile"}, "dot_general": {"tile", "B"}, "reduce_window": {"windows"}}[kind]
        )
        assert kind != "convolution" or codes(stage, "strategy")
