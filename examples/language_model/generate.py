"""Continues a text with a language model from a GGUF file.

python generate.py MODEL.gguf "What is a compiler?"
python generate.py MODEL.gguf --plain "Once upon a time" --temperature 0.8 --seed 7
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from kept_model import LIBRARY, kept_model, metadata_of
from tokenizers.decoders import DecodeStream
from tokens import Text
from unsupported import UnsupportedModel

import shlo_jit


@dataclass
class Sampling:
    """How tokens are drawn: `temperature` 0 takes the likeliest."""

    temperature: float = 0.0
    top_p: float = 0.95
    top_k: int = 40
    seed: int = 0


@dataclass
class Rates:
    """Seconds and tokens of the prompt and of what follows it."""

    prompt: tuple[float, int] = (0.0, 0)
    seconds: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        taken, count = self.prompt
        if not count:
            return "no token was asked for"
        decoding = f", {len(self.seconds)} more at {1 / np.median(self.seconds):.1f} tokens/s" if self.seconds else ""
        return f"{count} tokens of the prompt at {count / taken:.1f} tokens/s{decoding}"


class Generator:
    """A compiled model: the programs for a chunk of the prompt, and for one token."""

    def __init__(self, prompt: Any, following: Any) -> None:
        """Takes executables of both programs, loaded or compiled. Sizes are those of their arguments."""
        self._prompt, self._next = prompt, following
        inputs = {port.name: port for port in following.inputs}
        self._caches = [port.shape for name, port in inputs.items() if name.startswith(("keys", "values"))]
        self.chunk, self.slots = prompt.inputs[0].shape[0], self._caches[0][1]
        self.rates = Rates()

    @classmethod
    def loaded(cls, library: Path, threads: int | None = None) -> Generator:
        """Loads the library that `export_model` has written."""
        return cls(*(shlo_jit.load(library, name, threads=threads) for name in ("prompt", "next")))

    def tokens(self, prompt: Sequence[int], sampling: Sampling | None = None) -> Iterator[int]:
        """Yields the tokens that follow the prompt, until the caches are full."""
        if not 0 < len(prompt) <= self.slots:
            raise ValueError(f"the prompt has {len(prompt)} tokens; expected 1 to {self.slots}")
        how = sampling or Sampling()
        settings = np.float32(how.temperature), np.float32(how.top_p), np.int32(how.top_k)
        states = [np.array([how.seed, 0], np.uint64), *(np.zeros(shape, np.float32) for shape in self._caches)]
        self.rates, began = Rates(), time.perf_counter()
        token = np.zeros(1, np.int32)
        for start in range(0, len(prompt), self.chunk):
            part = np.array(prompt[start : start + self.chunk], np.int32)
            padded = np.pad(part, (0, self.chunk - len(part)))
            token, _, *states = self._prompt(padded, np.int32(start), np.int32(len(part)), *settings, *states)
        self.rates.prompt = time.perf_counter() - began, len(prompt)
        yield int(token[0])
        for position in range(len(prompt), self.slots):
            began = time.perf_counter()
            token, _, *states = self._next(token, np.int32(position), np.int32(1), *settings, *states)
            self.rates.seconds.append(time.perf_counter() - began)
            yield int(token[0])


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("prompt", help="a question, or a text with --plain")
    parser.add_argument("--plain", action="store_true", help="continue the text, without the chat template")
    parser.add_argument("--system", help="instructions before the question")
    parser.add_argument("--tokens", type=int, default=128, help="the largest number of tokens to generate (128)")
    parser.add_argument("--slots", type=int, default=1024, help="number of tokens that the caches hold (1024)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the likeliest token (0)")
    parser.add_argument("--top-p", type=float, default=0.95, help="likelihood of the tokens to draw from (0.95)")
    parser.add_argument("--top-k", type=int, default=40, help="number of tokens to draw from, up to 64 (40)")
    parser.add_argument("--seed", type=int, default=0, help="another number gives another text")
    parser.add_argument("--threads", type=int, help="number of threads (all processors)")
    return parser.parse_args()


def main() -> None:
    given = options()
    began = time.perf_counter()
    try:
        folder = kept_model(given.model, given.slots)
        text = Text(metadata_of(folder))
        prompt = text.tokens(given.prompt) if given.plain else text.question(given.prompt, given.system)
    except (OSError, UnsupportedModel) as error:
        raise SystemExit(f"{given.model}: {error}") from None
    generator = Generator.loaded(folder / LIBRARY, given.threads)
    print(f"ready in {time.perf_counter() - began:.1f} s")
    stream = DecodeStream(skip_special_tokens=True)
    sampling = Sampling(given.temperature, given.top_p, given.top_k, given.seed)
    if not 0 < len(prompt) <= generator.slots:
        raise SystemExit(f"the prompt has {len(prompt)} tokens; expected 1 to {generator.slots}, the number of --slots")
    for token in itertools.islice(generator.tokens(prompt, sampling), max(given.tokens, 0)):
        if token in text.ends:
            break
        print(stream.step(text.tokenizer, token) or "", end="", flush=True)
    print(f"\n{generator.rates}")


if __name__ == "__main__":
    main()
