"""The programs that a model is compiled to: some tokens in, the next ones out, with caches as states."""

from __future__ import annotations

import numpy as np
from gguf_model import Model, named_arrays
from transformer import Transformer, extents, rows_at, softmax

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.ir.core import Module

CANDIDATES = 64
"""The largest top_k: the token is drawn from at most so many."""
STATES = 8
"""Index of the first cache among the arguments."""


def sampled(logits: Value, temperature: Value, top_p: Value, top_k: Value, random: Value) -> tuple[Value, Value]:
    """Draws a token for each row of scores [rows, vocabulary] from the `top_k` likeliest, of which those that make up
    `top_p` of the likelihood are kept.

    Temperature 0 selects the likeliest token. Returns the next state of the random numbers, too.
    """
    rows, vocabulary = extents(logits)
    count = min(CANDIDATES, vocabulary)
    scores, tokens = b.top_k(logits, count)  # in descending order
    place = b.iota(f"s32[{rows},{count}]", 1)
    allowed = b.select(place < b.max(top_k, 1), scores / b.max(temperature, 1e-6), -np.inf)
    likelihood = softmax(allowed)
    pairs = (rows, count, count)
    later, earlier = (b.iota(f"s32{list(pairs)}", d) for d in (1, 2))
    before = b.select(earlier < later, b.broadcast_in_dim(likelihood, pairs, (0, 2)), 0.0).sum(2)
    likelihood = b.select((before < top_p) | (place == 0), likelihood, 0.0)
    random, bits = b.rng_bit_generator("THREE_FRY", random, f"u32[{rows}]")
    uniform = (bits >> 8).astype("f32") * 2.0**-24
    kept = likelihood > 0.0
    passed = (before + likelihood <= (uniform * likelihood.sum(1))[:, None]) & kept
    last = kept.astype("s32").sum(1) - 1  # the two sums are rounded differently: all may be passed
    chosen = b.select(temperature > 0.0, b.min(passed.astype("s32").sum(1), last), 0)
    return b.select(place == chosen[:, None], tokens, 0).sum(1), random


def add_function(name: str, model: Model, rows: int, length: int, batch: int, slots: int) -> b.FunctionBuilder:
    """Writes a function that continues `rows` sequences by `length` tokens each, of which the first `count` are part of
    the text.

    The caches have `slots` positions for each of `batch` sequences; `sequence` is the first one. Tokens after the first
    `count` fill slots that later tokens overwrite before any token reads them.
    """
    shape, arrays = model.shape, named_arrays(model)
    cache = f"f32[{batch},{shape.key_heads},{slots},{shape.head_size}]"
    keys, values = ([f"{part}{i}" for i in range(shape.layers)] for part in ("keys", "values"))
    inputs = {"tokens": f"s32[{rows},{length}]", "sequence": "s32[]"}
    inputs |= {"position": f"s32[{rows}]", "count": f"s32[{rows}]"}
    inputs |= {"temperature": "f32[]", "top_p": "f32[]", "top_k": "s32[]", "random": "u64[2]"}
    with b.function(name, **inputs, **dict.fromkeys([*keys, *values], cache), **arrays) as f:
        caches = [f[n] for n in keys], [f[n] for n in values]
        network = Transformer(shape, {name: f[name] for name in arrays}, f.sequence, f.position, length, *caches)
        x = network.hidden(f.tokens.reshape(-1))
        if length > 1:
            x = rows_at(x, b.iota(f"s32[{rows}]") * length + f.count - 1)
        logits = network.logits(x)
        token, random = sampled(logits, f.temperature, f.top_p, f.top_k, f.random)
        caches = dict(zip([*keys, *values], [*network.keys, *network.values], strict=True))
        f.returns(token=token, logits=logits, random=random, **caches)
    return f


def build(model: Model, chunk: int, slots: int, batch: int = 1) -> Module:
    """Returns a module with the functions `prompt`, for `chunk` tokens of one sequence, and `next`, for a token of
    each sequence."""
    with b.module("language_model") as m:
        add_function("prompt", model, 1, chunk, batch, slots)
        add_function("next", model, batch, 1, batch, slots)
    return m.module


def donated(model: Model) -> range:
    """Indices of the caches among the arguments. Results reuse their memory."""
    return range(STATES, STATES + 2 * model.shape.layers)
