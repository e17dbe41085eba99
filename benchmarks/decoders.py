"""Decoders of several architectures in plain JAX, beside XLA: prompts, tokens, and batches.

    python -m benchmarks.decoders                             # two layers at 1024/2816
    python -m benchmarks.decoders --width 2048 --hidden 5632 --only llama --kinds int4 --batches 1,8 --constants

Weights are random. `int8` and `int4` have a scale for each 32 terms, `int4` also a minimum. The table has milliseconds
of a prompt, and of a step that appends a token to each sequence of a batch, whose lengths differ: lower quartiles of
calls that alternate with those of XLA. Programs of a batch are `jax.vmap` of the one for a sequence. `--constants`:
weights are constants of our program, which stores two integers of four bits in a byte. `--scan`: the layers' weights
and caches are rows of stacked arrays, over which a scan runs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from rich.console import Console
from rich.table import Table

import shlo_jit
from benchmarks.timing import interleave

GROUP = 32
"""Terms of a matrix that share a scale."""
KINDS = ("f32", "bf16", "int8", "int4")


class Sizes(NamedTuple):
    """Sizes of a decoder."""

    width: int = 64
    hidden: int = 96
    heads: int = 4
    key_heads: int = 2
    layers: int = 2
    slots: int = 32
    vocabulary: int = 128
    window: int = 8
    """Slots that a sliding window sees."""
    experts: int = 4
    states: int = 8
    """States of each channel of a state space model."""

    @property
    def head(self) -> int:
        return self.width // self.heads


class Decoder(NamedTuple):
    """A decoder: weights, and caches of one sequence, as trees of arrays."""

    weights: Any
    caches: Any
    step: Callable[..., tuple[jax.Array, Any]]
    """(weights, caches, tokens [t], position) -> scores of the token that follows, and the caches."""


# ---------------------------------------------------------------------- weights
class Random:
    """Draws weights of one kind."""

    def __init__(self, kind: str, seed: int = 0) -> None:
        self._kind, self._random = kind, np.random.default_rng(seed)

    def vector(self, size: int | tuple[int, int], around: float = 0.0) -> np.ndarray:
        return around + np.float32(0.1) * self._random.standard_normal(size, np.float32)

    def matrix(self, *shape: int) -> Any:
        """[..., n, k]"""
        k, scale = shape[-1], np.float32(1 / math.sqrt(shape[-1]))
        if self._kind in ("f32", "bf16"):
            x = scale * self._random.standard_normal(shape, np.float32)
            return x if self._kind == "f32" else x.astype(ml_dtypes.bfloat16)
        grouped = (*shape[:-1], k // GROUP)
        scales = scale * (np.float32(0.5) + self._random.random(grouped, np.float32))
        if self._kind == "int8":
            q = self._random.integers(-127, 128, (*grouped, GROUP), np.int8)
            return {"q": q, "scale": scales / np.float32(70)}
        q = self._random.integers(0, 16, (*grouped, GROUP), np.uint8).astype(ml_dtypes.uint4)
        return {"q": q, "scale": scales / 4, "minimum": scales * np.float32(-15 / 8)}


def dense(w: Any) -> jax.Array:
    """A matrix in f32, or bf16 as it is stored."""
    if not isinstance(w, dict):
        return w
    x = w["q"].astype(jnp.float32) * w["scale"][..., None]
    if "minimum" in w:
        x = x + w["minimum"][..., None]
    return x.reshape(*x.shape[:-2], -1)


def product(x: jax.Array, w: Any, how: str = "...k,nk->...n") -> jax.Array:
    matrix = dense(w)
    return jnp.einsum(how, x.astype(matrix.dtype), matrix, preferred_element_type=jnp.float32)


# ---------------------------------------------------------------------- parts
def rms_norm(x: jax.Array, weight: Any) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * weight


def layer_norm(x: jax.Array, weight: Any, bias: Any) -> jax.Array:
    centered = x - jnp.mean(x, -1, keepdims=True)
    return centered * jax.lax.rsqrt(jnp.mean(centered * centered, -1, keepdims=True) + 1e-5) * weight + bias


def rotated(x: jax.Array, positions: jax.Array, count: int) -> jax.Array:
    """Rotates the first `count` elements of each head [t, heads, size]."""
    angles = positions[:, None, None] * 10000.0 ** (-jnp.arange(0, count, 2) / count)
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    low, high, rest = jnp.split(x, [count // 2, count], -1)
    return jnp.concatenate([low * cosine - high * sine, low * sine + high * cosine, rest], -1)


def capped(x: jax.Array, cap: float) -> jax.Array:
    return cap * jnp.tanh(x / cap)


def attention(
    sizes: Sizes,
    qkv: Sequence[jax.Array],
    cache: tuple[jax.Array, jax.Array],
    position: jax.Array,
    cap: float | None = None,
    window: int | None = None,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Attention of some tokens [t, heads, size] to those in the caches [key heads, slots, size], and to themselves."""
    q, k, v = qkv
    t, group = q.shape[0], sizes.heads // sizes.key_heads
    place = 0, position, 0
    keys, values = (
        jax.lax.dynamic_update_slice(c, x.transpose(1, 0, 2), place) for c, x in zip(cache, (k, v), strict=True)
    )
    rows = q.reshape(t, sizes.key_heads, group, sizes.head)
    scores = jnp.einsum("tghd,gsd->ghts", rows, keys) / math.sqrt(sizes.head)
    scores = scores if cap is None else capped(scores, cap)
    places, positions = jnp.arange(sizes.slots)[None, :], position + jnp.arange(t)[:, None]
    seen = places <= positions
    if window is not None:
        seen &= places > positions - window
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1)
    return jnp.einsum("ghts,gsd->tghd", weights, values).reshape(t, -1), (keys, values)


