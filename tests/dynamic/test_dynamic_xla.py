"""Programs that JAX exports with symbolic shapes, compiled for several sizes, against XLA:CPU on the refined program."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from refusing import refused

import shlo_jit
from shlo_jit.reference.compare import difference

jax = pytest.importorskip("jax")
pytest.importorskip("jax.export")
from jax import lax
from jax import numpy as jnp

pytestmark = pytest.mark.xla
SIZES = [1, 2, 3, 17, 1000]
TOLERANCE = 1e-4
"""Tolerance relative to the largest element: sums of a thousand rounded terms are in another order."""


def layer_norm_mlp(x, w, v):
    x = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return jax.nn.softmax(jnp.tanh(x @ w) @ v)


def training_step(w, x, y):
    def loss(w):
        return ((jnp.tanh(x @ w) - y) ** 2).mean()

    value, gradient = jax.value_and_grad(loss)(w)
    return value, w - 0.1 * gradient


def attention(q, k, v):
    scores = jnp.einsum("bsd,btd->bst", q, k) / 2
    mask = jnp.arange(q.shape[1])[:, None] >= jnp.arange(k.shape[1])[None]
    return jnp.einsum("bst,btd->bsd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)


def convolutions(x, kernel):
    y = lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return lax.reduce_window(jax.nn.relu(y), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def order(x):
    return jnp.sort(x, axis=0), jnp.argmax(x, axis=0), jnp.cumsum(x, axis=0), x[::-1], jnp.max(x, axis=0)


def embeddings(table, ids):
    taken = table[ids]
    return taken, jnp.zeros_like(table).at[ids].add(2 * taken), jax.nn.one_hot(ids, 5)


def sizes(x):
    """Shapes that are computed: flattened, concatenated, padded, repeated, sliced."""
    b = x.shape[0]
    flat = x.reshape(b * 6)
    both = jnp.concatenate([flat, jnp.arange(b * 2, dtype=jnp.float32)])
    return both.reshape(b, 8), jnp.pad(x, ((1, b), (0, 0))), jnp.repeat(x, 2, axis=0), x[: b // 2], jnp.float32(b)


def loop(x):
    return lax.fori_loop(0, x.shape[0], lambda i, total: total + x[i] * i, jnp.zeros(3, jnp.float32))


def largest(x):
    return lax.top_k(x.T, x.shape[0])


def factors(x):
    matrix = x @ x.T + x.shape[0] * jnp.eye(x.shape[0], dtype=x.dtype)
    return jnp.linalg.cholesky(matrix), lax.linalg.triangular_solve(matrix, x, left_side=True, lower=True)


def windows(x):
    """JAX calls a special function for windows of unknown sizes."""
    return lax.reduce_window(x, 0.0, lax.add, (2, 1), (1, 1), "SAME"), lax.cummax(x, axis=0)


def pairs(x, y):
    return ((x[:, None] - y[None]) ** 2).sum(-1), x @ y.T


def of(*shape: int | str, dtype: type = np.float32) -> tuple[tuple[int | str, ...], type]:
    return shape, dtype


PROGRAMS: dict[Callable, Sequence[tuple[tuple[int | str, ...], type]]] = {
    layer_norm_mlp: [of("b", 16), of(16, 32), of(32, 4)],
    training_step: [of(4, 3), of("b", 4), of("b", 3)],
    attention: [of(2, "b", 8), of(2, "b", 8), of(2, "b", 8)],
    convolutions: [of("b", 9, 9, 3), of(3, 3, 3, 8)],
    order: [of("b", 3)],
    embeddings: [of(5, 4), of("b", dtype=np.int32)],
    sizes: [of("b", 6)],
    loop: [of("b", 3)],
    largest: [of("b", 3)],
    factors: [of("b", 3)],
    windows: [of("b", 3)],
    pairs: [of("b", 3), of("c", 3)],
}
NOT_EMPTY = {order, loop, windows}
"""Programs without meaning for empty arrays: an argmax, an element or a window of nothing."""


def exported(function: Callable) -> str:
    """Returns the text of a function, with unknown sizes b and c."""
    scope = jax.export.SymbolicScope()
    specs = [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(",".join(map(str, shape)), scope=scope), dtype)
        for shape, dtype in PROGRAMS[function]
    ]
    return jax.export.export(jax.jit(function), platforms=["cpu"])(*specs).mlir_module()


def arrays(function: Callable, **extents: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    found = []
    for shape, dtype in PROGRAMS[function]:
        known = tuple(extents.get(n, n) if isinstance(n, str) else n for n in shape)
        found.append(
            generator.standard_normal(known).astype(dtype)
            if dtype == np.float32
            else generator.integers(0, 5, known).astype(dtype)
        )
    return found


def by_xla(text: str, given: Sequence[np.ndarray]) -> list[np.ndarray]:
    from jax._src import xla_bridge
    from jax._src.lib import _jax

    client = xla_bridge.get_backend("cpu")
    devices = _jax.DeviceList(tuple(client.local_devices()[:1]))
    executable = client.compile_and_load(text, devices, _jax.CompileOptions())
    return [np.asarray(x) for x in executable.execute([jax.device_put(x, client.local_devices()[0]) for x in given])]


def check(function: Callable, text: str, given: Sequence[np.ndarray]) -> None:
    """Compares with XLA on the refined program if XLA knows its calls, and with the function that JAX traces for these
    sizes."""
    dynamic = shlo_jit.compile(text)
    assert "?" in repr(dynamic)
    got = dynamic(*given)
    refined = shlo_jit.refine(text, given)
    assert shlo_jit.verify(refined) == []
    assert "?" not in re.sub(r'"[^"]*"', "", str(refined))
    static = shlo_jit.compile(refined)(*given)
    wants = [jax.tree.leaves(jax.jit(function)(*given))]
    if "@stablehlo.dynamic" not in str(refined):
        wants.append(by_xla(str(refined), given))
    results, statics = (r if isinstance(r, tuple) else (r,) for r in (got, static))
    for g, s, *found in zip(results, statics, *wants, strict=True):
        assert g.tobytes() == s.tobytes()
        for want in map(np.asarray, found):
            assert (g.dtype, g.shape) == (want.dtype, want.shape)
            if want.size:
                assert difference(g, want).relative <= (0 if want.dtype.kind in "iu" else TOLERANCE)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("b", SIZES)
@pytest.mark.sampled(5)
def test_as_xla(function: Callable, b: int) -> None:
    check(function, exported(function), arrays(function, b=b, c=5))


@pytest.mark.parametrize("c", SIZES)
def test_two_sizes(c: int) -> None:
    check(pairs, exported(pairs), arrays(pairs, b=7, c=c))


@pytest.mark.parametrize("function", [f for f in PROGRAMS if f not in NOT_EMPTY], ids=lambda f: f.__name__)
def test_no_elements(function: Callable) -> None:
    """JAX asserts that sizes are at least 1; without the assertions, programs are defined for empty arrays."""
    text, given = exported(function), arrays(function, b=0, c=5)
    with refused(shlo_jit.VerifyError, "assertion", shows=">= 1 for dimension variable") as refusal:
        shlo_jit.compile(text)(*given)
    assert refusal.value.diagnostics[0].label == "assertion"
    assert re.search(r"argument \d \(%arg\d\) has 0 in dimension \d", str(refusal.value))
    check(function, "\n".join(line for line in text.splitlines() if "@shape_assertion" not in line), given)


def test_sizes_that_jax_wants_equal() -> None:
    """Sizes of two arguments, checked by the assertion that JAX writes."""
    w, x, y = arrays(training_step, b=3)
    with pytest.raises(shlo_jit.VerifyError) as refusal:
        shlo_jit.compile(exported(training_step))(w, x, y[:2])
    message = refusal.value.diagnostics[0].message
    assert "Expected value 3 for" in message or "Input shapes do not match" in message
    assert message.endswith("argument 1 (%arg1) has 3 in dimension 0, argument 2 (%arg2) has 2 in dimension 0")
