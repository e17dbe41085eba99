"""Convolutions: which leaf and layout they have, whether the input is copied, how they are cut, where an epilogue
runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from math import prod
from typing import Any
from unittest.mock import patch

import guarded
import ml_dtypes
import numpy as np
import pytest
from decisions import AVX512, decides, main, schedules, tensor, the_schedule

import shlo_jit
from shlo_jit import tuning
from shlo_jit.kernels.convolution.description import GATHERED, IN_PLACE, Variant
from shlo_jit.kernels.convolution.shape import FIELDS
from shlo_jit.passes.canonical import features_last
from shlo_jit.schedule.convolution import ConvolutionSchedule


def convolution(
    image: tuple[int, int, int, int],
    window: int,
    features: int,
    layout: str = "last",
    groups: int = 1,
    padding: int = 0,
    stride: int = 1,
) -> ConvolutionSchedule:
    """Schedules a convolution over an image (batch, height, width, channels), stored NHWC or (`first`) NCHW, which it
    keeps: for all numbers of features, not only for one."""
    b, h, w, c = image
    oh, ow = ((n + 2 * padding - window) // stride + 1 for n in (h, w))
    filters = (window, window, c // groups, features)
    if layout == "last":
        x, k, y, spec = image, filters, (b, oh, ow, features), "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
    else:
        x, k, y = (b, c, h, w), (features, c // groups, window, window), (b, features, oh, ow)
        spec = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
    pad = f"pad = [[{padding}, {padding}], [{padding}, {padding}]]"
    line = (
        f"%y = stablehlo.convolution(%x, %w) dim_numbers = {spec}, window = {{stride = [{stride}, {stride}], {pad}}}"
        f" {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}"
        f" : ({tensor(*x)}, {tensor(*k)}) -> {tensor(*y)}"
    )
    with layouts_of_programs():
        found = the_schedule(main(f"%x: {tensor(*x)}, %w: {tensor(*k)}", tensor(*y), line), AVX512)
    assert isinstance(found, ConvolutionSchedule)
    return found


def layouts_of_programs() -> AbstractContextManager[object]:
    """Convolutions keep the program's layout."""
    return patch.object(features_last, "has_features_first", lambda _: False)


DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}
FIRST = Variant("tiles", "pixels", "features", gathers=True)
CHANNELS, PLANES = Variant("direct", "features"), Variant("direct", "pixels")
GROUPED = CHANNELS._replace(has_groups=True)


def variant(found: ConvolutionSchedule) -> Variant:
    return found.description.variant


def field(found: ConvolutionSchedule, name: str) -> int:
    return found.table[FIELDS.index(name)]


KINDS: dict[str, dict[str, Any]] = {
    "in place": {"image": (1, 58, 58, 64), "window": 3, "features": 64},
    "gather": {"image": (1, 12, 12, 64), "window": 3, "features": 64},
    "first": {"image": (1, 58, 58, 16), "window": 3, "features": 32, "layout": "first"},
    "depthwise": {"image": (1, 58, 58, 60), "window": 4, "features": 60, "groups": 60},
    "depthwise 3x3": {"image": (1, 58, 58, 60), "window": 3, "features": 60, "groups": 60, "stride": 2},
    "depthwise 5x5": {"image": (1, 58, 58, 64), "window": 5, "features": 64, "groups": 64},
    "planes": {"image": (1, 58, 58, 64), "window": 3, "features": 64, "layout": "first", "groups": 64},
    "grouped": {"image": (1, 58, 58, 64), "window": 3, "features": 64, "groups": 16},
}
"""Convolutions of each strategy. Tests schedule them: not the collection of tests, which every worker does."""


@pytest.mark.parametrize(
    ("kind", "expected", "code"),
    [
        ("in place", IN_PLACE, "lines-fill-tiles"),
        ("gather", GATHERED, "lines-leave-idle-rows"),
        ("first", FIRST, "pixels-contiguous"),
        ("depthwise", CHANNELS, "depthwise-channels"),
        ("depthwise 3x3", CHANNELS._replace(window=3), "depthwise-small-window"),
        ("depthwise 5x5", CHANNELS._replace(window=5), "depthwise-small-window"),
        ("planes", PLANES, "depthwise-pixels"),
        ("grouped", GROUPED, "small-groups"),
    ],
)
def test_strategies(kind: str, expected: Variant, code: str) -> None:
    found = convolution(**KINDS[kind])
    assert variant(found) == expected
    decides(found, "strategy", "", code)


