"""Attention: rows of a block and of a task, packed operands, where weights are stored, and scratch memory."""

from __future__ import annotations

import pytest
from decisions import AMX, AVX2, AVX512, decides, main, note, tensor, the_schedule

from shlo_jit import tuning
from shlo_jit.kernels.gemm.precision import GemmTypes, gemm_plan
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.attention import AttentionSchedule

TILE = gemm_plan(GemmTypes("f32", "f32", "f32"), AVX512).mr


def attention(
    batch: int, m: int, n: int, k: int = 64, depth: int = 64, target: Target = AVX512, dtype: str = "f32"
) -> AttentionSchedule:
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
    assert isinstance(found, AttentionSchedule)
    return found


def test_blocks_are_whole_tiles_that_stay_in_the_cache() -> None:
    for n in (64, 100, 128, 300, 512):
        found = attention(24, 1000, n)
        assert found.block % TILE == 0
        assert TILE <= found.block <= max(TILE, AVX512.bytes_of(tuning.ATTENTION_BLOCK_BYTES) // (4 * n) + TILE)
    assert attention(24, 1000, 4096).block == TILE
    assert attention(24, 30, 64).block == min(30, 3 * TILE)


def test_tasks_are_of_the_same_size_and_not_many() -> None:
    found = attention(12, 512, 512)
    assert found.tasks.tasks == tuning.ATTENTION_TASKS
    assert found.task_rows % TILE == 0
    assert 0 <= 2 * found.task_rows - 512 < 2 * TILE
    assert attention(12, 64, 512).task_rows == 64
    assert attention(100, 512, 512).tasks.tasks == 100


def test_few_features_want_few_rows() -> None:
    """With as few features, packing pays off for twice the rows per task."""
    assert attention(4, 640, 512, 256, 384).task_rows >= 320
    assert attention(4, 640, 512).task_rows < 320
    decides(attention(4, 640, 512, 256, 384), "tasks", "8 tasks", "tasks-by-rows", "320 rows")


def test_little_work_is_one_task() -> None:
    assert attention(12, 1, 64).tasks.is_one
    assert attention(12, 1, 64).each == 12
    decides(attention(12, 1, 64), "tasks", "1 task", "too-little-work")
    assert attention(12, 1, 512).tasks.tasks == 12
    decides(attention(12, 1, 512), "row blocks", "1 row")
    assert attention(100, 16, 32).each > 1


@pytest.mark.parametrize(("target", "dtype", "packed"), [
    (AVX512, "f32", (True, False)),
    (AVX2, "f32", (True, False)),
    (AVX512, "bf16", (True, True)),
    (AMX, "bf16", (True, True)),
])  # fmt: skip
def test_what_is_packed(target: Target, dtype: str, packed: tuple[bool, bool]) -> None:
    found = attention(12, 256, 256, target=target, dtype=dtype)
    assert found.packed == packed
    assert note(found, "row blocks").value.count("packed") == sum(packed)


def test_rows_without_masks_are_packed() -> None:
    assert attention(12, 256, 256, depth=60).packed == (True, False)
    assert attention(12, 256, 256, depth=60, target=AVX2).packed == (True, True)
    assert attention(12, 256, 256, depth=512).packed == (True, True)


def test_weights_take_the_memory_of_scores_of_their_size() -> None:
    same, half = attention(12, 256, 256), attention(12, 256, 256, dtype="bf16")
    assert same.in_place
    assert not half.in_place
    decides(same, "weights", "overwrite")


def test_rows_begin_at_lines_and_do_not_fall_together() -> None:
    for n in (100, 197, 512, 1000, 1024):
        width = attention(12, 256, n).scores.tensor.extents[1]
        assert n <= width <= n + 31
        assert width % 16 == 0
        assert (width * 4) % 2048


def test_memory_does_not_grow_with_the_scores() -> None:
    one, many = attention(8, 2048, 256), attention(8, 8192, 256)
    assert one.scratch == many.scratch
    assert one.scratch.fixed == 0
