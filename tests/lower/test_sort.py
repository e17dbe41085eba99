"""sort and top_k: comparators of every form, types, dimensions, against the reference interpreter and XLA."""

from __future__ import annotations

from platform import machine

import numpy as np
import pytest
from random_arrays import random_array

import shlo_jit
from shlo_jit.ir.types import DTYPES
from shlo_jit.reference.interpreter import evaluate
from shlo_jit.schedule.sort_keys import keys_of

DTYPE_CHOICES = ["f32", "f64", "bf16", "f16", "i32", "i64", "ui8", "i8", "i16", "i4", "ui64", "i1", "f8E4M3FN"]


def tensor(shape: tuple[int, ...], dtype: str) -> str:
    return "tensor<" + "".join(f"{n}x" for n in shape) + dtype + ">"


def sort_text(shape: tuple[int, ...], dtypes: list[str], dimension: int, comparator: str) -> str:
    types = [tensor(shape, t) for t in dtypes]
    names = ", ".join(f"%x{i}" for i in range(len(types)))
    parameters = ", ".join(f"%x{i}: {t}" for i, t in enumerate(types))
    pairs = ", ".join(f"%a{i}: tensor<{t}>, %b{i}: tensor<{t}>" for i, t in enumerate(dtypes))
    results = ", ".join(f"%0#{i}" for i in range(len(types))) if len(types) > 1 else "%0"
    return f"""
func.func @main({parameters}) -> ({", ".join(types)}) {{
  %0{f":{len(types)}" if len(types) > 1 else ""} = "stablehlo.sort"({names}) <{{
      dimension = {dimension} : i64, is_stable = true}}> ({{
  ^bb0({pairs}):
    {comparator}
    stablehlo.return %r : tensor<i1>
  }}) : ({", ".join(types)}) -> ({", ".join(types)})
  return {results} : {", ".join(types)}
}}"""


def compare(direction: str, dtype: str, order: str = "", left: str = "%a0", right: str = "%b0") -> str:
    t = f"tensor<{dtype}>"
    return f"%r = stablehlo.compare {direction}, {left}, {right}{order} : ({t}, {t}) -> tensor<i1>"


