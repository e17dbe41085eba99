"""reduce_window and select_and_scatter: random windows, types and bodies against the reference interpreter and XLA."""

from __future__ import annotations

import guarded
import numpy as np
import pytest
from random_arrays import close, random_array

import shlo_jit
from shlo_jit.ir.types import DTYPES
from shlo_jit.reference.interpreter import evaluate

DTYPE_CHOICES = ["f32", "f32", "f64", "bf16", "f16", "i32", "ui8", "i64", "i1", "i4", "complex<f32>"]


def tensor(shape: tuple[int, ...], dtype: str) -> str:
    return "tensor<" + "".join(f"{n}x" for n in shape) + dtype + ">"


def window_text(shape, out, dtype, window, body) -> str:
    attributes = ", ".join(f"{k} = array<i64: {', '.join(map(str, v))}>" for k, v in window.items() if k != "padding")
    pairs = ", ".join(str(list(p)) for p in window["padding"])
    t = f"tensor<{dtype}>"
    return f"""
func.func @main(%x: {tensor(shape, dtype)}, %init: {t}) -> {tensor(out, dtype)} {{
  %0 = "stablehlo.reduce_window"(%x, %init) <{{{attributes},
      padding = dense<[{pairs}]> : tensor<{len(shape)}x2xi64>}}> ({{
  ^bb0(%a: {t}, %b: {t}):
    {body.format(t=t)}
    stablehlo.return %r : {t}
  }}) : ({tensor(shape, dtype)}, {t}) -> {tensor(out, dtype)}
  return %0 : {tensor(out, dtype)}
}}"""


def with_constant(text: str, dtype: str, value: object) -> str:
    """Returns the same program with a constant initial value."""
    line = f"%init = stablehlo.constant dense<{value}> : tensor<{dtype}>"
    return text.replace(f", %init: tensor<{dtype}>)", ")").replace("{\n  %0 =", f"{{\n  {line}\n  %0 =", 1)


BODIES = {
    "add": "%r = stablehlo.add %a, %b : {t}",
    "maximum": "%r = stablehlo.maximum %a, %b : {t}",
    "minimum": "%r = stablehlo.minimum %a, %b : {t}",
    "last": "%r = stablehlo.reshape %b : ({t}) -> {t}",
    "first": "%r = stablehlo.reshape %a : ({t}) -> {t}",
    "affine": "%c = stablehlo.add %a, %a : {t}\n    %r = stablehlo.subtract %c, %b : {t}",
}


