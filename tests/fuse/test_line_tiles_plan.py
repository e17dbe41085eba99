"""Steps that run in line tiles, and the reasons that the plan prints for the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from image_chains import Program, added, block, bottleneck, gated, halved, joined, normalized, patches, pooled, skipped
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


def stages(text: str) -> list[str]:
    """Returns the titles of the stages of line tiles, without those within row blocks."""
    return [line.split()[1] for line in text.splitlines() if line.startswith("      stage ")]


def test_a_row_program_at_the_end() -> None:
    text = plan(normalized)
    assert stages(text) == ["convolution", "row"] and line_buffers(text) == 1


def test_a_row_program_before_patches() -> None:
    text = plan(patches)
    assert stages(text) == ["row", "convolution"] and line_buffers(text) == 1


def test_row_blocks_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A normalization, products and loops over the lines of a convolution run by blocks of rows within a tile."""
    monkeypatch.setattr(tuning, "ROW_BLOCK_BYTES", 1)
    text = plan(block)
    assert stages(text) == ["convolution", "row_blocks"] and line_buffers(text) == 1
    assert codes(text).count("row-block") > 1


def test_a_row_program_and_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "ROW_BLOCK_BYTES", 1 << 60)
    text = plan(block)
    assert stages(text) == ["convolution", "row", "dot_general", "dot_general"] and line_buffers(text) == 3


def test_an_epilogue_that_reads_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that a product reads are added to it."""
    monkeypatch.setattr(tuning, "ROW_BLOCK_BYTES", 1 << 60)
    text = plan(added)
    assert stages(text) == ["convolution", "dot_general", "reduce_window"] and line_buffers(text) == 2


def test_several_readers_of_the_same_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "ROW_BLOCK_BYTES", 1 << 60)
    text = plan(gated)
    assert stages(text) == ["convolution", "dot_general", "dot_general", "convolution"] and line_buffers(text) == 3


def test_rows_alone_are_no_line_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Normalizations and products without windows are left to row blocks."""
    monkeypatch.setattr(tuning, "ROW_BLOCK_BYTES", 1 << 60)
    assert "line_tiles" not in plan(Program.norm, lambda p: p.product(9), Program.norm)


def test_a_normalization_over_lines_is_no_stage() -> None:
    """Rows that are longer than a pixel are not computed from the same pixel."""

    def over_pixels(p: Program) -> None:
        t = f"tensor<{'x'.join(map(str, p.shape))}xf32>"
        n, _, w, c = p.shape
        first = p.write("stablehlo.constant dense<0.0> : tensor<f32>")
        total = p.write(
            f"stablehlo.reduce({p.last} init: {first}) applies stablehlo.add across dimensions = [1]"
            f" : ({t}, tensor<f32>) -> tensor<{n}x{w}x{c}xf32>"
        )
        p.elementwise("divide", p.spread(total, (n, w, c), [0, 2, 3]))

    assert "line_tiles" not in plan(dense, over_pixels).splitlines()[0]


def test_parts_of_a_concatenation_are_written_to_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that several steps write are no lines of one of them."""
    monkeypatch.setattr(tuning, "ROW_BLOCK_BYTES", 1 << 60)
    text = plan(joined)
    assert "1 line_tiles" in text.splitlines()[0] and stages(text)[-1] != "convolution" and line_buffers(text) == 1


def test_lines_of_other_numbers_are_read_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "ROW_BLOCK_BYTES", 1 << 60)
    text = plan(halved)
    assert "2 line_tiles" in text.splitlines()[0] and stages(text) == ["convolution", "row"] * 2


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