@pytest.mark.parametrize(
    ("kind", "tile", "task"),
    [
        ("in place", "14 pixels x 32 channels", "lines of 56 pixels x 64 channels"),
        ("gather", "14 pixels x 32 channels", "pixels x 64 channels"),
        ("first", "14 channels x 32 pixels", "pixels x 32 channels"),
        ("depthwise 5x5", "16 channels per vector", "x 16 channels"),
        ("planes", "16 pixels per vector", "of single channels"),
        ("grouped", "16 channels per vector", "x 64 channels"),
    ],
)
def test_a_schedule_says_what_a_tile_and_a_task_compute(kind: str, tile: str, task: str) -> None:
    found = convolution(**KINDS[kind])
    s = found.shape
    work = prod(s.output) * s.groups * s.co * s.ci * prod(s.window)
    decides(found, "tile", tile)
    decides(
        found,
        "tasks",
        task,
        "tasks-by-work",
        f"{work:,} multiply-adds, {work // field(found, 'main_tasks'):,} per task",
    )


def test_little_work_runs_on_the_caller() -> None:
    """However many tasks there are, one thread runs them one after the other."""
    decides(convolution((1, 10, 10, 16), 3, 16), "tasks", "", "too-little-work", f"{tuning.GEMM_SERIAL:,}")
    few = convolution((1, 10, 10, 32), 3, 32, groups=32)
    decides(few, "tasks", "1 task", "too-little-work", f"{tuning.PARALLEL_WORK:,}")


def test_pixels_are_gathered_where_lines_waste_too_much_of_the_tile() -> None:
    """A line of 14 fills the 14 rows of the tile, and one of 7 those of the tile of 7; 16 are twice 8, 13 are 9 and 4.
    10 are 8 and 2, but two rows take as long as four."""
    for pixels, stripe in ((14, 14), (7, 14), (16, 8), (13, 14)):
        found = convolution((1, pixels + 2, pixels + 2, 64), 3, 64)
        assert (variant(found), field(found, "stripe"), field(found, "specialized")) == (IN_PLACE, stripe, 0)
    assert variant(convolution((1, 12, 12, 64), 3, 64)) == GATHERED


def test_much_work_on_lines_has_a_tile_of_their_height() -> None:
    for pixels, height in ((13, 13), (10, 10), (25, 0), (22, 0), (28, 0), (16, 0)):
        found = convolution((4, pixels + 2, pixels + 2, 256), 3, 256)
        assert (variant(found), field(found, "specialized")) == (IN_PLACE, height)
        assert f"_pixels{height or ''}" in found.symbol and len(found.routines[0].needs) == (3 if height else 2)


def test_the_last_features_of_a_vector_or_less_take_the_tallest_tile() -> None:
    """Only the tallest tile has a form one vector wide: otherwise 160 pixels would be 20 times 8."""
    for features, stripe in ((16, 14), (17, 8), (32, 8), (80, 14), (96, 8)):
        assert field(convolution((1, 162, 162, 32), 3, features), "stripe") == stripe


@pytest.mark.parametrize(
    "image,features,tasks",
    [((1, 16, 16, 144), 288, 18), ((1, 9, 9, 160), 320, 20), ((1, 16, 16, 96), 208, 20), ((1, 12, 12, 64), 64, 4)],
)
def test_tasks_are_cut_so_that_two_threads_are_done_together(image: tuple, features: int, tasks: int) -> None:
    """Nine panels of features are five tasks of two at a time, and ten are five as well; a small image would be one
    task."""
    assert field(convolution(image, 3, features), "main_tasks") == tasks


def test_a_kernel_larger_than_the_cache_is_read_once() -> None:
    """9.4 MB against 49 pixels: every task has all pixels, and two panels of 32 features."""
    found = convolution((1, 9, 9, 512), 3, 512)
    assert (field(found, "row_chunks"), field(found, "nc")) == (1, 64)
    assert field(convolution((1, 58, 58, 64), 3, 64), "column_chunks") == 1


def test_groups_are_of_as_many_channels_out_and_fill_whole_vectors() -> None:
    for channels, features, groups, grouped in (
        (64, 64, 8, True),
        (64, 64, 4, False),
        (64, 128, 16, False),
        (72, 72, 18, False),
        (96, 96, 32, False),
    ):
        found = convolution((1, 30, 30, channels), 3, features, groups=groups)
        assert (variant(found) == GROUPED) == grouped
        assert not grouped or (found.symbol.endswith("grouped8") and field(found, "weight_tasks") == 0)