def random_window(rng: np.random.Generator, negative: bool = True) -> tuple:
    """Returns an input shape, an output shape and window attributes with at least one output."""
    while True:
        rank = int(rng.integers(1, 5))
        shape = tuple(int(n) for n in rng.choice([1, 2, 3, 5, 9, 20, 37], rank))
        plain = rng.random(rank) < 0.4
        names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
        limits = (4, 3, 2, 2) if rng.random() < 0.5 else (4, 3, 1, 1)
        window = {
            name: tuple(1 if plain[d] else int(rng.integers(1, limit + 1)) for d in range(rank))
            for name, limit in zip(names, limits, strict=True)
        }
        low = -1 if negative else 0
        window["padding"] = tuple(
            (0, 0) if plain[d] else (int(rng.integers(low, 3)), int(rng.integers(low, 3))) for d in range(rank)
        )
        out = []
        for d in range(rank):
            padded = (shape[d] - 1) * window["base_dilations"][d] + 1 + sum(window["padding"][d])
            reach = (window["window_dimensions"][d] - 1) * window["window_dilations"][d] + 1
            out.append((padded - reach) // window["window_strides"][d] + 1 if padded >= reach else 0)
        if min(out) > 0 and np.prod(shape) < 20000:
            return shape, tuple(out), window


@pytest.mark.parametrize("seed", range(80))
def test_random(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, out, window = random_window(rng)
    dtype = str(rng.choice(DTYPE_CHOICES))
    names = ["add", "last", "first"] if dtype in ("i1", "complex<f32>") else list(BODIES)
    if dtype in ("f16", "bf16"):
        names = names[:-1]
    text = window_text(shape, out, dtype, window, BODIES[str(rng.choice(names))])
    x, init = random_array(rng, shape, DTYPES[dtype]), random_array(rng, (), DTYPES[dtype])
    expected = evaluate(shlo_jit.parse(text), x, init)
    close(shlo_jit.compile(text, cache=False)(x, init), expected[0], DTYPES[dtype])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["add", "maximum", "multiply", "logaddexp"])
@pytest.mark.parametrize("shape, axis", [((70,), 0), ((9, 37), 1), ((9, 33), 0), ((3, 20, 7), 1), ((2, 5, 130), 1)])
@pytest.mark.sampled(5)
def test_cumulative(name: str, shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    """Tests every prefix, also for a body that is not a single op and has no known neutral element."""
    dtype = "f64"
    body = {
        "multiply": "%r = stablehlo.multiply %a, %b : {t}",
        "logaddexp": """%m = stablehlo.maximum %a, %b : {t}
    %d = stablehlo.subtract %a, %b : {t}
    %n = stablehlo.abs %d : {t}
    %g = stablehlo.negate %n : {t}
    %e = stablehlo.exponential %g : {t}
    %l = stablehlo.log_plus_one %e : {t}
    %s = stablehlo.add %m, %l : {t}
    %v = stablehlo.compare NE, %d, %d : ({t}, {t}) -> tensor<i1>
    %w = stablehlo.add %a, %b : {t}
    %r = stablehlo.select %v, %w, %s : tensor<i1>, {t}""",
        **BODIES,
    }[name]
    ones = (1,) * len(shape)
    n = shape[axis]
    pad = tuple((0, 0) if d != axis else ((0, n - 1) if reverse else (n - 1, 0)) for d in range(len(shape)))
    window = {"window_dimensions": tuple(n if d == axis else 1 for d in range(len(shape))), "window_strides": ones}
    text = window_text(shape, shape, dtype, {**window, "padding": pad}, body)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape) * 0.1 + (1 if name == "multiply" else 0)
    for start in ({"add": 0, "maximum": -np.inf, "multiply": 1, "logaddexp": -np.inf}[name], 0.5):
        word = "0xFFF0000000000000" if np.isinf(start) else float(start)
        constant = with_constant(text, "f64", word)
        init = np.float64(start)
        expected = evaluate(shlo_jit.parse(text), x, init)[0]
        np.testing.assert_allclose(shlo_jit.compile(text, cache=False)(x, init), expected, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(shlo_jit.compile(constant, cache=False)(x), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.xla
def test_jax_programs() -> None:
    jax = pytest.importorskip("jax")
    jnp, lax = jax.numpy, jax.lax
    image = np.random.default_rng(0).standard_normal((2, 19, 23, 20)).astype(np.float32)
    line = np.random.default_rng(0).standard_normal((100, 300)).astype(np.float32)

    def pool(x, padding):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), padding)

    def pool_nchw(x):
        return lax.reduce_window(x, 0.0, lax.add, (1, 1, 3, 2), (1, 1, 2, 3), "SAME")

    programs = [
        (lambda x: pool(x, "SAME"), image),
        (lambda x: pool(x, "VALID"), image),
        (pool_nchw, image),
        (jax.grad(lambda t: (pool(t, "SAME") ** 2).sum()), image),
        (jax.grad(lambda t: (pool_nchw(t) ** 2).sum()), image),
        (lambda x: jnp.cumsum(x, 0), line),
        (jnp.cumsum, line),
        (lambda x: lax.cummax(x, axis=1, reverse=True), line),
        (lambda x: lax.cumlogsumexp(x, axis=1), line),
        (lambda x: jnp.cumprod(x.astype(jnp.bfloat16) / 4 + 1, 1)[:, :20].astype(jnp.float32), line),
    ]
    for k, (program, x) in enumerate(programs):
        lowered = jax.jit(program).lower(x)
        got = shlo_jit.compile(lowered.as_text(), cache=False)(x)
        tolerance = 3e-2 if k == len(programs) - 1 else 2e-4
        np.testing.assert_allclose(got, lowered.compile()(x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape, axis", [((64, 1000), 1), ((500, 300), 0)])
def test_same_bits_for_any_threads(shape: tuple[int, int], axis: int) -> None:
    n = shape[axis]
    pad = tuple((n - 1, 0) if d == axis else (0, 0) for d in range(2))
    dims = tuple(n if d == axis else 1 for d in range(2))
    text = window_text(shape, shape, "f32", {"window_dimensions": dims, "padding": pad}, BODIES["add"])
    text = with_constant(text, "f32", 0.0)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    results = [shlo_jit.compile(text, cache=False, threads=t)(x).view(np.uint32) for t in (1, 2, 5)]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape, axis", [((1_000_003,), 0), ((3, 70_001), 1), ((5000, 70), 0), ((2, 4099, 9), 1)])
def test_errors_of_cumulative_sums_grow_with_the_logarithm(shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    """Equal numbers are the worst case: one chain rounds each step the same way. One of 4,096 steps errs by 100 ulp."""
    n, rank = shape[axis], len(shape)
    pad = tuple(((0, n - 1) if reverse else (n - 1, 0)) if d == axis else (0, 0) for d in range(rank))
    dims = tuple(n if d == axis else 1 for d in range(rank))
    text = window_text(shape, shape, "f32", {"window_dimensions": dims, "padding": pad}, BODIES["add"])
    text = with_constant(text, "f32", 0.0)
    results = [guarded.compile(text, threads=t)(np.full(shape, 0.1, np.float32)) for t in (1, 2, 3, 8)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].view(np.uint32), other.view(np.uint32))
    exact = np.cumsum(np.full(shape, np.float32(0.1), np.float64), axis)
    exact = np.flip(exact, axis) if reverse else exact
    np.testing.assert_allclose(results[0], exact, rtol=12 * 2**-24)


@pytest.mark.parametrize("seed", range(40))
def test_select_and_scatter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, out, window = random_window(rng, negative=False)
    window = {k: v for k, v in window.items() if "dilations" not in k}
    out = tuple(
        max(0, (n + sum(p) - size) // stride + 1)
        for n, p, size, stride in zip(
            shape, window["padding"], window["window_dimensions"], window["window_strides"], strict=True
        )
    )
    if min(out) == 0:
        return
    dtype = str(rng.choice(["f32", "f64", "bf16", "i32", "ui8"]))
    t, direction = f"tensor<{dtype}>", rng.choice(["GE", "GT", "LT"])
    scatter = BODIES[str(rng.choice(["add", "maximum", "last"]))].format(t=t)
    attributes = ", ".join(f"{k} = array<i64: {', '.join(map(str, v))}>" for k, v in window.items() if k != "padding")
    pairs = ", ".join(str(list(p)) for p in window["padding"])
    text = f"""
func.func @main(%x: {tensor(shape, dtype)}, %s: {tensor(out, dtype)}, %init: {t}) -> {tensor(shape, dtype)} {{
  %0 = "stablehlo.select_and_scatter"(%x, %s, %init) <{{{attributes},
      padding = dense<[{pairs}]> : tensor<{len(shape)}x2xi64>}}> ({{
  ^bb0(%a: {t}, %b: {t}):
    %r = stablehlo.compare {direction}, %a, %b : ({t}, {t}) -> tensor<i1>
    stablehlo.return %r : tensor<i1>
  }}, {{
  ^bb0(%a: {t}, %b: {t}):
    {scatter}
    stablehlo.return %r : {t}
  }}) : ({tensor(shape, dtype)}, {tensor(out, dtype)}, {t}) -> {tensor(shape, dtype)}
  return %0 : {tensor(shape, dtype)}
}}"""
    x, s = random_array(rng, shape, DTYPES[dtype]), random_array(rng, out, DTYPES[dtype])
    init = random_array(rng, (), DTYPES[dtype])
    expected = evaluate(shlo_jit.parse(text), x, s, init)[0]
    close(shlo_jit.compile(text, cache=False)(x, s, init), expected, DTYPES[dtype])
