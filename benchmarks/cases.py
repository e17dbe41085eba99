"""The cases: JAX functions over arrays, with inputs, and the same in NumPy if that is one natural expression.

Tolerances are relative to the expected value plus the root mean square of all of them; 0 requires equality.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from benchmarks import programs
from benchmarks.inputs import Maker, integers, normal, positive_definite, uniform, value

F32, F64, F16, BF16 = 2e-4, 1e-10, 2e-2, 3e-2
"""Tolerances by the type of the computation."""
SUM = 1e-3
"""Tolerance of long sums in f32."""
EDGE = 2e-2
"""Tolerance of sums of rows with a few points that may differ much."""


@dataclass(frozen=True)
class Case:
    name: str
    group: str
    function: Callable[..., Any]
    makers: tuple[Maker, ...]
    flops: float = 0.0
    """Multiplications and additions that the task needs; 0 for memory-bound cases."""
    numpy: Callable[..., Any] | None = None
    tolerance: float = F32
    x64: bool = False

    def inputs(self) -> list[np.ndarray]:
        """The inputs, the same for every call."""
        generator = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [np.asarray(make(generator), order="C") for make in self.makers]

    def types(self) -> AbstractContextManager[Any]:
        """JAX's 64-bit types, for cases that need them."""
        return jax.enable_x64(True) if self.x64 else nullcontext()

    def lower(self) -> Any:
        """The function lowered for the inputs, all of which are kept."""
        with self.types():
            return jax.jit(self.function, keep_unused=True).lower(*self.inputs())


def select(only: str = "") -> list[Case]:
    """Selects cases with a word of `only` (separated by commas) as the group or part of the name; all if it is
    empty."""
    words = [w for w in only.split(",") if w]
    cases = [case for group in GROUPS for case in group()]
    return [c for c in cases if not words or any(w == c.group or w in c.name for w in words)]


def dots() -> Iterator[Case]:
    def dot(name: str, m: int, k: int, n: int, dtype: Any = np.float32, **options: Any) -> Case:
        makers = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype)
        return Case(f"dot {name}", "dot", jnp.matmul, makers, 2 * m * k * n, **options)

    for n in (48, 128, 512, 1536):
        yield dot(f"f32 {n}", n, n, n, numpy=np.matmul)
    yield dot("f32 vector x 3000x3000", 1, 3000, 3000, numpy=np.matmul)
    yield dot("f32 80000x3x3", 80000, 3, 3, numpy=np.matmul)
    yield dot("f32 32x1024x4096", 32, 1024, 4096, numpy=np.matmul)
    yield dot("f64 600", 600, 600, 600, np.float64, numpy=np.matmul, tolerance=F64, x64=True)
    yield dot("f16 768", 768, 768, 768, np.float16, tolerance=F16)
    yield dot("bf16 768", 768, 768, 768, ml_dtypes.bfloat16, tolerance=BF16)
    bytes_ = integers(768, 768, low=-128, below=128, dtype=np.int8)
    yield Case(
        "dot i8 to i32 768", "dot", lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32), (bytes_, bytes_),
        2 * 768**3, tolerance=0,
    )  # fmt: skip
    yield Case(
        "dot f32 transposed 768", "dot", lambda a, b: a.T @ b.T, (normal(768, 768), normal(768, 768)), 2 * 768**3,
        numpy=lambda a, b: a.T @ b.T,
    )  # fmt: skip
    for batch, n in ((16, 256), (2000, 12), (2000, 16)):
        operand = normal(batch, n, n)
        yield Case(f"dot f32 {batch} of {n}", "dot", jnp.matmul, (operand, operand), 2 * batch * n**3, numpy=np.matmul)
    yield from narrow_weights()


