"""The reference interpreter against XLA:CPU: jax functions are lowered to text, parsed, evaluated and compared."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from shlo_jit.reference.interpreter import evaluate
from shlo_jit.text.parser import parse_module
from shlo_jit.verify.verifier import verify_module

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax

pytestmark = pytest.mark.xla
RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def wide():
    """Enables 64-bit types only for this module: other tests of the process need JAX unchanged."""
    with jax.enable_x64(True):
        yield


def normal(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def integers(*shape, low=-50, high=50, dtype=np.int32):
    return RNG.integers(low, high, shape).astype(dtype)


def both(f, *args, platform="cpu"):
    """Returns the flattened results of the interpreter and of XLA. Lowering for TPU keeps linear algebra ops."""
    lowered = jax.jit(f).trace(*args).lower(lowering_platforms=(platform,))
    module = parse_module(lowered.as_text())
    assert verify_module(module) == []
    got = evaluate(module, *jax.tree.leaves(args))
    return got, [np.asarray(x) for x in jax.tree.leaves(jax.jit(f)(*args))]


def compare(f, *args, tolerance=2e-6, platform="cpu"):
    got, want = both(f, *args, platform=platform)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        if w.dtype.kind in "biu" or "int" in w.dtype.name:
            np.testing.assert_array_equal(g, w)
        else:
            wide = np.complex128 if w.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(g.astype(wide), w.astype(wide), rtol=tolerance, atol=tolerance)


UNARY = [
    "exp", "exp2", "log", "log1p", "expm1", "sin", "cos", "tan", "tanh", "logistic", "sqrt", "rsqrt", "cbrt", "abs",
    "sign", "floor", "ceil", "round", "erf", "erfc", "erf_inv", "lgamma", "digamma", "asin", "acos", "atan", "asinh",
    "acosh", "atanh", "sinh", "cosh", "is_finite", "neg", "bessel_i1e", "square",
]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.sampled(5)
def test_unary(name, dtype):
    x = (RNG.uniform(0.05, 0.95, (4, 5)) + (1.0 if name == "acosh" else 0.0)).astype(dtype)
    compare(getattr(lax, name), x, tolerance=1e-5 if dtype == np.float32 else 1e-11)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "tanh", "sin", "cos", "rsqrt", "logistic", "log1p", "expm1"])
def test_unary_complex(name):
    x = (normal(3, 4) + 1j * normal(3, 4)).astype(np.complex64)
    compare(getattr(lax, name), x, tolerance=1e-5)


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 1e-37, 3.4e38, -2.5, 2.5]
"""No subnormal numbers: XLA flushes them."""


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "max", "min", "rem", "pow", "atan2", "nextafter"])
def test_binary_on_special_values(name):
    x, y = (a.reshape(-1).astype(np.float32) for a in np.meshgrid(SPECIAL, SPECIAL))
    got, want = both(getattr(lax, name), x, y)
    kept = (np.abs(got[0]) > 1.2e-38) | (got[0] == 0) | np.isnan(got[0])
    np.testing.assert_allclose(got[0][kept], want[0][kept], rtol=2e-6)
    kept &= ~np.isnan(got[0])
    np.testing.assert_array_equal(np.signbit(got[0])[kept], np.signbit(want[0])[kept])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "rem", "max", "min", "bitwise_and", "bitwise_xor"])
@pytest.mark.sampled(4)
def test_binary_integers(name, dtype):
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, 64, dtype=dtype, endpoint=True)
    y = RNG.integers(info.min, info.max, 64, dtype=dtype, endpoint=True)
    x[:4], y[:4] = [info.min, info.max, info.min, 7], [info.max, 0, 0, 0]
    if info.min < 0:
        x[4], y[4] = info.min, -1
    compare(getattr(lax, name), x, y)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
@pytest.mark.parametrize("name", ["shift_left", "shift_right_arithmetic", "shift_right_logical"])
def test_shifts_past_the_width(name, dtype):
    x = np.asarray([1, -1 if np.iinfo(dtype).min else 255, 100, 77, 3, 5], np.int64).astype(dtype)
    n = np.asarray([1, 3, 7, 64 if dtype != np.int8 else 100, 0, 31], dtype)
    compare(getattr(lax, name), x, n)


@pytest.mark.parametrize("name", ["population_count", "clz", "bitwise_not"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint64])
def test_bits(name, dtype):
    info = np.iinfo(dtype)
    compare(getattr(lax, name), RNG.integers(info.min, info.max, 40, dtype=dtype))


FLOATS = [np.float32, np.float16, ml_dtypes.bfloat16, np.float64, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", [*FLOATS, np.int8, np.uint8, np.int32, np.uint32, np.int64, np.bool_])
@pytest.mark.sampled(5)
def test_convert(source, target):
    x = np.asarray([0.0, -0.0, 1.5, -2.5, 300.7, -300.7, 1e6, np.inf, -np.inf, np.nan, 0.3, 3e9], np.float64)
    got, want = both(lambda a: lax.convert_element_type(a, target), x.astype(source))
    np.testing.assert_array_equal(got[0].astype(np.float64), want[0].astype(np.float64))


def test_reduce_precision():
    x = np.concatenate([normal(200) * np.float32(10.0) ** integers(200, low=-30, high=30), np.float32(SPECIAL)])
    for exponent, mantissa in ((8, 7), (5, 10), (4, 3), (8, 23), (2, 1), (5, 23)):
        got, want = both(lambda a, e=exponent, m=mantissa: lax.reduce_precision(a, e, m), x.astype(np.float32))
        subnormal = (np.abs(x) < 1.2e-38) & (x != 0)
        np.testing.assert_array_equal(got[0][~subnormal], want[0][~subnormal])


def test_total_order():
    x = np.asarray(SPECIAL, np.float32)
    compare(lax.sort, x)
    compare(lambda a: lax.sort((a, jnp.arange(12)), num_keys=1, is_stable=True), x)


@pytest.mark.parametrize("source,target", [(np.float64, np.int32), (np.int32, np.float32), (np.int8, np.int32),
                                           (np.uint16, np.uint8), (np.float32, np.uint16)])  # fmt: skip
def test_bitcast(source, target):
    shape = (3, np.dtype(target).itemsize // np.dtype(source).itemsize or 1)
    x = RNG.integers(0, 255, (3, shape[1] if shape[1] > 1 else 4, np.dtype(source).itemsize), np.uint8)
    compare(lambda a: lax.bitcast_convert_type(a, target), x.view(source)[..., 0])


def test_data_movement():
    x = normal(4, 5, 6)
    compare(lambda a: lax.pad(a, np.float32(1.5), [(1, 2, 1), (-1, 3, 0), (2, -2, 2)]), x)
    compare(lambda a: lax.rev(a, (0, 2)), x)
    compare(lambda a: lax.slice(a, (1, 0, 2), (4, 5, 6), (2, 1, 3)), x)
    compare(lambda a: lax.transpose(a, (2, 0, 1)), x)
    compare(lambda a: lax.concatenate([a, a * 2], 1), x)
    compare(lambda a: lax.broadcast_in_dim(a, (2, 4, 5, 3, 6), (1, 2, 4)), x)
    compare(lambda a: lax.broadcasted_iota(jnp.bfloat16, (3, 4), 1) + a[0, 0, 0].astype(jnp.bfloat16), x)
    compare(lambda a, i, j: lax.dynamic_slice(a, (i, j, 0), (2, 3, 6)), x, 3, -2)
    compare(lambda a, b, i: lax.dynamic_update_slice(a, b, (i, 9, 0)), x, normal(2, 2, 6), 1)


def test_gather_and_scatter():
    x, i = normal(7, 5), integers(4, 3, low=-9, high=9)
    compare(lambda a, k: a[k] + 1, x, i)
    compare(lambda a, k: jnp.take(a, k, axis=1, mode="clip"), x, i)
    compare(lambda a, k: jnp.take(a, k, axis=0, mode="fill"), x, i)
    compare(lambda a, k: a.at[k, 2].add(3.5), x, i)
    compare(lambda a, k: a.at[k].set(-1.0, mode="drop"), x, i)
    compare(lambda a, k: a.at[1:3, k[0]].multiply(2.0), x, i)
    compare(lambda a, k: jnp.take_along_axis(a, k, axis=1), x, integers(7, 2, low=0, high=5))
    compare(jax.vmap(lambda a, k: a[k]), x, integers(7, low=0, high=5))
    compare(jax.vmap(lambda a, k: a.at[k].max(0.0)), x, integers(7, 2, low=0, high=5))


def test_reductions():
    x = normal(6, 7, 3)
    compare(lambda a: jnp.sum(a, axis=(0, 2)), x)
    compare(lambda a: jnp.max(a, axis=1), x)
    compare(lambda a: jnp.argmin(a, axis=0), x)
    compare(jnp.prod, x, tolerance=1e-5)
    compare(lambda a: jnp.any(a > 2, axis=1), x)
    compare(lambda a: jnp.cumsum(a, axis=1), x)
    compare(lambda a: lax.cummax(a, axis=2, reverse=True), x)
    compare(jnp.sum, normal(50, 60), tolerance=1e-4)
    compare(lambda a: lax.reduce_window(a, 0.0, lax.add, (2, 3, 1), (1, 2, 1), [(1, 0), (0, 2), (0, 0)],
                                        (2, 1, 1), (1, 2, 1)), x)  # fmt: skip
    compare(jax.grad(lambda a: jnp.sum(lax.reduce_window(a, -jnp.inf, lax.max, (3, 3), (2, 2), "SAME") ** 2)),
            normal(9, 8), tolerance=1e-5)  # fmt: skip


def test_products():
    compare(jnp.matmul, normal(5, 6), normal(6, 4))
    compare(lambda a, b: jnp.einsum("bij,bkj->bik", a, b), normal(3, 4, 5), normal(3, 2, 5))
    compare(lambda a, b: jnp.tensordot(a, b, 2), normal(3, 4, 5), normal(4, 5, 6), tolerance=1e-5)
    compare(lambda a, b: a @ b, integers(3, 4, dtype=np.int8), integers(4, 5, dtype=np.int8))
    compare(lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
            integers(3, 4, dtype=np.int8), integers(4, 5, dtype=np.int8))  # fmt: skip
    bf16 = ml_dtypes.bfloat16
    compare(lambda a, b: a @ b, normal(5, 6, dtype=bf16), normal(6, 4, dtype=bf16), tolerance=2e-2)


@pytest.mark.parametrize("options", [
    {},
    {"window_strides": (2, 1), "padding": [(1, 2), (0, 3)]},
    {"lhs_dilation": (2, 3), "rhs_dilation": (1, 2), "padding": [(2, 2), (3, 3)]},
    {"feature_group_count": 2},
    {"batch_group_count": 2},
    {"dimension_numbers": ("NHWC", "HWIO", "NHWC")},
])  # fmt: skip
def test_convolution(options):
    options = dict(options)
    x, k = normal(2, 4, 8, 7), normal(6, 4, 3, 2)
    if options.get("feature_group_count"):
        k = normal(6, 2, 3, 2)
    if options.get("dimension_numbers"):
        x, k = normal(2, 8, 7, 4), normal(3, 2, 4, 6)
    strides, padding = options.pop("window_strides", (1, 1)), options.pop("padding", "SAME")
    if "lhs_dilation" in options:
        padding = [(2, 2), (3, 3)]
    compare(lambda a, b: lax.conv_general_dilated(a, b, strides, padding, **options), x, k, tolerance=2e-5)


def test_linear_algebra():
    a = normal(2, 4, 4, dtype=np.float64)
    spd = a @ a.transpose(0, 2, 1) + 4 * np.eye(4)
    compare(lax.linalg.cholesky, spd, platform="tpu", tolerance=1e-10)
    choices = ((True, True, False), (True, False, True), (False, True, True), (False, False, False))
    for left, lower, transpose in choices:
        compare(
            lambda x, y, left=left, lower=lower, transpose=transpose: lax.linalg.triangular_solve(
                x, y, left_side=left, lower=lower, transpose_a=transpose
            ),
            spd,
            normal(2, 4, 4, dtype=np.float64),
            tolerance=1e-10,
            platform="tpu",
        )


def test_fft():
    x = (normal(3, 4, 6) + 1j * normal(3, 4, 6)).astype(np.complex64)
    compare(lambda a: lax.fft(a, "FFT", (4, 6)), x, tolerance=1e-5)
    compare(lambda a: lax.fft(a, "IFFT", (6,)), x, tolerance=1e-5)
    compare(lambda a: lax.fft(a, "RFFT", (6,)), normal(3, 6), tolerance=1e-5)
    compare(lambda a: lax.fft(a, "IRFFT", (10,)), x, tolerance=1e-5)


def test_control_flow():
    compare(lambda n: lax.fori_loop(0, 10, lambda i, s: s + i * n, 0), 3)
    compare(lambda n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 1.5), (0, 1.0)), 6)
    compare(lambda n, x: lax.switch(n, [lambda v: v, lambda v: v * 2, lambda v: v - 1], x), 7, normal(3))
    compare(lambda p, x: lax.cond(p, lambda v: v + 1, lambda v: v * v, x), True, normal(3))
    compare(lambda xs: lax.scan(lambda c, x: (c + x, c * x), 0.0, xs), normal(6))
    compare(lambda x: jax.jit(jnp.sort)(x)[::-1], normal(9))


@pytest.mark.parametrize("algorithm", [lax.RandomAlgorithm.RNG_THREE_FRY, lax.RandomAlgorithm.RNG_PHILOX,
                                       lax.RandomAlgorithm.RNG_DEFAULT])  # fmt: skip
@pytest.mark.parametrize("shape", [(), (1,), (2, 2), (3, 5), (4, 3, 2), (7,)])
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64, np.uint8, np.uint16])
@pytest.mark.sampled(5)
def test_rng_bits(algorithm, shape, dtype):
    key = np.asarray([0x0123456789ABCDEF, 0xFFFFFFFFFFFFFFFE], np.uint64)
    compare(lambda k: lax.rng_bit_generator(k, shape, dtype, algorithm=algorithm), key)


def test_random_numbers():
    compare(lambda k: jax.random.normal(k, (5, 3)), jax.random.key_data(jax.random.key(3)), tolerance=1e-5)
    compare(lambda k: jax.random.permutation(k, 10), jax.random.key_data(jax.random.key(4)))


def test_top_k():
    x = normal(3, 9)
    compare(lambda a: lax.top_k(a, 4), x)


@pytest.mark.parametrize("sizes", [[3, 4, 5], [0, 7, 2], [12, 0, 0]])
def test_ragged_dot(sizes):
    compare(lax.ragged_dot, normal(12, 4), normal(3, 4, 5), np.asarray(sizes, np.int32))


def test_small_program():
    def layer(p, x):
        h = jax.nn.gelu(x @ p["w"] + p["b"])
        return jax.nn.softmax((h - h.mean(-1, keepdims=True)) * lax.rsqrt(h.var(-1, keepdims=True) + 1e-5))

    p = {"w": normal(8, 6), "b": normal(6)}
    compare(layer, p, normal(4, 8), tolerance=1e-5)
    compare(jax.grad(lambda q, x: jnp.sum(layer(q, x) ** 2)), p, normal(4, 8), tolerance=1e-5)