def split_heads(sizes: Sizes, x: jax.Array, layer: Any) -> list[jax.Array]:
    """Queries, keys and values of tokens [t, width], with biases if the layer has them."""
    found = [product(x, layer[name]) + layer.get(f"{name}_bias", 0.0) for name in "qkv"]
    return [y.reshape(x.shape[0], -1, sizes.head) for y in found]


# ---------------------------------------------------------------------- layers
def attention_weights(sizes: Sizes, r: Random) -> dict[str, Any]:
    size = sizes.key_heads * sizes.head
    names = {"q": sizes.width, "k": size, "v": size}
    return {name: r.matrix(n, sizes.width) for name, n in names.items()} | {"o": r.matrix(sizes.width, sizes.width)}


def gated_weights(sizes: Sizes, r: Random, *experts: int) -> dict[str, Any]:
    shape = *experts, sizes.hidden, sizes.width
    return {"gate": r.matrix(*shape), "up": r.matrix(*shape), "down": r.matrix(*experts, sizes.width, sizes.hidden)}


def llama_weights(sizes: Sizes, r: Random) -> dict[str, Any]:
    norms = {name: r.vector(sizes.width, 1.0) for name in ("norm1", "norm2")}
    return norms | attention_weights(sizes, r) | gated_weights(sizes, r)


def llama(sizes: Sizes, w: Any, x: jax.Array, cache: Any, position: jax.Array, number: int) -> tuple[jax.Array, Any]:
    q, k, v = split_heads(sizes, rms_norm(x, w["norm1"]), w)
    if "q_norm" in w:
        q, k = rms_norm(q, w["q_norm"]), rms_norm(k, w["k_norm"])
    positions = position + jnp.arange(x.shape[0])
    q, k = (rotated(y, positions, sizes.head) for y in (q, k))
    found, cache = attention(sizes, (q, k, v), cache, position)
    x = x + product(found, w["o"])
    h = rms_norm(x, w["norm2"])
    return x + product(jax.nn.silu(product(h, w["gate"])) * product(h, w["up"]), w["down"]), cache


def qwen_weights(sizes: Sizes, r: Random) -> dict[str, Any]:
    """Biases of queries, keys and values, and norms of heads: more than any single one of these models has."""
    w = llama_weights(sizes, r)
    rows = {"q": sizes.width, "k": sizes.key_heads * sizes.head, "v": sizes.key_heads * sizes.head}
    w |= {f"{name}_bias": r.vector(n) for name, n in rows.items()}
    return w | {f"{name}_norm": r.vector(sizes.head, 1.0) for name in "qk"}


def gemma_weights(sizes: Sizes, r: Random) -> dict[str, Any]:
    return llama_weights(sizes, r) | {name: r.vector(sizes.width) for name in ("norm1", "norm2", "after1", "after2")}


