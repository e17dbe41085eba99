"""Inputs of programs from files or made up, and results to files."""

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
    """The array of a file; what is none ends the command."""
    import zipfile

    import numpy as np

    try:
        found = np.load(path, allow_pickle=False)
    except OSError as error:
        mistakes.fail(f"cannot read {path}: {error.strerror or error}")
    except (ValueError, EOFError, zipfile.BadZipFile):
        mistakes.fail(f"cannot read {path}: not a .npy file of numbers")
    if not isinstance(found, np.ndarray):
        mistakes.fail(f"cannot read {path}: one array a file, as numpy.save writes it")
    return found


def with_shapes(
    inputs: Sequence[Signature | DynamicSignature], given: Sequence[np.ndarray], shapes: Sequence[str]
) -> list[Signature]:
    """The inputs with the shapes of those given, and of the others with unknown dimensions these, in order. Too few or
    too many end the command."""
    from shlo_jit.ir.types import DTYPES
    from shlo_jit.runtime.front import Signature
    from shlo_jit.runtime.given_shapes import type_given

    left = list(shapes)
    found = []
    for i, signature in enumerate(inputs):
        name, shape, dtype = signature.name, signature.shape, signature.dtype
        if i < len(given):
            shape = given[i].shape
        elif shape is None or None in shape:
            label = f"input {i} (%{name})" if name else f"input {i}"
            if not left:
                mistakes.fail(f"{label} is {signature}, which has unknown dimensions: give its --shape, or an --input")
            element = next(d for d in DTYPES.values() if d.numpy == dtype)
            wanted = type_given(f"--shape {left[0]}", element, element, left.pop(0))
            if wanted.storage.numpy != dtype:
                mistakes.fail(f"--shape: {label} is {signature}, got one of {wanted.storage.numpy.name}")
            shape = wanted.extents
        found.append(Signature(name, tuple(n for n in shape if n is not None), dtype))
    if left:
        mistakes.fail(f"--shape {left[0]}: there are not so many inputs with unknown dimensions")
    return found


def arguments(expected: Sequence[Signature], given: list[np.ndarray], random: bool, seed: int) -> list[np.ndarray]:
    """The inputs given, and made-up ones for the rest if that was asked for."""
    import numpy as np

    if len(given) > len(expected) or (len(given) < len(expected) and not random):
        hint = "" if len(given) > len(expected) else ": give --input for each, or --random for the rest"
        mistakes.fail(f"the program takes {len(expected)} input(s), got {len(given)}{hint}")
    generator = np.random.default_rng(seed)
    found = [_random(generator, signature) for signature in expected]
    for i, (array, signature) in enumerate(zip(given, expected, strict=False)):
        # numpy.save knows no bfloat16 and the like: such arrays come back as raw bytes.
        raw = array.dtype.kind == "V" and array.dtype.itemsize == signature.dtype.itemsize
        found[i] = array.view(signature.dtype) if raw else array
    return found


def _random(generator: np.random.Generator, signature: Signature) -> np.ndarray:
    """Floats and complex numbers are normally distributed, integers in [0, 10) as far as the type goes."""
    import ml_dtypes
    import numpy as np

    from shlo_jit.ir.types import DTYPES

    shape, dtype = signature.shape, signature.dtype
    kind = next(d.kind for d in DTYPES.values() if d.numpy == dtype)
    if kind in "fc":
        values = generator.standard_normal(shape)
        return np.asarray(values if kind == "f" else values + 1j * generator.standard_normal(shape)).astype(dtype)
    high = 2 if kind == "b" else min(10, int(ml_dtypes.iinfo(dtype).max) + 1)
    return np.asarray(generator.integers(0, high, shape)).astype(dtype)


def save(folder: Path, results: Sequence[np.ndarray]) -> None:
    """Write results as output0.npy and so on."""
    import numpy as np

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for i, result in enumerate(results):
            np.save(folder / f"output{i}.npy", result)
    except OSError as error:
        mistakes.fail(f"cannot write to {folder}: {error.strerror or error}")
    typer.echo(f"wrote {len(results)} file(s) to {folder}")
