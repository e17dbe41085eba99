"""scatter: random shapes, dimension numbers, types and bodies against the reference interpreter; JAX's programs against
XLA."""

from __future__ import annotations

import numpy as np
import pytest
from random_arrays import close, random_array

import shlo_jit
from shlo_jit.ir.types import DTYPES
from shlo_jit.reference.interpreter import evaluate

BODIES = {
    "add": "%r = stablehlo.add %a, %u : tensor<{t}>",
    "set": "%r = stablehlo.or %u, %u : tensor<{t}>",
    "multiply": "%r = stablehlo.multiply %a, %u : tensor<{t}>",
    "maximum": "%r = stablehlo.maximum %a, %u : tensor<{t}>",
    "twice": "%d = stablehlo.add %u, %u : tensor<{t}>\n%r = stablehlo.subtract %a, %d : tensor<{t}>",
    "branch": "%p = stablehlo.compare LT, %a, %u : (tensor<{t}>, tensor<{t}>) -> tensor<i1>\n"
    '%r = "stablehlo.if"(%p) ({{ stablehlo.return %u : tensor<{t}> }}, {{ stablehlo.return %a : tensor<{t}> }}) '
    ": (tensor<i1>) -> tensor<{t}>",
}


def tensor(shape: tuple[int, ...], dtype: str) -> str:
    return "tensor<" + "".join(f"{n}x" for n in shape) + dtype + ">"


def scatter_text(operand, indices, update, dtype, index_type, numbers, body, unique=False) -> str:
    lines = BODIES[body].format(t=dtype)
    if body == "set":
        lines = "%r = stablehlo.reshape %u : (tensor<" + dtype + ">) -> tensor<" + dtype + ">"
    words = ", ".join(f"{k} = {list(v) if isinstance(v, tuple) else v}" for k, v in numbers.items() if v != ())
    types = [tensor(operand, dtype), tensor(indices, index_type), tensor(update, dtype)]
    return f"""
func.func @main(%x: {types[0]}, %i: {types[1]}, %u: {types[2]}) -> {types[0]} {{
  %0 = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<{words}>,
      unique_indices = {str(unique).lower()}}}> ({{
  ^bb0(%a: tensor<{dtype}>, %u0: tensor<{dtype}>):
    {lines.replace("%u", "%u0")}
    stablehlo.return %r : tensor<{dtype}>
  }}) : ({", ".join(types)}) -> {types[0]}
  return %0 : {types[0]}
}}"""


def random_scatter(rng: np.random.Generator) -> tuple:
    """Returns shapes and dimension numbers of a random valid scatter."""
    rank = int(rng.integers(1, 5))
    operand = tuple(int(n) for n in rng.choice([1, 2, 3, 5, 8, 17, 40], rank))
    kinds = rng.choice(["window", "inserted", "batching"], rank, p=[0.6, 0.3, 0.1])
    inserted = tuple(d for d in range(rank) if kinds[d] == "inserted")
    batching = tuple(d for d in range(rank) if kinds[d] == "batching")
    window_dims = [d for d in range(rank) if kinds[d] == "window"]
    movable = [d for d in range(rank) if d not in batching]
    to_operand = tuple(int(d) for d in rng.permutation(movable)[: rng.integers(0, len(movable) + 1)])
    window = [operand[d] if rng.random() < 0.5 else int(rng.integers(1, operand[d] + 1)) for d in window_dims]
    free = [int(n) for n in rng.choice([1, 2, 3, 7], rng.integers(0, 3))]
    places = rng.permutation(len(free) + len(batching))
    scatter = [0] * len(places)
    for n, p in zip([*free, *(operand[d] for d in batching)], places, strict=True):
        scatter[p] = n
    indices_batching = [int(p) for p in places[len(free) :]]
    at = int(rng.integers(0, len(scatter) + 1))
    indices = (*scatter[:at], len(to_operand), *scatter[at:])
    if len(to_operand) == 1 and rng.random() < 0.3:
        at, indices = len(scatter), tuple(scatter)
    else:
        indices_batching = [p + (p >= at) for p in indices_batching]
    update_rank = len(scatter) + len(window)
    update_window = tuple(sorted(int(d) for d in rng.permutation(update_rank)[: len(window)]))
    update, rest, inner = [], iter(scatter), iter(window)
    for d in range(update_rank):
        update.append(next(inner) if d in update_window else next(rest))
    numbers = {
        "update_window_dims": update_window,
        "inserted_window_dims": inserted,
        "input_batching_dims": batching,
        "scatter_indices_batching_dims": tuple(indices_batching),
        "scatter_dims_to_operand_dims": to_operand,
        "index_vector_dim": at,
    }
    return operand, indices, tuple(update), numbers


