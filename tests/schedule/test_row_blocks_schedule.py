"""Row blocks of attention and its gradient: rows of a block and of a task, packed operands, where weights are stored,
and scratch memory."""

from __future__ import annotations

import pytest
from decisions import AMX, AVX2, AVX512, decides, main, tensor, the_schedule

from shlo_jit import tuning
from shlo_jit.kernels.gemm.precision import GemmTypes, gemm_plan
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.row_blocks import RowBlocksSchedule
from shlo_jit.schedule.row_products import Right

TILE = gemm_plan(GemmTypes("f32", "f32", "f32"), AVX512).mr


def attention(
    batch: int, m: int, n: int, k: int = 64, depth: int = 64, target: Target = AVX512, dtype: str = "f32"
) -> RowBlocksSchedule:
    q, y, v = (tensor(batch, *s, dtype=dtype) for s in ((m, k), (n, k), (n, depth)))
    s, r, p, out = tensor(batch, m, n), tensor(batch, m), tensor(batch, m, n, dtype=dtype), tensor(batch, m, depth)
    text = main(
        f"%q: {q}, %k: {y}, %v: {v}",
        out,
        f"%s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : ({q}, {y}) -> {s}",
        "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
        f"%e = stablehlo.exponential %s : {s}",
        f"%r = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2] : ({s}, tensor<f32>) -> {r}",
        f"%t = stablehlo.broadcast_in_dim %r, dims = [0, 1] : ({r}) -> {s}",
        f"%d = stablehlo.divide %e, %t : {s}",
        f"%p = stablehlo.convert %d : ({s}) -> {p}",
        f"%y = stablehlo.dot_general %p, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({p}, {v}) -> {out}",
    )
    found = the_schedule(text, target)
    assert isinstance(found, RowBlocksSchedule)
    return found


def packs(found: RowBlocksSchedule) -> tuple[bool, ...]:
    """Whether each product packs its right operand."""
    return tuple(p.right is Right.PACKED for p in found.products)


def taken(found: RowBlocksSchedule) -> list[bool]:
    """For each value that a row program writes into a buffer, whether it takes the memory of one that it reads."""
    (program,) = found.step.nests
    read = {found.fields[v] for v in program.reads if v in found.fields}
    return [found.fields[v] in read for v in program.writes if v in found.fields]


def buffers(found: RowBlocksSchedule) -> list[int]:
    """The row strides of the buffers, in elements."""
    return [found.buffers.stride(v) for v in found.fields]


def test_blocks_are_whole_tiles_that_stay_in_the_cache() -> None:
    for n in (64, 100, 128, 300, 512):
        found = attention(24, 1000, n)
        assert found.block % TILE == 0
        assert TILE <= found.block <= max(TILE, AVX512.bytes_of(tuning.ATTENTION_BLOCK_BYTES) // (4 * n) + TILE)
    far = attention(24, 1000, 4096).block, AVX512.bytes_of(tuning.ROW_BUFFER_SHARE) // (4 * 4096)
    assert TILE < far[0] <= far[1] + TILE, "keys that do not stay in the cache beside the block are read less often"
    assert attention(24, 30, 64).block == min(30, 3 * TILE)


def test_tasks_are_of_the_same_size_and_not_many() -> None:
    found = attention(12, 512, 512)
    assert found.tasks.tasks == tuning.ATTENTION_TASKS
    assert found.division.task_rows % TILE == 0
    assert 0 <= 2 * found.division.task_rows - 512 < 2 * TILE
    assert attention(12, 64, 512).division.task_rows == 64
    assert attention(100, 512, 512).tasks.tasks == 100


def test_few_features_want_few_rows() -> None:
    """With as few features, packing pays off for twice the rows per task."""
    assert attention(4, 640, 512, 256, 384).division.task_rows >= 320
    assert attention(4, 640, 512).division.task_rows < 320
    decides(attention(4, 640, 512, 256, 384), "tasks", "8 tasks", "tasks-by-rows", "320 rows")


def test_little_work_is_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "COMPUTED_OPERAND_ROWS", 0)  # else products of few rows are separate steps
    assert attention(12, 1, 64).tasks.is_one
    assert attention(12, 1, 64).division.each == 12
    decides(attention(12, 1, 64), "tasks", "1 task", "too-little-work")
    assert attention(12, 1, 512).tasks.tasks == 12
    decides(attention(12, 1, 512), "row blocks", "1 row")
    assert attention(100, 16, 32).division.each > 1


@pytest.mark.parametrize(("target", "dtype", "packed"), [
    (AVX512, "f32", (True, False)),
    (AVX2, "f32", (True, False)),
    (AVX512, "bf16", (True, True)),
    (AMX, "bf16", (True, True)),
])  # fmt: skip
def test_what_is_packed(target: Target, dtype: str, packed: tuple[bool, bool]) -> None:
    found = attention(12, 256, 256, target=target, dtype=dtype)
    assert packs(found) == packed
    assert [n.value.endswith("packed once per task") for n in found.notes if n.what == "stage"][::2] == [*packed]


def test_rows_without_masks_are_packed() -> None:
    assert packs(attention(12, 256, 256, depth=60)) == (True, False)
    assert packs(attention(12, 256, 256, depth=60, target=AVX2)) == (True, True)
    assert packs(attention(12, 256, 256, depth=512)) == (True, True)


