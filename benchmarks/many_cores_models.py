"""The models of `many_cores.py`: deployed models with batches of 1 and 8, a prompt, and cases that end early."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import cases
from benchmarks.deployed import images, sequences
from benchmarks.deployed.graph import Graph, array

SEED = 5


@dataclass(frozen=True)
class Built:
    """A program to be compiled, with its arrays."""

    program: Any
    constants: Mapping[int, np.ndarray]
    """Weights, by index of the argument."""
    inputs: Sequence[np.ndarray]
    """The other arguments."""


@dataclass(frozen=True)
class Model:
    name: str
    build: Callable[[], Built]
    wanted: Mapping[int, float]
    """Wanted efficiency by number of threads."""


def from_graph(make: Callable[[Graph], Any], batch: int = 0) -> Built:
    """Returns a model of `benchmarks.deployed` with constant weights. `batch`: so many inputs at once, for models that
    take one."""
    import jax

    from benchmarks.deployed import jax_writer

    graph = Graph()
    graph.outputs = make(graph)
    function = jax_writer.function(graph)
    weights = {v.name: array(v) for v in graph.weights}
    inputs = [array(v) for v in graph.inputs]
    if batch:
        function = jax.vmap(function, in_axes=(None, *[0] * len(inputs)))
        inputs = [np.stack([x] * batch) for x in inputs]
    lowered = jax.jit(function, keep_unused=True).lower(weights, *inputs)
    return Built(lowered, dict(enumerate(weights[name] for name in sorted(weights))), inputs)


def gpt_prompt(tokens: int = 512, width: int = 768, layers: int = 12, heads: int = 12, words: int = 50257) -> Built:
    """GPT-2 small on a prompt: the scores of the next token, and the keys and values of all tokens."""
    import jax
    import jax.numpy as jnp

    g = np.random.default_rng(SEED)

    def normal(*shape: int) -> np.ndarray:
        return (g.standard_normal(shape, np.float32) * 0.02).astype(np.float32)

    names = {"qkv": (width, 3 * width), "o": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    weights = {f"{i:02}{name}": normal(*shape) for i in range(layers) for name, shape in names.items()}
    weights |= {"words": normal(words, width), "places": normal(1024, width)}

    def norm(x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)

    def call(w: Mapping[str, Any], given: Any) -> Any:
        x = w["words"][given] + w["places"][:tokens]
        mask, kept = jnp.tril(jnp.ones((tokens, tokens), bool)), []
        for i in range(layers):
            q, k, v = (
                y.reshape(tokens, heads, width // heads).transpose(1, 0, 2)
                for y in jnp.split(norm(x) @ w[f"{i:02}qkv"], 3, axis=1)
            )
            scores = jnp.einsum("hmk,hnk->hmn", q, k) / math.sqrt(width // heads)
            mixed = jnp.einsum("hmn,hnk->hmk", jax.nn.softmax(jnp.where(mask, scores, -1e30), -1), v)
            x = x + mixed.transpose(1, 0, 2).reshape(tokens, width) @ w[f"{i:02}o"]
            x = x + jax.nn.gelu(norm(x) @ w[f"{i:02}up"]) @ w[f"{i:02}down"]
            kept += [k, v]
        return norm(x)[-1:] @ w["words"].T, *kept

    given = g.integers(0, words, tokens).astype(np.int32)
    lowered = jax.jit(call, keep_unused=True).lower(weights, given)
    return Built(lowered, dict(enumerate(weights[name] for name in sorted(weights))), [given])


def from_case(name: str) -> Built:
    """Returns a case of `benchmarks.cases`."""
    (case,) = (c for c in cases.select(name) if c.name == name)
    return Built(case.lower(), {}, case.inputs())


MANY, FEW = {32: 0.7, 64: 0.5}, {}
MODELS = (
    Model("ResNet-50 batch 8", lambda: from_graph(lambda g: images.resnet(g, batch=8)), MANY),
    Model("BERT-base batch 8", lambda: from_graph(sequences.bert, 8), MANY),
    Model("ViT-S/16 batch 8", lambda: from_graph(sequences.vit, 8), MANY),
    Model("U-Net 256x256", lambda: from_graph(images.unet), MANY),
    Model("GPT-2 prompt of 512", gpt_prompt, MANY),
    Model("ResNet-50", lambda: from_graph(images.resnet), FEW),
    Model("BERT-base 128 tokens", lambda: from_graph(sequences.bert), FEW),
    Model("ViT-S/16", lambda: from_graph(sequences.vit), FEW),
    Model("MobileNetV2", lambda: from_graph(images.mobilenet), FEW),
    Model("GPT-2 one token", lambda: from_graph(sequences.gpt), FEW),
    Model("MLP batch 64", lambda: from_graph(lambda g: sequences.mlp(g, batch=64)), FEW),
    Model("sort 500K", lambda: from_case("sort 500K"), FEW),
    Model("cumulative sum", lambda: from_case("cumulative sum"), FEW),
    Model("dot f32 512", lambda: from_case("dot f32 512"), FEW),
    Model("sum of all", lambda: from_case("sum of all"), FEW),
    Model("dot f32 vector x 3000x3000", lambda: from_case("dot f32 vector x 3000x3000"), FEW),
)


def select(only: str = "") -> list[Model]:
    """Selects models with a word of `only` (separated by commas) in the name; all if it is empty."""
    words = [w.lower() for w in only.split(",") if w]
    return [m for m in MODELS if not words or any(w in m.name.lower() for w in words)]
