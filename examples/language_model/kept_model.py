"""Keeps compiled models on disk: later starts neither unpack the weights nor build a program.

A folder has the library with both programs, its weights as the kernels read them, and the metadata of the GGUF file. It
is found by a key of the file, the options, the source of this example and that of the compiler. Folders are in
~/.cache/shlo_jit_language_model, and can be deleted at any time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import tempfile
from pathlib import Path
from typing import Any

import shlo_jit

CHUNK = 64
"""Tokens of the prompt that one call takes."""
FUNCTIONS = ["prompt", "next"]
"""Functions of the library: for a chunk of a prompt, and for a token of each sequence."""
LIBRARY, METADATA = "model.o", "metadata.json"


def add_rounding(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--round-activations`."""
    text = "round activations to 8 bits before they meet weights of few bits: faster, less accurate"
    parser.add_argument("--round-activations", choices=["int8"], help=text)


def kept_model(
    path: str, slots: int, chunk: int = CHUNK, batch: int = 1, round_activations: str | None = None
) -> Path:
    """Returns the folder of the compiled model, which is made if there is none.

    Raises OSError for a file that cannot be read, and UnsupportedModel with the reason if this example cannot run it.
    """
    options = {"slots": slots, "chunk": chunk, "batch": batch, "round_activations": round_activations}
    whole = f"{platform.node()} {os.path.realpath(path)} {options}"
    name = _digest(whole)
    folder = _root() / f"{name}-{_digest(_state(path))}"
    if not folder.exists():
        _make(folder, path, options)
        for other in folder.parent.glob(f"{name}-*"):  # of an earlier state of the file or the sources
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
    return folder


def metadata_of(folder: Path) -> dict[str, Any]:
    """Returns the metadata of the GGUF file that a folder was made of."""
    return json.loads((folder / METADATA).read_text())


def _make(folder: Path, path: str, options: dict[str, Any]) -> None:
    # A start that finds the folder needs none of these modules, so it does not wait for them.
    from export_model import export_model
    from gguf_model import read_model
    from tokens import Text

    model = read_model(path)
    Text(model.metadata)  # refuses an unknown tokenizer before the model is compiled
    folder.parent.mkdir(parents=True, exist_ok=True)
    # A folder gets its name when it is complete: another process may look for it meanwhile.
    with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as temporary:
        made = Path(temporary) / "made"
        made.mkdir()
        export_model(model, made / LIBRARY, weights="file", **options)
        (made / METADATA).write_text(json.dumps(model.metadata))
        try:
            made.rename(folder)
        except OSError:
            if not folder.exists():
                raise


def _root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shlo_jit_language_model"


def _state(path: str) -> str:
    """What changes when the file, this example or the compiler does: sizes and times of modification."""
    folders = Path(__file__).parent, Path(shlo_jit.__file__).parent
    files = [path, *sorted(file for folder in folders for file in folder.rglob("*.py"))]
    return " ".join(f"{status.st_size} {status.st_mtime_ns}" for status in map(os.stat, files))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
