"""The tokenizer of a GGUF file: its vocabulary and merges for the library `tokenizers`, and its chat template.

python tokens.py MODEL.gguf "What is a compiler?"      prints the tokens of a question, for generate.c
"""

from __future__ import annotations

import sys
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from unsupported import UnsupportedModel

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    "llama-bpe": f"{CONTRACTIONS}|{WORDS.replace('DIGITS', '{1,3}')}",
    "qwen2": f"{CONTRACTIONS}|{WORDS.replace('DIGITS', '')}",
    "smollm": r"\p{N}",
    "gpt-2": None,
    "default": None,
}
"""How texts are split before the merges, by `tokenizer.ggml.pre`: an expression, besides that of GPT-2 for the last."""
CONTROL, USER_DEFINED = 3, 4
"""Kinds of tokens that are found in a text before it is split."""


def _split(kind: str) -> pre_tokenizers.PreTokenizer:
    if kind not in SPLITS:
        raise UnsupportedModel(f"tokenizer.ggml.pre is {kind}; this example has {', '.join(SPLITS)}")
    pattern, is_whole = SPLITS[kind], kind in ("llama-bpe", "qwen2")
    parts: list[Any] = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), "isolated")]
    return pre_tokenizers.Sequence([*parts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not is_whole)])


def tokenizer_of(metadata: dict[str, Any]) -> Tokenizer:
    """Builds the tokenizer. Raises UnsupportedModel for other kinds than byte-level BPE."""
    if metadata["tokenizer.ggml.model"] != "gpt2":
        raise UnsupportedModel(f"the tokenizer is {metadata['tokenizer.ggml.model']}; this example has gpt2")
    tokens, kind = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.pre", "default")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(line.split(" ", 1)) for line in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=kind == "llama-bpe"))
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _split(kind)
    tokenizer.decoder = decoders.ByteLevel()
    kinds = metadata.get("tokenizer.ggml.token_type", [])
    found = [(token, k) for token, k in zip(tokens, kinds, strict=False) if k in (CONTROL, USER_DEFINED)]
    tokenizer.add_tokens([AddedToken(token, special=k == CONTROL, normalized=False) for token, k in found])
    return tokenizer


class Text:
    """Converts between text and tokens of a model."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        """`metadata`: that of the GGUF file."""
        self.metadata = metadata
        self.tokenizer = tokenizer_of(metadata)
        names = ("eos", "eot")
        self.ends: set[int] = {self.metadata.get(f"tokenizer.ggml.{name}_token_id", -1) for name in names} - {-1}
        """Tokens that end a text."""

    def _token(self, name: str) -> str:
        number = self.metadata.get(f"tokenizer.ggml.{name}_token_id")
        return "" if number is None else self.metadata["tokenizer.ggml.tokens"][number]

    def tokens(self, text: str) -> list[int]:
        """Tokens of a text that the model continues."""
        begins = self.metadata.get("tokenizer.ggml.add_bos_token", False)
        return self.tokenizer.encode((self._token("bos") if begins else "") + text, add_special_tokens=False).ids

    def question(self, text: str, system: str | None = None) -> list[int]:
        """Tokens of a question to a model that was trained for conversations, in its own template."""
        template = self.metadata.get("tokenizer.chat_template")
        if template is None:
            raise UnsupportedModel("the file has no chat template; --plain continues a text")
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": text})
        special = {f"{name}_token": self._token(name) for name in ("bos", "eos")}
        rendered = environment.from_string(template).render(messages=messages, add_generation_prompt=True, **special)
        return self.tokenizer.encode(rendered, add_special_tokens=False).ids

    def bytes_of_tokens(self) -> list[bytes]:
        """The bytes that each token stands for; none for those that control the model."""
        kinds = self.metadata.get("tokenizer.ggml.token_type", [])
        letters = _bytes_by_letter()
        found = []
        for i, token in enumerate(self.metadata["tokenizer.ggml.tokens"]):
            if i < len(kinds) and kinds[i] == CONTROL:
                found.append(b"")
            elif i < len(kinds) and kinds[i] == USER_DEFINED:
                found.append(token.encode())
            else:
                found.append(bytes(letters[letter] for letter in token if letter in letters))
        return found


def _refuse(message: str) -> None:
    raise UnsupportedModel(f"the chat template refuses the question: {message}")


def _bytes_by_letter() -> dict[str, int]:
    """The letter that byte-level BPE writes for each byte: itself if it is printable, else one from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


if __name__ == "__main__":
    from gguf_model import read_model

    if len(sys.argv) != 3:
        raise SystemExit("usage: python tokens.py MODEL.gguf QUESTION")
    try:
        print(*Text(read_model(sys.argv[1]).metadata).question(sys.argv[2]))
    except (OSError, UnsupportedModel) as error:
        raise SystemExit(f"{sys.argv[1]}: {error}") from None