def narrow_weights() -> Iterator[Case]:
    """Products with weights of few bits, and with weights that are a part of an array."""
    n = 2048
    bytes_ = integers(n, n, low=-127, below=128, dtype=np.int8)
    nibbles = integers(n // 64, 64, n, low=-8, below=8, dtype=ml_dtypes.int4)
    for m in (1, 64):
        x, flops = normal(m, n), 2 * m * n * n
        columns, groups = normal(n, scale=0.01), normal(n // 64, n, scale=0.01)
        yield Case(f"dot {m} row of i8", "dot", programs.scaled_product, (x, bytes_, columns), flops, tolerance=SUM)
        yield Case(f"dot {m} row of i4", "dot", programs.grouped_product, (x, nibbles, groups), flops, tolerance=SUM)
    layers = normal(4, 512, 1408, scale=0.02), normal(4, 1408, 512, scale=0.02)
    experts, sizes = normal(32, 512, 1024), value(np.full(32, 2, np.int32))
    flops = 2 * 64 * 512 * 1024
    yield Case("experts of 64 rows", "dot", lax.ragged_dot, (normal(64, 512), experts, sizes), flops, tolerance=SUM)
    flops = 16 * 512 * 1408
    yield Case("stacked layers", "dot", programs.stacked_layers, (normal(1, 512), *layers), flops, tolerance=SUM)


def convolutions() -> Iterator[Case]:
    def conv(name: str, image: tuple[int, ...], filters: tuple[int, ...], stride: int = 1, groups: int = 1) -> Case:
        """A case over an NHWC image, with HWIO filters and SAME padding."""

        def function(x: Any, w: Any) -> Any:
            return lax.conv_general_dilated(
                x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
            )

        pixels = image[0] * -(-image[1] // stride) * -(-image[2] // stride)
        flops = 2 * pixels * int(np.prod(filters))
        return Case(f"conv {name}", "conv", function, (normal(*image), normal(*filters, scale=0.1)), flops)

    yield conv("3x3 64x64x32", (1, 64, 64, 32), (3, 3, 32, 64))
    yield conv("3x3 16x16x192", (1, 16, 16, 192), (3, 3, 192, 192))
    yield conv("3x3 batch 16", (16, 28, 28, 48), (3, 3, 48, 48))
    yield conv("1x1", (1, 48, 48, 128), (1, 1, 128, 256))
    yield conv("5x5 stride 2 of an image", (1, 192, 192, 3), (5, 5, 3, 48), stride=2)
    yield conv("3x3 depthwise", (1, 64, 64, 192), (3, 3, 1, 192), groups=192)


ROWS = normal(2048, 1500)
"""12 MB: more than the caches of one core."""


def fused() -> Iterator[Case]:
    def case(name: str, function: Callable[..., Any], *makers: Maker, **options: Any) -> Case:
        return Case(name, "fused", function, makers, **options)

    yield case("add 3M", jnp.add, ROWS, ROWS, numpy=np.add)
    yield case("add 30K", jnp.add, normal(30_000), normal(30_000), numpy=np.add)
    yield case("a * x + b of bf16", lambda a, x, b: a * x + b, *[normal(2048, 1500, dtype=ml_dtypes.bfloat16)] * 3,
               tolerance=BF16)  # fmt: skip
    yield case("exp", jnp.exp, ROWS, numpy=np.exp)
    yield case("tanh of f64", jnp.tanh, normal(1_000_000, dtype=np.float64), numpy=np.tanh, tolerance=F64, x64=True)
    yield case("sin * log1p * erf", lambda x: jnp.sin(x) * jnp.log1p(x * x) * lax.erf(x), ROWS, tolerance=5e-4)
    yield case("swish", jax.nn.silu, ROWS)
    yield case("gelu", jax.nn.gelu, ROWS)
    yield case("softmax", jax.nn.softmax, ROWS, numpy=programs.softmax_numpy)
    yield case("log softmax", jax.nn.log_softmax, ROWS)
    yield case("layer norm", programs.layer_norm, ROWS, normal(1500), normal(1500))
    yield case("RMS norm of bf16", programs.rms_norm, normal(2048, 1500, dtype=ml_dtypes.bfloat16), tolerance=BF16)
    yield case("forces between bodies", programs.forces, normal(1200, 3), tolerance=SUM)
    yield case("polynomial of complex", lambda z: z * z * z - 2 * z + 1, normal(500_000, dtype=np.complex64))


def attention() -> Iterator[Case]:
    def case(name: str, function: Callable[..., Any], q: Maker, k: Maker, flops: float, **options: Any) -> Case:
        return Case(name, "attention", function, (q, k, k), flops, **options)

    heads = normal(12, 384, 64)
    yield case("attention 12 of 384", programs.attention, heads, heads, 4 * 12 * 384 * 384 * 64)
    half = normal(12, 384, 64, dtype=ml_dtypes.bfloat16)
    yield case("attention of bf16", programs.attention, half, half, 4 * 12 * 384 * 384 * 64, tolerance=BF16)
    rows = normal(1, 1536, 8, 64)
    yield case("causal attention", programs.causal_attention, rows, rows, 4 * 8 * 1536 * 1536 * 64)
    yield case("decoding", programs.attention, normal(12, 1, 64), normal(12, 600, 64), 4 * 12 * 600 * 64)
    few, cache = normal(1, 1, 32, 64), normal(1, 1024, 8, 64)
    yield case("decoding of grouped queries", programs.grouped_attention, few, cache, 4 * 32 * 1024 * 64)
    many = normal(8, 512, 64)
    flops = 12 * 8 * 512 * 512 * 64
    yield case("gradient of attention", programs.attention_gradient, many, many, flops, tolerance=SUM)


def reductions() -> Iterator[Case]:
    def case(name: str, function: Callable[..., Any], *makers: Maker, **options: Any) -> Case:
        return Case(name, "reduce", function, makers, **options)

    yield case("sum of all", jnp.sum, ROWS, numpy=np.sum, tolerance=SUM)
    yield case("sum of rows", lambda x: x.sum(1), ROWS, numpy=lambda x: x.sum(1), tolerance=SUM)
    yield case("sum of columns", lambda x: x.sum(0), ROWS, numpy=lambda x: x.sum(0), tolerance=SUM)
    yield case("variance of rows", lambda x: x.var(1), ROWS, numpy=lambda x: x.var(1), tolerance=SUM)
    yield case("max of all", jnp.max, ROWS, numpy=np.max)
    yield case("argmin of rows", lambda x: x.argmin(1), ROWS, numpy=lambda x: x.argmin(1), tolerance=0)
    yield case(
        "argmax of short rows", lambda x: x.argmax(1), normal(50_000, 40), numpy=lambda x: x.argmax(1), tolerance=0
    )
    yield case("argmax of all", jnp.argmax, ROWS, numpy=np.argmax, tolerance=0)
    yield case("middle axis", lambda x: x.sum(1), normal(64, 300, 160), numpy=lambda x: x.sum(1), tolerance=SUM)
    yield case("directions of pairs", programs.directions, normal(512, 3))
    yield case("normalized pixels", programs.normalized_pixels, uniform(256, 256, 3))
    yield case("max pool 2x2", programs.max_pool, normal(8, 96, 96, 48))
    yield case("cumulative sum", lambda x: jnp.cumsum(x, 1), normal(1024, 2000), numpy=lambda x: np.cumsum(x, 1),
               tolerance=SUM)  # fmt: skip


def movement() -> Iterator[Case]:
    def case(name: str, function: Callable[..., Any], *makers: Maker, **options: Any) -> Case:
        return Case(name, "move", function, makers, tolerance=0, **options)

    yield case("transpose 3000", jnp.transpose, normal(3000, 3000), numpy=lambda x: np.ascontiguousarray(x.T))
    yield case("transpose heads", lambda x: x.transpose(0, 2, 1, 3), normal(4, 600, 16, 64),
               numpy=lambda x: np.ascontiguousarray(x.transpose(0, 2, 1, 3)))  # fmt: skip
    yield case("concatenate columns", lambda a, b: jnp.concatenate([a, b], 1), normal(1500, 700), normal(1500, 900),
               numpy=lambda a, b: np.concatenate([a, b], 1))  # fmt: skip
    yield case("pad image", lambda x: jnp.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0))), normal(8, 60, 60, 48),
               numpy=lambda x: np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0))))  # fmt: skip
    yield case("strided slice", lambda x: x[::2, 1::3], ROWS, numpy=lambda x: x[::2, 1::3].copy())
    yield case("reverse", lambda x: x[::-1, ::-1], ROWS, numpy=lambda x: x[::-1, ::-1].copy())
    yield case("update rows", lambda x, u, i: lax.dynamic_update_slice(x, u, (i, jnp.int32(0))), ROWS,
               normal(10, 1500), value(np.int32(77)))  # fmt: skip
    rows = integers(6000, below=40_000)
    yield case("gather rows", lambda t, i: t[i], normal(40_000, 200), rows, numpy=lambda t, i: t[i])
    yield Case("scatter add rows", "move", lambda t, i, u: t.at[i].add(u), (normal(40_000, 200), rows,
               normal(6000, 200)))  # fmt: skip


