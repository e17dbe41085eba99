"""Files of arrays: .npy, .npz and safetensors. They are mapped if possible, so that nothing is read or copied before it
is needed, and processes share the memory."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from shlo_jit.errors import UsageValueError
from shlo_jit.ir.digests import sealed
from shlo_jit.ir.dtypes import DTYPES
from shlo_jit.runtime.mapped_files import note_mapped

HINT = "pip install safetensors, or shlo_jit[safetensors]"
SAFETENSORS = {
    **{"BOOL": "i1", "BF16": "bf16", "F16": "f16", "F32": "f32", "F64": "f64", "C64": "complex<f32>"},
    **{f"I{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"ui{bits}" for bits in (8, 16, 32, 64)},
    **{"F8_E4M3": "f8E4M3FN", "F8_E5M2": "f8E5M2", "F8_E8M0": "f8E8M0FNU"},
    **{"F8_E4M3FNUZ": "f8E4M3FNUZ", "F8_E5M2FNUZ": "f8E5M2FNUZ"},
}
"""Our element types by their names in safetensors files. Types of less than a byte are packed there, and left out."""


def mapped_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Returns the arrays in a file by name, read-only: all of a safetensors or .npz file, or that of a .npy file, whose
    name is that of the file without the suffix.

    Arrays of .npy and safetensors files are mapped: the file must not be changed while they are used, but another file
    may replace it. They can be given to `compile` as constants, which are not copied then.

    Raises OSError for a file that cannot be read, ValueError for one that has another format or is damaged, and
    ImportError for a safetensors file without the library safetensors.
    """
    name = os.fspath(path)
    readers = {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors}
    reader = readers.get(Path(name).suffix.lower())
    if reader is None:
        message = f"{name}: expected a file of arrays that ends in {', '.join(readers)}"
        raise UsageValueError(message, code="option.value")
    return dict(reader(name))


def _refused(path: str, why: str) -> UsageValueError:
    return UsageValueError(f"cannot read {path}: {why}", code="option.value")


_DAMAGED = (ValueError, EOFError, zipfile.BadZipFile, KeyError)
"""Exceptions from reading a file that is damaged or has another format."""


def _npy(path: str) -> Iterator[tuple[str, np.ndarray]]:
    try:
        with open(path, "rb") as file:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
            if isinstance(found, np.memmap):
                note_mapped(found, os.fstat(file.fileno()))
    except _DAMAGED:
        raise _refused(path, "not a .npy file of numbers") from None
    if not isinstance(found, np.ndarray):
        raise _refused(path, "it has several arrays; name it .npz")
    yield Path(path).stem, found


def _npz(path: str) -> Iterator[tuple[str, np.ndarray]]:
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise _refused(path, "it has one array; name it .npy")
        with found:
            for name in found.files:
                yield name, sealed(found[name])
    except UsageValueError:
        raise
    except _DAMAGED:
        raise _refused(path, "not a .npz file of numbers") from None


def _safetensors(path: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the arrays of a safetensors file. The library checks the file, and would copy the arrays."""
    try:
        from safetensors import SafetensorError, safe_open  # type: ignore[import-not-found,attr-defined]
    except ImportError as error:
        raise ImportError(f"{path}: safetensors files need the library safetensors ({HINT}): {error}") from None
    try:
        with safe_open(path, framework="np") as file:
            names = list(file.keys())
    except SafetensorError as error:
        raise _refused(path, f"not a safetensors file: {error}") from None
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = np.memmap(path, np.uint8, "r")[8 + length :]
        note_mapped(data, os.fstat(file.fileno()))
    for name in names:
        row = header[name]
        if row["dtype"] not in SAFETENSORS:
            known = ", ".join(SAFETENSORS)
            raise _refused(path, f"{name} has elements of type {row['dtype']}; expected one of {known}")
        start, end = row["data_offsets"]
        yield name, _elements(data[start:end], DTYPES[SAFETENSORS[row["dtype"]]].numpy, tuple(row["shape"]))


def _elements(data: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    return data.view(dtype).reshape(shape)
