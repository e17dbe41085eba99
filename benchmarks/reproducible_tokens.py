"""Compares the scores of a language model in all bits, with `reproducible=True`, over batches, chunks and threads.

    python -m benchmarks.reproducible_tokens MODEL.gguf [--tokens 1000] [--batches 1,2,4,8,16] [--chunks 1,64,all]
        [--threads 1,2,3,8]

The first sequence has the same prompt in every run; the others have other prompts. Its scores of every token, greedily
chosen, and its caches after the prompt have the same digests, or the run is reported. Chunks concern the prompt only:
if caches and scores after it have the same bits, so have all later ones. So tokens are decoded once for each batch
and number of threads, with the first of the chunks. With the other chunks, the first sequence and one other are read.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import shlo_jit

EXAMPLE = Path(__file__).parents[1] / "examples" / "language_model"
sys.path.insert(0, str(EXAMPLE))
from gguf_model import Model, named_arrays, read_model  # type: ignore[import-not-found]  # noqa: E402
from kept_model import FUNCTIONS  # type: ignore[import-not-found]  # noqa: E402
from program import STATES, build, donated  # type: ignore[import-not-found]  # noqa: E402

PROMPT = 128
"""Tokens of the prompt."""
GREEDY = np.float32(0), np.float32(1), np.int32(1)


def digest(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


class Run:
    """The programs for a batch, a chunk and a number of threads. Each is compiled when it is needed."""

    def __init__(self, model: Model, batch: int, chunk: int, threads: int, slots: int) -> None:
        given: dict[str, Any] = {"constants": named_arrays(model), "donate": donated(model), "threads": threads}
        module = build(model, chunk, slots, batch)
        self._program = lambda name: shlo_jit.compile(module, name, reproducible=True, assume_finite=True, **given)
        self.prompt: Any = self._program(FUNCTIONS[0])
        self.batch, self.chunk = batch, chunk
        self.states: list[Any] = [
            np.array([0, 0], np.uint64), *(np.zeros(port.shape, np.float32) for port in self.prompt.inputs[STATES:])
        ]  # fmt: skip
        self.token = np.zeros((batch, 1), np.int32)

    def read(self, prompts: Sequence[np.ndarray]) -> str:
        """Reads the prompts. Returns the digest of the first one's caches, and of the scores that follow it."""
        first = scores = None
        for i, prompt in enumerate(prompts):
            for start in range(0, len(prompt), self.chunk):
                part = prompt[start : start + self.chunk]
                place = np.int32(i), np.array([start], np.int32), np.array([len(part)], np.int32)
                padded = np.pad(part, (0, self.chunk - len(part)))[None]
                self.token[i], scores, *self.states = self.prompt(padded, *place, *GREEDY, *self.states)
            first = np.array(scores)[0] if first is None else first
        caches = [np.asarray(state)[0, :, : len(prompts[0])] for state in self.states[1:]]
        return digest(np.concatenate([np.ravel(array) for array in (np.asarray(first), *caches)]))

    def decode(self, position: int, count: int) -> Iterator[str]:
        """Yields the digests of the first sequence's scores."""
        following: Any = self._program(FUNCTIONS[1])
        at, ones = np.full(self.batch, position, np.int32), np.ones(self.batch, np.int32)
        for _ in range(count):
            found, scores, *self.states = following(self.token, np.int32(0), at, ones, *GREEDY, *self.states)
            self.token, at = np.asarray(found).reshape(-1, 1), at + np.int32(1)
            yield digest(np.asarray(scores)[0])


def compare(model: Model, batches: Sequence[int], chunks: Sequence[int], threads: Sequence[int], tokens: int) -> int:
    """Prints a line for each run. Returns the number of those that differ from the first one."""
    prompts = np.random.default_rng(0).integers(3, 20000, (max(batches), PROMPT)).astype(np.int32)
    prompts = prompts % model.embedding[0].values.shape[0]
    slots = -(-(PROMPT + tokens) // PROMPT) * PROMPT
    wrong, after, scores = 0, "", list[str]()
    for batch in batches:
        for chunk in chunks:
            for count in threads:
                began = time.perf_counter()
                run = Run(model, batch, chunk, count, slots)
                decodes = chunk == chunks[0]
                found = run.read(prompts[: batch if decodes else min(batch, 2)])
                after = after or found
                differs = "" if found == after else "after the prompt"
                decoded = list(run.decode(PROMPT, tokens)) if decodes and not differs else []
                scores = scores or decoded
                if not differs and decoded and decoded != scores:
                    differs = f"at token {next(i for i in range(tokens) if decoded[i] != scores[i])}"
                wrong += bool(differs)
                taken = time.perf_counter() - began
                what = f"batch {batch:2}, chunks of {chunk:3}, {count} threads, {len(decoded)} tokens, {taken:.0f} s"
                print(f"{what}: {'differs ' + differs if differs else 'same bits'}", flush=True)
    return wrong


def main() -> int:
    def numbers(text: str) -> list[int]:
        return [PROMPT if word == "all" else int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--batches", type=numbers, default=[1, 2, 4, 8, 16])
    parser.add_argument("--chunks", type=numbers, default=[64, 1, PROMPT])
    parser.add_argument("--threads", type=numbers, default=[1, 2, 3, 8])
    given = parser.parse_args()
    return compare(read_model(given.model), given.batches, given.chunks, given.threads, given.tokens)


if __name__ == "__main__":
    raise SystemExit(main())
