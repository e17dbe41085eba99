"""reduce_window and select_and_scatter: windows or scans, unrolled or looped over, side by side, in units and
blocks."""

from __future__ import annotations

import pytest
from decisions import decides, main, note, schedules, tensor

from shlo_jit import tuning
from shlo_jit.schedule.select_and_scatter import SelectSchedule
from shlo_jit.schedule.window import Scan, Windows, WindowSchedule

ADD = ["%c = stablehlo.add %a, %b : tensor<f32>"]
MAX = ["%c = stablehlo.maximum %a, %b : tensor<f32>"]
ROOTS = [  # square root of a sum of squares: no simple op, and expensive
    "%s = stablehlo.multiply %a, %a : tensor<f32>",
    "%t = stablehlo.multiply %b, %b : tensor<f32>",
    "%u = stablehlo.add %s, %t : tensor<f32>",
    "%c = stablehlo.sqrt %u : tensor<f32>",
]


def window(
    shape: tuple[int, ...],
    size: tuple[int, ...],
    body: list[str] = ADD,
    padding: tuple[tuple[int, int], ...] = (),
    initial: str = "stablehlo.constant dense<0.0>",
) -> WindowSchedule:
    """Schedules a reduce_window with strides of 1."""
    padding = padding or ((0, 0),) * len(shape)
    out = tuple(n + low + high - k + 1 for n, k, (low, high) in zip(shape, size, padding, strict=True))
    sizes = ", ".join(map(str, size))
    pairs = ", ".join(f"[{low}, {high}]" for low, high in padding)
    shaped = f"dense<[{pairs}]> : tensor<{len(shape)}x2xi64>"
    text = main(
        f"%x: {tensor(*shape)}, %i: tensor<f32>", tensor(*out),
        f"%zero = {initial} : tensor<f32>",
        f'%y = "stablehlo.reduce_window"(%x, %zero) <{{window_dimensions = array<i64: {sizes}>, padding = {shaped}}}> ({{',
        "^bb0(%a: tensor<f32>, %b: tensor<f32>):",
        *body, "stablehlo.return %c : tensor<f32>",
        f"}}) : ({tensor(*shape)}, tensor<f32>) -> {tensor(*out)}",
    )  # fmt: skip
    (found,) = [s for s in schedules(text) if isinstance(s, WindowSchedule)]
    return found


def cumulative(shape: tuple[int, ...], dim: int, body: list[str] = ADD, **options: str) -> WindowSchedule:
    size = tuple(n if d == dim else 1 for d, n in enumerate(shape))
    padding = tuple((n - 1, 0) if d == dim else (0, 0) for d, n in enumerate(shape))
    return window(shape, size, body, padding, **options)


def windows(found: WindowSchedule) -> Windows:
    assert found.windows is not None
    return found.windows


def scan(found: WindowSchedule) -> Scan:
    assert found.scan is not None
    return found.scan


# ---------------------------------------------------------------------- windows
def test_small_windows_are_written_out() -> None:
    n = tuning.WINDOW_UNROLLED
    few, many = window((64, 1000), (1, n)), window((64, 1000), (1, n + 1))
    decides(few, "windows", f"{n} elements each, unrolled", "window-size", str(n))
    decides(many, "windows", f"{n + 1} elements each, a loop", "window-size", str(n))
    assert windows(few).is_unrolled
    assert not windows(many).is_unrolled


def test_windows_with_few_positions_are_folded_side_by_side() -> None:
    n = tuning.WINDOW_SMALL
    decides(window((64, 1000), (1, n)), "unroll", str(tuning.WINDOW_VECTORS), "window-size", f"up to {n}")
    decides(window((64, 1000), (1, n + 1)), "unroll", "1", "window-size", f"{n + 1} window")


def test_units_are_as_few_outer_dimensions_as_are_enough() -> None:
    n = tuning.MAX_TASKS
    assert windows(window((n, 9, 9, 100), (1, 3, 3, 1))).split == 1
    assert windows(window((n - 1, 9, 9, 100), (1, 3, 3, 1))).split == 2


def test_few_rows_of_outputs_are_cut_into_blocks() -> None:
    n, long = tuning.MAX_TASKS, 4 * tuning.WINDOW_BLOCK
    few, many = window((n - 1, long + 2), (1, 3)), window((n, long + 2), (1, 3))
    assert windows(few).blocks == 4
    decides(few, "tasks", f"blocks of {tuning.WINDOW_BLOCK}")
    assert windows(many).blocks == 1
    decides(many, "tasks", "rows of outputs")


def test_lanes_are_outputs_of_the_last_dimension() -> None:
    decides(window((8, 100), (1, 3)), "lanes", "16, along the last dimension (98 outputs)")
    decides(window((8, 5), (1, 3)), "lanes", "4, along the last dimension (3 outputs)")


