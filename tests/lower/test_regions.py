"""Parallel regions: steps that do not depend on each other run at the same time, with the bits that they have alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import shlo_jit
from shlo_jit import tuning
from shlo_jit.fuse.plan import ControlStep, PlanBlock
from shlo_jit.schedule import schedule as scheduling
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.regions import NO_REGIONS, Regions, find_regions
from tests import guarded
from tests.printed_codes import codes
from tests.random_check import check, compared_closely
from tests.random_programs import random_program

THREADS = (1, 2, 3, 8)
DOT = "contracting_dims = [1] x [0] : (tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) -> tensor<{m}x{n}xf32>"


def dot(m: int, k: int, n: int) -> str:
    return DOT.format(m=m, k=k, n=n)


def projections(m: int) -> str:
    """Three products of one operand, one of which has an epilogue."""
    return f"""func.func @main(%x: tensor<{m}x300xf32>, %q: tensor<300x192xf32>, %k: tensor<300x200xf32>,
    %v: tensor<300x130xf32>) -> (tensor<{m}x192xf32>, tensor<{m}x200xf32>, tensor<{m}x130xf32>) {{
  %0 = stablehlo.dot_general %x, %q, {dot(m, 300, 192)}
  %1 = stablehlo.dot_general %x, %k, {dot(m, 300, 200)}
  %2 = stablehlo.dot_general %x, %v, {dot(m, 300, 130)}
  %3 = stablehlo.tanh %1 : tensor<{m}x200xf32>
  return %0, %3, %2 : tensor<{m}x192xf32>, tensor<{m}x200xf32>, tensor<{m}x130xf32>
}}"""


ROTATED = """func.func @main(%x: tensor<1x300xf32>, %q: tensor<300x192xf32>, %k: tensor<300x200xf32>,
    %v: tensor<300x130xf32>) -> (tensor<192xf32>, tensor<200xf32>, tensor<1x130xf32>) {
  %0 = stablehlo.dot_general %x, %q, """ + f"""{dot(1, 300, 192)}
  %r0 = stablehlo.reshape %0 : (tensor<1x192xf32>) -> tensor<192xf32>
  %s0 = stablehlo.reverse %r0, dims = [0] : tensor<192xf32>
  %t0 = stablehlo.subtract %r0, %s0 : tensor<192xf32>
  %1 = stablehlo.dot_general %x, %k, {dot(1, 300, 200)}
  %r1 = stablehlo.reshape %1 : (tensor<1x200xf32>) -> tensor<200xf32>
  %s1 = stablehlo.reverse %r1, dims = [0] : tensor<200xf32>
  %t1 = stablehlo.subtract %r1, %s1 : tensor<200xf32>
  %2 = stablehlo.dot_general %x, %v, {dot(1, 300, 130)}
  return %t0, %t1, %2 : tensor<192xf32>, tensor<200xf32>, tensor<1x130xf32>
}}"""
"""Loops that no product's tiles can finish follow the first two products."""

BRANCHES = """func.func @main(%x: tensor<1x30x28x16xf32>, %w: tensor<3x3x16x32xf32>, %u: tensor<5x5x16x24xf32>)
    -> (tensor<1x30x28x32xf32>, tensor<1x26x24x24xf32>, tensor<16xf32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x30x28x16xf32>, tensor<3x3x16x32xf32>) -> tensor<1x30x28x32xf32>
  %1 = stablehlo.convolution(%x, %u) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x30x28x16xf32>, tensor<5x5x16x24xf32>) -> tensor<1x26x24x24xf32>
  %e = stablehlo.exponential %x : tensor<1x30x28x16xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %2 = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [0, 1, 2]
    : (tensor<1x30x28x16xf32>, tensor<f32>) -> tensor<16xf32>
  return %0, %1, %2 : tensor<1x30x28x32xf32>, tensor<1x26x24x24xf32>, tensor<16xf32>
}"""

NARROWED = """func.func @main(%x: tensor<64x300xf32>, %q: tensor<300x192xf32>, %y: tensor<200x300xf32>, %z: tensor<300x64xf32>)
    -> (tensor<64x192xf16>, tensor<200x64xf32>) {
  %0 = stablehlo.dot_general %x, %q, contracting_dims = [1] x [0]
    : (tensor<64x300xf32>, tensor<300x192xf32>) -> tensor<64x192xf32>
  %1 = stablehlo.convert %0 : (tensor<64x192xf32>) -> tensor<64x192xf16>
  %2 = stablehlo.tanh %y : tensor<200x300xf32>
  %3 = stablehlo.dot_general %2, %z, contracting_dims = [1] x [0]
    : (tensor<200x300xf32>, tensor<300x64xf32>) -> tensor<200x64xf32>
  return %1, %3 : tensor<64x192xf16>, tensor<200x64xf32>
}"""

