"""Tests of matrix products against numpy in f64 (or exact integers), over layouts, shapes, types and targets."""

from __future__ import annotations

import ctypes
import itertools
import random
import re

import guarded
import ml_dtypes
import numpy as np
import pytest
from loader import Loaded, assembly, load

from shlo_jit import tuning
from shlo_jit.codegen.target import check_runs_here, resolve
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.gemm.forms import Form
from shlo_jit.kernels.gemm.gemm import GemmStrategy, GemmTypes, gemm_routine, gemm_symbol, scratch_bytes, tile_routine
from shlo_jit.kernels.gemm.given import given_scratch_bytes
from shlo_jit.kernels.gemm.known_sizes import Layout, extents_of
from shlo_jit.kernels.gemm.panels import (
    block_bytes,
    block_routine,
    block_symbol,
    panels_bytes,
    panels_symbol,
    reads_in_place,
)
from shlo_jit.kernels.gemm.policy import (
    PREPACKED,
    PRIVATE,
    SHARED,
    Blocking,
    has_skinny_path,
    has_vector_path,
    mode_of_a,
)
from shlo_jit.kernels.gemm.precision import gemm_plan, itemsize
from shlo_jit.kernels.gemm.prepacked import prepack, prepacked_bytes
from shlo_jit.kernels.gemm.prepacking import SPARE, prepack_routine, prepack_symbol
from shlo_jit.kernels.gemm.staged_numbers import Ints
from shlo_jit.kernels.gemm.strategy import strategy_of
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target

NUMPY = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "complex<f32>": np.complex64,
    "complex<f64>": np.complex128,
    **{f"i{b}": getattr(np, f"int{b}") for b in (8, 16, 32, 64)},
    **{f"ui{b}": getattr(np, f"uint{b}") for b in (8, 16, 32, 64)},
}
TOLERANCE = {"f32": 3e-6, "f64": 1e-14, "complex<f32>": 3e-6, "complex<f64>": 1e-14}
EPILOGUE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 5)
SIGNATURE = "piiipiiiipiiiiiiippppipi"

CASES = [
    ("f32", "f32", "f32"),
    ("f64", "f64", "f64"),
    ("f16", "f16", "f32"),
    ("bf16", "bf16", "f32"),
    ("bf16", "f32", "f32"),
    ("i8", "i8", "i32"),
    ("ui8", "i8", "i32"),
    ("i8", "ui8", "i32"),
    ("ui8", "ui8", "i32"),
    ("i8", "i8", "i8"),
    ("i16", "i16", "i16"),
    ("i32", "i32", "i32"),
    ("ui32", "ui32", "ui32"),
    ("i64", "i64", "i64"),
    ("i16", "i16", "i32"),
    ("complex<f32>", "complex<f32>", "complex<f32>"),
    ("complex<f64>", "complex<f64>", "complex<f64>"),
]


def values(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    t = np.dtype(NUMPY[dtype])
    if t.kind in "iu":
        info = np.iinfo(t)
        return rng.integers(info.min, info.max, shape, dtype=t, endpoint=True)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape)).astype(t) if t.kind == "c" else x.astype(t)


def any_layout(rng: np.random.Generator, dtype: str, shape: tuple[int, int, int]) -> np.ndarray:
    """Returns an array with random strides: axes permuted, padded, strided, reversed or broadcast."""
    order = [int(x) for x in rng.permutation(3)]
    steps = [int(rng.choice([1, 1, 1, 2])) for _ in range(3)]
    full = [shape[a] * s + int(rng.integers(0, 3)) for a, s in zip(order, steps, strict=True)]
    x = values(rng, dtype, tuple(full))
    x = x[tuple(slice(0, shape[a] * s, s) for a, s in zip(order, steps, strict=True))]
    x = x.transpose(np.argsort(order))
    if rng.random() < 0.1:
        x = x[:, ::-1]
    if rng.random() < 0.1 and shape[0]:
        x = np.broadcast_to(x[:1], shape)
    return x