def algorithms() -> Iterator[Case]:
    def case(name: str, function: Callable[..., Any], *makers: Maker, **options: Any) -> Case:
        return Case(name, "algorithm", function, makers, **options)

    key = value(np.array([1, 2], np.uint32))
    yield case("sort 500K", jnp.sort, normal(500_000), numpy=np.sort, tolerance=0)
    yield case("sort rows of keys and values", lambda k, v: lax.sort((k, v), num_keys=1), normal(500, 1000),
               integers(500, 1000, below=9), tolerance=0)  # fmt: skip
    yield case("top 10 of rows", lambda x: lax.top_k(x, 10), normal(1000, 2000), tolerance=0)
    yield case("fft 2048", jnp.fft.fft, normal(100, 2048, dtype=np.complex64), numpy=np.fft.fft)
    yield case("cholesky 400", jnp.linalg.cholesky, positive_definite(400), numpy=np.linalg.cholesky, flops=400**3 / 3)
    yield case("random bits", lambda k: jax.random.bits(k, (800_000,)), key, tolerance=0)


def control() -> Iterator[Case]:
    def case(name: str, function: Callable[..., Any], *makers: Maker, **options: Any) -> Case:
        return Case(name, "control", function, makers, **options)

    yield case("identity", lambda x: x, normal(3), tolerance=0)
    yield case("add 3", jnp.add, normal(3), normal(3), numpy=np.add)
    for n in (12, 100):
        yield case(f"dense 1x{n}", lambda x, w: jnp.tanh(x @ w), normal(1, n), normal(n, n))
    yield case("loop of 5000", lambda x: lax.fori_loop(0, 5000, lambda _, c: c * 0.999 + 1, x), normal(6))
    yield case("mandelbrot", programs.mandelbrot, uniform(600, 600), uniform(600, 600), tolerance=EDGE)
    yield case("scan of 400", lambda x: lax.scan(lambda c, y: (c * 0.9 + y, c), x[0], x), normal(400, 64))
    yield case("heat, 60 steps", programs.heat, uniform(800, 800), flops=60 * 800 * 800 * 7)
    plane = uniform(3000, 3000)
    yield case("wave of 3000 x 3000", programs.wave, plane, plane, flops=40 * 3000 * 3000 * 8)
    yield case("life of 512 x 512", programs.life, integers(512, 512, low=0, below=2), tolerance=0)
    yield case("collatz", programs.collatz, integers(4096, low=1, below=100_000), tolerance=0)


