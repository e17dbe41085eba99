"""Exports a language model as a library for C: python export_model.py MODEL.gguf FOLDER

Writes model.o and model.h with the functions `prompt` (a chunk of tokens) and `next` (one token), and vocabulary.bin
with the text of each token, for generate.c.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Iterable
from pathlib import Path

from gguf_model import Model, named_arrays, read_model
from kept_model import CHUNK, FUNCTIONS, add_rounding
from program import build, donated
from tokens import Text
from unsupported import UnsupportedModel

import shlo_jit

ENDS_TEXT = 0xFFFF
"""Length in the file of the vocabulary of a token that ends the text."""


def vocabulary_file(texts: Iterable[bytes], ends: set[int]) -> bytes:
    """Returns two bytes for the length of each token's text, and the text."""
    entries = ((ENDS_TEXT, b"") if i in ends else (len(text), text) for i, text in enumerate(texts))
    return b"".join(struct.pack("<H", length) + text for length, text in entries)


def export_model(
    model: Model,
    path: Path,
    *,
    slots: int = 1024,
    chunk: int = CHUNK,
    batch: int = 1,
    target: str = "native",
    weights: str = "embedded",
    round_activations: str | None = None,
) -> shlo_jit.Exported:
    """Writes the library `path` and its header. `weights`: `embedded`, or `file` for a file beside the library.

    `slots` is the number of positions, rounded up to whole chunks, for each of `batch` sequences. `round_activations`:
    `int8` to multiply weights of few bits by activations of 8 bits, which takes less time.
    """
    return shlo_jit.export(
        build(model, chunk, -(-slots // chunk) * chunk, batch),
        path,
        header=path.with_suffix(".h"),
        name="model",
        entry=FUNCTIONS,
        constants=dict.fromkeys(FUNCTIONS, named_arrays(model)),
        donate=donated(model),
        assume_finite=True,
        round_activations=round_activations,
        target=target,
        weights=weights,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--slots", type=int, default=1024, help="number of tokens that the caches hold (1024)")
    parser.add_argument("--target", default="native", help="processor to compile for (this one)")
    add_rounding(parser)
    given = parser.parse_args()
    try:
        model = read_model(given.model)
        text = Text(model.metadata)
    except (OSError, UnsupportedModel) as error:
        raise SystemExit(f"{given.model}: {error}") from None
    path, rounding = given.folder / "model.o", given.round_activations
    export_model(model, path, slots=given.slots, target=given.target, round_activations=rounding)
    (given.folder / "vocabulary.bin").write_bytes(vocabulary_file(text.bytes_of_tokens(), text.ends))


if __name__ == "__main__":
    main()
