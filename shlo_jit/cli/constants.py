"""`--constants`: files of arrays for arguments that become constants of the program."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from shlo_jit.cli import mistakes
from shlo_jit.cli.progress import progress

if TYPE_CHECKING:
    import numpy as np

    from shlo_jit.ir.core import Module

    Arrays = dict[int | str, np.ndarray]

Constants = Annotated[
    list[str] | None,
    typer.Option(
        "--constants",
        metavar="[NAME=]FILE[:ENTRY]",
        help="File with arrays for inputs, which become constants: .npz or .safetensors with an entry for each, or "
        ".npy named like the input. NAME=FILE[:ENTRY] is for the input of that name or number; may be given several "
        "times.",
    ),
]


def read(given: Sequence[str] | None) -> Arrays | None:
    """Returns the arrays by input, as `api.compile` takes them. Ends the command for a file that cannot be read, and
    for an entry that it does not have."""
    found: Arrays = {}
    for text in given or ():
        for key, array in _arrays(text):
            if key in found:
                mistakes.fail(f"--constants {text}: {key!r} is given twice")
            found[key] = array
    return found or None


def read_by_function(given: Sequence[str] | None, entries: Sequence[str]) -> dict[str, Arrays]:
    """Returns the arrays by function, for texts such as `@f:NAME=FILE` if there are several functions."""
    texts: dict[str, list[str]] = {}
    for text in given or ():
        name, colon, rest = text.partition(":")
        if text.startswith("@") and colon:
            texts.setdefault(name.removeprefix("@"), []).append(rest)
        elif len(entries) > 1:
            mistakes.fail(f"--constants {text}: several functions are exported: write @NAME:{text}")
        else:
            texts.setdefault(entries[0].removeprefix("@"), []).append(text)
    return {entry: read(own) or {} for entry, own in texts.items()}


def _arrays(text: str) -> Iterable[tuple[int | str, np.ndarray]]:
    """Returns the arrays that a text names, each with its input."""
    name, file, entry = _parts(text)
    arrays = _file(file)
    if entry:
        if entry not in arrays:
            from shlo_jit.suggest import did_you_mean

            hint = did_you_mean(entry, arrays) or f"it has {', '.join(arrays) or 'none'}"
            mistakes.fail(f"--constants {text}: {file} has no entry {entry!r}; {hint}")
        arrays = {entry: arrays[entry]}
    if not name:
        return arrays.items()
    if len(arrays) != 1:
        mistakes.fail(f"--constants {text}: {file} has {len(arrays)} entries: write {name}={file}:ENTRY")
    (array,) = arrays.values()
    return [(int(name) if name.isdecimal() else name, array)]


def _parts(text: str) -> tuple[str, str, str]:
    """Returns name, file and entry. Names and files may have equals signs and colons: the file is one that exists."""
    starts = [0, *(i + 1 for i, letter in enumerate(text) if letter == "=")]
    for start in starts:
        ends = [len(text), *(i for i, letter in enumerate(text) if letter == ":" and i > start)]
        for end in ends:
            if os.path.isfile(text[start:end]):
                return text[: max(0, start - 1)], text[start:end], text[end + 1 :]
    name, equals, file = text.rpartition("=")
    file = file if equals else text
    head, colon, entry = file.rpartition(":")
    return (name, head, entry) if colon else (name, file, "")


def _file(file: str) -> dict[str, np.ndarray]:
    from shlo_jit.runtime.array_files import mapped_arrays

    with progress("reading"), mistakes.refusals(), mistakes.readable(file):
        return mapped_arrays(file)


def bound(module: Module, entry: str, constants: Arrays | None) -> Module:
    """Returns the program with these constants."""
    if not constants:
        return module
    from shlo_jit.bind_constants import bound as with_constants
    from shlo_jit.check_options import compile_options
    from shlo_jit.runtime.given_arrays import given_arrays

    return with_constants(module, compile_options(entry), given_arrays(constants))
