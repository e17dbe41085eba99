"""Calls with more threads than the machine has cores: other tasks, the same bits, and no call that waits forever."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import shlo_jit
from shlo_jit import tuning
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.gemm import many_threads, policy
from shlo_jit.kernels.gemm.precision import GemmTypes, gemm_plan
from shlo_jit.kernels.gemm.staged_numbers import Ints
from shlo_jit.schedule import row_division

COUNTS = (1, 2, 5, 8, 64, 128)


def product(m: int, k: int, n: int) -> tuple[str, tuple[tuple[int, ...], ...]]:
    a, b, c = (f"tensor<{x}x{y}xf32>" for x, y in ((m, k), (k, n), (m, n)))
    text = f"""func.func @main(%a: {a}, %b: {b}) -> {c} {{
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({a}, {b}) -> {c}
      return %0 : {c}
    }}"""
    return text, ((m, k), (k, n))


def convolution(batch: int, side: int, ci: int, co: int, window: int) -> tuple[str, tuple[tuple[int, ...], ...]]:
    pad = window // 2
    x, w, y = (f"tensor<{'x'.join(map(str, s))}xf32>" for s in ((batch, side, side, ci), (window, window, ci, co),
                                                               (batch, side, side, co)))  # fmt: skip
    text = f"""func.func @main(%x: {x}, %w: {w}) -> {y} {{
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{pad = [[{pad}, {pad}], [{pad}, {pad}]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
        : ({x}, {w}) -> {y}
      return %0 : {y}
    }}"""
    return text, ((batch, side, side, ci), (window, window, ci, co))


def attention(heads: int, rows: int, width: int) -> tuple[str, tuple[tuple[int, ...], ...]]:
    q, s, r = (f"tensor<{x}xf32>" for x in (f"{heads}x{rows}x{width}", f"{heads}x{rows}x{rows}", f"{heads}x{rows}"))
    text = f"""func.func @main(%q: {q}, %k: {q}, %v: {q}) -> {q} {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %0 = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : ({q}, {q}) -> {s}
      %1 = stablehlo.reduce(%0 init: %low) applies stablehlo.maximum across dimensions = [2]
        : ({s}, tensor<f32>) -> {r}
      %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : ({r}) -> {s}
      %3 = stablehlo.subtract %0, %2 : {s}
      %4 = stablehlo.exponential %3 : {s}
      %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [2] : ({s}, tensor<f32>) -> {r}
      %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1] : ({r}) -> {s}
      %7 = stablehlo.divide %4, %6 : {s}
      %8 = stablehlo.dot_general %7, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({s}, {q}) -> {q}
      return %8 : {q}
    }}"""
    return text, ((heads, rows, width),) * 3


PROGRAMS = {
    "product of many rows": product(700, 320, 640),
    "product of few rows": product(40, 512, 1024),
    "product with a vector": product(1, 900, 1500),
    "convolution of lines": convolution(1, 28, 64, 96, 3),
    "convolution of gathered pixels": convolution(2, 7, 160, 192, 3),
    "convolution of single pixels": convolution(2, 21, 128, 96, 1),
    "attention": attention(6, 200, 32),
}


def arrays(shapes: tuple[tuple[int, ...], ...]) -> list[np.ndarray]:
    return [np.random.default_rng(i).standard_normal(s, np.float32) for i, s in enumerate(shapes)]


@pytest.mark.parametrize("is_constant", [False, True], ids=["arguments", "constant"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_any_number_of_threads_gives_the_same_bits(name: str, is_constant: bool) -> None:
    text, shapes = PROGRAMS[name]
    first, *rest = arrays(shapes)
    constants = dict(enumerate(rest, 1)) if is_constant else {}
    given = (first,) if is_constant else (first, *rest)
    expected = None
    for threads in COUNTS:
        found = np.asarray(shlo_jit.compile(text, threads=threads, constants=constants)(*given)).view(np.uint32)
        expected = found.copy() if expected is None else expected
        np.testing.assert_array_equal(found, expected, f"{threads} threads")


def test_eight_threads_on_few_cores_are_right_and_end() -> None:
    """Several callers at once, each with eight threads; the machine may have two cores."""
    text, shapes = PROGRAMS["convolution of lines"]
    given = arrays(shapes)
    expected = np.asarray(shlo_jit.compile(text, threads=1)(*given)).copy()
    executable = shlo_jit.compile(text, threads=8)
    wrong: list[int] = []

    def call(number: int) -> None:
        for i in range(40):
            if not np.array_equal(executable(*given), expected):
                wrong.append(40 * number + i)

    callers = [threading.Thread(target=call, args=(i,), daemon=True) for i in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=120)
    assert not any(caller.is_alive() for caller in callers), "a call did not end"
    assert not wrong


@pytest.mark.parametrize("extents", [(1, 700, 640, 320), (1, 40, 1024, 512), (16, 197, 197, 64), (1, 1024, 768, 3072)])
@pytest.mark.parametrize("prepacked", [0, 1])
def test_products_have_tasks_for_many_threads(extents: tuple[int, int, int, int], prepacked: int) -> None:
    """The rectangles for many threads cover the product, and are as many as asked for, or small."""
    batch, m, n, k = extents
    plan, a = gemm_plan(GemmTypes("f32", "f32", "f32"), resolve()), Ints()
    s = policy.Extents(batch, m, n, k, 4 * k, 4, 4, 4 * n, bool(prepacked))
    work = m * n * k
    modes = policy.packing(a, plan, s, work)
    cut = policy.cut(a, plan, s, modes, work)
    for threads in (8, 64, 1000):
        found = many_threads.spread(a, plan, s, modes, cut, work, threads)
        assert (found.rows - 1) * found.mc < m <= found.rows * found.mc
        assert (found.columns - 1) * found.nc < n <= found.columns * found.nc
        tasks, before = (policy.task_count(a, c, batch) for c in (found, cut))
        assert tasks >= before
        rounds = -(-tasks // threads)
        is_even = rounds * threads * (tuning.UNEVEN_TASKS - 1) <= tasks * tuning.UNEVEN_TASKS
        is_enough = tasks >= 2 * threads and is_even
        is_small = work * (1 if cut.phased else batch) / tasks < 2 * 2 * tuning.LEAST_TASK_OF_MANY
        is_narrow = modes[0] == policy.PRIVATE and found.nc <= plan.nr
        assert is_enough or is_small or is_narrow


@pytest.mark.parametrize("m, n", [(1024, 768), (1000, 500), (30, 2000), (2000, 30)])
def test_rectangles_for_many_threads_have_equal_sizes(m: int, n: int) -> None:
    plan, a = gemm_plan(GemmTypes("f32", "f32", "f32"), resolve()), Ints()
    s = policy.Extents(1, m, n, 3072, 4 * 3072, 4, 4, 4 * n, False)
    modes = policy.packing(a, plan, s, m * n * 3072)
    cut = policy.cut(a, plan, s, modes, m * n * 3072)
    found = many_threads.spread(a, plan, s, modes, cut, m * n * 3072, 16)
    assert found.columns * found.nc - n < found.columns * plan.nr
    assert found.rows * found.mc - m < found.rows * plan.mr


def test_blocks_with_ranges_of_keys_do_not_depend_on_tasks() -> None:
    """Tasks for many threads begin at blocks of the division for few."""
    cut = row_division._Cut(258, 1, 2, row_division.Tasks(24, 24, None, 1))

    class Step:
        rows, batch, ranges, sums = 512, 12, object(), ()

    whole = row_division._whole_blocks(Step, cut, 18)
    assert whole.task_rows % 18 == 0 and whole.parts * whole.task_rows >= 512
    finer = row_division._finer(Step, whole, 6, 18)
    assert finer is not None and finer.tile == 18