def gemma(sizes: Sizes, w: Any, x: jax.Array, cache: Any, position: jax.Array, number: int) -> tuple[jax.Array, Any]:
    """Every second layer has a sliding window. Norms multiply by 1 + w, also after each block."""
    q, k, v = split_heads(sizes, rms_norm(x, 1 + w["norm1"]), w)
    positions = position + jnp.arange(x.shape[0])
    q, k = (rotated(y, positions, sizes.head) for y in (q, k))
    window = sizes.window if number % 2 == 0 else None
    found, cache = attention(sizes, (q, k, v), cache, position, cap=50.0, window=window)
    x = x + rms_norm(product(found, w["o"]), 1 + w["after1"])
    h = rms_norm(x, 1 + w["norm2"])
    h = product(jax.nn.gelu(product(h, w["gate"])) * product(h, w["up"]), w["down"])
    return x + rms_norm(h, 1 + w["after2"]), cache


def phi_weights(sizes: Sizes, r: Random) -> dict[str, Any]:
    w = attention_weights(sizes, r) | {"norm": r.vector(sizes.width, 1.0), "norm_bias": r.vector(sizes.width)}
    w |= {f"{name}_bias": r.vector(n) for name, n in {"q": sizes.width, "o": sizes.width, "up": sizes.hidden}.items()}
    return w | {"up": r.matrix(sizes.hidden, sizes.width), "down": r.matrix(sizes.width, sizes.hidden)}


