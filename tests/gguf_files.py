"""Small random language models: GGUF files, and what NumPy computes from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants

LAYERS, WIDTH, HIDDEN, HEADS, KEY_HEADS, SIZE = 2, 64, 96, 4, 2, 32
EPSILON, BASE = 1e-5, 10000.0
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{% if add_generation_prompt %}!{% endif %}"
)
WORDS = ["he", "ll", "hell", "hello", "Ġw", "or", "ld"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "l d"]
SPECIAL = ["<|end|>", "<|user|>", "<|system|>"]


def letters() -> list[str]:
    """The letters of byte-level BPE in the order of GPT-2: printable bytes, then the others."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]


def add_metadata(writer: GGUFWriter, pre: str) -> int:
    """Writes the metadata and returns the number of tokens."""
    tokens = [*SPECIAL, *letters(), *WORDS]
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_key_length(SIZE)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(BASE)
    writer.add_rope_dimension_count(SIZE)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    return len(tokens)


def shapes(architecture: str, vocabulary: int, is_tied: bool) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, WIDTH), "output_norm.weight": (WIDTH,)}
    if not is_tied:
        found["output.weight"] = (vocabulary, WIDTH)
    heads = {"q": HEADS, "k": KEY_HEADS, "v": KEY_HEADS}
    for i in range(LAYERS):
        found |= {f"blk.{i}.{part}_norm.weight": (WIDTH,) for part in ("attn", "ffn")}
        found |= {f"blk.{i}.attn_{name}.weight": (n * SIZE, WIDTH) for name, n in heads.items()}
        found |= {f"blk.{i}.ffn_{name}.weight": (HIDDEN, WIDTH) for name in ("gate", "up")}
        found[f"blk.{i}.attn_output.weight"], found[f"blk.{i}.ffn_down.weight"] = (WIDTH, HEADS * SIZE), (WIDTH, HIDDEN)
        if architecture == "qwen2":
            found |= {f"blk.{i}.attn_{name}.bias": (n * SIZE,) for name, n in heads.items()}
        if architecture == "qwen3":
            found |= {f"blk.{i}.attn_{name}_norm.weight": (SIZE,) for name in "qk"}
    return found


def write(path: Path, architecture: str, kind: str, pre: str = "smollm", is_tied: bool = True) -> None:
    """Writes a random model whose matrices have the format `kind`; those of the values are Q8_0."""
    writer = GGUFWriter(path, architecture)
    vocabulary = add_metadata(writer, pre)
    random = np.random.default_rng(5)
    for name, shape in shapes(architecture, vocabulary, is_tied).items():
        x = random.standard_normal(shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, 1 + 0.3 * x if "norm" in name else 0.3 * x)
            continue
        wanted = GGMLQuantizationType["Q8_0" if "attn_v" in name else kind]
        data = quants.quantize(x * np.float32(0.6 if "embd" in name else 0.15), wanted)
        writer.add_tensor(name, data, raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---------------------------------------------------------------------- NumPy
def weights_of(path: Path) -> dict[str, Any]:
    """All tensors as numbers of 64 bits."""
    return {t.name: quants.dequantize(t.data, t.tensor_type).astype(np.float64) for t in GGUFReader(path).tensors}


def normalized(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight


def rotated(x: np.ndarray, is_paired: bool) -> np.ndarray:
    """Rotates heads [t, heads, size]: pairs (2i, 2i + 1) as complex numbers, or (i, i + size / 2)."""
    angles = np.arange(len(x))[:, None, None] * BASE ** (-np.arange(0, SIZE, 2) / SIZE)
    low, high = (x[..., 0::2], x[..., 1::2]) if is_paired else (x[..., : SIZE // 2], x[..., SIZE // 2 :])
    z = (low + 1j * high) * np.exp(1j * angles)
    parts = [z.real, z.imag]
    return np.stack(parts, -1).reshape(x.shape) if is_paired else np.concatenate(parts, -1)


def logits(path: Path, architecture: str, tokens: list[int]) -> np.ndarray:
    """Scores after each token [t, vocabulary], from all tokens together and without caches."""
    w, t = weights_of(path), len(tokens)
    x = w["token_embd.weight"][tokens]
    for i in range(LAYERS):
        layer = {name.split(".", 2)[2]: a for name, a in w.items() if name.startswith(f"blk.{i}.")}
        h = normalized(x, layer["attn_norm.weight"])
        q, k, v = (
            (h @ layer[f"attn_{n}.weight"].T + layer.get(f"attn_{n}.bias", 0.0)).reshape(t, -1, SIZE) for n in "qkv"
        )
        if "attn_q_norm.weight" in layer:
            q, k = normalized(q, layer["attn_q_norm.weight"]), normalized(k, layer["attn_k_norm.weight"])
        q, k = rotated(q, architecture == "llama"), rotated(k, architecture == "llama")
        found = np.zeros((t, HEADS, SIZE))
        for head in range(HEADS):
            shared = head // (HEADS // KEY_HEADS)
            for row in range(t):
                e = np.exp(k[: row + 1, shared] @ q[row, head] / np.sqrt(SIZE))
                found[row, head] = e @ v[: row + 1, shared] / e.sum()
        x = x + found.reshape(t, -1) @ layer["attn_output.weight"].T
        h = normalized(x, layer["ffn_norm.weight"])
        gate, up = h @ layer["ffn_gate.weight"].T, h @ layer["ffn_up.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ layer["ffn_down.weight"].T
    return normalized(x, w["output_norm.weight"]) @ w.get("output.weight", w["token_embd.weight"]).T
