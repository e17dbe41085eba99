"""Sequence models: tokens, patches, samples of sound, features. Practical sizes are the defaults.

Each function takes a graph and sizes, and returns the results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.deployed.graph import Graph, Value

FINE = 0.0625
"""The scale of quantized activations."""


def mlp(g: Graph, batch: int = 1, widths: Sequence[int] = (784, 512, 512, 10)) -> list[Value]:
    x = g.input((batch, widths[0]))
    for i, width in enumerate(widths[1:]):
        x = g.linear(g.unary("relu", x) if i else x, f"layer{i}", width, math.sqrt(2))
    return [x]


def mlp_i8(g: Graph, batch: int = 1, widths: Sequence[int] = (784, 512, 512, 10)) -> list[Value]:
    """A multilayer perceptron with quantized weights, i8 with a scale per column, and activations of seven bits with a
    scale."""
    x = g.input((batch, widths[0]), "i8", 32)
    for i, width in enumerate(widths[1:]):
        x = g.linear_i8(g.quantized(g.unary("relu", x), FINE) if i else x, f"layer{i}", width, FINE)
    return [x]


def lstm(g: Graph, time: int = 128, width: int = 256) -> list[Value]:
    return [g.lstm(g.input((time, width)), "lstm", width)]


# ---------------------------------------------------------------------- transformers
def _heads(g: Graph, x: Value, heads: int) -> Value:
    """Rows of all heads as a batch of matrices."""
    return g.transpose(g.reshape(x, x.shape[0], heads, x.shape[1] // heads), 1, 0, 2)


def _joined(g: Graph, x: Value) -> Value:
    heads, rows, width = x.shape
    return g.reshape(g.transpose(x, 1, 0, 2), rows, heads * width)


def _attention(g: Graph, x: Value, name: str, heads: int, bias: Value | None = None, *, is_t5: bool = False) -> Value:
    """Attention of every row to all rows, optionally with a bias for each pair of rows.

    T5 has no bias of columns and does not scale.
    """
    q, k, v = (_heads(g, g.linear(x, f"{name}.{part}", x.shape[1], is_biased=not is_t5), heads) for part in "qkv")
    scores = g.matmul(q, k, is_transposed=True)
    scores = scores if is_t5 else g.scaled(scores, 1 / math.sqrt(q.shape[2]))
    scores = g.add(scores, bias) if bias else scores
    mixed = _joined(g, g.matmul(g.unary("softmax", scores), v))
    return g.linear(mixed, f"{name}.o", x.shape[1], is_biased=not is_t5)


def _feed_forward(g: Graph, x: Value, name: str, wide: int, activation: str, *, is_biased: bool = True) -> Value:
    y = g.unary(activation, g.linear(x, f"{name}.up", wide, is_biased=is_biased))
    return g.linear(y, f"{name}.down", x.shape[1], is_biased=is_biased)


def bert(
    g: Graph, tokens: int = 128, words: int = 30522, width: int = 768, layers: int = 12, heads: int = 12
) -> list[Value]:
    """BERT-base, from tokens to the rows of the last layer; normalization comes after each part."""
    places = g.weight("places", (max(512, tokens), width))
    x = g.add(g.rows(g.weight("words", (words, width)), g.input((tokens,), "i32", words)), g.part(places, 0, 0, tokens))
    x = g.layer_norm(x, "start")
    for i in range(layers):
        x = g.layer_norm(g.add(x, _attention(g, x, f"layer{i}", heads)), f"layer{i}.first")
        x = g.layer_norm(g.add(x, _feed_forward(g, x, f"layer{i}", 4 * width, "gelu")), f"layer{i}.second")
    return [x]


def gpt(
    g: Graph, cached: int = 511, words: int = 50257, width: int = 768, layers: int = 12, heads: int = 12
) -> list[Value]:
    """GPT-2 small: scores of the token after the given one, and its keys and values for the cache."""
    table, head = g.weight("words", (words, width), 0.05), (heads, 1, width // heads)
    x = g.rows(table, g.input((1,), "i32", words))
    x = g.add(x, g.rows(g.weight("places", (max(1024, cached), width)), g.input((1,), "i32", cached)))
    new = []
    for i in range(layers):
        name, y = f"layer{i}", g.layer_norm(x, f"layer{i}.first")
        q, k, v = (g.reshape(g.linear(y, f"{name}.{part}", width), *head) for part in "qkv")
        keys, values = (g.concatenate([g.input((heads, cached, head[2])), row], 1) for row in (k, v))
        scores = g.scaled(g.matmul(q, keys, is_transposed=True), 1 / math.sqrt(head[2]))
        mixed = g.reshape(g.matmul(g.unary("softmax", scores), values), 1, width)
        x = g.add(x, g.linear(mixed, f"{name}.o", width))
        x = g.add(x, _feed_forward(g, g.layer_norm(x, f"{name}.second"), name, 4 * width, "gelu_tanh"))
        new += [k, v]
    return [g.linear_by_rows(g.layer_norm(x, "end"), table), *new]


def vit(
    g: Graph, side: int = 224, patch: int = 16, width: int = 384, layers: int = 12, heads: int = 6, classes: int = 1000
) -> list[Value]:
    """A vision transformer, ViT-S/16: scores from the row of the class token."""
    patches = g.conv(g.input((1, side, side, 3)), "patches", width, patch, patch, padding=((0, 0), (0, 0)))
    x = g.concatenate([g.weight("class", (1, width)), g.pixels(g.bias(patches, "patches"))], 0)
    x = g.add(x, g.weight("places", x.shape))
    for i in range(layers):
        x = g.add(x, _attention(g, g.layer_norm(x, f"layer{i}.first"), f"layer{i}", heads))
        x = g.add(x, _feed_forward(g, g.layer_norm(x, f"layer{i}.second"), f"layer{i}", 4 * width, "gelu"))
    return [g.linear(g.part(g.layer_norm(x, "end"), 0, 0, 1), "scores", classes)]


def t5(
    g: Graph, tokens: int = 128, words: int = 32128, width: int = 512, wide: int = 2048, layers: int = 6, heads: int = 8
) -> list[Value]:
    """The encoder of T5-small: a bias by distance for all layers, normalization without means, no other biases."""
    x = g.rows(g.weight("words", (words, width), 1.0), g.input((tokens,), "i32", words))
    bias = g.bucketed(g.weight("distances", (32, heads)), distance_buckets(tokens))
    for i in range(layers):
        y = g.rms_norm(x, f"layer{i}.first")
        x = g.add(x, _attention(g, y, f"layer{i}", heads, bias, is_t5=True))
        y = g.rms_norm(x, f"layer{i}.second")
        x = g.add(x, _feed_forward(g, y, f"layer{i}", wide, "relu", is_biased=False))
    return [g.rms_norm(x, "end")]


def distance_buckets(tokens: int, buckets: int = 32, farthest: int = 128) -> np.ndarray:
    """T5's buckets: half of them for each direction, of which half are for single distances and the rest grow."""
    apart = np.arange(tokens)[None] - np.arange(tokens)[:, None]
    side, near = buckets // 2, buckets // 4
    size = np.abs(apart)
    grown = near + (np.log(np.maximum(size, 1) / near) / math.log(farthest / near) * (side - near)).astype(int)
    return side * (apart > 0) + np.where(size < near, size, np.minimum(grown, side - 1))


