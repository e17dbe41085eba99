"""Exported libraries as files: their metadata, read without running any of their code."""

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
"""Numbers of machines in ELF."""
OBJECT, SHARED = 1, 3
"""Types of files in ELF."""
_IDENTITY = struct.Struct("<4s2B10x2H")
"""Magic, class, byte order, type, machine."""
_TABLES = struct.Struct("<32xQQ6xHHHH")
"""Offsets of the tables of segments and sections, and the size and number of the entries of each."""
_SEGMENT = struct.Struct("<I4xQ16xQ")
"""Type, offset in the file, bytes there."""
_SECTION = struct.Struct("<4xI16xQQ")
"""Type, offset in the file, bytes."""
_NO_BITS = 8
"""A type of sections without contents in the file."""


class LibraryFile(NamedTuple):
    """Facts about a library that was not loaded."""

    path: str
    nbytes: int
    format: str
    """One of `ELF shared library`, `ELF object`, `archive`, `WebAssembly`, `Mach-O`, `COFF` and `unknown`."""
    machine: str
    """Architecture of an ELF file; else empty."""
    metadata: Mapping[str, Any]
    """Metadata; see `aot/description.py`."""


def read_library(path: str | os.PathLike[str]) -> LibraryFile:
    """Reads a file's metadata. Raises LibraryError for a file that is not a complete library of shlo_jit, and OSError
    for a file that cannot be read."""
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
    """Raises LibraryError unless the file is a library for a machine like this one."""
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
    """Returns format and machine. Raises ValueError for a truncated ELF file."""
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
        raise ValueError("it is truncated")
    _, width, order, type, machine = _IDENTITY.unpack_from(data)
    if (width, order) != (2, 1) or type not in (OBJECT, SHARED):
        raise ValueError("it is not a 64-bit, little-endian ELF object or shared library")
    segments, sections, segment_size, segment_count, section_size, section_count = _TABLES.unpack_from(data)
    for start, size, count, row in (
        (segments, segment_size, segment_count, _SEGMENT),
        (sections, section_size, section_count, _SECTION),
    ):
        if count and (size < row.size or start + size * count > len(data)):
            raise ValueError("it is truncated")
        for at in range(start, start + size * count, size or 1):
            kind, place, nbytes = row.unpack_from(data, at)
            if place + nbytes > len(data) and not (row is _SECTION and kind == _NO_BITS):
                raise ValueError("it is truncated")
    return ("ELF object" if type == OBJECT else "ELF shared library"), MACHINES.get(machine, f"machine {machine}")


def _check(metadata: Mapping[str, Any]) -> None:
    """Raises ValueError unless the metadata have the fields that readers rely on."""
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