def test_eight_features_a_channel_still_go_plane_by_plane() -> None:
    assert variant(convolution((1, 58, 58, 4), 3, 32, "first", groups=4)) == PLANES
    assert variant(convolution((1, 58, 58, 4), 3, 36, "first", groups=4)) == FIRST


def test_wide_images_are_copied_at_their_margins() -> None:
    """Margins are copied if lines are long, so that few stripes reach beyond the image. Half as long lines suffice if
    windows are far apart. They are not copied if each of several columns of tasks would have to."""
    for side, features, stride, copied in (
        (112, 64, 1, False),
        (56, 64, 1, True),
        (56, 64, 2, False),
        (112, 512, 1, True),
    ):
        found = convolution((1, side, side, 64), 3, features, padding=1, stride=stride)
        assert (field(found, "copy_tasks") > 0, field(found, "margin_line") == 0) == (copied, copied), (side, features)
    wide = convolution((1, 112, 112, 64), 3, 64, padding=1)
    decides(wide, "input", "margins", "few-margins")
    assert field(wide, "worker_bytes") >= 3 * field(wide, "margin_line")


def test_the_input_is_copied_where_pixels_need_padding() -> None:
    inside, padded = convolution((1, 58, 58, 64), 3, 64), convolution((1, 56, 56, 64), 3, 64, padding=1)
    assert "input" not in [n.what for n in inside.notes]
    decides(padded, "input", "copied", "padded-copy")
    assert padded.scratch.fixed - inside.scratch.fixed > 58 * 58 * 64 * 4 - 1024


def test_lines_of_features_are_read_in_place_unless_windows_are_padded_or_apart() -> None:
    inside = convolution((2, 30, 30, 64), 3, 64, "first")
    assert (inside.description.image, field(inside, "copy_tasks")) == ("in_place", 0)
    for changed in ({"padding": 1}, {"stride": 2}):
        assert convolution((2, 30, 30, 64), 3, 64, "first", **changed).description.image == "shared", changed
    # Every second line and column is all that windows of one pixel read.
    apart = convolution((2, 30, 30, 64), 1, 64, "first", stride=2)
    assert [field(apart, name) for name in ("ph", "pw", "phases")] == [15, 15, 1]
    windows = convolution((2, 31, 31, 64), 3, 64, "first", stride=2)
    assert [field(windows, name) for name in ("ph", "pw", "phases")] == [31, 16, 2]


def test_images_of_few_pixels_have_tasks_of_some_features() -> None:
    few, many = (convolution((1, side, side, 512), 3, 512, "first", padding=1) for side in (7, 56))
    assert field(few, "main_tasks") == 4 and few.description.rows % few.problem.geometry.plan.mr == 0
    assert field(many, "row_chunks") == 1


