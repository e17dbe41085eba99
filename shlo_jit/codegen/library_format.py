"""The format that exported libraries and their loaders share, in version INTERFACE_VERSION: statuses, types, the
metadata block, the weights file. `docs/export.md` describes the C interface.

The metadata are JSON in a note, as in ELF, in files of every format:

    u32 9, u32 bytes, u32 1, "shlo_jit\\0" and three zeros, the SHA-256 of the JSON's bytes, these

A weights file is a header of WEIGHTS_HEADER_BYTES (magic, identity, number of bytes after the header), followed by the
constants, each at a multiple of 64.
"""

from __future__ import annotations

import enum
import hashlib
import json
import mmap
import struct
from collections.abc import Mapping
from typing import Any

INTERFACE_VERSION = 1
"""Version of the C interface. A library of version n works with any client that knows version n. New fields may be
added after the others of a structure without a new version."""


class LibraryStatus(enum.IntEnum):
    """Statuses that the functions of a library return. The first three are those of `codegen/abi.py`."""

    OK = 0
    CALL_FAILED = 1
    INTERRUPTED = 2
    NO_MEMORY = 3
    UNSUPPORTED_CPU = 4
    BUSY = 5
    BAD_POINTER = 6
    BAD_ARGUMENT = 7
    NO_WEIGHTS = 8
    WRONG_WEIGHTS = 9
    MISSING_SYMBOL = 10
    UNKNOWN_SHAPES = 11

    @property
    def text(self) -> str:
        return STATUS_TEXTS[self]


STATUS_TEXTS = {
    LibraryStatus.OK: "success",
    LibraryStatus.CALL_FAILED: "a custom call of the program failed",
    LibraryStatus.INTERRUPTED: "the program was interrupted",
    LibraryStatus.NO_MEMORY: "there is not enough memory",
    LibraryStatus.UNSUPPORTED_CPU: "this processor lacks features that the library's code uses",
    LibraryStatus.BUSY: "the instance is in a call already, further up the stack or in a signal handler",
    LibraryStatus.BAD_POINTER: "a pointer is null, or not aligned as the header requires",
    LibraryStatus.BAD_ARGUMENT: "an argument is out of range",
    LibraryStatus.NO_WEIGHTS: "the weights file cannot be read",
    LibraryStatus.WRONG_WEIGHTS: "the weights file is not the one that was exported with this library",
    LibraryStatus.MISSING_SYMBOL: "a function that the library calls was neither linked nor passed to set_symbol",
    LibraryStatus.UNKNOWN_SHAPES: "the library has no code for arguments of these shapes",
}

TYPES = (
    *("i1", "i2", "ui2", "i4", "ui4", "i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64"),
    *("f16", "bf16", "f32", "f64", "complex<f32>", "complex<f64>"),
    *("f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "f8E3M4", "f8E4M3", "f8E4M3FN", "f8E4M3FNUZ", "f8E4M3B11FNUZ"),
    *("f8E5M2", "f8E5M2FNUZ", "f8E8M0FNU"),
)
"""Element types; the index in this list is the number in the C interface. New ones go to the end."""

NOTE_OWNER = b"shlo_jit\0\0\0\0"
NOTE_TYPE = 1
NOTE_SECTION = ".note.shlo_jit"
DIGEST_BYTES = 32
METADATA_OFFSET = 12 + len(NOTE_OWNER) + DIGEST_BYTES
"""Offset of the JSON in the note."""
LONGEST_METADATA = 64 << 20

WEIGHTS_MAGIC = b"shlo_jit weights"
WEIGHTS_HEADER = struct.Struct("<16s32sQ8x")
"""Magic, identity, bytes after the header."""
WEIGHTS_ALIGNMENT = 64
assert WEIGHTS_HEADER.size == WEIGHTS_ALIGNMENT


def note(metadata: Mapping[str, Any]) -> bytes:
    """Returns the metadata block."""
    text = json.dumps(metadata, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    head = struct.pack("<3I", len(NOTE_OWNER.rstrip(b"\0")) + 1, DIGEST_BYTES + len(text), NOTE_TYPE)
    return head + NOTE_OWNER + hashlib.sha256(text).digest() + text


def read_note(data: bytes | mmap.mmap) -> dict[str, Any]:
    """Returns the metadata in the bytes of a file. Raises ValueError if there are none, or none of this version."""
    at = data.find(struct.pack("<I", NOTE_TYPE) + NOTE_OWNER)
    if at < 8:
        raise ValueError("it was not made by shlo_jit")
    (nbytes,) = struct.unpack_from("<I", data, at - 4)
    start, end = at - 8 + METADATA_OFFSET, at + 4 + len(NOTE_OWNER) + nbytes
    if not start < end <= min(len(data), start + LONGEST_METADATA):
        raise ValueError("its metadata are truncated")
    text = data[start:end]
    try:
        found = json.loads(text)
    except ValueError:
        raise ValueError("its metadata are damaged") from None
    if not isinstance(found, dict) or "interface" not in found:
        raise ValueError("its metadata are damaged")
    if found["interface"] != INTERFACE_VERSION:
        what = f"it has version {found['interface']} of the library interface"
        raise ValueError(f"{what}; this shlo_jit reads version {INTERFACE_VERSION}: export it again")
    if hashlib.sha256(text).digest() != data[start - DIGEST_BYTES : start]:
        raise ValueError("its metadata are damaged")
    return found
