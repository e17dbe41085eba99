"""Products whose decisions are given: any decisions that the routine accepts compute the product, in the memory that
they are said to need, with the bits that depend on the passes over k alone."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from random_runs import seeds
from test_gemm import CASES, EXTENTS, any_layout, check, product

from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.gemm import given
from shlo_jit.kernels.gemm.gemm import GemmStrategy, GemmTypes
from shlo_jit.kernels.gemm.known_sizes import Layout, blocking_of, extents_of, is_phased, skinny_blocking
from shlo_jit.kernels.gemm.policy import IN_PLACE, PREPACKED, PRIVATE, SHARED, Blocking, Extents
from shlo_jit.kernels.gemm.precision import GemmPlan, gemm_plan
from shlo_jit.kernels.target import Target

MASKED = replace(resolve("native"), has_masks=True)
"""This machine with masked loads and stores, which LLVM has for any machine: skinny tiles need them."""
MODES = (IN_PLACE, SHARED, PRIVATE)


def shape_of(plan: GemmPlan, a: np.ndarray, b: np.ndarray, prepacked: bool) -> Extents:
    (ab, ar, ac), (bb, br, bc) = ([s // x.itemsize for s in x.strides] for x in (a, b))
    (batch, m, k), n = a.shape, b.shape[2]
    return extents_of(plan, batch, m, n, k, Layout(ar, ac, ab, br, bc, bb), prepacked)


def random_blocking(rng: random.Random, plan: GemmPlan, s: Extents) -> Blocking:
    """Decisions that the routine of tiles accepts."""
    of_a = [mode for mode in MODES if given.against_mode_of_a(plan, s, mode) is None]
    of_b = [PREPACKED] if s.prepacked else [m for m in MODES if given.against_mode_of_b(plan, s, m) is None]
    found = Blocking(rng.choice(of_a), rng.choice(of_b), _part(rng, s.k, plan.k_unit), 0, 0, 1)
    found = found._replace(kc=-(-min(found.kc, plan.prepacked_kc) // plan.k_unit) * plan.k_unit)
    found = found._replace(mc=_part(rng, s.m, plan.mr), nc=_part(rng, s.n, plan.nr))
    found = found._replace(group=1 if is_phased(found) else rng.randint(1, s.batch))
    refusals = [against(plan, s, part) for against, part in (
        (given.against_pass, found.kc), (given.against_rows, found.mc), (given.against_columns, found.nc)
    )]  # fmt: skip
    assert not any([*refusals, given.against_group(s, found)])
    return found


def _part(rng: random.Random, whole: int, unit: int) -> int:
    """A multiple of the unit, or the whole."""
    part = unit * rng.randint(1, max(1, whole // unit))
    return part if part < whole and rng.random() < 0.8 else whole


def run(names: tuple[str, str, str], seed: int, target: Target) -> None:
    types, rng, made = GemmTypes(*names), random.Random(seed), np.random.default_rng(seed)
    plan = gemm_plan(types, target)
    batch, m, n = rng.choice((1, 1, 2, 5)), rng.choice(EXTENTS), rng.choice(EXTENTS)
    k, prepacked = rng.choice((*EXTENTS, 400, 1100)), rng.random() < 0.3
    a, b = any_layout(made, types.a, (batch, m, k)), any_layout(made, types.b, (batch, k, n))
    s = shape_of(plan, a, b, prepacked)
    d = random_blocking(rng, plan, s)
    cover = np.zeros((batch, m, n), np.int64)
    c = product(types, a, b, target, 3, cover, int(made.integers(0, 3)), prepacked, way=GemmStrategy.TILES, given=d)
    check(types, a, b, c)
    assert (cover == 1).all()
    one = product(types, a, b, target, 1, prepacked=prepacked, way=GemmStrategy.TILES, given=d)
    assert one.tobytes() == c.tobytes(), "other bits with one thread"
    own = blocking_of(plan, s)._replace(kc=d.kc)
    same = product(types, a, b, target, 2, prepacked=prepacked, way=GemmStrategy.TILES, given=own)
    assert same.tobytes() == c.tobytes(), "other bits with the same passes"


@pytest.mark.parametrize("names", CASES, ids="-".join)
@pytest.mark.sampled(4)
def test_random_decisions(names: tuple[str, str, str]) -> None:
    for seed in range(12):
        run(names, seed, resolve("native"))


def test_random_decisions_with_masks() -> None:
    for seed in range(12):
        run(("f32", "f32", "f32"), seed, MASKED)


@pytest.mark.slow
@pytest.mark.parametrize("names", CASES, ids="-".join)
def test_many_random_decisions(names: tuple[str, str, str]) -> None:
    for seed in seeds(300):
        for target in (resolve("native"), MASKED):
            run(names, seed, target)


SKINNY = [("f32", "f32", "f32"), ("f64", "f64", "f64"), ("i32", "i32", "i32")]


@pytest.mark.parametrize("names", SKINNY, ids="-".join)
def test_skinny_tiles_take_any_shape(names: tuple[str, str, str]) -> None:
    """They have the bits of tiles with the same passes over k."""
    types, plan = GemmTypes(*names), gemm_plan(GemmTypes(*names), MASKED)
    for seed in range(25):
        rng, made = random.Random(seed), np.random.default_rng(seed)
        batch, m, n = rng.choice((1, 1, 3)), rng.choice((1, 2, 3, 6, 7, 8, 13, 20, 49)), rng.choice((*EXTENTS, 300, 1000))
        k = rng.choice((*EXTENTS, 400, 1100))
        a = any_layout(made, types.a, (batch, m, k))
        b = np.ascontiguousarray(any_layout(made, types.b, (batch, k, n)))
        s = shape_of(plan, a, b, False)
        assert given.against_skinny(plan, s) is None
        d = random_blocking(rng, plan, s)
        d = skinny_blocking(plan, s)._replace(kc=d.kc, nc=d.nc)
        cover = np.zeros((batch, m, n), np.int64)
        c = product(types, a, b, MASKED, 3, cover, int(made.integers(0, 3)), way=GemmStrategy.FEW, given=d)
        check(types, a, b, c)
        assert (cover == 1).all()
        tiles = blocking_of(plan, s)._replace(kc=d.kc)
        assert product(types, a, b, MASKED, 1, way=GemmStrategy.TILES, given=tiles).tobytes() == c.tobytes()
        assert product(types, a, b, MASKED, 1, way=GemmStrategy.FEW, given=d).tobytes() == c.tobytes()


def test_what_the_routine_cannot_do() -> None:
    types = GemmTypes("bf16", "f32", "f32")
    plan = gemm_plan(types, resolve("x86-64-v3"))
    s = extents_of(plan, 4, 30, 33, 50, Layout(50, 1, 1500, 33, 1, 1650))
    found = [
        given.against_mode_of_a(plan, s, IN_PLACE),
        given.against_mode_of_a(plan, s, PREPACKED),
        given.against_mode_of_b(plan, s, IN_PLACE),
        given.against_skinny(plan, s),
        given.against_pass(plan, s, plan.k_unit + 1),
        given.against_pass(plan, s, 56),
        given.against_rows(plan, s, 7),
        given.against_columns(plan, s, 48),
        given.against_group(s, blocking_of(plan, s)._replace(group=5)),
        given.against_group(s, blocking_of(plan, s, SHARED)._replace(group=2)),
    ]
    assert [reason and reason.code for reason in found] == [
        "elements-converted",
        "operand-not-packed-there",
        "rows-not-contiguous",  # without masks, the last of 33 columns is no vector
        "leaf-not-there",
        *["split-out-of-range"] * 4,
        "group-out-of-range",
        "one-product-per-phase",
    ]