OVERWRITTEN = """func.func @main(%x: tensor<400x400xf32>, %y: tensor<400x400xf32>)
    -> (tensor<400x400xf32>, tensor<400xf32>) {
  %p = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
    : (tensor<400x400xf32>, tensor<400x400xf32>) -> tensor<400x400xf32>
  %s = stablehlo.sort %p : tensor<400x400xf32>
  %m = stablehlo.dot_general %s, %y, contracting_dims = [1] x [0]
    : (tensor<400x400xf32>, tensor<400x400xf32>) -> tensor<400x400xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [0]
    : (tensor<400x400xf32>, tensor<f32>) -> tensor<400xf32>
  %t = stablehlo.exponential %s : tensor<400x400xf32>
  %o = stablehlo.dot_general %t, %m, contracting_dims = [1] x [0]
    : (tensor<400x400xf32>, tensor<400x400xf32>) -> tensor<400x400xf32>
  return %o, %r : tensor<400x400xf32>, tensor<400xf32>
}""".replace(
    "%s = stablehlo.sort %p : tensor<400x400xf32>",
    """%s = "stablehlo.sort"(%p) <{dimension = 1 : i64, is_stable = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<400x400xf32>) -> tensor<400x400xf32>""",
)
"""A sorted matrix is read by three steps, the last of which could overwrite it."""

LOOP = """func.func @main(%x: tensor<300x300xf32>, %w: tensor<300x300xf32>) -> (tensor<300x300xf32>, tensor<300x300xf32>) {
  %n = stablehlo.constant dense<3> : tensor<i32>
  %i = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %f = stablehlo.constant dense<0.03> : tensor<300x300xf32>
  %r:3 = stablehlo.while(%k = %i, %a = %x, %b = %x) : tensor<i32>, tensor<300x300xf32>, tensor<300x300xf32>
  cond {
    %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %k1 = stablehlo.add %k, %one : tensor<i32>
    %p = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
      : (tensor<300x300xf32>, tensor<300x300xf32>) -> tensor<300x300xf32>
    %a1 = stablehlo.multiply %p, %f : tensor<300x300xf32>
    %b1 = stablehlo.multiply %b, %f : tensor<300x300xf32>
    %q = stablehlo.dot_general %b1, %a, contracting_dims = [1] x [1]
      : (tensor<300x300xf32>, tensor<300x300xf32>) -> tensor<300x300xf32>
    stablehlo.return %k1, %a1, %q : tensor<i32>, tensor<300x300xf32>, tensor<300x300xf32>
  }
  return %r#1, %r#2 : tensor<300x300xf32>, tensor<300x300xf32>
}"""
"""Both products of an iteration read one state, which the first replaces."""



def tables(count: int) -> str:
    """Rows of tables side by side, as in models that recommend: no loop has the work of several tasks."""
    given = ", ".join(f"%t{i}: tensor<{30 + i}x64xf32>, %i{i}: tensor<100xi32>" for i in range(count))
    found = "\n".join(
        f"""  %e{i} = stablehlo.reshape %i{i} : (tensor<100xi32>) -> tensor<100x1xi32>
  %r{i} = "stablehlo.gather"(%t{i}, %e{i}) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 64>,
    indices_are_sorted = false}}> : (tensor<{30 + i}x64xf32>, tensor<100x1xi32>) -> tensor<100x64xf32>"""
        for i in range(count)
    )
    rows = ", ".join(f"%r{i}" for i in range(count))
    types = ", ".join(["tensor<100x64xf32>"] * count)
    return f"""func.func @main({given}) -> tensor<100x{64 * count}xf32> {{
{found}
  %all = stablehlo.concatenate {rows}, dim = 1 : ({types}) -> tensor<100x{64 * count}xf32>
  return %all : tensor<100x{64 * count}xf32>
}}"""


PROGRAMS = {
    "tables": tables(23),
    "one row": projections(1),
    "few rows": projections(5),
    "rows": projections(70),
    "many rows": projections(900),
    "rotated": ROTATED,
    "branches": BRANCHES,
    "overwritten": OVERWRITTEN,
    "loop": LOOP,
    "narrowed": NARROWED,
}


def arrays_of(text: str) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    found = shlo_jit.compile(text, cache=False)
    return [rng.standard_normal([int(n or 0) for n in port.shape or ()]).astype(port.dtype) for port in found.inputs]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with monkeypatch.context() as patch:
        patch.setattr(scheduling, "find_regions", lambda *_: NO_REGIONS)
        yield patch


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_that_run_together_have_the_bits_that_they_have_alone(name: str, alone: pytest.MonkeyPatch) -> None:
    text = PROGRAMS[name]
    arrays = arrays_of(text)
    wanted = shlo_jit.compile(text, threads=1, cache=False)(*arrays)
    alone.undo()
    for threads, apart in [*((n, None) for n in THREADS), (3, True), (2, False)]:
        run = guarded.compile(text, threads=threads, apart=apart)
        assert "independent-steps" in codes(run.text("schedule"))
        for got, want in zip(run(*arrays), wanted, strict=True):
            np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


