"""Products: where operands are read from, which are products with a vector, what a task is, and where an epilogue
runs."""

from __future__ import annotations

import numpy as np
import pytest
from decisions import AMX, AVX2, AVX512, decides, main, note, plan_of, schedules, tensor, the_schedule

from shlo_jit import tuning
from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.gemm.known_sizes import Layout, describe
from shlo_jit.kernels.gemm.precision import GemmTypes, gemm_plan
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.epilogue import schedule_epilogue
from shlo_jit.schedule.product_layout import Placed
from shlo_jit.schedule.products import ProductSchedule

PLAN = gemm_plan(GemmTypes("f32", "f32", "f32"), AVX512)


def product(text: str, target: Target = AVX512) -> ProductSchedule:
    found = the_schedule(text, target)
    assert isinstance(found, ProductSchedule)
    return found


def dot(
    m: int, k: int, n: int, batch: int = 0, rhs: str = "kn", dtype: str = "f32", out: str = "", then: str = ""
) -> str:
    """Returns a product of m x k and k x n (or, as `nk`, n x k) matrices, `batch` of them; `then` are ops on %d."""
    b = (batch,) if batch else ()
    left, right = tensor(*b, m, k, dtype=dtype), tensor(*b, *((k, n) if rhs == "kn" else (n, k)), dtype=dtype)
    result = tensor(*b, m, n, dtype=out or dtype)
    lead = "batching_dims = [0] x [0], " if batch else ""
    at = len(b)
    dims = f"{lead}contracting_dims = [{at + 1}] x [{at + (0 if rhs == 'kn' else 1)}]"
    name = "%d" if then else "%y"
    lines = [f"{name} = stablehlo.dot_general %a, %b, {dims} : ({left}, {right}) -> {result}"]
    return main(f"%a: {left}, %b: {right}", result, *lines, *([then.format(t=result)] if then else []))


# ---------------------------------------------------------------------- where operands are read from
SIDE = 512
"""Extent of k."""
RESIDENT = tuning.GEMM_B_RESIDENT // 4 // (SIDE // 2)
"""Columns of a B that barely stays in the cache."""