def product(
    types: GemmTypes,
    a: np.ndarray,
    b: np.ndarray,
    target: str | Target = "native",
    threads: int = 1,
    cover: np.ndarray | None = None,
    ld: int = 0,
    prepacked: bool = False,
    at_run_time: bool = False,
    way: GemmStrategy = GemmStrategy.ANY,
    cut: int = 0,
    given: Blocking | None = None,
) -> np.ndarray:
    """Returns C, computed by the routine. `cover` counts, per element of C, how often the epilogue was notified of it.
    `cut`: the number of steps of k that a separate call computes before. `given`: the decisions, if the routine does
    not make them."""
    t = resolve(target) if isinstance(target, str) else target
    way = GemmStrategy.TILES if prepacked else way
    form = Form.USUAL if given is None else Form.GIVEN
    routine = gemm_routine(types.a, types.b, types.acc, t, way, form)
    arguments = tuple(map(int, given or ()))
    f = load(routine, t).function(gemm_symbol(types, way, form), SIGNATURE + "i" * len(arguments))
    (batch, m, k), n = a.shape, b.shape[2]
    at_end = (m + n + k) % 2 == 0
    a, b = guarded.relaid(a, at_end), guarded.relaid(b, at_end)
    c = np.zeros((batch, m, n + ld), NUMPY[types.acc])
    c.view(np.uint8)[:] = 0xA5
    c = guarded.guarded(c, at_end)
    before = c[:, :, n:].copy()
    size = scratch_bytes(types, t, batch, m, n, k, threads, prepacked)
    if given is not None:
        shape = extents_of(gemm_plan(types, t), batch, m, n, k, Layout(0, 0, 0, 0, 0, 0), prepacked)
        size = given_scratch_bytes(gemm_plan(types, t), shape, given, threads)
    scratch = guarded.scratch(size)

    def notify(_: int, at: int, i0: int, i1: int, j0: int, j1: int) -> None:
        assert cover is not None
        assert 0 <= i0 < i1 <= m and 0 <= j0 < j1 <= n
        cover[at, i0:i1, j0:j1] += 1

    epilogue = EPILOGUE(notify) if cover is not None else None
    strides = [[s // x.itemsize for s in x.strides] for x in (a, b, c)]
    (ab, ar, ac), (bb, br, bc), (cb, cr, _) = strides
    if prepacked:
        plan = gemm_plan(types, t)
        itemsize, kc = b.itemsize, None if given is None else int(given.kc)
        b = panels_of(types, t, b) if at_run_time else guarded.relaid(prepack(plan, b, kc=kc), True)
        br, bc, bb = 77, 77, prepacked_bytes(plan, n, k, kc) // itemsize  # the first two are not used
    pointer = ctypes.cast(epilogue, ctypes.c_void_p).value if epilogue else None
    for k0, k1 in ((0, cut), (cut, k)) if cut else ((0, k),):
        left, right = a[:, :, k0:], b if prepacked else b[:, k0:]
        f(
            *(left.ctypes.data, ar, ac, ab, right.ctypes.data, br, bc, bb, int(prepacked), c.ctypes.data, cr, cb),
            *(batch, m, n, k1 - k0, k0, scratch.ctypes.data, pointer if k1 == k else None, None, None, 0, None, threads),
            *arguments,
        )
    assert (scratch[size:] == guarded.UNWRITTEN).all(), "wrote beyond scratch_bytes"
    assert (c[:, :, n:].view(np.uint8) == before.view(np.uint8)).all(), "wrote beyond a row of C"
    return c[:, :, :n]


def panels_of(types: GemmTypes, t: Target, b: np.ndarray) -> np.ndarray:
    """Returns the panels that `prepack` makes of `b`, packed by machine code."""
    batch, k, n = b.shape
    size = batch * prepacked_bytes(gemm_plan(types, t), n, k) + SPARE
    panels = guarded.scratch(size)
    bb, br, bc = (s // b.itemsize for s in b.strides)
    load(prepack_routine(types, t), t).function(prepack_symbol(types), "piiiiiip")(
        b.ctypes.data, br, bc, bb, batch, n, k, panels.ctypes.data
    )
    assert (panels[size:] == guarded.UNWRITTEN).all(), "wrote beyond the panels"
    return panels


def check(types: GemmTypes, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    wide = np.dtype(NUMPY[types.acc])
    if wide.kind in "iu":
        exact = np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(wide)
        np.testing.assert_array_equal(c, exact)
        return
    big = np.complex128 if wide.kind == "c" else np.float64
    x, y = a.astype(big), b.astype(big)
    bound = np.matmul(np.abs(x), np.abs(y)) * TOLERANCE[types.acc] + 1e-30
    assert (np.abs(c - np.matmul(x, y)) <= bound).all()


EXTENTS = [1, 1, 2, 3, 5, 7, 13, 14, 16, 17, 31, 32, 33, 47, 64, 65, 97, 130, 200]


def run(
    types: GemmTypes, shape: tuple[int, int, int, int], seed: int, target: str = "native", threads: int = 1
) -> None:
    rng = np.random.default_rng(seed)
    batch, m, n, k = shape
    a, b = any_layout(rng, types.a, (batch, m, k)), any_layout(rng, types.b, (batch, k, n))
    cover = np.zeros((batch, m, n), np.int64)
    c = product(types, a, b, target, threads, cover, ld=int(rng.integers(0, 3)))
    check(types, a, b, c)
    assert (cover == 1).all()


@pytest.mark.parametrize("names", CASES, ids="-".join)
@pytest.mark.sampled(4)
def test_random_shapes(names: tuple[str, str, str]) -> None:
    pick = random.Random(repr(names))
    for seed in range(60):
        shape = (pick.choice([1, 1, 1, 2, 3, 9]), *(pick.choice(EXTENTS) for _ in range(3)))
        run(GemmTypes(*names), shape, seed)


@pytest.mark.parametrize("names", CASES, ids="-".join)
@pytest.mark.parametrize("shape", [(1, 200, 170, 700), (1, 300, 600, 450), (1, 40, 1100, 900), (9, 180, 90, 64)])
@pytest.mark.sampled(5)
def test_packing_modes(names: tuple[str, str, str], shape: tuple[int, int, int, int]) -> None:
    """Tests shared and private packing, several blocks of k, and several chunks of columns."""
    for seed in range(3):
        run(GemmTypes(*names), shape, seed, threads=3)


def runs_here(target: str) -> bool:
    try:
        check_runs_here(resolve(target))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("target", [t for t in ("native", "x86-64-v4", "x86-64-v3") if runs_here(t)])
@pytest.mark.parametrize("names", CASES, ids="-".join)
@pytest.mark.sampled(4)
def test_prepacked_operands(names: tuple[str, str, str], target: str) -> None:
    """Prepacked panels give the same bits as panels packed in the call, if both take one pass."""
    types = GemmTypes(*names)
    shapes = [
        (1, 5, 37, 29),
        (2, 40, 70, 13),
        (1, 33, 100, 700),
        (1, 170, 530, 90),
        (3, 14, 31, 450),
        (1, 600, 540, 340),
        (1, 20, 33, 2300),
        (1, 530, 40, 1100),
        (1, 7, 64, 1500),
    ]
    for seed, (batch, m, n, k) in enumerate(shapes):
        rng = np.random.default_rng(seed)
        a, b = any_layout(rng, types.a, (batch, m, k)), any_layout(rng, types.b, (batch, k, n))
        cover = np.zeros((batch, m, n), np.int64)
        c = product(types, a, b, target, 3, cover, ld=int(rng.integers(0, 3)), prepacked=True)
        assert (cover == 1).all()
        check(types, a, b, c)
        assert c.tobytes() == product(types, a, b, target, 3, prepacked=True, at_run_time=True).tobytes()
        if m > tuning.GEMM_THIN and k <= gemm_plan(types, resolve(target)).kc:
            assert c.tobytes() == product(types, a, b, target, 3).tobytes()


@pytest.mark.parametrize("names", [("f32", "f32", "f32"), ("bf16", "bf16", "f32"), ("f64", "f64", "f64")], ids="-".join)
@pytest.mark.parametrize("m, n, k", [(14, 600, 1500), (31, 300, 1200), (100, 200, 700), (157, 130, 2100), (2, 9, 30)])
@pytest.mark.parametrize("prepacked", [False, True])
def test_rows_in_one_cache_set(names: tuple[str, str, str], m: int, n: int, k: int, prepacked: bool) -> None:
    """Rows that are a multiple of 4096 bytes apart are packed once for all tasks, with the bits of other rows."""
    types, rng = GemmTypes(*names), np.random.default_rng(m)
    apart = -(-k * itemsize(types.a) // 4096) * 4096 // itemsize(types.a)
    a, b = values(rng, types.a, (1, m, apart)), values(rng, types.b, (1, k, n))
    a[:, :, k:] = np.nan
    plan = gemm_plan(types, resolve("native"))
    shape = extents_of(plan, 1, m, n, k, Layout(apart, 1, 0, n, 1, 0), prepacked)
    mode = mode_of_a(Ints(), plan, shape, PREPACKED if prepacked else PRIVATE)
    if plan.kind != "amx" and plan.mr > 12:
        assert (mode == SHARED) == (m > 2 and (prepacked or m > 40))
    results = [product(types, a[:, :, :k], b, threads=t, prepacked=prepacked) for t in (1, 2, 3)]
    check(types, a[:, :, :k], b, results[0])
    a = np.ascontiguousarray(np.concatenate([a[:, :, :k], np.zeros((1, m, 3), a.dtype)], 2))[:, :, :k]
    results.append(product(types, a, b, threads=2, prepacked=prepacked))
    assert all(x.tobytes() == results[0].tobytes() for x in results)


@pytest.mark.parametrize("names", CASES, ids="-".join)
@pytest.mark.parametrize(
    "shape", [(1, 200, 170, 700), (3, 300, 600, 450), (2, 1, 300, 90), (9, 30, 20, 64), (1, 90, 1, 70)]
)
@pytest.mark.sampled(5)
def test_sums_that_go_on(names: tuple[str, str, str], shape: tuple[int, int, int, int]) -> None:
    """Steps of k are split into two calls, for every strategy and any layout."""
    types, (batch, m, n, k) = GemmTypes(*names), shape
    for seed, cut in enumerate((1, k // 2, k - 3)):
        rng = np.random.default_rng(seed)
        a, b = any_layout(rng, types.a, (batch, m, k)), any_layout(rng, types.b, (batch, k, n))
        cover = np.zeros((batch, m, n), np.int64)
        check(types, a, b, product(types, a, b, "native", 3, cover, ld=seed, cut=cut))
        assert (cover == 1).all()
        a, b = values(rng, types.a, (1, 1, k)), values(rng, types.b, (1, k, 300))
        way = GemmStrategy.VECTORS if has_vector_path(gemm_plan(types, resolve("native"))) else GemmStrategy.ANY
        step_by_step, whole = (product(types, a, b, cut=at, way=way) for at in (cut, 0))
        check(types, a, b, step_by_step)
        if way is GemmStrategy.VECTORS:
            assert step_by_step.tobytes() == whole.tobytes()


@pytest.mark.parametrize(
    "shape", [(1, 3, 4, 0), (0, 3, 4, 5), (1, 0, 4, 5), (1, 3, 0, 5), (2, 200, 600, 0), (1, 1, 99, 0)]
)
def test_empty(shape: tuple[int, int, int, int]) -> None:
    for names in (("f32", "f32", "f32"), ("i8", "i8", "i32"), ("bf16", "bf16", "f32")):
        run(GemmTypes(*names), shape, 0)


@pytest.mark.parametrize("which", ["row", "column"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i8", "i32"])
def test_vectors(which: str, dtype: str) -> None:
    types = GemmTypes(dtype, dtype, {"f16": "f32", "bf16": "f32", "i8": "i32"}.get(dtype, dtype))
    for seed, (outputs, k) in enumerate([(64, 64), (1100, 37), (97, 700), (2500, 130), (257, 16)]):
        run(types, (2, 1, outputs, k) if which == "row" else (2, outputs, 1, k), seed)
        for layout in (0, 1):
            rng = np.random.default_rng(seed)
            a, b = values(rng, dtype, (1, 1, k)), values(rng, dtype, (1, k, outputs))
            if layout:
                b = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
            if which == "column":
                a, b = b.swapaxes(1, 2), a.swapaxes(1, 2)
            check(types, a, b, product(types, a, b))


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i8", "i32"])
def test_several_vectors(dtype: str) -> None:
    """A large B is streamed for few rows."""
    types = GemmTypes(dtype, dtype, {"f16": "f32", "bf16": "f32", "i8": "i32"}.get(dtype, dtype))
    for seed, (m, n, k) in enumerate([(2, 1100, 1021), (5, 777, 1400), (13, 520, 2050), (32, 1000, 1100)]):
        run(types, (1, m, n, k), seed, threads=3)


def by_blocks(types: GemmTypes, a: np.ndarray, b: np.ndarray, rows: int, target: str = "native") -> np.ndarray:
    """Returns C[m, n], computed `rows` rows at a time, with B packed once or, if possible, in place."""
    t = resolve(target)
    loaded = load(block_routine(types, t), t)
    pack, block = (
        loaded.function(panels_symbol(types), "piiiip"),
        loaded.function(block_symbol(types), "piipiipiiiiipp"),
    )
    (m, k), n = a.shape, b.shape[1]
    a, b = (guarded.relaid(x, at_end=True) for x in (a, b))
    c = guarded.guarded(np.zeros((m, n), NUMPY[types.acc]), at_end=True)
    panels, memory = guarded.scratch(panels_bytes(types, t, n, k)), guarded.scratch(block_bytes(types, t))
    (ar, ac), (br, bc) = ([s // x.itemsize for s in x.strides] for x in (a, b))
    in_place = reads_in_place(types, t, n, br, bc)
    if not in_place:
        pack(b.ctypes.data, br, bc, n, k, panels.ctypes.data)
    for i in range(0, m, rows):
        count = min(rows, m - i)
        at = (a[i:].ctypes.data, ar, ac, b.ctypes.data, br, bc, c[i:].ctypes.data, n, count, n, k, 0)
        block(*at, None if in_place else panels.ctypes.data, memory.ctypes.data)
    assert (panels[panels_bytes(types, t, n, k) :] == guarded.UNWRITTEN).all(), "wrote beyond panels_bytes"
    assert (memory[block_bytes(types, t) :] == guarded.UNWRITTEN).all(), "wrote beyond block_bytes"
    return c


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("names", CASES, ids="-".join)
@pytest.mark.sampled(4)
def test_blocks_of_rows(names: tuple[str, str, str], target: str) -> None:
    """Each element has the bits of the whole product, for any blocks."""
    types, pick = GemmTypes(*names), random.Random(repr(names))
    for seed in range(12):
        rng = np.random.default_rng(seed)
        m, n = (pick.choice(EXTENTS) for _ in range(2))
        k = pick.choice([*EXTENTS, 300, 777])
        a, b = any_layout(rng, types.a, (1, m, k))[0], any_layout(rng, types.b, (1, k, n))[0]
        c = by_blocks(types, a, b, pick.choice([1, 5, 14, 28, 500]), target)
        check(types, a[None], b[None], c[None])
        assert by_blocks(types, a, b, m, target).tobytes() == c.tobytes()


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("names", CASES, ids="-".join)
def test_sums_of_blocks_go_on(names: tuple[str, str, str], target: str) -> None:
    """Calls for some steps of k at a time add to C."""
    types, t, pick = GemmTypes(*names), resolve(target), random.Random(repr(names))
    loaded = load(block_routine(types, t), t)
    pack, block = (
        loaded.function(panels_symbol(types), "piiiip"),
        loaded.function(block_symbol(types), "piipiipiiiiipp"),
    )
    for seed in range(6):
        rng = np.random.default_rng(seed)
        m, n, each = pick.choice(EXTENTS), pick.choice(EXTENTS), pick.choice([2, 7, 14, 64, 500])
        k = pick.choice([*EXTENTS, 300])
        a, b = any_layout(rng, types.a, (1, m, k))[0], any_layout(rng, types.b, (1, k, n))[0]
        c = np.full((m, n), 7).astype(NUMPY[types.acc])
        panels, memory = guarded.scratch(panels_bytes(types, t, n, k)), guarded.scratch(block_bytes(types, t))
        (ar, ac), (br, bc) = ([s // x.itemsize for s in x.strides] for x in (a, b))
        for k0 in range(0, k, each):
            steps, right = min(each, k - k0), b[k0:].ctypes.data
            pack(right, br, bc, n, steps, panels.ctypes.data)
            at = (a[:, k0:].ctypes.data, ar, ac, right, br, bc, c.ctypes.data, n, m, n, steps, k0)
            block(*at, panels.ctypes.data, memory.ctypes.data)
        check(types, a[None], b[None], c[None])


def test_special_values() -> None:
    """NaN and infinity stay in their row; padding rows of a tile do not leak."""
    rng = np.random.default_rng(0)
    a, b = values(rng, "f32", (1, 15, 40)), values(rng, "f32", (1, 40, 33))
    a[0, 14, 3], a[0, 0, 5] = np.nan, np.inf
    c = product(GemmTypes("f32", "f32", "f32"), a, b)
    assert np.isnan(c[0, 14]).all() and np.isinf(c[0, 0]).all() and np.isfinite(c[0, 1:14]).all()


def test_same_bits_for_any_threads() -> None:
    rng = np.random.default_rng(0)
    types = GemmTypes("f32", "f32", "f32")
    shapes = [(1, 300, 700, 500), (1, 64, 900, 300), (20, 40, 50, 60), (1, 1, 3000, 500), (1, 7, 900, 700)]
    # Large matrices with vectors, which are cut by the number of threads; also if the sums of one cut are too many.
    for shape in [*shapes, (1, 1, 3000, 800), (1, 3, 3000, 800), (1, 1, 9001, 240), (1, 1, 700, 3100)]:
        batch, m, n, k = shape
        a, b = values(rng, "f32", (batch, m, k)), values(rng, "f32", (batch, k, n))
        one, five = product(types, a, b), product(types, a, b, threads=5)
        assert (one.view(np.int32) == five.view(np.int32)).all()


@pytest.mark.parametrize("names", [CASES[i] for i in (0, 1, 2, 3, 5, 9, 13, 15)], ids="-".join)
def test_avx2(names: tuple[str, str, str]) -> None:
    """Tests 256-bit code on this machine."""
    pick = random.Random(1)
    for seed in range(25):
        shape = (pick.choice([1, 2]), *(pick.choice(EXTENTS) for _ in range(3)))
        run(GemmTypes(*names), shape, seed, "x86-64-v3")
    run(GemmTypes(*names), (1, 200, 600, 450), 0, "x86-64-v3", threads=2)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i64"])
def test_last_columns_without_masks(dtype: str, target: str) -> None:
    """The last columns are whole vectors, but fewer than a kernel reads: memory after B is not accessed."""
    types, rng = GemmTypes(dtype, dtype, dtype), np.random.default_rng(0)
    for n in range(2, 41, 2):
        for m in (3, 40):
            k = 17 + (m + n + 17) % 2  # so that B ends at the end of its pages
            a, b = values(rng, dtype, (1, m, k)), values(rng, dtype, (1, k, n))
            check(types, a, b, product(types, a, b, target))
            check(types, a, b, by_blocks(types, a[0], b[0], 14, target)[None])


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("x86-64-v4", r"vfmadd231ps\s.*zmm"),
        ("x86-64-v3", r"vfmadd231ps\s.*ymm"),
        ("aarch64:generic", r"fmla\s+v\d+\.4s"),
    ],
)
def test_vector_width(target: str, wanted: str) -> None:
    t = resolve(target)
    text = assembly(tile_routine(GemmTypes("f32", "f32", "f32"), t), t)
    tile = text[text.index("tile") :]
    assert len(re.findall(wanted, tile)) > 24


@pytest.mark.parametrize("names", [("bf16", "bf16", "f32"), ("i8", "i8", "i32"), ("ui8", "i8", "i32")], ids="-".join)
def test_without_permission_for_tiles(names: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain loop replaces AMX if the operating system refuses it; a machine without AMX never asks."""
    import test_gemm

    kept: list[Loaded] = []

    def without_tiles(routine: Routine) -> Routine:
        def build(module: ModuleText, target: Target) -> None:
            routine.build(module, target)
            for name, text in module.globals.items():
                if name.endswith("_known"):
                    module.globals[name] = text.replace("global i64 0", "global i64 2")

        needs = tuple(map(without_tiles, routine.needs))
        return Routine(routine.name + "_refused", routine.symbols, build, needs)

    def refused(routine: Routine, target: Target) -> Loaded:
        kept.append(Loaded((without_tiles(routine),), target))
        return kept[-1]

    monkeypatch.setattr(test_gemm, "load", refused)
    for seed, shape in enumerate([(1, 33, 40, 70), (1, 200, 50, 600)]):
        run(GemmTypes(*names), shape, seed)


@pytest.mark.parametrize("names", [("f32", "f32", "f32"), ("bf16", "bf16", "f32"), ("i8", "i8", "i32")], ids="-".join)
def test_a_known_product_takes_the_strategy_of_the_call(names: tuple[str, str, str]) -> None:
    types, plan = GemmTypes(*names), gemm_plan(GemmTypes(*names), resolve())
    rng, ways = np.random.default_rng(5), set()
    for m, n, k in itertools.product((1, 2, 20), (1, 17, 300), (1, 16, 700)):
        for a_order, b_order in itertools.product((1, -1), repeat=2):
            a = np.ascontiguousarray(values(rng, types.a, (1, m, k)).swapaxes(1, 2))  # [1, k, m]
            b = np.ascontiguousarray(values(rng, types.b, (1, k, n)))
            a = a.swapaxes(1, 2) if a_order < 0 else np.ascontiguousarray(a.swapaxes(1, 2))
            b = b if b_order > 0 else np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
            (ab, ar, ac), (bb, br, bc) = ([s // x.itemsize for s in x.strides] for x in (a, b))
            way = strategy_of(plan, m, n, k, Layout(ar, ac, ab, br, bc, bb), is_near=False)
            ways.add(way)
            assert product(types, a, b, way=way).tobytes() == product(types, a, b).tobytes()
            check(types, a, b, product(types, a, b, way=GemmStrategy.TILES))
    assert ways == {GemmStrategy.TILES, GemmStrategy.VECTORS}


FEW = [("f32", "f32", "f32"), ("f64", "f64", "f64"), ("i32", "i32", "i32")]


@pytest.mark.parametrize("names", FEW, ids="-".join)
def test_few_rows_read_b_in_place(names: tuple[str, str, str]) -> None:
    """Skinny products give the same bits as packing, for any number of rows, in one or two calls, with any threads."""
    types, rng = GemmTypes(*names), np.random.default_rng(7)
    plan = gemm_plan(types, resolve())
    if not has_skinny_path(plan):
        pytest.skip("stores have no masks")
    for m in (*range(2, 22), 31, 47, tuning.GEMM_SKINNY_ROWS):
        batch, n, k = int(rng.integers(1, 3)), int(rng.integers(128, 420)), int(rng.integers(16, 800))
        a = any_layout(rng, types.a, (batch, m, k))
        b = values(rng, types.b, (batch, k, n + int(rng.integers(0, 3))))[:, :, :n]
        cover = np.zeros((batch, m, n), np.int64)
        c = product(types, a, b, threads=2, cover=cover, ld=int(rng.integers(0, 3)), way=GemmStrategy.FEW)
        check(types, a, b, c)
        assert (cover == 1).all()
        assert c.tobytes() == product(types, a, b, threads=1, way=GemmStrategy.FEW).tobytes()
        assert c.tobytes() == product(types, a, b, threads=3, way=GemmStrategy.TILES).tobytes()
        check(types, a, b, product(types, a, b, cut=k // 3 + 1, way=GemmStrategy.FEW))


def test_skinny_products_have_a_strategy_where_b_is_far_and_its_rows_are_adjacent() -> None:
    plan = gemm_plan(GemmTypes("f32", "f32", "f32"), resolve("x86-64-v4"))
    dense, transposed = Layout(512, 1, 0, 512, 1, 0), Layout(512, 1, 0, 1, 512, 0)
    assert (
        strategy_of(plan, 2, 512, 512, dense)
        is strategy_of(plan, tuning.GEMM_SKINNY_ROWS, 512, 512, dense)
        is GemmStrategy.FEW
    )
    assert strategy_of(plan, 1, 512, 512, dense) is GemmStrategy.VECTORS
    others = [(tuning.GEMM_SKINNY_ROWS + 1, 512, dense), (20, 64, dense), (20, 512, transposed)]
    assert {strategy_of(plan, m, n, 512, layout) for m, n, layout in others} == {GemmStrategy.TILES}
    assert strategy_of(plan, 40, 512, 512, dense, is_near=False) is GemmStrategy.TILES


def test_dot_instructions() -> None:
    t = resolve("znver5")
    assert re.search(r"vdpbf16ps\s.*zmm", assembly(tile_routine(GemmTypes("bf16", "bf16", "f32"), t), t))
    assert re.search(r"vpdpbusd\s.*zmm", assembly(tile_routine(GemmTypes("i8", "i8", "i32"), t), t))
