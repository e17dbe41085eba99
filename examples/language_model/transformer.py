"""A Llama-like transformer, as operations of the builder."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from gguf_model import Shape

from shlo_jit import builder as b
from shlo_jit.builder import Value


def extents(x: Value) -> tuple[int, ...]:
    """The shape of a value. None of its dimensions are unknown in this program."""
    return tuple(n for n in x.shape if n is not None)


def rows_at(table: Value, indices: Value) -> Value:
    """Returns the rows of a table at the indices [n]."""
    inner = extents(table)[1:]
    numbers = b.GatherDimensionNumbers(
        offset_dims=tuple(range(1, len(inner) + 1)),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
    )
    return b.gather(table, indices, numbers, (1, *inner))


def softmax(x: Value) -> Value:
    """Softmax along the last dimension."""
    last = len(x.shape) - 1
    e = b.exp(x - x.max(last)[..., None])
    return e / e.sum(last)[..., None]


class Transformer:
    """The network for some sequences, each with some tokens at consecutive positions.

    Its weights and caches are values of the open function. `keys` and `values` have a cache [sequences, key heads,
    slots, head size] for each layer. `attention` replaces them by those with the new tokens. The tokens of a sequence
    are rows below each other.
    """

    def __init__(
        self,
        shape: Shape,
        weights: Mapping[str, Value],
        sequence: Value,
        position: Value,
        length: int,
        keys: Sequence[Value],
        values: Sequence[Value],
    ) -> None:
        """`sequence`: the first one in the caches. `position` [rows]: that of the first of its `length` tokens."""
        self.shape, self.weights, self.length = shape, weights, length
        self.sequence, self.position = sequence, position
        self.keys, self.values = list(keys), list(values)
        (self.rows,) = extents(position)
        self.positions = b.iota(f"s32[{self.rows},{length}]", 1) + position[:, None]
        angles = self.positions.astype("f32").reshape(-1, 1) * np.array([shape.frequencies], np.float32)
        self.cosine, self.sine = b.cos(angles)[:, None, :], b.sin(angles)[:, None, :]

    # ------------------------------------------------------------------ weights
    def dequantized(self, name: str, take: Callable[[Value], Value] = lambda x: x) -> Value:
        """The matrix of that name, or the rows that `take` selects: `values * scales + minimums`, in f32.

        Nothing of the size of the matrix is stored: the product that reads it computes its elements in registers.
        """
        w = take(self.weights[f"{name}_values"]).astype("f32")
        if f"{name}_scales" not in self.weights:
            return w
        w = w * take(self.weights[f"{name}_scales"]).astype("f32")[..., None]
        if f"{name}_minimums" in self.weights:
            w = w + take(self.weights[f"{name}_minimums"]).astype("f32")[..., None]
        return w.reshape(extents(w)[0], -1)

    def product(self, x: Value, name: str) -> Value:
        """`x` [t, k] times the transposed weight [n, k] of that name, which consists of one or several matrices."""
        contracted = b.DotDimensionNumbers((1,), (1,))
        found: list[Value] = []
        while f"{name}_{len(found)}_values" in self.weights:
            found.append(b.dot_general(x, self.dequantized(f"{name}_{len(found)}"), contracted))
        return found[0] if len(found) == 1 else b.concatenate(found, 1)

    def normalized(self, x: Value, name: str) -> Value:
        """Divides by the root mean square along the last dimension, and multiplies by the weight."""
        last = len(x.shape) - 1
        mean = (x * x).mean(last)[..., None]
        return x * b.rsqrt(mean + self.shape.epsilon) * self.weights[name].reshape((1,) * last + (-1,))

    # ------------------------------------------------------------------ attention
    def rotated(self, x: Value) -> Value:
        """Rotates the pairs (i, i + half) of each head [t, heads, size] by the angles of the token's position."""
        half = self.shape.head_size // 2
        low, high = x[..., :half], x[..., half:]
        return b.concatenate([low * self.cosine - high * self.sine, low * self.sine + high * self.cosine], 2)

    def heads(self, x: Value, layer: int) -> tuple[Value, Value, Value]:
        """Queries [t, heads, size], keys and values [t, key heads, size] of the tokens."""
        shape, name = self.shape, f"layer{layer}_"
        qkv = self.product(x, f"{name}qkv")
        if f"{name}qkv_bias" in self.weights:
            qkv = qkv + self.weights[f"{name}qkv_bias"][None, :]
        qkv = qkv.reshape(self.rows * self.length, -1, shape.head_size)
        q, k, v = qkv[:, : shape.heads], qkv[:, shape.heads : -shape.key_heads], qkv[:, -shape.key_heads :]
        if f"{name}q_norm" in self.weights:
            q, k = self.normalized(q, f"{name}q_norm"), self.normalized(k, f"{name}k_norm")
        return self.rotated(q), self.rotated(k), v

    def appended(self, caches: list[Value], layer: int, x: Value) -> Value:
        """Writes `x` [t, key heads, size] into the cache of a layer. Returns the part of these sequences."""
        x = x.reshape(self.rows, self.length, *extents(x)[1:]).transpose(0, 2, 1, 3)
        for row in range(self.rows):
            place = (self.sequence + row, 0, self.position[row], 0)
            caches[layer] = b.dynamic_update_slice(caches[layer], x[row : row + 1], place)
        return b.dynamic_slice(caches[layer], (self.sequence, 0, 0, 0), (self.rows, *extents(caches[layer])[1:]))

    def attention(self, x: Value, layer: int) -> Value:
        """Returns what the heads read from the tokens up to their own [t, heads * size], and updates the caches."""
        shape, rows, t = self.shape, self.rows, self.length
        q, k, v = self.heads(x, layer)
        keys, values = self.appended(self.keys, layer, k), self.appended(self.values, layer, v)
        # Heads that share keys are rows of one product: [rows, key heads, t * group, ...].
        group = shape.heads // shape.key_heads
        split, merged = (rows, shape.key_heads, t, group, -1), (rows, shape.key_heads, t * group, -1)
        q = q.reshape(rows, t, shape.key_heads, group, -1).transpose(0, 2, 1, 3, 4).reshape(merged)
        scores = b.dot_general(q, keys, b.DotDimensionNumbers((3,), (3,), (0, 1), (0, 1))) / math.sqrt(shape.head_size)
        scores = scores.reshape(split)
        every = extents(scores)
        visible = b.iota(f"s32{list(every)}", 4) <= b.broadcast_in_dim(self.positions, every, (0, 2))
        weights = softmax(b.select(visible, scores, -math.inf)).reshape(merged)
        found = b.dot_general(weights, values, b.DotDimensionNumbers((3,), (2,), (0, 1), (0, 1)))
        return found.reshape(split).transpose(0, 2, 1, 3, 4).reshape(rows * t, -1)

    # ------------------------------------------------------------------ the whole
    def feed_forward(self, x: Value, layer: int) -> Value:
        both = self.product(x, f"layer{layer}_gate_up")
        half = extents(both)[1] // 2
        gate, up = both[:, :half], both[:, half:]
        return self.product(gate * b.logistic(gate) * up, f"layer{layer}_down")

    def hidden(self, tokens: Value) -> Value:
        """Returns the last layer's result for the tokens [t, width]."""
        x = self.dequantized("embedding_0", lambda table: rows_at(table, tokens))
        for i in range(self.shape.layers):
            found = self.attention(self.normalized(x, f"layer{i}_attention_norm"), i)
            x = x + self.product(found, f"layer{i}_attention_output")
            x = x + self.feed_forward(self.normalized(x, f"layer{i}_feed_forward_norm"), i)
        return x

    def logits(self, x: Value) -> Value:
        """Scores of all tokens [rows, vocabulary] to follow those whose results are `x` [rows, width]."""
        name = "output" if "output_0_values" in self.weights else "embedding"
        return self.product(self.normalized(x, "output_norm"), name)
