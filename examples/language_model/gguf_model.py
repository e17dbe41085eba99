"""Reads a GGUF file: the shape of a Llama-like model, and its weights in the few bits in which they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from gguf import GGUFReader, ReaderTensor
from unsupported import UnsupportedModel

ARCHITECTURES = {"llama": True, "qwen2": False, "qwen3": False}
"""Supported architectures, and whether the file has the rows of q and k in pairs (2i, 2i + 1) for the rotation."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a model, as its metadata gives them."""

    architecture: str
    layers: int
    width: int
    heads: int
    key_heads: int
    head_size: int
    epsilon: float
    frequencies: tuple[float, ...]
    """Angles by which a position rotates the pairs of elements of a head."""


@dataclass(frozen=True)
class Matrix:
    """A weight [n, k]: its numbers; or integers [n, groups, k / groups] with a scale, and perhaps a minimum, for each
    group, so that a weight is `integer * scale + minimum`."""

    values: np.ndarray
    scales: np.ndarray | None = None
    minimums: np.ndarray | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: array for name, array in vars(self).items() if array is not None}

    def rows(self, order: np.ndarray) -> Matrix:
        return Matrix(**{name: array[order] for name, array in self.arrays().items()})


Weight = tuple[Matrix, ...]
"""Matrices below each other. Matrices of the same format are joined to one."""


@dataclass(frozen=True)
class Layer:
    """Weights of a layer. Biases and norms of heads are missing in some architectures."""

    attention_norm: np.ndarray
    qkv: Weight
    qkv_bias: np.ndarray | None
    q_norm: np.ndarray | None
    k_norm: np.ndarray | None
    attention_output: Weight
    feed_forward_norm: np.ndarray
    gate_up: Weight
    down: Weight


@dataclass(frozen=True)
class Model:
    """A model as read from a file. `embedding` and `output` are the same object if the file ties them."""

    shape: Shape
    metadata: dict[str, Any]
    embedding: Weight
    layers: tuple[Layer, ...]
    output_norm: np.ndarray
    output: Weight


# ---------------------------------------------------------------------- blocks
def _half(blocks: np.ndarray, start: int) -> np.ndarray:
    """Numbers of 16 bits at that byte of every block."""
    return np.ascontiguousarray(blocks[..., start : start + 2]).view(np.float16)[..., 0]


def _factor(blocks: np.ndarray, start: int) -> np.ndarray:
    """The same in 32 bits, to be multiplied with several scales of a block."""
    return _half(blocks, start).astype(np.float32)[..., None]


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """The low halves of the bytes, then the high ones."""
    return np.concatenate([packed & 15, packed >> 4], -1)


def _q4_0(blocks: np.ndarray) -> Matrix:
    integers = _nibbles(blocks[..., 2:]).view(np.int8) - np.int8(8)
    return Matrix(integers.view(ml_dtypes.int4), _half(blocks, 0))


def _q4_1(blocks: np.ndarray) -> Matrix:
    return Matrix(_nibbles(blocks[..., 4:]).view(ml_dtypes.uint4), _half(blocks, 0), _half(blocks, 2))


def _q8_0(blocks: np.ndarray) -> Matrix:
    return Matrix(np.ascontiguousarray(blocks[..., 2:]).view(np.int8), _half(blocks, 0))


def _q4_k(blocks: np.ndarray) -> Matrix:
    """Eight groups, whose scales and minimums have 6 bits and a common factor."""
    low, high, both = (blocks[..., at : at + 4] for at in (4, 8, 12))
    scales = np.concatenate([low & 63, both & 15 | low >> 2 & 48], -1) * _factor(blocks, 0)
    minimums = np.concatenate([high & 63, both >> 4 | high >> 2 & 48], -1) * _factor(blocks, 2)
    rows, count = blocks.shape[:2]
    integers = _nibbles(blocks[..., 16:].reshape(rows, count, 4, 32)).reshape(rows, -1, 32)
    return Matrix(integers.view(ml_dtypes.uint4), scales.reshape(rows, -1), -minimums.reshape(rows, -1))