@pytest.mark.parametrize(
    ("m", "n", "k", "b", "code", "shows"),
    [
        (tuning.GEMM_PRIVATE_ROWS + 1, 1024, SIDE, "shared by all", "many-rows-reuse", f"more than {tuning.GEMM_PRIVATE_ROWS}"),
        (tuning.GEMM_PRIVATE_ROWS, 1024, SIDE, "by each task", "few-rows-reuse", f"{tuning.GEMM_PRIVATE_ROWS} rows"),
        (tuning.GEMM_SKINNY_ROWS + 1, 400, 300, "by each task", "few-rows-reuse", f"{tuning.GEMM_SKINNY_ROWS + 1} rows"),
        (tuning.GEMM_SKINNY_ROWS, 400, 300, "in place", "few-rows-contiguous", f"{tuning.GEMM_SKINNY_ROWS} rows"),
        (PLAN.mr + 1, 120, 300, "by each task", "few-rows-reuse", f"{PLAN.mr + 1} rows"),
        (PLAN.mr, 120, 300, "in place", "few-rows-contiguous", f"{PLAN.mr} rows"),
        (400, RESIDENT, SIDE // 2, "in place", "fits-in-cache", ""),
        (400, RESIDENT + 1, SIDE // 2, "shared by all", "many-rows-reuse", ""),
        (400, 508, 64, "in place", "fits-in-cache", ""),
        (400, 512, 64, "shared by all", "many-rows-reuse", ""),
    ],
    ids=["many rows", "some rows", "more than a few", "a few", "more than a tile", "a tile", "resident", "too large", "not half a page apart", "half a page apart"],
)  # fmt: skip
def test_where_b_is_read_from(m: int, n: int, k: int, b: str, code: str, shows: str) -> None:
    decides(product(dot(m, k, n)), "B", b, code, shows)


def test_b_is_in_place_only_where_its_rows_are_adjacent() -> None:
    decides(product(dot(100, 100, 100)), "B", "in place")
    decides(product(dot(100, 100, 100, rhs="nk")), "B", "by each task")


def test_without_masks_b_in_place_has_whole_vectors() -> None:
    decides(product(dot(60, 60, 96), AVX2), "B", "in place")
    decides(product(dot(60, 60, 97), AVX2), "B", "by each task")


@pytest.mark.parametrize(
    ("n", "a", "code", "shows"),
    [
        (PLAN.widest, "in place", "packing-does-not-pay", ""),
        (PLAN.widest + 1, "shared by all", "many-columns-reuse", f"{PLAN.widest}"),
    ],
)
def test_where_a_is_read_from(n: int, a: str, code: str, shows: str) -> None:
    decides(product(dot(1000, 512, n)), "A", a, code, shows)


def test_operands_that_are_converted_are_packed() -> None:
    found = product(dot(400, 300, 400, dtype="bf16", out="f32"))
    decides(found, "A", "by each task", "elements-converted")
    decides(found, "B", "packed")


@pytest.mark.parametrize(
    ("batch", "b"), [(tuning.GEMM_BATCH, "by each task"), (tuning.GEMM_BATCH - 1, "shared by all")]
)
def test_a_batch_has_enough_products_for_a_task_each(batch: int, b: str) -> None:
    decides(product(dot(256, 256, 384, batch)), "B", b)


@pytest.mark.parametrize(("k", "b"), [(256, "by each task"), (257, "shared by all")])
def test_products_of_a_batch_that_are_large_are_cut(k: int, b: str) -> None:
    n = tuning.GEMM_PRIVATE_PRODUCT // 256 // 256
    decides(product(dot(256, k, n, tuning.GEMM_BATCH)), "B", b)


# ---------------------------------------------------------------------- tasks
def test_small_products_run_on_the_caller() -> None:
    k = tuning.GEMM_SERIAL // 64 // 96
    serial, cut = product(dot(64, k, 96, 4, rhs="nk")), product(dot(64, k // 4, 96, 4, rhs="nk"))
    decides(serial, "tasks", "", "tasks-by-work", f"{tuning.GEMM_TASK:,}")
    decides(cut, "tasks", "", "too-little-work", f"{tuning.GEMM_SERIAL:,}")


def test_small_products_of_a_batch_share_a_task() -> None:
    side = 32
    group = tuning.GEMM_GROUP // side**3
    decides(product(dot(side, side, side, 1000)), "tasks", f"{-(-1000 // group)} tasks", "")
    decides(product(dot(side, side, side, 1000)), "tasks", f"{group} products each")
    assert "products each" not in note(product(dot(64, 64, 64, 1000)), "tasks").value


def test_a_task_has_so_many_columns_and_products() -> None:
    """A task of a large product has the columns that GEMM_CHUNK_BYTES allows, in whole panels. It has rows for
    GEMM_TASK multiply-adds per pass over k."""
    columns = PLAN.widest
    each = 3000 // -(-3000 // PLAN.kc)
    rows = tuning.GEMM_TASK // (columns * each) // PLAN.mr * PLAN.mr
    decides(product(dot(3000, 3000, 3000)), "tasks", f"of {rows:,} x {columns:,}")
    decides(product(dot(3000, 3000, 3000)), "tasks", f"each {each} of k")


@pytest.mark.parametrize(("m", "k", "n", "rows"), [(256, 1024, 256, 70), (500, 64, 500, 126), (300, 1024, 256, 84)])
def test_few_tasks_have_equal_rows(m: int, k: int, n: int, rows: int) -> None:
    """256 rows by 84 leave 4 for a fourth task, while one of two threads waits for the third."""
    found = product(dot(m, k, n))
    decides(found, "tasks", f"of {rows} x {n}")
    assert found.decisions.blocking is not None
    count = -(-m // int(found.decisions.blocking.mc))
    assert count % 2 == 0 and m - (count - 1) * rows > rows // 2


@pytest.mark.parametrize(("columns", "each"), [(128, 64), (96, 64), (512, 128)])
def test_a_row_has_two_tasks_even_of_few_panels(columns: int, each: int) -> None:
    """A row is multiplied with four panels at a time, if there are others."""
    layout = Layout(4096, 1, 0, columns, 1, 0)
    (*_, (what, how, _)) = describe(PLAN, 1, 1, columns, 4096, layout, prepacked=True)
    assert what == "tasks" and f"of 1 x {each}" in how


def test_passes_over_k_are_equal() -> None:
    """The last pass, too, has enough work to pay for moving its sums to C and back."""
    decides(
        product(dot(3000, 2 * PLAN.kc + 40, 3000)),
        "tasks",
        f"3 times: once for each {-(-(2 * PLAN.kc + 40) // 12) * 4} of k",
    )


# ---------------------------------------------------------------------- vectors
@pytest.mark.parametrize(
    ("m", "k", "n", "rhs", "how"),
    [
        (1, 300, 400, "kn", "1 vector, all outputs"),
        (1, 300, 400, "nk", "1 vector, one output after the other"),
        (400, 300, 1, "kn", "1 vector, one output after the other"),
        (tuning.GEMM_THIN, 2048, tuning.GEMM_SKINNY_BYTES // 2048 // 4 + 1, "kn", f"{tuning.GEMM_THIN} vectors, all outputs"),
    ],
)  # fmt: skip
def test_products_with_vectors_read_the_matrix_once(m: int, k: int, n: int, rhs: str, how: str) -> None:
    decides(product(dot(m, k, n, rhs=rhs)), "blocking", how, "memory-bound")


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        (tuning.GEMM_THIN + 1, 512, tuning.GEMM_THIN_BYTES // 4 // 512),
        (tuning.GEMM_THIN, 511, tuning.GEMM_THIN_BYTES // 4 // 512),
        (1, 300, 4 * 16 - 1),
        (1, 15, 4000),
    ],
    ids=["more vectors", "a smaller matrix", "few outputs", "few steps"],
)
def test_other_products_go_by_tiles(m: int, k: int, n: int) -> None:
    assert "blocking" not in [x.what for x in product(dot(m, k, n)).notes]


# ---------------------------------------------------------------------- batches, tile registers
def test_batch_dimensions_that_are_no_run_are_looped_over() -> None:
    """The batch dimensions of A are consecutive; those of B are swapped by a transpose."""
    a, b, swapped = tensor(3, 5, 40, 64), tensor(5, 3, 64, 48), tensor(3, 5, 64, 48)
    result = tensor(3, 5, 40, 48)
    then = f"%y = stablehlo.negate %d : {result}"
    text = main(
        f"%a: {a}, %b: {swapped}", result,
        f"%d = stablehlo.dot_general %a, %b, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]"
        f" : ({a}, {swapped}) -> {result}", then,
    )  # fmt: skip
    whole = product(text)
    assert (whole.looped, whole.result.batch) == (0, 15)
    decides(whole, "epilogue", "tiles")
    loop = product(
        main(
            f"%a: {a}, %b: {b}", result,
            f"%d = stablehlo.dot_general %a, %b, batching_dims = [0, 1] x [1, 0], contracting_dims = [3] x [2]"
            f" : ({a}, {b}) -> {result}", then,
        )
    )  # fmt: skip
    assert (loop.looped, loop.result.batch) == (1, 5)
    decides(loop, "calls", "batch", "batch-not-strided")
    decides(loop, "epilogue", "after", "several-calls")


def test_tile_registers_take_bf16() -> None:
    assert gemm_plan(GemmTypes("bf16", "bf16", "f32"), AMX).kind == "amx"
    found = product(dot(256, 256, 256, dtype="bf16", out="f32"), AMX)
    decides(found, "tile", "32 x 32 in registers")
    decides(found, "A", "by each task", "tile-registers-layout")


def test_complex_products_above_a_size_are_real_ones() -> None:
    side = round(tuning.SMALL_COMPLEX_PRODUCT ** (1 / 3))
    assert side**3 == tuning.SMALL_COMPLEX_PRODUCT
    few = schedules(dot(side, side, side, dtype="complex<f32>"))
    assert not any(isinstance(s, ProductSchedule) for s in few)
    many = schedules(dot(side, side + 1, side, dtype="complex<f32>"))
    assert any(isinstance(s, ProductSchedule) for s in many)


# ---------------------------------------------------------------------- epilogues
def test_a_loop_over_the_result_runs_on_its_tiles() -> None:
    found = product(dot(200, 200, 300, then="%y = stablehlo.tanh %d : {t}"))
    decides(found, "epilogue", "tiles")
    assert found.epilogue is not None
    assert not found.epilogue.is_late
    decides(found, "lanes", "16 along", "product-columns")


def test_a_loop_that_spans_rows_and_columns_runs_after_the_product() -> None:
    """The loops have the extents of a 200 x 300 result, while the product counts it as 300 x 200."""
    (step,) = plan_of(dot(200, 200, 300, then="%y = stablehlo.tanh %d : {t}")).steps
    assert isinstance(step, OpStep)
    found = schedule_epilogue(step, AVX512, Placed.dense(1, 300, 200))
    assert found is not None
    assert found.is_late
    assert found.why_late is not None and found.why_late.code == "loop-spans-rows-and-columns"
    assert found.notes[0].why == found.why_late


def heads(then: str) -> str:
    """Splits 200 x 96 results into 8 heads of 12 columns each; `then` are ops on %h."""
    parts, moved = tensor(200, 8, 12), tensor(8, 200, 12)
    lines = [
        f"%d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] "
        f": ({tensor(200, 300)}, {tensor(300, 96)}) -> {tensor(200, 96)}",
        f"%r = stablehlo.reshape %d : ({tensor(200, 96)}) -> {parts}",
        then,
        f"%y = stablehlo.transpose %h, dims = [1, 0, 2] : ({parts}) -> {moved}",
    ]
    return main(f"%a: {tensor(200, 300)}, %b: {tensor(300, 96)}", moved, *lines)


def test_columns_of_several_loops_have_lanes_along_the_innermost() -> None:
    found = product(heads(f"%h = stablehlo.tanh %r : {tensor(200, 8, 12)}"))
    decides(found, "lanes", "16 along", "product-columns", "2 of 2")


def test_a_result_across_the_columns_is_moved_later() -> None:
    result, moved = tensor(6, 50, 100), tensor(50, 100, 6)
    found = product(
        main(
            f"%a: {tensor(6, 50, 32)}, %b: {tensor(6, 32, 100)}", moved,
            f"%d = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1] "
            f": ({tensor(6, 50, 32)}, {tensor(6, 32, 100)}) -> {result}",
            f"%y = stablehlo.transpose %d, dims = [1, 2, 0] : ({result}) -> {moved}",
        )
    )  # fmt: skip
    decides(found, "epilogue", "after", "writes-across-columns")


# ---------------------------------------------------------------------- free dimensions on both sides of the summed one
def middle(a: tuple[int, ...], b: tuple[int, ...], at: tuple[int, int], *then: str) -> ProductSchedule:
    """Schedules a product over one dimension of each operand; `then` are ops on %d."""
    extents = (*(n for i, n in enumerate(a) if i != at[0]), *(n for i, n in enumerate(b) if i != at[1]))
    name = "%d" if then else "%y"
    dims = f"contracting_dims = [{at[0]}] x [{at[1]}]"
    line = f"{name} = stablehlo.dot_general %a, %b, {dims} : ({tensor(*a)}, {tensor(*b)}) -> {tensor(*extents)}"
    result = then[-1].rpartition("-> ")[2] if then else tensor(*extents)
    return product(main(f"%a: {tensor(*a)}, %b: {tensor(*b)}", result, line, *then))


def test_columns_after_the_summed_dimension_are_products_of_a_batch() -> None:
    found = middle((30, 40), (7, 40, 33), (1, 1))
    assert found.result == Placed(7, 30, 33, 7 * 33, 33)
    assert found.strides[2:] == (0, 33, 1, 40 * 33)


def test_of_rows_on_both_sides_the_more_are_rows() -> None:
    few = middle((50, 40, 3), (40, 33), (1, 0))
    assert few.result == Placed(3, 50, 33, 3 * 33, 33)
    assert few.strides == (120, 3, 1, 33, 1, 0)
    many = middle((3, 40, 50), (40, 33), (1, 0))
    assert many.result == Placed(3, 50, 33, 33, 50 * 33)
    assert many.strides == (1, 50, 40 * 50, 33, 1, 0)


def test_a_result_that_is_only_moved_is_written_where_it_belongs() -> None:
    then = f"%y = stablehlo.transpose %d, dims = [1, 0, 2] : ({tensor(30, 7, 33)}) -> {tensor(7, 30, 33)}"
    found = middle((30, 40), (7, 40, 33), (1, 1), then)
    decides(found, "result", "final place", "epilogue-only-moves")
    assert (found.epilogue, found.result) == (None, Placed(7, 30, 33, 33, 30 * 33))


def test_a_row_meets_several_panels_in_every_task() -> None:
    """24 panels of 32 columns are multiplied four at a time. So tasks of 3 panels, which give threads as much as tasks
    of 4, would be slower."""
    literal = np.arange(768 * 768, dtype=np.float32).tobytes().hex()
    line = f'%b = stablehlo.constant dense<"0x{literal}"> : {tensor(768, 768)}'
    dot = f"%y = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({tensor(1, 768)}, {tensor(768, 768)}) -> {tensor(1, 768)}"
    found = product(main(f"%a: {tensor(1, 768)}", tensor(1, 768), line, dot))
    decides(found, "tasks", "of 1 x 128")