@pytest.mark.parametrize(
    "side, window, stride, dilation",
    [(9, 1, 1, 1), (9, 3, 1, 1), (19, 3, 1, 1), (9, 1, 2, 1), (20, 3, 2, 1), (21, 4, 3, 2)],
)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_lines_of_features_are_read_without_what_is_beside_them(
    side: int, window: int, stride: int, dilation: int, dtype: str
) -> None:
    """The panels hold the elements that the definition reads, and no memory beside the image is touched."""
    pad, images, ci, co, rng = (window - 1) // 2, 2, 19, 37, np.random.default_rng(side)
    x = rng.integers(-4, 5, (images, ci, side, side)).astype(DTYPES[dtype])
    w = rng.integers(-4, 5, (co, ci, window, window)).astype(DTYPES[dtype])
    out = (side + 2 * pad - (window - 1) * dilation - 1) // stride + 1
    shape = (images, co, out, out)
    spec = f"stride = [{stride}, {stride}], pad = [[{pad}, {pad}], [{pad}, {pad}]], rhs_dilate = [{dilation}, {dilation}]"
    line = (
        f"%y = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],"
        f" window = {{{spec}}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}"
        f" : ({tensor(*x.shape, dtype=dtype)}, {tensor(*w.shape, dtype=dtype)}) -> {tensor(*shape)}"
    )
    text = main(f"%x: {tensor(*x.shape, dtype=dtype)}, %w: {tensor(*w.shape, dtype=dtype)}", tensor(*shape), line)
    padded = np.pad(x.astype(np.float32), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    want, reach = np.zeros(shape, np.float32), (out - 1) * stride + 1
    for i, j in np.ndindex(window, window):
        part = padded[:, :, i * dilation :, j * dilation :][:, :, :reach:stride, :reach:stride]
        want += np.einsum("nchw,oc->nohw", part, w[:, :, i, j].astype(np.float32))
    with layouts_of_programs():
        compiled = [guarded.compile(text, threads=threads, cache=False) for threads in (1, 2, 3, 8)]
    for exe in compiled:
        np.testing.assert_array_equal(exe(x, w), want)


def bordered(kernel: np.ndarray, extent: int = 14, stride: int = 1) -> str:
    """Returns a convolution of an image of 8 features, with a line of padding around it, by a constant 3 x 3 kernel."""
    y, x = (extent - 1) // stride + 1, f"tensor<1x{extent}x{extent}x8xf32>"
    w, r = f"tensor<3x3x8x{kernel.shape[3]}xf32>", f"tensor<1x{y}x{y}x{kernel.shape[3]}xf32>"
    return main(
        f"%x: {x}",
        r,
        f"""%w = stablehlo.constant dense<"0x{kernel.tobytes().hex()}"> : {w}
        %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
          window = {{stride = [{stride}, {stride}], pad = [[1, 1], [1, 1]]}}
          {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> {r}""",
    )


def test_lines_of_padding_are_left_out_of_finite_kernels() -> None:
    kernel = np.ones((3, 3, 8, 16), np.float32)
    kernel[0, 0, 0, 0] = -3

    def leaves(kernel: np.ndarray, **how: int) -> int:
        found = the_schedule(bordered(kernel, **how), AVX512)
        assert isinstance(found, ConvolutionSchedule)
        return field(found, "leaves_padding")

    assert leaves(kernel) == 1 == leaves(kernel, stride=2)
    assert field(convolution((1, 14, 14, 8), 3, 16, padding=1), "leaves_padding") == 0, "an argument may be infinite"
    for other in (np.inf, -np.inf, np.nan):
        kernel[2, 1, 3, 5] = other
        assert leaves(kernel) == 0, other


def dilated(kernel: np.ndarray, rate: int, extent: int = 33) -> str:
    x, w = f"tensor<1x{extent}x{extent}x64xf32>", "tensor<3x3x64x64xf32>"
    return main(
        f"%x: {x}",
        x,
        f"""%w = stablehlo.constant dense<"0x{kernel.tobytes().hex()}"> : {w}
        %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
          window = {{pad = [[{rate}, {rate}], [{rate}, {rate}]], rhs_dilate = [{rate}, {rate}]}}
          {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> {x}""",
    )


def test_ends_of_lines_leave_columns_of_padding_out() -> None:
    """Only if there are many such columns: for windows that are far apart, not for a tenth of the work or less."""
    kernel = np.ones((3, 3, 64, 64), np.float32)

    def ends(text: str) -> bool:
        found = the_schedule(text, AVX512)
        assert isinstance(found, ConvolutionSchedule)
        assert any(n.what == "window" and "columns" in n.value for n in found.notes) == (field(found, "ends") > 0)
        return field(found, "ends") > 0

    assert ends(dilated(kernel, 18)) and ends(dilated(kernel, 12)) and not ends(dilated(kernel, 1))
    kernel[1, 0, 2, 3] = np.nan
    assert not ends(dilated(kernel, 18))


@pytest.mark.parametrize("rate", [6, 12, 18, 20])
def test_infinite_kernels_meet_the_padding_of_ends(rate: int) -> None:
    kernel = np.ones((3, 3, 64, 64), np.float32)
    x = np.random.default_rng(rate).standard_normal((1, 33, 33, 64)).astype(np.float32)
    y = shlo_jit.compile(dilated(kernel, rate))(x)
    padded = np.pad(x, ((0, 0), (rate, rate), (rate, rate), (0, 0))).sum(3)
    taps = [padded[0, i * rate : i * rate + 33, j * rate : j * rate + 33] for i in range(3) for j in range(3)]
    np.testing.assert_allclose(y[0], np.repeat(np.sum(taps, 0)[..., None], 64, 2), atol=1e-4)
    kernel[1, 0, 2, 3] = np.inf
    y = shlo_jit.compile(dilated(kernel, rate))(np.ones_like(x))
    assert np.isnan(y[0, :, :rate, 3]).all() and np.isposinf(y[0, :, rate:, 3]).all()


def test_infinite_kernels_meet_the_padding() -> None:
    """Zero times infinity is NaN: only at the border, where the infinity meets padding."""
    kernel = np.ones((3, 3, 8, 16), np.float32)
    kernel[0, 1, 3, 5] = np.inf
    y = shlo_jit.compile(bordered(kernel))(np.ones((1, 14, 14, 8), np.float32))
    assert np.isnan(y[0, 0, :, 5]).all() and np.isposinf(y[0, 1:, :, 5]).all()
    assert np.isfinite(np.delete(y, 5, 3)).all()


@pytest.mark.parametrize("rate", [1, 12])
def test_kernels_without_input_features(rate: int) -> None:
    x, w, r = "tensor<1x33x33x0xf32>", "tensor<3x3x0x64xf32>", "tensor<1x33x33x64xf32>"
    text = main(
        f"%x: {x}",
        r,
        f"""%w = stablehlo.constant dense<1.0> : {w}
        %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
          window = {{pad = [[{rate}, {rate}], [{rate}, {rate}]], rhs_dilate = [{rate}, {rate}]}}
          {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> {r}""",
    )
    assert (shlo_jit.compile(text)(np.ones((1, 33, 33, 0), np.float32)) == np.zeros((1, 33, 33, 64))).all()


def test_a_task_has_so_many_multiply_adds() -> None:
    """Rows per task: whole tiles, with all of k and a chunk of columns."""
    found = convolution((4, 58, 58, 64), 3, 64)
    assert found.scratch.fixed
    rows = max(2, tuning.CONV_TASK // (64 * 3 * 3 * 64 * 14)) * 14
    lines = 4 * 56
    assert field(found, "row_chunk") == max(1, rows // 56, min(tuning.CONV_LINES, lines // tuning.CONV_TASKS))
    assert field(found, "main_tasks") == -(-lines // field(found, "row_chunk"))
    decides(found, "tasks", f"{field(found, 'main_tasks')} tasks")


def test_a_call_has_so_many_steps_of_k() -> None:
    """Runs of (width, feature) in the order of the input: three of 3 x 64, or three of 3 x 256."""
    assert field(convolution((1, 58, 58, 64), 3, 64), "runs_per_call") == min(3, tuning.CONV_CALL_K // (3 * 64))
    assert field(convolution((1, 58, 58, 256), 3, 64), "runs_per_call") == max(1, tuning.CONV_CALL_K // (3 * 256))


def test_calls_of_features_first_are_long_and_about_equal() -> None:
    """Runs are the features of one window position, or single features. A line of a window is one call if its panel
    stays in the caches: 3 x 512 terms of 32 pixels are a quarter of 768 KiB."""
    found = convolution((1, 7, 7, 512), 3, 512, "first", padding=1)
    assert (found.description.runs, field(found, "run"), field(found, "runs")) == (3, 512, 3)
    assert convolution((1, 7, 7, 768), 3, 64, "first", padding=1).description.runs == 2
    assert convolution((1, 7, 7, 1024), 3, 64, "first", padding=1).description.runs == 1
    # 1,152 and 848 terms would take as many calls.
    assert convolution((1, 7, 7, 2000), 1, 64, "first").description.runs == 1000


def test_small_depthwise_convolutions_are_one_task() -> None:
    """Compares the work, pixels x channels x 9, with PARALLEL_WORK."""
    side = int((tuning.PARALLEL_WORK / 9 / 16) ** 0.5)
    few = convolution((1, side + 2, side + 2, 16), 3, 16, groups=16)
    many = convolution((1, side + 3, side + 3, 16), 3, 16, groups=16)
    decides(few, "tasks", "1 task")
    decides(many, "tasks", "4 tasks")


@pytest.mark.parametrize(
    ("side", "channels", "parts"),
    [(112, 32, (16, 1)), (28, 144, (4, 1)), (14, 384, (2, 2)), (7, 960, (1, 4)), (13, 208, (4, 1))],
)
def test_depthwise_tasks_are_equal(side: int, channels: int, parts: tuple[int, int]) -> None:
    """Lines, and vectors of 16 channels if there are few lines: a multiple of four tasks."""
    found = convolution((1, side + 2, side + 2, channels), 3, channels, groups=channels)
    assert (field(found, "row_chunks"), field(found, "column_chunks")) == parts
    assert field(found, "main_tasks") >= side * side * channels * 9 // tuning.DEPTHWISE_TASK


def test_an_epilogue_runs_on_its_tiles() -> None:
    x, k, y = tensor(1, 58, 58, 64), tensor(3, 3, 64, 64), tensor(1, 56, 56, 64)
    line = "%c = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}"
    line += f" {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {k}) -> {y}"
    found = the_schedule(main(f"%x: {x}, %w: {k}", y, line, f"%y = stablehlo.tanh %c : {y}"))
    decides(found, "epilogue", "tiles")


def beside(pixels: int, features: int, groups: int = 1) -> str:
    """Returns a convolution whose result is concatenated with its input."""
    x, c = (tensor(1, pixels, pixels, n) for n in (16, features))
    k, y = tensor(3, 3, 16 // groups, features), tensor(1, pixels, pixels, 16 + features)
    line = "%c = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],"
    line += (
        f" window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}"
    )
    both = f"%y = stablehlo.concatenate %x, %t, dim = 3 : ({x}, {c}) -> {y}"
    return main(f"%x: {x}, %w: {k}", y, f"{line} : ({x}, {k}) -> {c}", f"%t = stablehlo.tanh %c : {c}", both)


@pytest.mark.parametrize(
    ("features", "groups", "streams"), [(32, 1, 1), (30, 1, 0), (32, 2, 0)], ids=["lines", "not in lines", "groups"]
)
def test_parts_of_large_concatenations_are_written_past_the_caches(
    features: int, groups: int, streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams results if the epilogue's vectors are cache lines."""
    monkeypatch.setattr(tuning, "STREAM_BYTES", 24 * 24 * (16 + features) * 4)
    for pixels, expected in ((24, streams), (23, 0)):
        (found,) = [
            s for s in schedules(beside(pixels, features, groups), AVX512) if isinstance(s, ConvolutionSchedule)
        ]
        assert found.epilogue is not None and not found.epilogue.is_late
        assert len(found.epilogue.schedule.streams) == expected


def test_what_is_written_past_the_caches_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    side = 210
    x = rng.standard_normal((1, side, side, 16)).astype(np.float32)
    w = rng.standard_normal((3, 3, 16, 32)).astype(np.float32)
    streamed = shlo_jit.compile(beside(side, 32), cache=False, threads=2)
    assert "nontemporal" in streamed.text("lowered")
    monkeypatch.setattr(tuning, "STREAM_BYTES", 1 << 40)
    plain = shlo_jit.compile(beside(side, 32), cache=False)
    assert "nontemporal" not in plain.text("lowered")
    np.testing.assert_array_equal(streamed(x, w), plain(x, w))


@pytest.mark.parametrize("layout, groups", [("last", 64), ("first", 64)])
def test_depthwise_kernels_are_looked_at_where_padding_is_left_out(layout: str, groups: int) -> None:
    image = (1, 14, 14, 64)
    assert convolution(image, 3, 64, layout, groups, padding=1).tests_kernel
    assert not convolution(image, 3, 64, layout, groups).tests_kernel
    assert not convolution(image, 3, 64, layout, padding=1).tests_kernel


@pytest.mark.parametrize("value, looked_at", [(1.0, False), (-7.5, False), (np.nan, True), (-np.inf, True)])
def test_constant_depthwise_kernels_are_known(value: float, looked_at: bool) -> None:
    kernel = np.ones((3, 3, 1, 64), np.float32)
    kernel[1, 2, 0, 5] = value
    x, spec = tensor(1, 14, 14, 64), "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
    lines = f"""%w = stablehlo.constant dense<"0x{kernel.tobytes().hex()}"> : {tensor(3, 3, 1, 64)}
  %y = stablehlo.convolution(%x, %w) dim_numbers = {spec}, window = {{pad = [[1, 1], [1, 1]]}}
    {{batch_group_count = 1 : i64, feature_group_count = 64 : i64}} : ({x}, {tensor(3, 3, 1, 64)}) -> {x}"""
    found = the_schedule(main(f"%x: {x}", x, lines), AVX512)
    assert isinstance(found, ConvolutionSchedule)
    assert found.tests_kernel == looked_at