def _q6_k(blocks: np.ndarray) -> Matrix:
    """Sixteen groups of 16 integers, whose scales have 8 bits and a common factor."""
    rows, count = blocks.shape[:2]
    low = _nibbles(blocks[..., :128].reshape(rows, count, 2, 64)).reshape(rows, count, 8, 32)
    high = blocks[..., 128:192].reshape(rows, count, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    integers = (low | high.reshape(low.shape) << 4).view(np.int8) - np.int8(32)
    scales = blocks[..., 192:208].view(np.int8) * _factor(blocks, 208)
    return Matrix(integers.reshape(rows, -1, 16), scales.reshape(rows, -1))


BLOCKS: dict[str, tuple[int, Callable[[np.ndarray], Matrix]]] = {
    "Q4_0": (18, _q4_0),
    "Q4_1": (20, _q4_1),
    "Q8_0": (34, _q8_0),
    "Q4_K": (144, _q4_k),
    "Q6_K": (210, _q6_k),
}
"""Formats of groups of weights: the bytes of a block, and what unpacks [n, blocks, bytes]."""


def matrix_of(tensor: ReaderTensor) -> Matrix:
    """Returns a tensor of the file. Numbers stay in the mapped file; blocks are unpacked to the narrowest type."""
    kind = tensor.tensor_type.name
    if kind in ("F32", "F16"):
        return Matrix(tensor.data)
    if kind == "BF16":
        return Matrix(tensor.data.view(ml_dtypes.bfloat16))
    if kind not in BLOCKS:
        known = ", ".join(("F32", "F16", "BF16", *BLOCKS))
        raise UnsupportedModel(f"{tensor.name} has the format {kind}; this example reads {known}")
    size, unpack = BLOCKS[kind]
    return unpack(tensor.data.reshape(tensor.data.shape[0], -1, size))


# ---------------------------------------------------------------------- tensors
def joined(matrices: Iterable[Matrix]) -> Weight:
    """Puts matrices below each other. Neighbours of the same format become one matrix."""
    found: list[Matrix] = []
    for matrix in matrices:
        last = found[-1].arrays() if found else {}
        mine = matrix.arrays()
        if {n: a.dtype for n, a in last.items()} == {n: a.dtype for n, a in mine.items()}:
            found[-1] = Matrix(**{name: np.concatenate([last[name], mine[name]]) for name in mine})
        else:
            found.append(matrix)
    return tuple(found)


def _halves(heads: int, size: int) -> np.ndarray:
    """Order of rows that takes the pairs (2i, 2i + 1) of each head to (i, i + size / 2)."""
    return np.arange(heads * size).reshape(heads, size // 2, 2).transpose(0, 2, 1).reshape(-1)


class _Reader(GGUFReader):
    """A reader that slices a plain array: it reads the vocabulary in less than half the time of `numpy.memmap`.

    The array still belongs to the mapped file, so the compiler does not copy it."""

    @property
    def data(self) -> np.ndarray:
        return self._bytes

    @data.setter
    def data(self, mapped: np.memmap) -> None:
        self._bytes = np.asarray(mapped)


class _Tensors:
    """The tensors of a file, by name."""

    def __init__(self, reader: GGUFReader) -> None:
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.unread = set(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def matrix(self, name: str) -> Matrix:
        if name not in self._tensors:
            raise UnsupportedModel(f"the file has no tensor {name}")
        self.unread.discard(name)
        return matrix_of(self._tensors[name])

    def vector(self, name: str) -> np.ndarray:
        return self.matrix(name).values.astype(np.float32, copy=False)

    def vector_or_none(self, name: str) -> np.ndarray | None:
        return self.vector(name) if name in self else None


def _layer(tensors: _Tensors, shape: Shape, number: int) -> Layer:
    prefix = f"blk.{number}."

    def rows(heads: int, is_rotated: bool) -> np.ndarray:
        is_paired = is_rotated and ARCHITECTURES[shape.architecture]
        return _halves(heads, shape.head_size) if is_paired else np.arange(heads * shape.head_size)

    orders = {"q": rows(shape.heads, True), "k": rows(shape.key_heads, True), "v": rows(shape.key_heads, False)}
    biases = [tensors.vector_or_none(f"{prefix}attn_{name}.bias") for name in "qkv"]
    bias = [b[orders[name]] for name, b in zip("qkv", biases, strict=True) if b is not None]
    if len(bias) not in (0, 3):
        raise UnsupportedModel(f"layer {number} has biases for only some of queries, keys and values")
    return Layer(
        attention_norm=tensors.vector(f"{prefix}attn_norm.weight"),
        qkv=joined(tensors.matrix(f"{prefix}attn_{name}.weight").rows(orders[name]) for name in "qkv"),
        qkv_bias=np.concatenate(bias) if bias else None,
        q_norm=tensors.vector_or_none(f"{prefix}attn_q_norm.weight"),
        k_norm=tensors.vector_or_none(f"{prefix}attn_k_norm.weight"),
        attention_output=(tensors.matrix(f"{prefix}attn_output.weight"),),
        feed_forward_norm=tensors.vector(f"{prefix}ffn_norm.weight"),
        gate_up=joined(tensors.matrix(f"{prefix}ffn_{name}.weight") for name in ("gate", "up")),
        down=(tensors.matrix(f"{prefix}ffn_down.weight"),),
    )


# ---------------------------------------------------------------------- metadata
def _frequencies(metadata: dict[str, Any], size: int, factors: np.ndarray | None) -> tuple[float, ...]:
    architecture = metadata["general.architecture"]
    base = metadata.get(f"{architecture}.rope.freq_base", 10000.0)
    angles = base ** (-np.arange(0, size, 2) / size)
    scaling = metadata.get(f"{architecture}.rope.scaling.type", "none")
    if scaling == "linear":
        angles = angles / metadata[f"{architecture}.rope.scaling.factor"]
    elif scaling != "none":
        raise UnsupportedModel(f"rope.scaling.type is {scaling}; this example has none and linear")
    return tuple((angles if factors is None else angles / factors).tolist())


def _shape(metadata: dict[str, Any], tensors: _Tensors) -> Shape:
    architecture = metadata["general.architecture"]
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UnsupportedModel(f"the architecture is {architecture}; this example runs {known}")
    width, heads = (metadata[f"{architecture}.{name}"] for name in ("embedding_length", "attention.head_count"))
    size = metadata.get(f"{architecture}.attention.key_length", width // heads)
    if metadata.get(f"{architecture}.rope.dimension_count", size) != size:
        raise UnsupportedModel("rope.dimension_count differs from the size of a head")
    if "blk.0.ffn_gate_inp.weight" in tensors:
        raise UnsupportedModel("this is a mixture of experts")
    factors = tensors.vector_or_none("rope_freqs.weight")
    return Shape(
        architecture=architecture,
        layers=metadata[f"{architecture}.block_count"],
        width=width,
        heads=heads,
        key_heads=metadata.get(f"{architecture}.attention.head_count_kv", heads),
        head_size=size,
        epsilon=metadata[f"{architecture}.attention.layer_norm_rms_epsilon"],
        frequencies=_frequencies(metadata, size, factors),
    )


def read_model(path: str) -> Model:
    """Reads a file. Raises UnsupportedModel with the reason if this example cannot run it."""
    try:
        reader = _Reader(path)
    except ValueError as error:
        raise UnsupportedModel(f"not a GGUF file: {error}") from None
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    tensors = _Tensors(reader)
    shape = _shape(metadata, tensors)
    embedding: Weight = (tensors.matrix("token_embd.weight"),)
    model = Model(
        shape=shape,
        metadata=metadata,
        embedding=embedding,
        layers=tuple(_layer(tensors, shape, number) for number in range(shape.layers)),
        output_norm=tensors.vector("output_norm.weight"),
        output=(tensors.matrix("output.weight"),) if "output.weight" in tensors else embedding,
    )
    if tensors.unread:
        raise UnsupportedModel(f"this example does not use the tensors {', '.join(sorted(tensors.unread)[:3])}")
    return model


def named_arrays(model: Model) -> dict[str, np.ndarray]:
    """The weights by the names that they have as arguments of the program."""
    found: dict[str, np.ndarray] = {}

    def add(name: str, value: Weight | np.ndarray | None) -> None:
        if isinstance(value, np.ndarray):
            found[name] = value
        for i, matrix in enumerate(value if isinstance(value, tuple) else ()):
            found.update({f"{name}_{i}_{part}": array for part, array in matrix.arrays().items()})

    add("embedding", model.embedding)
    for i, layer in enumerate(model.layers):
        for name, value in vars(layer).items():
            add(f"layer{i}_{name}", value)
    add("output_norm", model.output_norm)
    if model.output is not model.embedding:
        add("output", model.output)
    return found