# ---------------------------------------------------------------------- windows or scans
@pytest.mark.parametrize(
    ("found", "strategy", "code"),
    [
        (cumulative((8, 100), 1), "a scan", "cumulative"),
        (cumulative((8, 100), 1, MAX, initial="stablehlo.constant dense<7.0>"), "a scan", "cumulative"),
        (window((8, 100), (1, 99)), "windows", "not-cumulative"),
        (cumulative((8, 100), 1, initial="stablehlo.constant dense<1.0>"), "windows", "padding-changes-result"),
        (cumulative((8, 100), 1, initial="stablehlo.negate %i"), "windows", "padding-changes-result"),
        (cumulative((8, 100), 1, ROOTS), "chosen at run time", "initial-value-unknown"),
    ],
    ids=["sum", "idempotent", "short", "another initial value", "unknown initial value", "unknown body"],
)  # fmt: skip
def test_scans_are_windows_that_cover_all_before(found: WindowSchedule, strategy: str, code: str) -> None:
    decides(found, "strategy", strategy, code)
    assert (found.windows is not None) == (strategy != "a scan")
    assert (found.scan is not None) == (strategy != "windows")


def test_scans_with_cheap_bodies_run_side_by_side() -> None:
    """The cost of a body is its number of ops plus one."""
    cheap, expensive = scan(cumulative((64, 100), 1)), scan(cumulative((64, 100), 1, ROOTS))
    assert (cheap.side, expensive.side) == (tuning.SCAN_ROWS, 1)
    decides(cumulative((64, 100), 1), "unroll", f"{tuning.SCAN_ROWS} side by side")
    cheap, expensive = scan(cumulative((100, 256), 0)), scan(cumulative((100, 256), 0, ROOTS))
    assert (cheap.block, expensive.block) == (16 * tuning.SCAN_ROWS, 16)
    decides(cumulative((100, 256), 0), "tasks", "1 task")


def test_what_is_cheap_for_a_scan() -> None:
    twice = ["%d = stablehlo.add %a, %b : tensor<f32>"]
    names = "defgh"
    for more, side in ((tuning.SCAN_SIMPLE_COST - 2, tuning.SCAN_ROWS), (tuning.SCAN_SIMPLE_COST - 1, 1)):
        body = twice + [f"%{names[i + 1]} = stablehlo.negate %{names[i]} : tensor<f32>" for i in range(more)]
        body[-1] = "%c =" + body[-1].partition("=")[2]
        assert scan(cumulative((64, 100), 1, body)).side == side


def test_lanes_of_a_scan() -> None:
    decides(cumulative((64, 100), 1), "lanes", "16, elements of a row")
    decides(cumulative((100, 64), 0), "lanes", "16, columns")


def test_scans_are_cut_into_rows_or_blocks_of_columns() -> None:
    rows, columns = cumulative((4096, 1024), 1), cumulative((1024, 4096), 0)
    decides(rows, "tasks", f"{tuning.MAX_TASKS} tasks of {4096 // tuning.MAX_TASKS} rows")
    assert scan(columns).blocks == 4096 // scan(columns).block
    decides(columns, "tasks", f"blocks of {scan(columns).block} columns")


# ---------------------------------------------------------------------- select_and_scatter
def selection(shape: tuple[int, int, int, int], window: tuple[int, int, int, int]) -> SelectSchedule:
    out = tuple(n // k for n, k in zip(shape, window, strict=True))
    sizes = ", ".join(map(str, window))
    text = main(
        f"%x: {tensor(*shape)}, %s: {tensor(*out)}", tensor(*shape),
        "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
        f'%y = "stablehlo.select_and_scatter"(%x, %s, %zero)'
        f" <{{window_dimensions = array<i64: {sizes}>, window_strides = array<i64: {sizes}>}}> ({{",
        "^bb0(%a: tensor<f32>, %b: tensor<f32>):",
        "%c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>",
        "stablehlo.return %c : tensor<i1>", "}, {", "^bb0(%a: tensor<f32>, %b: tensor<f32>):", *ADD,
        "stablehlo.return %c : tensor<f32>",
        f"}}) : ({tensor(*shape)}, {tensor(*out)}, tensor<f32>) -> {tensor(*shape)}",
    )  # fmt: skip
    (found,) = [s for s in schedules(text) if isinstance(s, SelectSchedule)]
    return found


def test_enough_images_are_units_and_few_are_cut_into_columns() -> None:
    n = tuning.SCATTER_UNITS
    few, many = selection((n - 1, 8, 8, 64), (1, 2, 2, 1)), selection((n, 8, 8, 64), (1, 2, 2, 1))
    for found, block, units in ((few, 16, 4 * (n - 1)), (many, 64, n)):
        assert found.selection is not None
        assert (found.selection.block, found.selection.tasks.units) == (block, units)
        assert "along 64 columns" in note(found, "lanes").value


def test_without_a_plain_last_dimension_there_are_no_lanes() -> None:
    decides(selection((20, 64, 8, 8), (1, 1, 2, 2)), "lanes", "1, along 1 columns")


def test_the_result_is_filled_in_blocks() -> None:
    found = selection((16, 32, 32, 64), (1, 2, 2, 1))
    size = 16 * 32 * 32 * 64
    assert found.fill.units == size // tuning.FILL_BLOCK
    decides(found, "fill", f"blocks of {tuning.FILL_BLOCK:,}", "tasks-by-work", f"{size:,} element")
    decides(selection((16, 8, 8, 64), (1, 2, 2, 1)), "fill", "1 task", "too-little-work")
