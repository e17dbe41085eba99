"""Grouped products: `ragged_dot` in its modes, and masks by position over groups, for random sizes of groups.

SHLO_JIT_RANDOM=500 pytest -m slow tests/lower/test_grouped_rows.py     # more random programs
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import guarded
import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
Numbers = lax.RaggedDotDimensionNumbers
ROUNDS = int(os.environ.get("SHLO_JIT_RANDOM", "20"))
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-3, "float64": 1e-12}


def sizes_of(r: np.random.Generator, groups: int, rows: int) -> np.ndarray:
    """Sizes with all rows in one group, spread, fewer or more than there are rows."""
    kind = r.integers(4)
    if kind == 0:
        found = np.zeros(groups, np.int64)
        found[r.integers(groups)] = rows
    else:
        count = (rows, r.integers(rows + 1), rows + 5)[kind - 1]
        found = np.bincount(r.integers(0, groups, count), minlength=groups)
    return found.astype(np.int32)


def numbers(r: np.random.Generator, *shape: int) -> np.ndarray:
    return r.standard_normal(shape, np.float32)


def general(contracting: Any, batch: Any, ragged: int, groups: list[int]) -> Callable[..., Any]:
    d = Numbers((contracting, batch), [ragged], groups)
    return lambda x, w, s: lax.ragged_dot_general(x, w, s, d)


def gradients(x: Any, w: Any, s: Any) -> Any:
    return jax.grad(lambda x, w: (lax.ragged_dot(x, w, s) ** 2).sum(), (0, 1))(x, w)


def masked_right(w: Any, x: Any, s: Any) -> Any:
    """The masked operand is the right one, and the comparisons are written the other way around."""
    ends = jnp.cumsum(s)[:, None]
    row = jnp.arange(x.shape[0])[None]
    inside = (ends > row) & (row > ends - s[:, None] - 1)
    return jnp.einsum("gkn,gmk->nm", w, jnp.where(inside[..., None], x, 0))


def selected(x: Any, w: Any, s: Any) -> Any:
    """All rows meet all matrices, and the mask selects among the products."""
    ends = jnp.cumsum(s)[:, None]
    row = jnp.arange(x.shape[0])
    inside = (row >= ends - s[:, None]) & (row < ends)
    return jnp.where(inside[..., None], jnp.einsum("mk,gkn->gmn", x, w), 0).sum(0)


def selected_right(w: Any, x: Any, s: Any) -> Any:
    ends = jnp.cumsum(s)
    row = jnp.arange(x.shape[0])[:, None]
    inside = (row >= ends - s) & (row < ends)
    return jnp.where(inside[:, None], jnp.einsum("gkn,mk->mng", w, x), 0).sum(2)


def each_group(x: Any, y: Any, s: Any) -> Any:
    """Only one operand is masked."""
    ends = jnp.cumsum(s)[:, None]
    row = jnp.arange(x.shape[0])
    return jnp.einsum("gmk,mn->gkn", jnp.where(((row >= ends - s[:, None]) & (row < ends))[..., None], x, 0), y)


def case(r: np.random.Generator, name: str) -> tuple[Callable[..., Any], list[np.ndarray]]:
    m, k, n, g, b = (int(r.integers(low, high)) for low, high in ((2, 70), (1, 60), (1, 150), (3, 9), (2, 4)))
    several = np.stack([sizes_of(r, g, m) for _ in range(b)])
    x, w, s = numbers(r, m, k), numbers(r, g, k, n), sizes_of(r, g, m)
    none: tuple[Any, Any] = ((), ())
    return {
        "rows": lambda: (lax.ragged_dot, [x, w, s]),
        "transposed matrices": lambda: (general(((1,), (2,)), none, 0, [0]), [x, numbers(r, g, n, k), s]),
        "batch": lambda: (
            general(((2,), (2,)), ((0,), (1,)), 1, [0]), [numbers(r, b, m, k), numbers(r, g, b, k, n), several]
        ),
        "groups inside": lambda: (
            general(((2,), (3,)), ((0,), (0,)), 1, [1]), [numbers(r, b, m, k), numbers(r, b, g, n, k), several]
        ),
        "sums": lambda: (general(((0,), (0,)), none, 0, []), [x, numbers(r, m, n), s]),
        "sums of a batch": lambda: (
            general(((1,), (1,)), ((0,), (0,)), 1, []), [numbers(r, b, m, k), numbers(r, b, m, n), several]
        ),
        "gradients": lambda: (gradients, [x, w, s]),
        "masked right": lambda: (masked_right, [w, x, s]),
        "selected": lambda: (selected, [x, w, s]),
        "selected right": lambda: (selected_right, [w, x, s]),
        "each group": lambda: (each_group, [x, numbers(r, m, n), s]),
        "bytes": lambda: (
            lambda x, w, s: lax.ragged_dot(x, w, s, preferred_element_type=jnp.int32),
            [r.integers(-9, 9, (m, k)).astype(np.int8), r.integers(-9, 9, (g, k, n)).astype(np.int8), s],
        ),
        "bf16": lambda: (lax.ragged_dot, [np.asarray(jnp.asarray(v, jnp.bfloat16)) for v in (x, w)] + [s]),
        "f16": lambda: (lax.ragged_dot, [v.astype(np.float16) for v in (x, w)] + [s]),
    }[name]()  # fmt: skip


NAMES = (
    "rows", "transposed matrices", "batch", "groups inside", "sums", "sums of a batch", "gradients", "masked right",
    "each group", "selected", "selected right", "bytes", "bf16", "f16",
)  # fmt: skip


def results(found: Any) -> list[np.ndarray]:
    return [np.asarray(v) for v in (found if isinstance(found, (tuple, list)) else (found,))]


def check(function: Callable[..., Any], arguments: list[np.ndarray], **options: Any) -> Any:
    """Compares with XLA, in guarded memory, and for several numbers of threads. Returns the executable."""
    lowered = jax.jit(function).lower(*arguments)
    want = [np.asarray(v) for v in jax.tree.leaves(lowered.compile()(*arguments))]
    exe = guarded.compile(lowered.as_text(), threads=1, **options)
    got = results(exe(*arguments))
    for a, b in zip(got, want, strict=True):
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.abs(y[np.isfinite(y)])
        tolerance = TOLERANCE.get(str(a.dtype), 0) * max(1.0, finite.max(initial=0.0))
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)
    for threads in (2, 3, 8):
        again = results(shlo_jit.compile(lowered.as_text(), threads=threads, **options)(*arguments))
        assert [a.tobytes() for a in again] == [a.tobytes() for a in got], threads
    return exe


@pytest.mark.sampled(3)
@pytest.mark.parametrize("assume_finite", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_groups_of_random_sizes(name: str, assume_finite: bool) -> None:
    r = np.random.default_rng([NAMES.index(name), 1])
    exe = check(*case(r, name), assume_finite=assume_finite)
    assert ("grouped_product" in exe.text("plan")) == (assume_finite or name != "each group")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_many_random_groups(seed: int) -> None:
    r = np.random.default_rng(seed)
    check(*case(r, NAMES[seed % len(NAMES)]), assume_finite=bool(r.integers(2)))


def ragged_text(m: int, k: int, n: int, g: int) -> str:
    dims = (
        "lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], "
        "rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]"
    )
    types = f"tensor<{m}x{k}xf32>, tensor<{g}x{k}x{n}xf32>, tensor<{g}xi64>"
    return f"""func.func @main(%x: tensor<{m}x{k}xf32>, %w: tensor<{g}x{k}x{n}xf32>, %s: tensor<{g}xi64>)
        -> tensor<{m}x{n}xf32> {{
      %0 = "chlo.ragged_dot"(%x, %w, %s) <{{ragged_dot_dimension_numbers = #chlo.ragged_dot<{dims}>}}>
        : ({types}) -> tensor<{m}x{n}xf32>
      return %0 : tensor<{m}x{n}xf32>
    }}"""


def test_the_op_reads_no_matrix_of_a_group_without_rows() -> None:
    """Rows of `chlo.ragged_dot` meet the matrix of their group only, so numbers elsewhere need not be finite."""
    r, (m, k, n, g) = np.random.default_rng(5), (9, 40, 70, 4)
    x, w, s = numbers(r, m, k), numbers(r, g, k, n), np.array([4, 0, 3, 0])
    w[1], w[3] = np.nan, np.inf
    got = shlo_jit.compile(ragged_text(m, k, n, g))(x, w, s)
    np.testing.assert_allclose(got[:4], x[:4] @ w[0], atol=1e-4)
    np.testing.assert_allclose(got[4:7], x[4:7] @ w[2], atol=1e-4)
    assert not got[7:].any()


def test_many_rows_are_cut_into_tasks() -> None:
    """Ranges of rows cross the boundaries of tasks."""
    r, (m, k, n, g) = np.random.default_rng(6), (1300, 16, 24, 5)
    x, w, s = numbers(r, m, k), numbers(r, g, k, n), np.array([500, 100, 0, 600, 7])
    got = guarded.compile(ragged_text(m, k, n, g))(x, w, s)
    at = np.repeat(np.arange(g), s)
    want = np.einsum("mk,mkn->mn", x[: len(at)], w[at])
    np.testing.assert_allclose(got[: len(at)], want, atol=1e-4)
    assert not got[len(at) :].any()


def test_one_row() -> None:
    """The mask does not depend on the only row."""
    r, (k, n, g) = np.random.default_rng(10), (16, 70, 6)
    x, w = numbers(r, 1, k), numbers(r, g, k, n)
    for own in (0, 3, 5):
        s = np.eye(g, dtype=np.int32)[own]
        exe = check(lax.ragged_dot, [x, w, s], assume_finite=True)
        assert "grouped_product" in exe.text("plan")
    check(lax.ragged_dot, [x, w, np.zeros(g, np.int32)])


def test_zeros_meet_numbers_that_are_not_finite_unless_they_are_promised() -> None:
    r, (m, k, n, g) = np.random.default_rng(7), (12, 8, 20, 4)
    x, w, s = numbers(r, m, k), numbers(r, g, k, n), np.array([3, 4, 0, 5], np.int32)
    w[2, 3, 4], w[1, 1, 7] = np.nan, np.inf
    text = jax.jit(lax.ragged_dot).lower(x, w, s).as_text()
    with np.errstate(invalid="ignore"):
        want = np.asarray(jax.jit(lax.ragged_dot)(x, w, s))
    assert np.isnan(want[:, 4]).all()
    np.testing.assert_allclose(shlo_jit.compile(text)(x, w, s), want, atol=1e-4)
    promised = shlo_jit.compile(text, assume_finite=True)(x, w, s)
    assert np.isfinite(promised[:, 4]).all()
    rows = np.repeat(np.arange(g), s)
    own = np.stack([x[i] @ np.where(np.isfinite(w[j]), w[j], 0) for i, j in enumerate(rows)])
    np.testing.assert_allclose(promised[:, 4], own[:, 4], atol=1e-4)


def test_products_that_a_mask_selects_need_no_promise() -> None:
    """What the mask does not select has no effect, whatever it is."""
    r, (m, k, n, g) = np.random.default_rng(9), (10, 8, 20, 4)
    x, w, s = numbers(r, m, k), numbers(r, g, k, n), np.array([3, 0, 2, 0], np.int32)
    w[1], w[3] = np.nan, np.inf
    x[7] = np.nan
    exe = check(selected, [x, w, s])
    assert "grouped_product" in exe.text("plan")


def test_other_masks_stay_products_of_all_groups() -> None:
    """A mask that is no interval of rows for each group leaves the product as it is."""

    def alternating(x: Any, w: Any) -> Any:
        own = jnp.arange(x.shape[0])[None] % w.shape[0] == jnp.arange(w.shape[0])[:, None]
        return jnp.einsum("gmk,gkn->mn", jnp.where(own[..., None], x, 0), w)

    r = np.random.default_rng(8)
    exe = check(alternating, [numbers(r, 12, 8), numbers(r, 4, 8, 20)], assume_finite=True)
    assert "grouped_product" not in exe.text("plan")


def same_as_reference(function: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """Compares with the reference interpreter. Returns the executable."""
    with jax.enable_x64(True):
        text = jax.jit(function).lower(*given).as_text()
    exe = shlo_jit.compile(text, **options)
    with np.errstate(all="ignore"):
        want = results(evaluate(shlo_jit.parse(text), *given))
    for a, b in zip(results(exe(*given)), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    return exe


def interval(starts: Any, ends: Any, rows: int) -> Any:
    row = jnp.arange(rows)
    return ((row >= starts[:, None]) & (row < ends[:, None]))[..., None]


EDGES = [np.array(v) for v in ([0, 10, 20, 30], [10, 20, 30, 50], [5, 15, 20, 35], [8, 20, 25, 50])]


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_each_operand_keeps_a_mask_of_its_own(dtype: type) -> None:
    """The ranges are those of one operand's mask, so what another mask sets to zero stays zero."""
    r = np.random.default_rng(11)
    x, y = r.integers(-9, 9, (50, 16)).astype(dtype), r.integers(-9, 9, (50, 8)).astype(dtype)

    def both(x: Any, y: Any, s: Any, e: Any, s2: Any, e2: Any) -> Any:
        left, right = jnp.where(interval(s, e, 50), x, 0), jnp.where(interval(s2, e2, 50), y, 0)
        return jnp.einsum("gmk,gmn->gkn", left, right)

    def rows(x: Any, y: Any, s: Any, e: Any) -> Any:
        left = jnp.where(interval(s, e, 50), x, 0)
        return jnp.einsum("gmk,mn->gkn", left, jnp.where(jnp.arange(50)[:, None] < 20, y, 0))

    same_as_reference(both, x, y, *EDGES, assume_finite=True)
    same_as_reference(rows, x, y, *EDGES[:2], assume_finite=True)
    exe = same_as_reference(lambda x, y, s, e: both(x, y, s, e, s, e), x, y, *EDGES[:2])
    assert "grouped_product" in exe.text("plan")


def test_masks_of_the_same_numbers_along_other_dimensions_differ() -> None:
    """The left mask depends on the group, the right one on the batch."""
    r, n = np.random.default_rng(12), 4
    x, y = numbers(r, n, 50, 16), numbers(r, n, 50, 8)

    def product(x: Any, y: Any, e: Any) -> Any:
        row = jnp.arange(50)[:, None]
        left = jnp.where(row < e[None, :, None, None], x[:, None], 0)
        right = jnp.where(row < e[:, None, None, None], y[:, None], 0)
        return jnp.einsum("bgmk,bgmn->bgkn", left, jnp.broadcast_to(right, (n, n, 50, 8)))

    same_as_reference(product, x, y, EDGES[1])


WIDE = np.array([10, 2**63, 2**64 - 1, 0], np.uint64)
POSITIONS: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "wrapped to i8": (
        lambda s: (jnp.arange(50, dtype=jnp.int32) + 100).astype(jnp.int8) >= s[:, None],
        np.array([100, -128, -120, 0], np.int8),
    ),
    "wrapped to ui32": (
        lambda s: (jnp.arange(50, dtype=jnp.int32) - 5).astype(jnp.uint32) >= s[:, None],
        np.array([0, 3, 10, 2**32 - 3], np.uint32),
    ),
    "ui64": (lambda e: jnp.arange(50, dtype=jnp.uint64) < e[:, None], WIDE),
    "large ui64": (lambda e: (np.arange(50, dtype=np.uint64) + np.uint64(2**63)) < e[:, None], WIDE),
    "low i64": (lambda e: (np.arange(50) + np.int64(-(2**63))) < e[:, None], np.array([5 - 2**63, 0, -(2**63), 2**62])),
    "high i64": (lambda e: (np.arange(50) + (2**63 - 50)) >= e[:, None], np.array([2**63 - 10, 0, -(2**63), 2**62])),
    "i8": (lambda e: jnp.arange(50, dtype=jnp.int8) < e[:, None], np.array([10, 127, -128, 30], np.int8)),
}  # fmt: skip
"""Masks by positions at the limits of integer types, and what is compared with the positions."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", POSITIONS)
def test_positions_at_the_limits_of_their_types(name: str) -> None:
    mask, bounds = POSITIONS[name]
    r = np.random.default_rng(13)

    def product(x: Any, w: Any, bounds: Any) -> Any:
        return jnp.einsum("gmk,gkn->mn", jnp.where(mask(bounds)[..., None], x, 0), w)

    same_as_reference(product, numbers(r, 50, 16), numbers(r, 4, 16, 8), bounds)


def test_an_iota_whose_type_is_too_small_wraps() -> None:
    r = np.random.default_rng(14)
    text = """func.func @main(%x: tensor<300x8xf32>, %w: tensor<4x8x8xf32>, %e: tensor<4xi8>) -> tensor<300x8xf32> {
      %row = stablehlo.iota dim = 1 : tensor<4x300xi8>
      %end = stablehlo.broadcast_in_dim %e, dims = [0] : (tensor<4xi8>) -> tensor<4x300xi8>
      %in = stablehlo.compare LT, %row, %end, SIGNED : (tensor<4x300xi8>, tensor<4x300xi8>) -> tensor<4x300xi1>
      %mask = stablehlo.broadcast_in_dim %in, dims = [0, 1] : (tensor<4x300xi1>) -> tensor<4x300x8xi1>
      %rows = stablehlo.broadcast_in_dim %x, dims = [1, 2] : (tensor<300x8xf32>) -> tensor<4x300x8xf32>
      %zero = stablehlo.constant dense<0.0> : tensor<4x300x8xf32>
      %kept = stablehlo.select %mask, %rows, %zero : tensor<4x300x8xi1>, tensor<4x300x8xf32>
      %0 = stablehlo.dot_general %kept, %w, contracting_dims = [0, 2] x [0, 1]
        : (tensor<4x300x8xf32>, tensor<4x8x8xf32>) -> tensor<300x8xf32>
      return %0 : tensor<300x8xf32>
    }"""
    given = numbers(r, 300, 8), numbers(r, 4, 8, 8), np.array([10, 127, -128, 0], np.int8)
    exe = shlo_jit.compile(text)
    np.testing.assert_allclose(exe(*given), evaluate(shlo_jit.parse(text), *given)[0], rtol=1e-4, atol=1e-4)
