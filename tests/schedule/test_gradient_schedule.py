"""The gradient of attention: rows of a block, where weights are stored, and scratch memory."""

from __future__ import annotations

from decisions import AVX2, AVX512, decides, tensor, the_schedule

from shlo_jit import tuning
from shlo_jit.kernels.gemm.precision import GemmTypes, gemm_plan
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.attention_gradient import GradientSchedule

TILE = gemm_plan(GemmTypes("f32", "f32", "f32"), AVX512).mr


def gradient(batch: int, m: int, n: int, k: int = 64, target: Target = AVX512, dtype: str = "f32") -> GradientSchedule:
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
    assert isinstance(found, GradientSchedule)
    return found


def test_blocks_are_whole_tiles() -> None:
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
        assert found.row_parts == parts and found.tasks.tasks == batch * parts
        assert found.task_rows % TILE == 0 and (parts - 1) * found.task_rows < 1000 <= parts * found.task_rows
        assert found.scratch.fixed == 2 * (parts - 1) * batch * 512 * 64 * 4
    decides(gradient(1, 1000, 512), "tasks", "8 tasks of", "few-batches")
    assert gradient(1, 130, 512).row_parts == 2, "packing keys and values has to pay"


def test_weights_take_the_memory_of_scores_of_their_size() -> None:
    same, half = gradient(8, 256, 256), gradient(8, 256, 256, dtype="bf16")
    assert sorted(home is not None for home in same.homes) == [True, True]
    assert half.homes == (None, None)


def test_columns_of_weights_fall_into_all_sets_of_the_cache() -> None:
    for n in (100, 128, 512, 1000):
        for value in gradient(8, 256, n).scores:
            assert n <= value.tensor.extents[1] <= n + 31
            assert value.tensor.extents[1] * 4 // 64 % 2 == 1


def test_memory_does_not_grow_with_the_rows() -> None:
    one, many = gradient(8, 2048, 256), gradient(8, 8192, 256)
    assert one.scratch.per_thread <= many.scratch.per_thread * 1.1
    assert one.scratch.fixed == 0
    assert gradient(8, 2048, 256, target=AVX2).scratch.per_thread < 8 << 20