@pytest.mark.parametrize("seed", range(80))
def test_random(seed: int) -> None:
    rng = np.random.default_rng(seed)
    operand, indices, update, numbers = random_scatter(rng)
    dtype = str(rng.choice(["f32", "f32", "f64", "bf16", "f16", "i32", "ui8", "i1", "i4", "complex<f32>"]))
    index_type = str(rng.choice(["i32", "i64", "ui8", "ui64", "i8"]))
    bodies = ["add", "set"] if dtype in ("i1", "complex<f32>") else list(BODIES)
    body = str(rng.choice(bodies))
    first_window = min(numbers["update_window_dims"], default=len(update))
    if body == "set" and first_window < len(update) - len(numbers["update_window_dims"]):
        body = "add"  # the order of updates is implementation-defined: ours goes by positions, then by the window
    text = scatter_text(operand, indices, update, dtype, index_type, numbers, body)
    module = shlo_jit.parse(text)
    x, u = random_array(rng, operand, DTYPES[dtype]), random_array(rng, update, DTYPES[dtype])
    low = 0 if index_type.startswith("u") else -2
    i = rng.integers(low, max((*operand, 1)) + 2, indices).astype(DTYPES[index_type].numpy)
    expected = evaluate(module, x, i, u)
    compiled = shlo_jit.compile(text, cache=False)
    before = x.copy()
    close(compiled(x, i, u), expected[0], DTYPES[dtype])
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("shape", [(500, 256), (300, 3, 70), (4000,)])
def test_rows_same_bits_for_any_threads(shape: tuple[int, ...], unique: bool) -> None:
    rng = np.random.default_rng(1)
    n, rest = 3000 if not unique else 200, shape[1:]
    numbers = {
        "update_window_dims": tuple(range(1, len(shape))),
        "inserted_window_dims": (0,),
        "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 1,
    }
    text = scatter_text(shape, (n, 1), (n, *rest), "f32", "i32", numbers, "add", unique)
    x = rng.standard_normal(shape).astype(np.float32)
    u = rng.standard_normal((n, *rest)).astype(np.float32)
    i = rng.permutation(shape[0])[:n, None] if unique else rng.integers(-5, shape[0] + 5, (n, 1))
    i = i.astype(np.int32)
    expected = x.copy()
    for k in range(n):
        if 0 <= i[k, 0] < shape[0]:
            expected[i[k, 0]] += u[k]
    for threads in (1, 2, 3):
        got = shlo_jit.compile(text, cache=False, threads=threads)(x, i, u)
        np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


def test_several_inputs() -> None:
    text = """
func.func @main(%x: tensor<6xf32>, %y: tensor<6xi64>, %i: tensor<4x1xi32>, %u: tensor<4xf32>, %v: tensor<4xi64>)
    -> (tensor<6xf32>, tensor<6xi64>) {
  %0:2 = "stablehlo.scatter"(%x, %y, %i, %u, %v) <{scatter_dimension_numbers = #stablehlo.scatter<
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<i64>, %c: tensor<f32>, %d: tensor<i64>):
    %p = stablehlo.compare GT, %c, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %r = stablehlo.select %p, %c, %a : tensor<i1>, tensor<f32>
    %s = stablehlo.select %p, %d, %b : tensor<i1>, tensor<i64>
    stablehlo.return %r, %s : tensor<f32>, tensor<i64>
  }) : (tensor<6xf32>, tensor<6xi64>, tensor<4x1xi32>, tensor<4xf32>, tensor<4xi64>)
      -> (tensor<6xf32>, tensor<6xi64>)
  return %0#0, %0#1 : tensor<6xf32>, tensor<6xi64>
}"""
    x, y = np.zeros(6, np.float32), np.arange(6)
    i = np.array([[2], [2], [9], [0]], np.int32)
    u, v = np.array([1, 0.5, 7, -1], np.float32), np.array([10, 20, 30, 40])
    a, b = shlo_jit.compile(text, cache=False)(x, y, i, u, v)
    np.testing.assert_array_equal(a, [0, 0, 1, 0, 0, 0])
    np.testing.assert_array_equal(b, [0, 1, 10, 3, 4, 5])


@pytest.mark.xla
def test_jax_programs() -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    x = np.random.default_rng(0).standard_normal((7, 9, 33)).astype(np.float32)
    i = np.array([3, 1, 3, 6, 100, -1], np.int32)
    programs = [
        lambda x, i: x.at[i].add(jnp.ones((6, 9, 33))),
        lambda x, i: x.at[:, i].mul(2.0),
        lambda x, i: x.at[:, :, i].set(5.0),
        lambda x, i: x.at[i, i].max(jnp.arange(6.0)[:, None]),
        lambda x, i: jax.vmap(lambda r, k: r.at[k].min(0.1))(x, jnp.tile(i[:3], (7, 1))),
        lambda x, i: jnp.zeros(10).at[i].add(1.0),
        lambda x, i: jax.grad(lambda t: (t[i] ** 2).sum())(x),
        lambda x, i: x.at[1:5, ::2, 3].apply(jnp.sin),
    ]
    for program in programs:
        lowered = jax.jit(program, keep_unused=True).lower(x, i)
        got = shlo_jit.compile(lowered.as_text(), cache=False)(x, i)
        np.testing.assert_allclose(got, lowered.compile()(x, i), rtol=1e-6, atol=1e-6)
