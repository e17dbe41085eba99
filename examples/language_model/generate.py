"""Continues texts with a language model from a GGUF file.

python generate.py MODEL.gguf "What is a compiler?"
python generate.py MODEL.gguf "What is a compiler?" "What is a linker?"     together, in one call for each token
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
from kept_model import FUNCTIONS, LIBRARY, add_rounding, kept_model, metadata_of
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
    """Seconds and tokens of the prompts, and seconds of the calls that follow, each for a token of each sequence."""

    prompt: tuple[float, int] = (0.0, 0)
    seconds: list[float] = field(default_factory=list)
    batch: int = 1

    def __str__(self) -> str:
        taken, count = self.prompt
        if not count:
            return "no token was asked for"
        more, rate = self.batch * len(self.seconds), self.batch / np.median(self.seconds or [1.0])
        decoding = f", {more} more at {rate:.1f} tokens/s" if more else ""
        return f"{count} tokens of the prompt at {count / taken:.1f} tokens/s{decoding}"


class Generator:
    """A compiled model: the programs for a chunk of a prompt, and for one token of each sequence."""

    def __init__(self, prompt: Any, following: Any) -> None:
        """Takes executables of both programs, loaded or compiled. Sizes are those of their arguments."""
        self._prompt, self._next = prompt, following
        inputs = {port.name: port for port in following.inputs}
        self._caches = [port.shape for name, port in inputs.items() if name.startswith(("keys", "values"))]
        self.chunk, self.batch, self.slots = prompt.inputs[0].shape[1], self._caches[0][0], self._caches[0][2]
        self.rates = Rates()

    @classmethod
    def loaded(cls, library: Path, threads: int | None = None) -> Generator:
        """Loads the library that `export_model` has written."""
        return cls(*(shlo_jit.load(library, name, threads=threads) for name in FUNCTIONS))

    def tokens(self, prompts: Sequence[Sequence[int]], sampling: Sampling | None = None) -> Iterator[list[int]]:
        """Yields the tokens that follow the prompts, one for each of them, until the caches of the longest are full."""
        lengths = [len(prompt) for prompt in prompts]
        if len(prompts) != self.batch or not all(0 < length <= self.slots for length in lengths):
            sizes = ", ".join(map(str, lengths))
            raise ValueError(f"prompts of {sizes} tokens; expected {self.batch} of 1 to {self.slots} tokens")
        how = sampling or Sampling()
        settings = np.float32(how.temperature), np.float32(how.top_p), np.int32(how.top_k)
        states = [np.array([how.seed, 0], np.uint64), *(np.zeros(shape, np.float32) for shape in self._caches)]
        self.rates, began = Rates(batch=self.batch), time.perf_counter()
        token = np.zeros((self.batch, 1), np.int32)
        for i, prompt in enumerate(prompts):
            token[i], states = self._read(prompt, i, settings, states)
        self.rates.prompt = time.perf_counter() - began, sum(lengths)
        yield token[:, 0].tolist()
        position, count = np.array(lengths, np.int32), np.ones(self.batch, np.int32)
        while position.max() < self.slots:
            began = time.perf_counter()
            found, _, *states = self._next(token, np.int32(0), position, count, *settings, *states)
            self.rates.seconds.append(time.perf_counter() - began)
            token, position = found.reshape(-1, 1), position + np.int32(1)
            yield found.tolist()

    def _read(
        self, prompt: Sequence[int], sequence: int, settings: tuple[Any, ...], states: list[Any]
    ) -> tuple[Any, list[Any]]:
        """Reads a prompt by chunks into the caches of a sequence. Returns the token that follows, and the states."""
        token = None
        for start in range(0, len(prompt), self.chunk):
            part = np.array([prompt[start : start + self.chunk]], np.int32)
            place = np.int32(sequence), np.array([start], np.int32), np.array([part.size], np.int32)
            padded = np.pad(part, ((0, 0), (0, self.chunk - part.size)))
            token, _, *states = self._prompt(padded, *place, *settings, *states)
        return token, states


class Printed:
    """Writes the text of a sequence, up to a token that ends it."""

    def __init__(self, text: Text, is_shown: bool) -> None:
        """`is_shown`: write at once what a token adds. Otherwise the text is kept."""
        self._text, self._is_shown, self._stream = text, is_shown, DecodeStream(skip_special_tokens=True)
        self.is_complete, self.kept = False, ""

    def add(self, token: int) -> None:
        self.is_complete = self.is_complete or token in self._text.ends
        added = "" if self.is_complete else self._stream.step(self._text.tokenizer, token) or ""
        if self._is_shown:
            print(added, end="", flush=True)
        else:
            self.kept += added


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("prompt", nargs="+", help="questions, or texts with --plain; several are answered together")
    parser.add_argument("--plain", action="store_true", help="continue the texts, without the chat template")
    parser.add_argument("--system", help="instructions before the question")
    parser.add_argument("--tokens", type=int, default=128, help="the largest number of tokens to generate (128)")
    parser.add_argument("--slots", type=int, default=1024, help="number of tokens that the caches hold (1024)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the likeliest token (0)")
    parser.add_argument("--top-p", type=float, default=0.95, help="likelihood of the tokens to draw from (0.95)")
    parser.add_argument("--top-k", type=int, default=40, help="number of tokens to draw from, up to 64 (40)")
    parser.add_argument("--seed", type=int, default=0, help="another number gives another text")
    parser.add_argument("--threads", type=int, help="number of threads (all processors)")
    add_rounding(parser)
    return parser.parse_args()


def main() -> None:
    given = options()
    began = time.perf_counter()
    try:
        folder = kept_model(
            given.model, given.slots, batch=len(given.prompt), round_activations=given.round_activations
        )
        text = Text(metadata_of(folder))
        prompts = [text.tokens(p) if given.plain else text.question(p, given.system) for p in given.prompt]
    except (OSError, UnsupportedModel) as error:
        raise SystemExit(f"{given.model}: {error}") from None
    generator = Generator.loaded(folder / LIBRARY, given.threads)
    print(f"ready in {time.perf_counter() - began:.1f} s")
    sampling = Sampling(given.temperature, given.top_p, given.top_k, given.seed)
    for prompt in prompts:
        if not 0 < len(prompt) <= generator.slots:
            limit = f"expected 1 to {generator.slots}, the number of --slots"
            raise SystemExit(f"the prompt has {len(prompt)} tokens; {limit}")
    answers = [Printed(text, is_shown=len(prompts) == 1) for _ in prompts]
    for tokens in itertools.islice(generator.tokens(prompts, sampling), max(given.tokens, 0)):
        for answer, token in zip(answers, tokens, strict=True):
            answer.add(token)
        if all(answer.is_complete for answer in answers):
            break
    for prompt, answer in zip(given.prompt, answers, strict=True):
        if answer.kept:
            print(f"{prompt}\n{answer.kept}\n")
    print(f"\n{generator.rates}")


if __name__ == "__main__":
    main()