def check(text: str, *arrays: np.ndarray) -> None:
    expected = evaluate(shlo_jit.parse(text), *arrays)
    got = shlo_jit.compile(text, cache=False)(*arrays)
    for g, e in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
        assert g.dtype == e.dtype
        np.testing.assert_array_equal(g.view(f"V{g.itemsize}"), e.view(f"V{e.itemsize}"))


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sampled(4)
def test_random(seed: int) -> None:
    """One key of any type, along any dimension, with any number of operands that are moved along."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.choice([1, 2, 7, 31, 150, 300], int(rng.integers(1, 4))))
    if np.prod(shape) > 20000:
        shape = shape[:1]
    dtypes = [str(t) for t in rng.choice(DTYPE_CHOICES, int(rng.integers(1, 4)))]
    floats = DTYPES[dtypes[0]].is_float
    direction = str(rng.choice(["LT", "GT"]))
    comparator = compare(direction, dtypes[0], ", TOTALORDER" if floats else "")
    if rng.random() < 0.3:
        comparator = compare(direction, dtypes[0], ", TOTALORDER" if floats else "", "%b0", "%a0")
    arrays = [random_array(rng, shape, DTYPES[t], special=True) for t in dtypes]
    check(sort_text(shape, dtypes, int(rng.integers(-len(shape), len(shape))), comparator), *arrays)


@pytest.mark.parametrize("n", [5, 100, 129, 1000, 9000, 140000])
@pytest.mark.parametrize("dtype", ["f32", "i64", "i8"])
@pytest.mark.parametrize("target", ["native", "x86-64-v3"] if machine() == "x86_64" else ["native"])
@pytest.mark.sampled(4)
def test_lengths(n: int, dtype: str, target: str) -> None:
    """Uses every algorithm: by partition, by rank, by digits of either width, in chunks."""
    rng = np.random.default_rng(n)
    x = (rng.standard_normal((2, n)) * 1e4).astype(DTYPES[dtype].numpy)
    order = np.argsort(x, axis=1, kind="stable")
    i = np.broadcast_to(np.arange(n, dtype=np.int32), x.shape).copy()
    text = sort_text(x.shape, [dtype, "i32"], 1, compare("LT", dtype))
    for threads in (1, 2, 3):
        got = shlo_jit.compile(text, cache=False, threads=threads, target=target)(x, i)
        np.testing.assert_array_equal(got[0], np.take_along_axis(x, order, 1))
        np.testing.assert_array_equal(got[1], order)


@pytest.mark.parametrize("n", [1, 5, 16, 100, 1000, 9000, 140_000])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i32", "ui64", "i8"])
@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.sampled(5)
def test_one_operand(n: int, dtype: str, direction: str) -> None:
    """Equal elements with different bits, 0.0 and -0.0, stay in order; without them the keys determine the elements."""
    rng, kind = np.random.default_rng(n), DTYPES[dtype]
    key = f"""%z = stablehlo.constant dense<0> : tensor<{dtype}>
    %u = stablehlo.add %a0, %z : tensor<{dtype}>
    %v = stablehlo.add %b0, %z : tensor<{dtype}>"""
    key = key.replace("dense<0>", "dense<0.0>") if kind.is_float else key
    text = sort_text((2, n), [dtype], 1, f"{key}\n{compare(direction, dtype, '', '%u', '%v')}")
    plain = (np.abs(rng.standard_normal((2, n))) * 50 + 1).astype(kind.numpy)
    few = rng.integers(0, 3, (2, n)).astype(kind.numpy)
    mixed = rng.choice(np.array([-1, 0, 1]), (2, n)).astype(kind.numpy)
    mixed = mixed * np.asarray(-1, kind.numpy) if kind.is_float else mixed  # zeros become -0.0
    mixed[:, ::2] = plain[:, ::2] * 0
    for threads in (1, 2):
        exe = shlo_jit.compile(text, cache=False, threads=threads)
        for x in (plain, few, mixed):
            wide = x.astype(np.float64 if kind.is_float else kind.numpy) + 0
            order = np.argsort(
                wide if direction == "LT" else ~wide if not kind.is_float else -wide, axis=1, kind="stable"
            )
            want = np.take_along_axis(x, order, 1)
            assert exe(x).tobytes() == want.tobytes()


def test_along_another_dimension() -> None:
    x = np.random.default_rng(0).standard_normal((300, 5)).astype(np.float32)
    x[::7] = 0
    check(sort_text(x.shape, ["f32"], 0, compare("LT", "f32", ", TOTALORDER")), x)


def test_any_comparator() -> None:
    """The comparator has unknown keys: by distance of the sum of both operands from 3."""
    comparator = """%p = stablehlo.add %a0, %a1 : tensor<i32>
    %q = stablehlo.multiply %b0, %b1 : tensor<i32>
    %s = stablehlo.add %b0, %b1 : tensor<i32>
    %d = stablehlo.subtract %p, %s : tensor<i32>
    %z = stablehlo.subtract %q, %q : tensor<i32>
    %r = stablehlo.compare LT, %d, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>"""
    text = sort_text((4, 77, 3), ["i32", "i32"], 1, comparator)
    assert keys_of(shlo_jit.parse(text).function("main").block().ops[0].block()) is None
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 9, (4, 77, 3)).astype(np.int32) for _ in range(2))
    check(text, x, y)


def test_several_keys() -> None:
    comparator = """%l = stablehlo.compare GT, %a0, %b0 : (tensor<i8>, tensor<i8>) -> tensor<i1>
    %e = stablehlo.compare EQ, %b0, %a0 : (tensor<i8>, tensor<i8>) -> tensor<i1>
    %m = stablehlo.compare LT, %a1, %b1, TOTALORDER : (tensor<f64>, tensor<f64>) -> tensor<i1>
    %n = stablehlo.and %m, %e : tensor<i1>
    %r = stablehlo.or %n, %l : tensor<i1>"""
    text = sort_text((3, 200), ["i8", "f64", "ui8"], 1, comparator)
    keys = keys_of(shlo_jit.parse(text).function("main").block().ops[0].block())
    assert keys is not None
    assert [(k.descending, k.total) for k in keys] == [(True, False), (False, True)]
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 2, (3, 200)).astype(np.int8)
    y = random_array(rng, (3, 200), DTYPES["f64"], special=True)
    check(text, x, y, rng.integers(0, 255, (3, 200)).astype(np.uint8))


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16", "i32", "ui8", "i64"])
@pytest.mark.parametrize("n, k", [(1, 1), (17, 3), (100, 100), (1000, 16), (4096, 40), (3000, 300), (5, 0)])
def test_top_k(dtype: str, n: int, k: int) -> None:
    x = random_array(np.random.default_rng(n), (3, n), DTYPES[dtype], special=True)
    types = f"{tensor((3, n), dtype)} -> ({tensor((3, k), dtype)}, {tensor((3, k), 'i32')})"
    check(
        f"""func.func @main(%x: {tensor((3, n), dtype)}) -> ({tensor((3, k), dtype)}, {tensor((3, k), "i32")}) {{
  %0:2 = chlo.top_k(%x, k = {k}) : {types}
  return %0#0, %0#1 : {tensor((3, k), dtype)}, {tensor((3, k), "i32")}
}}""",
        x,
    )


@pytest.mark.xla
def test_jax_programs() -> None:
    jax = pytest.importorskip("jax")
    jnp, lax = jax.numpy, jax.lax
    rng = np.random.default_rng(0)
    x = random_array(rng, (40, 300), DTYPES["f32"], special=True)
    z = (rng.integers(-3, 3, (40, 30)) + 1j * rng.integers(-3, 3, (40, 30))).astype(np.complex64)
    programs = [
        (jnp.sort, x),
        (lambda x: jnp.sort(x, axis=0, descending=True), x),
        (lambda x: jnp.argsort(x, axis=0), x),
        (lambda x: jnp.argsort(x, descending=True), x),
        (lambda x: lax.sort((x, jnp.ones_like(x), x[::-1]), num_keys=2), x),
        (lambda x: lax.top_k(x, 20), x),
        (lambda x: lax.top_k(x.astype(jnp.bfloat16), 7)[1], x),
        (lambda x: jnp.median(x, axis=1), x),
        (jnp.sort, z),
        (lambda x: jnp.unique(x, size=40), z),
    ]
    for program, argument in programs:
        lowered = jax.jit(program).lower(argument)
        got = shlo_jit.compile(lowered.as_text(), cache=False)(argument)
        expected = jax.tree_util.tree_leaves(lowered.compile()(argument))
        for g, e in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
            np.testing.assert_array_equal(g, np.asarray(e))
