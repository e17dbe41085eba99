"""Grouped products with matrices of few bits: they are computed for groups with rows only, box by box."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import guarded
import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate
from shlo_jit.text.parser import parse_module

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
M, K, N, E = 21, 200, 168, 6
Program = tuple[Callable[..., Any], list[np.ndarray]]


def numbers(r: np.random.Generator, *shape: int) -> np.ndarray:
    return r.standard_normal(shape, np.float32)


def sizes(*rows: int) -> np.ndarray:
    return np.array(rows, np.int32)


def case(name: str) -> Program:
    r = np.random.default_rng(0)
    x, w, s = numbers(r, M, K), r.integers(-7, 8, (E, K, N)).astype(np.int8), sizes(1, 0, 12, 0, 3, 2)
    by_column, by_group, zero = numbers(r, E, 1, N), numbers(r, E, K // 8, 1, N), r.integers(-3, 3, (E, 1, N))
    turned, by_row = w.swapaxes(1, 2).copy(), numbers(r, E, N, 1)
    several = (numbers(r, 3, M, K), r.integers(-7, 8, (E, 3, K, N)).astype(np.int8), numbers(r, E, 3, 1, N))

    def in_groups(x: Any, w: Any, scale: Any, s: Any) -> Any:
        return lax.ragged_dot(x, (w.reshape(E, K // 8, 8, N).astype(x.dtype) * scale).reshape(E, K, N), s)

    def in_batches(x: Any, w: Any, scale: Any, s: Any) -> Any:
        d = lax.RaggedDotDimensionNumbers((((2,), (2,)), ((0,), (1,))), [1], [0])
        return lax.ragged_dot_general(x, w.astype(x.dtype) * scale, s, d)

    def halves(x: Any, w: Any, scale: Any, s: Any) -> Any:
        return lax.ragged_dot(x, w.astype(x.dtype) * scale, s, preferred_element_type=jnp.float32)

    return {
        "columns": lambda: (lambda x, w, c, s: lax.ragged_dot(x, w.astype(x.dtype) * c, s), [x, w, by_column, s]),
        "groups": lambda: (in_groups, [x, w, by_group, s]),
        "transposed": lambda: (
            lambda x, w, c, s: lax.ragged_dot(x, (w.astype(x.dtype) * c).swapaxes(1, 2), s), [x, turned, by_row, s]
        ),
        "zero points": lambda: (
            lambda x, w, z, c, s: lax.ragged_dot(x, (w.astype(x.dtype) - z.astype(x.dtype)) * c, s),
            [x, w, zero.astype(np.int8), by_column, s],
        ),
        "nibbles": lambda: (
            lambda x, w, c, s: lax.ragged_dot(x, w.astype(jnp.int4).astype(x.dtype) * c, s), [x, w, by_column, s]
        ),
        "batch": lambda: (in_batches, [*several, np.stack([s, sizes(21, 0, 0, 0, 0, 0), sizes(0, 0, 0, 5, 0, 9)])]),
        "f16": lambda: (halves, [x.astype(np.float16), w, by_column.astype(np.float16), s]),
        "layer": lambda: (
            lambda x, w, i, s: lax.ragged_dot(x, w[i[0]], s), [x, numbers(r, 3, E, K, N), sizes(2), s]
        ),
    }[name]()  # fmt: skip


NAMES = ("columns", "groups", "transposed", "zero points", "nibbles", "batch", "f16", "layer")


@pytest.mark.parametrize("assume_finite", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_as_the_reference_and_the_same_on_any_number_of_threads(name: str, assume_finite: bool) -> None:
    f, arrays = case(name)
    text = jax.jit(f).lower(*arrays).as_text()
    options = {"cache": False, "assume_finite": assume_finite}
    one, three = (guarded.compile(text, threads=threads, **options) for threads in (1, 3))
    found, (wanted,) = np.asarray(one(*arrays)), evaluate(parse_module(text), *arrays)
    np.testing.assert_allclose(
        found, wanted, rtol=2e-3 if name == "f16" else 1e-4, atol=2e-1 if name == "f16" else 1e-3
    )
    np.testing.assert_array_equal(found, np.asarray(three(*arrays)))


@pytest.mark.parametrize("name", ["columns", "groups", "transposed", "zero points"])
def test_matrices_are_never_in_memory_as_a_whole(name: str) -> None:
    f, arrays = case(name)
    exe = shlo_jit.compile(jax.jit(f).lower(*arrays).as_text(), threads=1)
    assert "operand" in exe.text("plan") and f"{E}x{K}x{N}xf32   (read" not in exe.text("plan")


@pytest.mark.parametrize(("number", "at"), [(np.nan, 1), (np.inf, 1), (3e38, 2), (-3e38, 1)])
def test_scales_that_are_not_finite_reach_all_rows(number: float, at: int) -> None:
    """A product of a zero of the mask with a dequantized weight that is not finite is NaN, also if only the product of
    an integer and a scale is too large."""
    f, (x, w, scale, s) = case("columns")
    scale = scale.copy()
    scale[at, 0, 5] = number
    text = jax.jit(f).lower(x, w, scale, s).as_text()
    with np.errstate(all="ignore"):
        (wanted,) = evaluate(parse_module(text), x, w, scale, s)
    found = np.asarray(guarded.compile(text, threads=1)(x, w, scale, s))
    assert np.isnan(wanted[:, 5]).any()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(found[finite], wanted[finite], rtol=1e-4, atol=1e-3)