def phi(sizes: Sizes, w: Any, x: jax.Array, cache: Any, position: jax.Array, number: int) -> tuple[jax.Array, Any]:
    """Attention and feed-forward layer read the same norm; half of each head is rotated."""
    h = layer_norm(x, w["norm"], w["norm_bias"])
    q, k, v = split_heads(sizes, h, w)
    positions = position + jnp.arange(x.shape[0])
    q, k = (rotated(y, positions, sizes.head // 2) for y in (q, k))
    found, cache = attention(sizes, (q, k, v), cache, position)
    forward = product(jax.nn.gelu(product(h, w["up"]) + w["up_bias"]), w["down"])
    return x + product(found, w["o"]) + w["o_bias"] + forward, cache


def mixtral_weights(sizes: Sizes, r: Random) -> dict[str, Any]:
    w = {name: r.vector(sizes.width, 1.0) for name in ("norm1", "norm2")} | attention_weights(sizes, r)
    router = Random("f32").matrix(sizes.experts, sizes.width)
    return w | gated_weights(sizes, r, sizes.experts) | {"router": router}


def mixtral(sizes: Sizes, w: Any, x: jax.Array, cache: Any, position: jax.Array, number: int) -> tuple[jax.Array, Any]:
    """Each token goes through two experts, whose matrices are gathered."""
    q, k, v = split_heads(sizes, rms_norm(x, w["norm1"]), w)
    positions = position + jnp.arange(x.shape[0])
    q, k = (rotated(y, positions, sizes.head) for y in (q, k))
    found, cache = attention(sizes, (q, k, v), cache, position)
    x = x + product(found, w["o"])
    h = rms_norm(x, w["norm2"])
    scores, chosen = jax.lax.top_k(product(h, w["router"]), 2)
    gate, up, down = (jax.tree.map(lambda a: a[chosen], w[name]) for name in ("gate", "up", "down"))
    inner = jax.nn.silu(product(h, gate, "tk,tenk->ten")) * product(h, up, "tk,tenk->ten")
    each = product(inner, down, "tek,tenk->ten")
    return x + jnp.einsum("te,ten->tn", jax.nn.softmax(scores, -1), each), cache


def mamba_weights(sizes: Sizes, r: Random) -> dict[str, Any]:
    hidden, states = sizes.hidden, sizes.states
    w = {"norm": r.vector(sizes.width, 1.0), "conv": r.vector((4, hidden)), "skip": r.vector(hidden, 1.0)}
    w |= {"in": r.matrix(2 * hidden, sizes.width), "out": r.matrix(sizes.width, hidden)}
    w |= {"selected": r.matrix(2 * states + 1, hidden), "step_bias": r.vector(hidden)}
    return w | {"decay": np.log(np.tile(np.arange(1, states + 1, dtype=np.float32), (hidden, 1)))}


def mamba(sizes: Sizes, w: Any, x: jax.Array, cache: Any, position: jax.Array, number: int) -> tuple[jax.Array, Any]:
    """A selective state space model. The caches are the last inputs of the convolution, and the states."""
    earlier, state = cache
    u, gate = jnp.split(product(rms_norm(x, w["norm"]), w["in"]), 2, -1)
    inputs = jnp.concatenate([earlier, u])
    u = jax.nn.silu(sum(inputs[i : i + x.shape[0]] * w["conv"][i] for i in range(4)))
    steps, enters, leaves = jnp.split(product(u, w["selected"]), [1, 1 + sizes.states], -1)
    steps = jax.nn.softplus(steps + w["step_bias"])
    rates = -jnp.exp(w["decay"])

    def advance(h: jax.Array, row: Any) -> tuple[jax.Array, jax.Array]:
        step, value, enter, leave = row
        h = h * jnp.exp(step[:, None] * rates) + (step * value)[:, None] * enter
        return h, h @ leave

    state, y = jax.lax.scan(advance, state, (steps, u, enters, leaves))
    y = (y + u * w["skip"]) * jax.nn.silu(gate)
    return x + product(y, w["out"]), (inputs[-3:], state)


class Architecture(NamedTuple):
    weights: Callable[[Sizes, Random], dict[str, Any]]
    layer: Callable[..., tuple[jax.Array, Any]]
    cap: float | None = None
    """What scores of tokens are limited to."""
    scale: Callable[[Sizes], float] = lambda sizes: 1.0
    """What embeddings are multiplied by."""


ARCHITECTURES = {
    "llama": Architecture(llama_weights, llama),
    "qwen": Architecture(qwen_weights, llama),
    "gemma": Architecture(gemma_weights, gemma, 30.0, lambda sizes: math.sqrt(sizes.width)),
    "phi": Architecture(phi_weights, phi),
    "mixtral": Architecture(mixtral_weights, mixtral),
    "mamba": Architecture(mamba_weights, mamba),
}
VARIED = ("gemma",)
"""Architectures whose layers are not all alike."""


def decoder(name: str, sizes: Sizes, kind: str, *, scans: bool = False) -> Decoder:
    """A decoder with random weights of that kind. `scans`: a scan runs the layers, whose weights and caches are rows of
    stacked arrays; all layers of the architecture have to be alike."""
    made, r = ARCHITECTURES[name], Random(kind)
    table = r.vector((sizes.vocabulary, sizes.width))
    layers = [made.weights(sizes, r) for _ in range(sizes.layers)]
    weights = {"embedding": table, "layers": layers, "norm": r.vector(sizes.width, 1.0)}
    weights["output"] = r.matrix(sizes.vocabulary, sizes.width)
    shapes = [(sizes.key_heads, sizes.slots, sizes.head)] * 2
    if name == "mamba":
        shapes = [(3, sizes.hidden), (sizes.hidden, sizes.states)]
    caches: Any = [tuple(np.zeros(shape, np.float32) for shape in shapes) for _ in layers]
    if scans:
        weights["layers"], caches = (jax.tree.map(lambda *x: np.stack(x), *given) for given in (layers, caches))
    run = scanned if scans else one_by_one

    def step(w: Any, caches: Any, tokens: jax.Array, position: jax.Array) -> tuple[jax.Array, Any]:
        def layer(x: jax.Array, layer: Any, cache: Any, number: int) -> tuple[jax.Array, Any]:
            return made.layer(sizes, layer, x, cache, position, number)

        x, found = run(layer, w["embedding"][tokens] * made.scale(sizes), w["layers"], caches)
        scores = product(rms_norm(x[-1], w["norm"]), w["output"])
        return scores if made.cap is None else capped(scores, made.cap), found

    return Decoder(weights, caches, step)


def one_by_one(layer: Callable[..., Any], x: jax.Array, layers: Any, caches: Any) -> tuple[jax.Array, Any]:
    """Runs layers that are written out."""
    found = []
    for i, (weights, cache) in enumerate(zip(layers, caches, strict=True)):
        x, cache = layer(x, weights, cache, i)
        found.append(cache)
    return x, found


def scanned(layer: Callable[..., Any], x: jax.Array, layers: Any, caches: Any) -> tuple[jax.Array, Any]:
    """Runs stacked layers by a scan."""
    return jax.lax.scan(lambda x, row: layer(x, *row, 0), x, (layers, caches))


# ---------------------------------------------------------------------- programs
class Program:
    """A step for sequences of a batch, or a prompt, compiled by us and by XLA, with caches that are donated."""

    def __init__(
        self,
        made: Decoder,
        tokens: int,
        batch: int = 0,
        *,
        threads: int = 2,
        constants: bool = False,
        assume_finite: bool = True,
    ) -> None:
        """`batch`: sequences with caches of their own; 0 for one without a dimension for it."""
        self.decoder, self.batch = made, batch
        step = jax.vmap(made.step, (None, 0, 0, 0)) if batch else made.step
        self._given = made.weights, self.caches(), *self.inputs(tokens)
        lowered = jax.jit(step, donate_argnums=1, keep_unused=True).lower(*self._given)
        leaves, caches = jax.tree.leaves(made.weights), jax.tree.leaves(self._given[1])
        self._weights, self._is_constant = leaves, constants
        self.ours = shlo_jit.compile(
            lowered.as_text(),
            threads=threads,
            donate=range(len(leaves), len(leaves) + len(caches)),
            assume_finite=assume_finite,
            constants=dict(enumerate(leaves)) if constants else None,
        )
        self._theirs, self._on_device = lowered.compile(), jax.device_put(made.weights)
        self._tree = jax.tree.structure(self._given[1])

    def caches(self) -> Any:
        """Caches without tokens."""
        outer = (self.batch,) if self.batch else ()
        return jax.tree.map(lambda x: np.zeros((*outer, *x.shape), x.dtype), self.decoder.caches)

    def inputs(self, count: int, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Tokens, and their positions, which differ in a batch."""
        random, shape = np.random.default_rng(position), (self.batch, count) if self.batch else (count,)
        tokens = random.integers(0, len(self.decoder.weights["embedding"]), shape).astype(np.int32)
        places = np.arange(position, position + self.batch) if self.batch else np.array(position)
        return tokens, places.astype(np.int32)

    def run(self, caches: Any, tokens: np.ndarray, position: np.ndarray) -> tuple[np.ndarray, Any]:
        """Runs our program. The caches are overwritten."""
        weights = [] if self._is_constant else self._weights
        scores, *found = self.ours(*weights, *jax.tree.leaves(caches), tokens, position)
        return scores, jax.tree.unflatten(self._tree, found)

    def run_xla(self, caches: Any, tokens: np.ndarray, position: np.ndarray) -> tuple[Any, Any]:
        return jax.block_until_ready(self._theirs(self._on_device, caches, tokens, position))


class Loop:
    """Calls that continue with the caches of the last one, at the same position."""

    def __init__(self, program: Program, run: Callable[..., tuple[Any, Any]], tokens: int, position: int) -> None:
        self._run, self._inputs, self._caches = run, program.inputs(tokens, position), program.caches()

    def __call__(self) -> None:
        _, self._caches = self._run(self._caches, *self._inputs)


def times(program: Program, tokens: int, position: int, budget: float) -> list[float]:
    """Milliseconds of a call, ours and XLA's: lower quartiles."""
    runs = {"ours": program.run, "theirs": program.run_xla}
    loops = {name: Loop(program, run, tokens, position) for name, run in runs.items()}
    return [1e3 * found.low for found in interleave(loops, budget).values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"width": 1024, "hidden": 2816, "slots": 512, "prompt": 64, "threads": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"({value})")
    parser.add_argument("--only", default=",".join(ARCHITECTURES), help="architectures")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of weights")
    parser.add_argument("--batches", default="1", help="numbers of sequences in a step (1)")
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--scan", action="store_true", help="also steps of one sequence whose layers a scan runs")
    parser.add_argument("--budget", type=float, default=0.5, help="seconds for each figure (0.5)")
    o = parser.parse_args()
    heads = o.width // 64
    sizes = Sizes(o.width, o.hidden, heads, max(1, heads // 4), 2, o.slots, 4096, o.slots // 4, 8, 16)
    table = Table("architecture", "weights", "step", "shlo_jit, ms", "XLA:CPU, ms", "tokens/s", "times batch 1")
    for name in o.only.split(","):
        for kind in o.kinds.split(","):
            made, single = decoder(name, sizes, kind), 0.0
            rows = [("prompt", o.prompt, 0), *((f"batch {n}", 1, int(n)) for n in o.batches.split(","))]
            rows += [("scan", 1, 1)] if o.scan and name not in VARIED else []
            for label, tokens, batch in rows if o.prompt else rows[1:]:
                made = decoder(name, sizes, kind, scans=True) if label == "scan" else made
                program = Program(made, tokens, batch, threads=o.threads, constants=o.constants)
                ours, theirs = times(program, tokens, 0 if label == "prompt" else o.slots // 4, o.budget)
                rate = max(tokens, batch) / ours * 1e3
                single = rate if label == "batch 1" else single
                ratio = f"{rate / single:.2f}" if batch and single else ""
                table.add_row(name, kind, label, f"{ours:.2f}", f"{theirs:.2f}", f"{rate:.0f}", ratio)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