# ---------------------------------------------------------------------- others
def dlrm(
    g: Graph,
    batch: int = 128,
    tables: int = 26,
    rows: int = 10_000,
    bottom: Sequence[int] = (13, 512, 256, 64),
    top: Sequence[int] = (512, 256, 1),
) -> list[Value]:
    """A recommendation model (DLRM).

    It has an MLP of the numeric features, rows of tables for the categories, products of all pairs of these, and an MLP
    of the products.
    """

    def layers(x: Value, name: str, widths: Sequence[int]) -> Value:
        for i, width in enumerate(widths):
            x = g.linear(g.unary("relu", x) if i else x, f"{name}{i}", width, math.sqrt(2))
        return x

    width, count = bottom[-1], tables + 1
    x = g.unary("relu", layers(g.input((batch, bottom[0])), "bottom", bottom[1:]))
    found = [g.rows(g.weight(f"table{i}", (rows, width)), g.input((batch,), "i32", rows)) for i in range(tables)]
    every = g.concatenate([g.reshape(row, batch, 1, width) for row in (x, *found)], 1)
    products = g.reshape(g.matmul(every, every, is_transposed=True), batch, count * count)
    pairs = g.columns(products, [count * i + j for i in range(count) for j in range(i)])
    return [g.unary("sigmoid", layers(g.concatenate([x, pairs], 1), "top", top))]


def wavenet(
    g: Graph, time: int = 4000, width: int = 64, skipped: int = 128, layers: int = 10, stacks: int = 2
) -> list[Value]:
    """Gated convolutions over samples, each dilated twice as much as the previous one (WaveNet).

    The sums of the skip connections give 256 scores per sample. A row of samples is an image one pixel high.
    """

    def causal(x: Value, name: str, channels: int, dilation: int) -> Value:
        padding = ((0, 0), (dilation, 0))
        return g.bias(g.conv(x, name, channels, (1, 2), dilation=dilation, padding=padding), name)

    def dense(x: Value, name: str, channels: int) -> Value:
        return g.bias(g.conv(x, name, channels), name)

    x, total = causal(g.input((1, 1, time, 1)), "first", width, 1), None
    for i in range(layers * stacks):
        gates = causal(x, f"layer{i}", 2 * width, 1 << (i % layers))
        halves = (g.part(gates, 3, start, start + width) for start in (0, width))
        y = g.multiply(*(g.unary(op, half) for op, half in zip(("tanh", "sigmoid"), halves, strict=True)))
        skip = dense(y, f"layer{i}.skip", skipped)
        total = g.add(total, skip) if total else skip
        x = g.add(x, dense(y, f"layer{i}.kept", width))
    assert total is not None
    return [dense(g.unary("relu", dense(g.unary("relu", total), "mixed", skipped)), "scores", 256)]
