"""A model as a graph of a few ops, which `jax_writer` and `onnx_writer` write, and `work` counts.

Values of rank 4 are images, as batch, rows, columns, channels; engines that require channels first get them so. All
other values have the same layout everywhere.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

INTEGERS = {"i32": np.int32, "i8": np.int8}
"""Integer element types of inputs."""
IMAGE = 4
"""The rank of images."""
Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Value:
    """The result of an op. Inputs and weights are ops without operands."""

    op: str
    operands: tuple[Value, ...]
    shape: tuple[int, ...]
    dtype: str = "f32"
    attributes: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    """Name of an input or a weight."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_image(self) -> bool:
        return len(self.shape) == IMAGE


class Graph:
    """Values in creation order, with methods that create them."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.outputs: list[Value] = []

    @property
    def inputs(self) -> list[Value]:
        return [v for v in self.values if v.op == "input"]

    @property
    def weights(self) -> list[Value]:
        return [v for v in self.values if v.op == "weight"]

    def make(
        self, op: str, operands: Sequence[Value], shape: Sequence[int], dtype: str = "f32", **options: Any
    ) -> Value:
        name = options.pop("name", "")
        value = Value(op, tuple(operands), tuple(shape), dtype, options, name)
        self.values.append(value)
        return value

    # ------------------------------------------------------------------ inputs and weights
    def input(self, shape: Sequence[int], dtype: str = "f32", below: int = 0) -> Value:
        """An input of normally distributed numbers, or of integers in [0, below)."""
        return self.make("input", (), shape, dtype, below=below, name=f"x{len(self.inputs)}")

    def weight(
        self, name: str, shape: Sequence[int], scale: float = 0.1, mean: float = 0.0, dtype: str = "f32"
    ) -> Value:
        """A weight that is normally distributed around `mean`; a known name returns the existing weight."""
        found = next((w for w in self.weights if w.name == name), None)
        return found or self.make("weight", (), shape, dtype, scale=scale, mean=mean, name=name)

    # ------------------------------------------------------------------ images
    def conv(
        self,
        x: Value,
        name: str,
        channels: int,
        size: int | Pair = 1,
        stride: int = 1,
        *,
        groups: int = 1,
        dilation: int = 1,
        padding: tuple[Pair, Pair] | None = None,
    ) -> Value:
        """A convolution. The default padding keeps the size of an image at stride 1."""
        height, width = (size, size) if isinstance(size, int) else size
        sides = padding or tuple((dilation * (k - 1) // 2,) * 2 for k in (height, width))
        terms = height * width * x.shape[3] // groups
        filters = self.weight(name, (height, width, x.shape[3] // groups, channels), math.sqrt(2 / terms))
        spans = [dilation * (k - 1) + 1 for k in (height, width)]
        places = [(n + sum(pad) - span) // stride + 1 for n, pad, span in zip(x.shape[1:3], sides, spans, strict=True)]
        return self.make("conv", (x, filters), (x.shape[0], *places, channels), stride=stride, groups=groups,
                         dilation=dilation, padding=sides)  # fmt: skip

    def batch_norm(self, x: Value, name: str, gain: float = 1.0) -> Value:
        """Batch normalization with the statistics of training merged into scale and offset."""
        channels = (x.shape[3],)
        scale = self.weight(f"{name}.scale", channels, 0.1 * gain, gain)
        return self.make("batch_norm", (x, scale, self.weight(f"{name}.offset", channels)), x.shape)

    def bias(self, x: Value, name: str) -> Value:
        return self.make("bias", (x, self.weight(f"{name}.bias", x.shape[-1:])), x.shape)

    def max_pool(self, x: Value, size: int, stride: int, pad: int = 0) -> Value:
        rows, columns = ((n + 2 * pad - size) // stride + 1 for n in x.shape[1:3])
        return self.make("max_pool", (x,), (x.shape[0], rows, columns, x.shape[3]), size=size, stride=stride, pad=pad)

    def mean_of_image(self, x: Value) -> Value:
        """The mean of an image, as an image of one pixel."""
        return self.make("mean_of_image", (x,), (x.shape[0], 1, 1, x.shape[3]))

    def twice_as_large(self, x: Value) -> Value:
        """Nearest-neighbor upsampling by two."""
        n, rows, columns, channels = x.shape
        return self.make("twice_as_large", (x,), (n, 2 * rows, 2 * columns, channels))

    def pixels(self, x: Value) -> Value:
        """Pixels as rows."""
        return self.make("pixels", (x,), (math.prod(x.shape[:3]), x.shape[3]))

    # ------------------------------------------------------------------ elements and their order
    def unary(self, op: str, x: Value) -> Value:
        """One of relu, relu6, leaky_relu, sigmoid, silu, tanh, gelu (by erf), gelu_tanh, softmax (of rows)."""
        return self.make(op, (x,), x.shape)

    def add(self, a: Value, b: Value) -> Value:
        return self.make("add", (a, b), np.broadcast_shapes(a.shape, b.shape))

    def multiply(self, a: Value, b: Value) -> Value:
        return self.make("multiply", (a, b), np.broadcast_shapes(a.shape, b.shape))

    def scaled(self, x: Value, factor: float) -> Value:
        return self.make("scaled", (x,), x.shape, factor=factor)

    def concatenate(self, values: Sequence[Value], axis: int) -> Value:
        shape = list(values[0].shape)
        shape[axis] = sum(v.shape[axis] for v in values)
        return self.make("concatenate", values, shape, axis=axis)

    def part(self, x: Value, axis: int, start: int, stop: int) -> Value:
        shape = list(x.shape)
        shape[axis] = stop - start
        return self.make("part", (x,), shape, axis=axis, start=start, stop=stop)

    def reshape(self, x: Value, *shape: int) -> Value:
        assert not x.is_image and len(shape) != IMAGE, "images have an order of their own: pixels()"
        return self.make("reshape", (x,), shape)

    def transpose(self, x: Value, *order: int) -> Value:
        assert not x.is_image
        return self.make("transpose", (x,), [x.shape[i] for i in order], order=order)

    def rows(self, table: Value, indices: Value) -> Value:
        """Rows of a table at indices."""
        return self.make("rows", (table, indices), (*indices.shape, *table.shape[1:]))

    def columns(self, x: Value, places: Sequence[int]) -> Value:
        """Columns of a matrix at known positions."""
        return self.make("columns", (x,), (x.shape[0], len(places)), places=tuple(places))

    def bucketed(self, table: Value, buckets: np.ndarray) -> Value:
        """Rows of a table at known positions, with its columns first."""
        return self.make("bucketed", (table,), (table.shape[1], *buckets.shape), buckets=buckets)

    # ------------------------------------------------------------------ products
    def linear(self, x: Value, name: str, features: int, gain: float = 1.0, is_biased: bool = True) -> Value:
        """A dense layer over rows."""
        weight = self.weight(name, (x.shape[1], features), gain / math.sqrt(x.shape[1]))
        operands = (x, weight, self.weight(f"{name}.bias", (features,))) if is_biased else (x, weight)
        return self.make("linear", operands, (x.shape[0], features))

    def linear_by_rows(self, x: Value, table: Value) -> Value:
        """A dense layer by a weight with one row per feature, such as an embedding table."""
        return self.make("linear_by_rows", (x, table), (x.shape[0], table.shape[0]))

    def matmul(self, a: Value, b: Value, *, is_transposed: bool = False) -> Value:
        """Product of a batch of matrices, the second of which may be transposed."""
        columns = b.shape[1] if is_transposed else b.shape[2]
        return self.make("matmul", (a, b), (*a.shape[:2], columns), is_transposed=is_transposed)

    def layer_norm(self, x: Value, name: str) -> Value:
        width = x.shape[-1:]
        return self.make("layer_norm", (x, self.weight(f"{name}.scale", width, 0.1, 1.0),
                                        self.weight(f"{name}.offset", width)), x.shape)  # fmt: skip

    def rms_norm(self, x: Value, name: str) -> Value:
        return self.make("rms_norm", (x, self.weight(f"{name}.scale", x.shape[-1:], 0.1, 1.0)), x.shape)

    def lstm(self, x: Value, name: str, features: int) -> Value:
        """A layer over rows in time, from a zero state; gates in the order input, output, forget, cell."""
        weights = [self.weight(f"{name}.{part}", (n, 4 * features), 1 / math.sqrt(n))
                   for part, n in (("input", x.shape[1]), ("state", features))]  # fmt: skip
        return self.make("lstm", (x, *weights, self.weight(f"{name}.bias", (4 * features,))), (x.shape[0], features))

    def quantized(self, x: Value, scale: float) -> Value:
        """Activations after a ReLU, quantized to i8 in [0, 127]: `x / scale`."""
        return self.make("quantized", (x,), x.shape, "i8", scale=scale)

    def linear_i8(self, x: Value, name: str, features: int, scale: float) -> Value:
        """A dense layer on i8 in [0, 127] with a scale, and weights of i8 with a scale per feature; returns f32, with
        the bias."""
        weight = self.weight(name, (x.shape[1], features), 40.0, dtype="i8")
        scales = self.weight(f"{name}.scale", (features,), 0.002 / math.sqrt(x.shape[1]), 0.025 / math.sqrt(x.shape[1]))
        bias = self.weight(f"{name}.bias", (features,))
        return self.make("linear_i8", (x, weight, scales, bias), (x.shape[0], features), scale=scale)


# ---------------------------------------------------------------------- random numbers
def array(value: Value) -> np.ndarray:
    """Numbers of an input or a weight, the same every time."""
    generator, options = np.random.default_rng(zlib.crc32(value.name.encode())), value.attributes
    if value.op == "input" and (dtype := INTEGERS.get(value.dtype)):
        return generator.integers(0, options["below"], value.shape).astype(dtype)
    scale, mean = (1.0, 0.0) if value.op == "input" else (options["scale"], options["mean"])
    numbers = generator.standard_normal(value.shape, np.float32) * np.float32(scale) + np.float32(mean)
    return numbers.round().clip(-127, 127).astype(np.int8) if value.dtype == "i8" else numbers
