"""The program that a model is compiled to: some tokens in, the next token out, with caches as states."""

from __future__ import annotations

import numpy as np
from gguf_model import Model, named_arrays
from transformer import Transformer, extents, softmax

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.ir.core import Module

CANDIDATES = 64
"""The largest top_k: the token is drawn from at most so many."""
STATES = 7
"""Index of the first cache among the arguments."""


def sampled(logits: Value, temperature: Value, top_p: Value, top_k: Value, random: Value) -> tuple[Value, Value]:
    """Draws a token [1] from the `top_k` likeliest, of which those that make up `top_p` of the likelihood are kept.

    Temperature 0 selects the likeliest token. Returns the next state of the random numbers, too.
    """
    count = min(CANDIDATES, *extents(logits))
    scores, tokens = b.top_k(logits, count)  # in descending order
    place = b.iota(f"s32[{count}]")
    allowed = b.select(place < b.max(top_k, 1), scores / b.max(temperature, 1e-6), -np.inf)
    likelihood = softmax(allowed)
    row, column = (b.iota(f"s32[{count},{count}]", d) for d in (0, 1))
    before = b.select(column < row, b.broadcast_in_dim(likelihood, extents(row), (1,)), 0.0).sum(1)
    likelihood = b.select((before < top_p) | (place == 0), likelihood, 0.0)
    random, bits = b.rng_bit_generator("THREE_FRY", random, "u32[]")
    uniform = (bits >> 8).astype("f32") * 2.0**-24
    kept = likelihood > 0.0
    passed = (before + likelihood <= uniform * likelihood.sum()) & kept
    last = kept.astype("s32").sum() - 1  # the two sums are rounded differently: all may be passed
    chosen = b.select(temperature > 0.0, b.min(passed.astype("s32").sum(), last), 0)
    return b.dynamic_slice(tokens, (chosen,), (1,)), random


def add_function(name: str, model: Model, length: int, slots: int) -> b.FunctionBuilder:
    """Writes a function that continues a text by `length` tokens, of which the first `count` are part of it.

    The caches have `slots` positions. Tokens after the first `count` fill slots that later tokens overwrite before
    any token reads them.
    """
    shape, arrays = model.shape, named_arrays(model)
    cache = f"f32[{shape.key_heads},{slots},{shape.head_size}]"
    keys, values = ([f"{part}{i}" for i in range(shape.layers)] for part in ("keys", "values"))
    inputs = {"tokens": f"s32[{length}]", "position": "s32[]", "count": "s32[]"}
    inputs |= {"temperature": "f32[]", "top_p": "f32[]", "top_k": "s32[]", "random": "u64[2]"}
    with b.function(name, **inputs, **dict.fromkeys([*keys, *values], cache), **arrays) as f:
        weights = {name: f[name] for name in arrays}
        network = Transformer(shape, weights, f.position, length, [f[n] for n in keys], [f[n] for n in values])
        x = network.hidden(f.tokens)
        if length > 1:
            x = b.dynamic_slice(x, (f.count - 1, 0), (1, shape.width))
        logits = network.logits(x)
        token, random = sampled(logits, f.temperature, f.top_p, f.top_k, f.random)
        caches = dict(zip([*keys, *values], [*network.keys, *network.values], strict=True))
        f.returns(token=token, logits=logits, random=random, **caches)
    return f


def build(model: Model, lengths: dict[str, int], slots: int) -> Module:
    """Returns a module with a function of each name, for that number of tokens."""
    with b.module("language_model") as m:
        for name, length in lengths.items():
            add_function(name, model, length, slots)
    return m.module


def donated(model: Model) -> range:
    """Indices of the caches among the arguments. Results reuse their memory."""
    return range(STATES, STATES + 2 * model.shape.layers)