def whole_programs() -> Iterator[Case]:
    def case(name: str, function: Callable[..., Any], *makers: Maker, **options: Any) -> Case:
        return Case(name, "program", function, makers, **options)

    layers = [m for a, b in ((600, 400), (400, 400), (400, 12)) for m in (normal(a, b, scale=0.05), normal(b))]
    yield case("MLP", programs.mlp, normal(48, 600), *layers, numpy=programs.mlp_numpy)
    yield case("MLP training step", programs.mlp_step, normal(48, 600), integers(48, below=12), *layers, tolerance=SUM)
    block = [normal(512, 512, scale=0.04)] * 4 + [normal(512, 2048, scale=0.04), normal(2048, 512, scale=0.02)]
    convnext = normal(7, 7, 1, 64, scale=0.1), normal(64), normal(64), normal(64, 256, scale=0.1)
    yield case("depthwise block", programs.convnext_block, normal(1, 112, 112, 64), *convnext,
               normal(256, 64, scale=0.1), tolerance=SUM)  # fmt: skip
    yield case("transformer block", programs.transformer_block, normal(384, 512), *block, tolerance=SUM)
    yield case("GRU", programs.gru, normal(60, 16, 96), normal(16, 128), normal(96, 384, scale=0.1),
               normal(128, 384, scale=0.1), tolerance=SUM)  # fmt: skip
    filters = [normal(3, 3, 3, 32, scale=0.2)] + [normal(3, 3, 32, 32, scale=0.06)] * 6 + [normal(32, 10, scale=0.2)]
    yield case("residual network", programs.residual_network, normal(4, 48, 48, 3), *filters, tolerance=SUM)
    yield case("n-body, 10 steps", programs.n_body, normal(512, 3), normal(512, 3, scale=0.1), tolerance=SUM)
    yield case("k-means, 10 rounds", programs.k_means, normal(4000, 16), normal(20, 16), tolerance=SUM)


GROUPS = (dots, convolutions, fused, attention, reductions, movement, algorithms, control, whole_programs)
