"""Exported libraries as files: what they say of themselves, read without running anything of theirs."""

from __future__ import annotations

import mmap
import os
import platform
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from shlo_jit.codegen.library_format import INTERFACE_VERSION, read_note
from shlo_jit.errors import LibraryError

MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
"""ELF's numbers."""
OBJECT, SHARED = 1, 3
"""ELF's types of files."""
_IDENTITY = struct.Struct("<4s2B10x2H")
"""Magic, class, byte order, type, machine."""
_TABLES = struct.Struct("<32xQQ6xHHHH")
"""Places of the tables of segments and sections, size and number of entries of either."""
_SEGMENT = struct.Struct("<I4xQ16xQ")
"""Type, place in the file, bytes there."""
_SECTION = struct.Struct("<4xI16xQQ")
"""Type, place in the file, bytes."""
_NO_BITS = 8
"""A type of sections: nothing of them is in the file."""


class LibraryFile(NamedTuple):
    """What there is to know of a library that was not loaded."""

    path: str
    nbytes: int
    format: str
    """`ELF shared library`, `ELF object`, `archive`, `WebAssembly`, `Mach-O`, `COFF` or `unknown`."""
    machine: str
    """Of ELF: its architecture; else empty."""
    metadata: Mapping[str, Any]
    """See `aot/description.py`."""


def read_library(path: str | os.PathLike[str]) -> LibraryFile:
    """Read a file's metadata. Raises LibraryError for what is no whole library of ours, and OSError for a file that
    cannot be read."""
    name = os.fsdecode(path)
    with open(name, "rb") as file:
        nbytes = os.fstat(file.fileno()).st_size
        if nbytes < _IDENTITY.size:
            raise LibraryError(f"cannot load {name}: it was not made by shlo_jit")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                format, machine = _kind(data)
                metadata = read_note(data)
                _check(metadata)
            except ValueError as error:
                raise LibraryError(f"cannot load {name}: {error}") from None
    return LibraryFile(name, nbytes, format, machine, metadata)


def check_loadable(file: LibraryFile) -> None:
    """Raise LibraryError unless the file is a library for a machine like this one."""
    here = platform.machine()
    if not file.format.startswith("ELF"):
        raise LibraryError(
            f"cannot load {file.path}: it is of format {file.format}; a .so or .o for Linux can be loaded"
        )
    if file.machine != here:
        raise LibraryError(
            f"cannot load {file.path}: it is for {file.machine or 'another machine'}, and this is {here}"
        )


def _kind(data: mmap.mmap) -> tuple[str, str]:
    """Format and machine. Raises ValueError for an ELF file that is not whole."""
    start = data[:8]
    if start.startswith(b"\x7fELF"):
        return _elf(data)
    if start.startswith(b"!<arch>\n"):
        return "archive", ""
    if start.startswith(b"\0asm"):
        return "WebAssembly", ""
    if start[:4] in (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"):
        return "Mach-O", ""
    if start[:2] in (b"MZ", b"\x64\x86", b"\x64\xaa"):
        return "COFF", ""
    return "unknown", ""


def _elf(data: mmap.mmap) -> tuple[str, str]:
    if len(data) < _TABLES.size:
        raise ValueError("it is cut off")
    _, width, order, type, machine = _IDENTITY.unpack_from(data)
    if (width, order) != (2, 1) or type not in (OBJECT, SHARED):
        raise ValueError("it is no 64-bit, little-endian ELF object or shared library")
    segments, sections, segment_size, segment_count, section_size, section_count = _TABLES.unpack_from(data)
    for start, size, count, row in (
        (segments, segment_size, segment_count, _SEGMENT),
        (sections, section_size, section_count, _SECTION),
    ):
        if count and (size < row.size or start + size * count > len(data)):
            raise ValueError("it is cut off")
        for at in range(start, start + size * count, size or 1):
            kind, place, nbytes = row.unpack_from(data, at)
            if place + nbytes > len(data) and not (row is _SECTION and kind == _NO_BITS):
                raise ValueError("it is cut off")
    return ("ELF object" if type == OBJECT else "ELF shared library"), MACHINES.get(machine, f"machine {machine}")


def _check(metadata: Mapping[str, Any]) -> None:
    """Raise ValueError unless the metadata have what a reader of them relies on."""
    shape = {
        "interface": int,
        "name": str,
        "functions": list,
        "targets": list,
        "weights": dict,
        "custom_calls": dict,
        "lapack": list,
    }
    wrong = [key for key, type in shape.items() if not isinstance(metadata.get(key), type)]
    if wrong or not metadata["functions"] or metadata["interface"] != INTERFACE_VERSION:
        raise ValueError("its metadata are damaged")
    for function in metadata["functions"]:
        keys = ("name", "inputs", "outputs", "aliases", "overwritten", "callbacks", "is_short")
        if not isinstance(function, dict) or any(key not in function for key in keys):
            raise ValueError("its metadata are damaged")
    sized_functions = metadata.get("sized", [])  # older libraries do not have it
    if not isinstance(sized_functions, list):
        raise ValueError("its metadata are damaged")
    for sized in sized_functions:
        keys = ("name", "inputs", "outputs", "by_value", "first", "calls")
        if not isinstance(sized, dict) or any(key not in sized for key in keys):
            raise ValueError("its metadata are damaged")
