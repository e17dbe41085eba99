"""Inputs of programs from files or random numbers, and results to files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from shlo_jit.cli import mistakes

if TYPE_CHECKING:
    import numpy as np

    from shlo_jit.runtime.front import Signature
    from shlo_jit.runtime.ports import DynamicSignature


def load(path: Path) -> np.ndarray:
    """Reads the array of a file; ends the command if it has none."""
    import zipfile

    import numpy as np

    try:
        found = np.load(path, allow_pickle=False)
    except OSError as error:
        mistakes.fail(f"cannot read {path}: {error.strerror or error}")
    except (ValueError, EOFError, zipfile.BadZipFile):
        mistakes.fail(f"cannot read {path}: not a .npy file of numbers")
    if not isinstance(found, np.ndarray):
        mistakes.fail(f"cannot read {path}: expected one array per file, as numpy.save writes it")
    return found


def with_shapes(
    inputs: Sequence[Signature | DynamicSignature],
    given: Sequence[np.ndarray],
    shapes: Sequence[str],
    takes_inputs: bool = False,
) -> list[Signature]:
    """Returns the signatures of the inputs.

    They are those of the given arrays, and `shapes`, in order, for others with unknown dimensions. Ends the command if
    there are too few or too many shapes. `takes_inputs`: whether the command has an option for files of inputs.
    """
    from shlo_jit.ir.types import DTYPES
    from shlo_jit.runtime.front import Signature
    from shlo_jit.runtime.shape_arguments import type_given

    left = list(shapes)
    found = []
    for i, signature in enumerate(inputs):
        name, shape, dtype = signature.name, signature.shape, signature.dtype
        if i < len(given):
            shape = given[i].shape
        elif shape is None or None in shape:
            label = f"input {i} (%{name})" if name else f"input {i}"
            if not left:
                example = "x".join(["8" if n is None else str(n) for n in shape or (None,)] + [element_name(dtype)])
                other = ", or an --input" if takes_inputs else ""
                mistakes.fail(f"{label} is {signature}, with unknown dimensions: give --shape {example}{other}")
            element = DTYPES[element_name(dtype)]
            wanted = type_given(f"--shape {left[0]}", element, element, left.pop(0))
            if wanted.storage.numpy != dtype:
                mistakes.fail(f"--shape: {label} is {signature}, got one of {wanted.storage.numpy.name}")
            shape = wanted.extents
        found.append(Signature(name, tuple(n for n in shape if n is not None), dtype))
    if left:
        mistakes.fail(f"--shape {left[0]}: the program has fewer inputs with unknown dimensions")
    return found


def element_name(dtype: np.dtype) -> str:
    """An element type as programs write it."""
    from shlo_jit.ir.types import DTYPES

    return next(name for name, d in DTYPES.items() if d.numpy == dtype)


def arguments(expected: Sequence[Signature], given: list[np.ndarray], random: bool, seed: int) -> list[np.ndarray]:
    """Returns the given inputs, and random ones for the rest if requested."""
    import numpy as np

    from shlo_jit.reference.random_argument import random_argument

    if len(given) > len(expected) or (len(given) < len(expected) and not random):
        hint = "" if len(given) > len(expected) else ": give --input for each, or --random for the rest"
        mistakes.fail(f"the program takes {len(expected)} input(s), got {len(given)}{hint}")
    generator = np.random.default_rng(seed)
    found = [random_argument(generator, signature.shape, signature.dtype) for signature in expected]
    for i, (array, signature) in enumerate(zip(given, expected, strict=False)):
        found[i] = as_saved(array, signature.dtype)
    return found


def as_saved(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Restores the element type of an array from a file.

    numpy.save does not support bfloat16 and similar types, and such arrays are read as raw bytes.
    """
    is_raw = array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize
    return array.view(dtype) if is_raw else array


def save(folder: Path, results: Sequence[np.ndarray], *, quiet: bool = False) -> None:
    """Writes results as output0.npy and so on."""
    import numpy as np

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for i, result in enumerate(results):
            np.save(folder / f"output{i}.npy", result)
    except OSError as error:
        mistakes.fail(f"cannot write to {folder}: {error.strerror or error}")
    if not quiet:
        typer.echo(f"wrote {len(results)} file(s) to {folder}")
