"""Code for any batch size against code for each size: times of calls, and of the first call with a new size.

python -m benchmarks.any_batch                  the table
python -m benchmarks.any_batch mlp sorting      some of the programs
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from rich.console import Console
from rich.progress import track
from rich.table import Table

import shlo_jit
from benchmarks.programs import layer_norm, max_pool
from benchmarks.timing import interleave
from shlo_jit.runtime.dynamic import DynamicExecutable

BATCHES = (1, 3, 8, 64, 256)
SECONDS = 0.15
"""Seconds of timing for each program, batch and kind of code."""
_random = np.random.default_rng(0)


def _weights(*shape: int) -> Any:
    return jnp.asarray(_random.standard_normal(shape) * 0.05, jnp.float32)


DENSE = (_weights(256, 512), _weights(512, 512), _weights(512, 10))
HEADS = tuple(_weights(128, 128) for _ in range(4))
WIDE, NARROW = _weights(128, 512), _weights(512, 128)
KERNELS = (_weights(3, 3, 16, 32), _weights(3, 3, 32, 32), _weights(1, 1, 32, 64), _weights(3, 3, 1, 64))
GATES = (_weights(64, 256), _weights(64, 256))
WORDS = _weights(1000, 64)


def mlp(x: Any) -> Any:
    for w in DENSE[:-1]:
        x = jax.nn.relu(x @ w)
    return x @ DENSE[-1]


def loss(x: Any, labels: Any) -> Any:
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(mlp(x)) * jax.nn.one_hot(labels, 10), -1))


def gradient(x: Any, w: Any) -> Any:
    return jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)


def transformer(x: Any) -> Any:
    batch, length, width = x.shape
    q, k, v = ((x @ w).reshape(batch, length, 4, 32).transpose(0, 2, 1, 3) for w in HEADS[:3])
    mixed = jnp.einsum("bhst,bhtd->bhsd", jax.nn.softmax(jnp.einsum("bhsd,bhtd->bhst", q, k) / 5.66), v)
    x = x + mixed.transpose(0, 2, 1, 3).reshape(batch, length, width) @ HEADS[3]
    return x + jax.nn.gelu(layer_norm(x, 1.0, 0.0) @ WIDE) @ NARROW


def convolution(x: Any, kernel: Any, stride: int = 1, groups: int = 1) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    strides = (stride, stride)
    return lax.conv_general_dilated(x, kernel, strides, "SAME", dimension_numbers=layout, feature_group_count=groups)


def images(x: Any) -> Any:
    x = jax.nn.relu(convolution(x, KERNELS[0]))
    x = jax.nn.relu(convolution(x, KERNELS[1]) + x)
    x = jax.nn.relu6(convolution(convolution(x, KERNELS[2], stride=2), KERNELS[3], groups=64))
    return max_pool(x).mean((1, 2))


def recurrent(x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        h, c = carry
        i, f, o, u = jnp.split(row @ GATES[0] + h @ GATES[1], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(u)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    zero = jnp.zeros((x.shape[0], 64))
    return lax.scan(step, (zero, zero), jnp.swapaxes(x, 0, 1))[0][0]


def batch_norm(x: Any) -> Any:
    return (x - x.mean(0)) * lax.rsqrt(x.var(0) + 1e-5)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "mlp": (mlp, ("b, 256",)),
    "loss": (loss, ("b, 256", "int b")),
    "gradient": (gradient, ("b, 256", "256, 128")),
    "transformer": (transformer, ("b, 32, 128",)),
    "images": (images, ("b, 32, 32, 16",)),
    "recurrent": (recurrent, ("b, 10, 64",)),
    "embedding": (lambda i: WORDS[i].mean(1), ("int b, 20",)),
    "batch norm": (batch_norm, ("b, 1000",)),
    "layer norm": (lambda x: layer_norm(x, 1.0, 0.0), ("b, 16, 256",)),
    "softmax": (jax.nn.softmax, ("b, 1000",)),
    "sorting": (lambda x: jnp.sort(x, 1), ("b, 200",)),
    "small": (lambda x: jnp.tanh(x) * 2, ("b, 4",)),
    "elementwise": (lambda x, y: jnp.tanh(x) * jnp.exp(-y * y) + x, ("b, 1000", "b, 1000")),
}
"""Functions, and the shapes of their arguments."""


def text_of(name: str) -> str:
    """The program as JAX exports it."""
    function, shapes = PROGRAMS[name]
    scope = export.SymbolicScope()
    arguments = [
        jax.ShapeDtypeStruct(
            export.symbolic_shape(shape.removeprefix("int "), scope=scope),
            np.int32 if shape.startswith("int ") else np.float32,
        )
        for shape in shapes
    ]
    return export.export(jax.jit(function))(*arguments).mlir_module()


def arrays(name: str, batch: int) -> list[np.ndarray]:
    found = []
    for text in PROGRAMS[name][1]:
        shape = [batch if n.strip() == "b" else int(n) for n in text.removeprefix("int ").split(",")]
        values = _random.integers(0, 9, shape) if text.startswith("int ") else _random.standard_normal(shape)
        found.append(values.astype(np.int32 if text.startswith("int ") else np.float32))
    return found


def row(name: str) -> tuple[list[float], list[str]]:
    """Time of code for any batch relative to that of code for each, by batch; and the cells of the table."""
    text = text_of(name)
    start = time.perf_counter()
    any_batch = shlo_jit.compile(text, dynamic="symbolic", cache=False)
    seconds = time.perf_counter() - start
    assert isinstance(any_batch, DynamicExecutable)
    plan = any_batch.text("plan", shapes=[x.shape for x in arrays(name, 5)])
    assert plan.startswith("code for any"), plan.partition("\n")[0]
    each = shlo_jit.compile(text, cache=False)
    ratios = []
    for batch in BATCHES:
        given = arrays(name, batch)
        calls = {"any": lambda given=given: any_batch(*given), "each": lambda given=given: each(*given)}
        times = interleave(calls, SECONDS)
        ratios.append(times["any"].median / times["each"].median)
    return ratios, [name, f"{seconds * 1e3:,.0f}", *(f"{r:.2f}" for r in ratios)]


def never_seen(count: int = 200) -> float:
    """Median of the additional nanoseconds of the first call with a batch size, compared with the next one."""
    exe = shlo_jit.compile(text_of("small"), dynamic="symbolic", cache=False)
    given = [arrays("small", batch) for batch in range(2, 2 + count)]
    exe(*given[-1])
    more = []
    for x in given:
        first, second = (_nanoseconds(exe, x) for _ in range(2))
        more.append(first - second)
    return statistics.median(more)


def _nanoseconds(exe: Any, given: Sequence[np.ndarray]) -> int:
    start = time.perf_counter_ns()
    exe(*given)
    return time.perf_counter_ns() - start


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    wanted = parser.parse_args(arguments).programs or list(PROGRAMS)
    unknown = [name for name in wanted if name not in PROGRAMS]
    if unknown:
        parser.error(f"unknown program {unknown[0]!r}: expected {', '.join(PROGRAMS)}")
    console, ratios = Console(), []
    title = "time relative to code for the size"
    table = Table("program", "compile ms", *(f"batch {n}" for n in BATCHES), title=title)
    for name in track(wanted, "timing", console=console, transient=True):
        found, cells = row(name)
        ratios += found
        table.add_row(*cells)
    console.print(table)
    console.print(f"geometric mean {statistics.geometric_mean(ratios):.3f}")
    console.print(f"a size that was never seen: {never_seen():,.0f} ns more than the next call of it")


if __name__ == "__main__":
    main()
