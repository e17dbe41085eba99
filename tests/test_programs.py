"""Whole programs lowered from JAX functions: compiled results against XLA:CPU, the same bits for any thread count."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit

jax = pytest.importorskip("jax")
import jax.numpy as jnp
from jax import lax

pytestmark = pytest.mark.usefixtures("guarded_memory")
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def integers(low: int, high: int, shape, dtype=np.int32) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(dtype)


def layer_norm(x, gain, bias):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * gain + bias


def heat(u):
    inside = u[1:-1, 1:-1]
    return jnp.pad(inside + 0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * inside), 1)


def attention(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.float32(8**0.5)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)


def mlp(x, w, b, w2, b2):
    return jnp.maximum(jnp.maximum(x @ w + b, 0) @ w2 + b2, 0)


def recurrent(x, w):
    return lax.scan(lambda c, a: (jnp.tanh(c @ w + a), c.sum()), x[0], x)


def swap(x, y):
    return lax.fori_loop(0, 5, lambda i, c: (c[1], c[0] + 1), (x, y))


def nested(x):
    return lax.fori_loop(0, 4, lambda i, c: lax.fori_loop(0, i, lambda j, d: d * 0.5 + j, c).at[i].set(i), x)


def captured_state(x):
    """A loop that reads the initial value of its state in every iteration."""
    e = x @ x
    return jnp.cos(lax.fori_loop(0, 4, lambda i, c: (e - c) @ x, e))


def captured_view(x):
    e = (x @ x).reshape(-1)
    return jnp.cos(lax.fori_loop(0, 4, lambda i, c: c / 2 + (e.reshape(x.shape) @ x).reshape(-1), e))


def flag(x):
    """A program whose condition is the last to read a state that is also a result."""
    found, steps = lax.while_loop(lambda c: ~c[0], lambda c: (c[1] > 3, c[1] + 1), (x > 0, jnp.int32(0)))
    return found.astype(jnp.float32), steps * 2


def normalized(x, rows, columns):
    """Values that several passes over all elements need, in runs that are not multiples of a vector."""
    y = x * (columns**-0.5) * (rows**-0.5)[:, None]
    z = y / jnp.sqrt((y * y).mean() + 1)
    return z * jnp.sqrt((x * x).mean())


def convolution(x, w, **options):
    dims = options.pop("dims", ("NHWC", "HWIO", "NHWC"))
    strides, padding = options.pop("strides", (1, 1)), options.pop("padding", "SAME")
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=dims, **options)


NCHW = ("NCHW", "OIHW", "NCHW")
PROGRAMS = {
    "add": (lambda x, y: x + y, normal(4), normal(4)),
    "broadcast": (lambda x, y: x - y[:, None], normal(70, 50), normal(70)),
    "sum_all": (lambda x: x.sum(), normal(1000)),
    "sum_large": (lambda x: x.sum(), normal(700, 1001)),
    "max_large": (lambda x: x.max(), normal(700, 1001)),
    "sum_rows": (lambda x: x.sum(1), normal(37, 53)),
    "sum_columns": (lambda x: x.sum(0), normal(37, 53)),
    "sum_columns_tall": (lambda x: x.sum(0), normal(4096, 100)),
    "sum_columns_narrow": (lambda x: x.sum(0), normal(100_000, 3)),
    "sum_middle": (lambda x: x.sum(1), normal(3, 37, 53)),
    "sum_outer_inner": (lambda x: x.sum((0, 2)), normal(5, 37, 53)),
    "softmax": (lambda x: jax.nn.softmax(x, -1), normal(64, 100)),
    "softmax_first": (lambda x: jax.nn.softmax(x, 0), normal(64, 100)),
    "softmax_rank4": (lambda x: jax.nn.softmax(x, -1), normal(2, 3, 17, 33)),
    "softmax_large": (lambda x: jax.nn.softmax(x, -1), normal(512, 1003)),
    "log_softmax": (jax.nn.log_softmax, normal(40, 50)),
    "layer_norm": (layer_norm, normal(32, 96), normal(96), normal(96)),
    "several_results": (lambda x: (x + 1, x.sum(1), (x * x).sum(1), x.max()), normal(40, 50)),
    "gelu": (jax.nn.gelu, normal(40, 50)),
    "matmul": (lambda x, y: x @ y, normal(33, 47), normal(47, 21)),
    "mlp": (mlp, normal(8, 16), normal(16, 32), normal(32), normal(32, 5), normal(5)),
    "attention": (attention, normal(2, 5, 3, 8), normal(2, 6, 3, 8), normal(2, 6, 3, 8)),
    "matmul_transposed": (lambda x, y: x.T @ y.T, normal(47, 33), normal(21, 47)),
    "grad": (jax.grad(lambda w, x: jnp.tanh(x @ w).sum()), normal(8, 4), normal(5, 8)),
    "transpose": (lambda x: x.T + 1, normal(33, 47)),
    "transpose_rank3": (lambda x: x.transpose(2, 0, 1) * 2, normal(3, 5, 7)),
    "reshape_split": (lambda x: (x * 2).reshape(8, 3, 2) + jnp.arange(2.0), normal(4, 12)),
    "reshape_odd": (lambda x: jnp.tanh(x).reshape(6, 8).T.reshape(8, 6) * 2, normal(4, 12)),
    "slices": (lambda x: x[1:-1, 2:] * x[:-2, :-2], normal(20, 30)),
    "strided": (lambda x: x[::2, ::3] * 2, normal(15, 37)),
    "reverse": (lambda x: x[:, ::-1] + 1, normal(5, 37)),
    "pad": (lambda x: jnp.pad(x, ((1, 2), (3, 0))) * 2, normal(20, 30)),
    "heat": (heat, normal(33, 35)),
    "concatenate": (lambda x, y: jnp.concatenate([x * 2, y], 1), normal(5, 3), normal(5, 7)),
    "take": (lambda x, i: x[i] * 2, normal(50, 37), integers(0, 50, (6, 3))),
    "take_along": (lambda x, i: jnp.take_along_axis(x, i, 1), normal(50, 37), integers(0, 37, (50, 4))),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i, jnp.int32(2)), (3, 5)), normal(10, 9), np.int32(4)),
    "update": (
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, jnp.int32(2))) * 2,
        normal(10, 9), normal(3, 5), np.int32(4),
    ),
    "loop": (lambda x: lax.fori_loop(0, 10, lambda i, c: c * 0.99 + i, x), normal(4)),
    "loop_swap": (swap, normal(4), normal(4)),
    "loop_nested": (nested, normal(6)),
    "loop_captured_state": (captured_state, normal(3, 3) / 4),
    "loop_captured_view": (captured_view, normal(3, 3) / 4),
    "loop_flag": (flag, np.float32(-1)),
    "rows_of_short_runs": (normalized, normal(64, 10), abs(normal(64)) + 1, abs(normal(10)) + 1),
    "scan": (recurrent, normal(9, 6), normal(6, 6)),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, x), normal(5)),
    "switch": (
        lambda i, x: lax.switch(i, [lambda x: x * 2, lambda x: x - 1, jnp.tanh], x), np.int32(2), normal(5),
    ),
    "integers": (
        lambda x, y: (x // y, x % y, x << 2, x ^ y, x * y), integers(-50, 50, 77), integers(1, 50, 77),
    ),
    "int8": (lambda x: (x + 1).astype(np.float32) * 0.5, integers(-50, 50, 77, np.int8)),
    "booleans": (lambda x, y: jnp.where((x > 0) & (y < 0.3), x, y), normal(5, 37), normal(5, 37)),
    "argmax": (lambda x: (jnp.argmax(x, -1), jnp.argmin(x, 0)), normal(20, 37)),
    "bfloat16": (lambda x: (x.astype(jnp.bfloat16) * 2 + 1).astype(jnp.float32).sum(1), normal(20, 37)),
    "float16": (lambda x: x.astype(jnp.float16) * 2 + 1, normal(20, 37)),
    "complex": (lambda x, y: (lax.complex(x, y) * lax.complex(y, x)).real.sum(0), normal(5, 37), normal(5, 37)),
    "random_bits": (lambda k: jax.random.bits(k, (33,)), np.array([0, 42], np.uint32)),
    "random_normal": (lambda k: jax.random.normal(k, (33,)), np.array([0, 42], np.uint32)),
    "conv": (convolution, normal(2, 9, 8, 5), normal(3, 3, 5, 7)),
    "conv_relu": (
        lambda x, w, b: jnp.maximum(convolution(x, w) * 2 + b, 0), normal(2, 9, 8, 5), normal(3, 3, 5, 7), normal(7),
    ),
    "conv_nchw": (
        lambda x, w, b: jnp.maximum(convolution(x, w, dims=NCHW) + b[:, None, None], 0),
        normal(2, 5, 9, 8), normal(7, 5, 3, 3), normal(7),
    ),
    "conv_grouped": (
        lambda x, w: jnp.tanh(convolution(x, w, feature_group_count=2)), normal(2, 9, 8, 6), normal(3, 3, 3, 8),
    ),
    "conv_batch_groups": (
        lambda x, w: jnp.tanh(convolution(x, w, batch_group_count=2)), normal(4, 9, 8, 6), normal(3, 3, 6, 8),
    ),
    "conv_depthwise": (
        lambda x, w: jnp.maximum(convolution(x, w, feature_group_count=16), 0), normal(2, 9, 8, 16), normal(3, 3, 1, 16),
    ),
    "conv_dilated": (
        lambda x, w: convolution(x, w, padding=((1, 2), (2, 1)), lhs_dilation=(2, 3), rhs_dilation=(1, 2)),
        normal(2, 9, 8, 6), normal(3, 3, 6, 8),
    ),
    "conv_grad": (
        jax.grad(lambda w, x: (convolution(x, w, strides=(2, 2)) ** 2).sum()), normal(3, 3, 5, 7), normal(2, 9, 8, 5),
    ),
    "conv_complex": (
        lambda x, w: convolution(x * np.complex64(1 + 2j), w * np.complex64(1 - 1j)),
        normal(1, 5, 6, 3), normal(3, 3, 3, 4),
    ),
}  # fmt: skip
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-3}
"""Tolerances by program; the others agree to 2e-5 of the largest value. XLA keeps bf16 intermediates in f32, we round
them."""


def outputs(value) -> list[np.ndarray]:
    return [np.asarray(v) for v in (value if isinstance(value, tuple) else (value,))]


@pytest.mark.xla
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(5)
def test_agrees_with_xla(name: str) -> None:
    function, *arguments = PROGRAMS[name]
    text = jax.jit(function, keep_unused=True).lower(*arguments).as_text()
    want = [np.asarray(o) for o in jax.tree_util.tree_leaves(jax.jit(function)(*arguments))]
    got = outputs(shlo_jit.compile(text, cache=False)(*arguments))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        wide = np.complex128 if w.dtype.kind == "c" else np.float64
        scale = max(1e-9, float(np.abs(w.astype(wide)).max(initial=0)))
        error = float(np.abs(g.astype(wide) - w.astype(wide)).max(initial=0)) / scale
        assert error <= TOLERANCE.get(name, 2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(5)
def test_same_bits_for_any_thread_count(name: str) -> None:
    function, *arguments = PROGRAMS[name]
    text = jax.jit(function, keep_unused=True).lower(*arguments).as_text()
    keep = [np.array(a) for a in arguments]
    first = [o.tobytes() for o in outputs(shlo_jit.compile(text, cache=False, threads=1)(*arguments))]
    for threads in (2, 3, 8):
        exe = shlo_jit.compile(text, cache=False, threads=threads)
        for _ in range(2):
            assert [o.tobytes() for o in outputs(exe(*arguments))] == first
    assert all(np.array_equal(a, k) for a, k in zip(arguments, keep, strict=True))