def test_products_run_before_small_loops_that_they_do_not_depend_on() -> None:
    """All three share a region. A product that reads such a loop's result stays after it."""
    assert codes(shlo_jit.compile(ROTATED, cache=False).text("schedule")).count("independent-steps") == 3
    text = ROTATED.replace("192", "292").replace("%x, %v", "%y, %v").replace(
        "  %2 =",
        """  %s = stablehlo.slice %t1 [0:100] : (tensor<200xf32>) -> tensor<100xf32>
  %c = stablehlo.concatenate %s, %s, %s, dim = 0
    : (tensor<100xf32>, tensor<100xf32>, tensor<100xf32>) -> tensor<300xf32>
  %y = stablehlo.reshape %c : (tensor<300xf32>) -> tensor<1x300xf32>
  %2 =""",
    )
    arrays = arrays_of(text)
    run = guarded.compile(text, threads=3)
    assert codes(run.text("schedule")).count("independent-steps") == 2
    x, q, k, v = arrays
    t0, t1, last = run(*arrays)
    for got, w in ((t0, q), (t1, k)):
        np.testing.assert_allclose(got, (x @ w)[0] - (x @ w)[0, ::-1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(last[0], np.tile(t1[:100], 3) @ v, rtol=1e-4, atol=1e-3)


def test_a_step_does_not_share_a_region_with_one_that_it_depends_on() -> None:
    text = f"""func.func @main(%x: tensor<90x300xf32>, %q: tensor<300x300xf32>) -> tensor<90x300xf32> {{
      %0 = stablehlo.dot_general %x, %q, {dot(90, 300, 300)}
      %1 = stablehlo.dot_general %0, %q, {dot(90, 300, 300)}
      return %1 : tensor<90x300xf32>
    }}"""
    assert "independent-steps" not in codes(shlo_jit.compile(text, cache=False).text("schedule"))


@pytest.mark.parametrize("block", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 12))])
def test_random_programs_whose_independent_steps_all_run_together(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TASK_WORK", "REGION_TASK_WORK", "PARALLEL_WORK"):
        monkeypatch.setattr(tuning, name, 1)
    shared: list[int] = []

    def counted(
        plan: PlanBlock, steps: Mapping[int, KernelSchedule], is_tiled: Callable[[ControlStep], bool]
    ) -> Regions:
        found = find_regions(plan, steps, is_tiled)
        shared.append(len(found.all))
        return found

    monkeypatch.setattr(scheduling, "find_regions", counted)
    with compared_closely(0.9) as closely:
        for seed in range(block * 16, block * 16 + 16):
            program = random_program(seed + 31 * 10**6, 6 + seed % 14)
            closely.append(check(*program, donate=(0, 2) if seed % 4 == 1 else ()))
    assert sum(shared) >= 10


def test_a_region_has_a_limited_number_of_steps() -> None:
    count = 3 * tuning.REGION_STEPS
    sums = "\n".join(
        f"  %{i} = stablehlo.dot_general %x, %y{i}, contracting_dims = [1] x [0]"
        " : (tensor<64x64xf32>, tensor<64x96xf32>) -> tensor<64x96xf32>"
        for i in range(count)
    )
    names, types = ", ".join(f"%{i}" for i in range(count)), ", ".join(["tensor<64x96xf32>"] * count)
    given = ", ".join(f"%y{i}: tensor<64x96xf32>" for i in range(count))
    text = f"""func.func @main(%x: tensor<64x64xf32>, {given}) -> ({types}) {{
{sums}
  return {names} : {types}
}}"""
    rng = np.random.default_rng(3)
    x, *ys = (rng.standard_normal(s).astype(np.float32) for s in ((64, 64), *[(64, 96)] * count))
    run = guarded.compile(text, threads=3)
    assert codes(run.text("schedule")).count("independent-steps") == count
    for got, y in zip(run(x, *ys), ys, strict=True):
        np.testing.assert_allclose(got, x @ y, rtol=1e-4, atol=1e-4)


def test_more_threads_than_cores_and_several_callers() -> None:
    """A caller that finds the pool in use runs all tasks of a region itself."""
    text = PROGRAMS["rows"]
    arrays = arrays_of(text)
    run = shlo_jit.compile(text, threads=8)
    wanted = [x.tobytes() for x in run(*arrays)]

    def calls(_: int) -> bool:
        return all([x.tobytes() for x in run(*arrays)] == wanted for _ in range(50))

    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(calls, range(4)))