def test_weights_take_the_memory_of_scores_of_their_size() -> None:
    same, half = attention(12, 256, 256), attention(12, 256, 256, dtype="bf16")
    assert taken(same) == [True]
    assert taken(half) == [False]
    assert any(n.value == "row, over its operands" for n in same.notes)


def test_rows_begin_at_lines_and_do_not_fall_together() -> None:
    for n in (100, 197, 512, 1000, 1024):
        for width in buffers(attention(12, 256, n)):
            assert n <= width <= n + 31
            assert width % 16 == 0
            assert (width * 4) % 2048


def test_memory_does_not_grow_with_the_scores() -> None:
    one, many = attention(8, 2048, 256), attention(8, 8192, 256)
    assert one.scratch == many.scratch
    assert one.scratch.fixed == 0


def gradient(batch: int, m: int, n: int, k: int = 64, target: Target = AVX512, dtype: str = "f32") -> RowBlocksSchedule:
    rows, keys = tensor(batch, m, k, dtype=dtype), tensor(batch, n, k, dtype=dtype)
    s, r, p = tensor(batch, m, n), tensor(batch, m), tensor(batch, m, n, dtype=dtype)
    one, other = tensor(batch, m, k), tensor(batch, n, k)
    numbers = "batching_dims = [0] x [0], contracting_dims = [{}] x [{}]"
    lines = [
        f"%s = stablehlo.dot_general %q, %k, {numbers.format(2, 2)} : ({rows}, {keys}) -> {s}",
        f"%g = stablehlo.dot_general %d, %v, {numbers.format(2, 2)} : ({rows}, {keys}) -> {s}",
        "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
        f"%e = stablehlo.exponential %s : {s}",
        f"%w = stablehlo.convert %e : ({s}) -> {p}",
        f"%m = stablehlo.multiply %e, %g : {s}",
        f"%r = stablehlo.reduce(%m init: %zero) applies stablehlo.add across dimensions = [2] : ({s}, tensor<f32>) -> {r}",
        f"%t = stablehlo.broadcast_in_dim %r, dims = [0, 1] : ({r}) -> {s}",
        f"%u = stablehlo.subtract %g, %t : {s}",
        f"%x = stablehlo.multiply %u, %e : {s}",
        f"%ds = stablehlo.convert %x : ({s}) -> {p}",
        f"%dq = stablehlo.dot_general %ds, %k, {numbers.format(2, 1)} : ({p}, {keys}) -> {one}",
        f"%dk = stablehlo.dot_general %ds, %q, {numbers.format(1, 1)} : ({p}, {rows}) -> {other}",
        f"%dv = stablehlo.dot_general %w, %d, {numbers.format(1, 1)} : ({p}, {rows}) -> {other}",
    ]
    parameters, kinds = f"%q: {rows}, %k: {keys}, %v: {keys}, %d: {rows}", f"{one}, {other}, {other}"
    body = "\n".join([*lines, f"return %dq, %dk, %dv : {kinds}"])
    text = f"func.func @main({parameters}) -> ({kinds}) {{\n{body}\n}}"
    found = the_schedule(text, target)
    assert isinstance(found, RowBlocksSchedule)
    return found


def test_blocks_of_sums_are_whole_tiles() -> None:
    for n in (64, 100, 512, 2048):
        found = gradient(8, 3000, n)
        assert found.block % TILE == 0
        assert TILE <= found.block <= max(TILE, tuning.GRADIENT_BLOCK_BYTES // (8 * n) + TILE)
    assert gradient(8, 30, 64).block == 30


def test_a_task_has_all_rows() -> None:
    found = gradient(12, 512, 512)
    assert found.tasks.tasks == 12
    decides(found, "tasks", "12 tasks of 1 product", "task-per-batch")
    assert gradient(2, 16, 16, 16).tasks.tasks == 1


def test_few_batches_are_cut_by_rows() -> None:
    """Cut, so that there are as many tasks as with many batches. Each task has separate sums, except the first of a
    batch."""
    for batch, parts in ((1, 8), (3, 3), (7, 2)):
        found = gradient(batch, 1000, 512)
        assert found.division.parts == parts and found.tasks.tasks == batch * parts
        assert found.division.task_rows % TILE == 0 and (parts - 1) * found.division.task_rows < 1000 <= parts * found.division.task_rows
        assert found.scratch.fixed == 2 * (parts - 1) * batch * 512 * 64 * 4
    decides(gradient(1, 1000, 512), "tasks", "8 tasks of", "few-batches")
    assert gradient(1, 130, 512).division.parts == 2, "packing keys and values has to pay"


def test_results_of_the_gradient_take_the_memory_of_scores() -> None:
    same, half = gradient(8, 256, 256), gradient(8, 256, 256, dtype="bf16")
    assert taken(same) == [True, True]
    assert taken(half) == [False, False]


def test_columns_of_weights_fall_into_all_sets_of_the_cache() -> None:
    for n in (100, 128, 512, 1000):
        for width in buffers(gradient(8, 256, n)):
            assert n <= width <= n + 31
            assert width * 4 // 64 % 2 == 1


def test_memory_does_not_grow_with_the_rows() -> None:
    one, many = gradient(8, 2048, 256), gradient(8, 8192, 256)
    assert one.scratch.per_thread <= many.scratch.per_thread * 1.1
    assert one.scratch.fixed == 0
    assert gradient(8, 2048, 256, target=AVX2).scratch.per_thread < 8 << 20
