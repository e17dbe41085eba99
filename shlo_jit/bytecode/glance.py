"""What can be said of bytes without reading the program in them: whether there is one, and what sort."""

from __future__ import annotations

import struct

from shlo_jit.bytecode.container import MAGIC, read_container
from shlo_jit.bytecode.fields import DYNAMIC
from shlo_jit.bytecode.stream import Damaged, Output

MODULE_FIELD = 13
"""Of the table that `jax.export.Exported.serialize` writes, `mlir_module_serialized` (jax's `serialization.fbs`)."""


def artifact_in(data: bytes) -> bytes | None:
    """The artifact that bytes are, or have in them where `jax.export` wrote them; None where they are neither."""
    return data if data.startswith(MAGIC) else _exported(data)


def _exported(data: bytes) -> bytes | None:
    """flatbuffer ::= offset of the table; table ::= offset back to those of its fields ...; vector ::= length bytes"""
    try:
        (table,) = struct.unpack_from("<I", data, 0)
        (back,) = struct.unpack_from("<i", data, table)
        fields = table - back
        entry = 4 + 2 * MODULE_FIELD
        if fields < 0 or struct.unpack_from("<H", data, fields)[0] < entry + 2:
            return None
        (field,) = struct.unpack_from("<H", data, fields + entry)
        at = table + field
        vector = at + struct.unpack_from("<I", data, at)[0]
        (length,) = struct.unpack_from("<I", data, vector)
    except struct.error:
        return None
    found = data[vector + 4 : vector + 4 + length]
    return found if field and found.startswith(MAGIC) else None


def _bytes_of_dynamic() -> bytes:
    out = Output()
    out.signed(DYNAMIC)
    return bytes(out.data)


UNKNOWN_EXTENT = _bytes_of_dynamic()
UNRANKED = 25 << 1 | 1
"""The first byte of an unranked tensor type."""


def artifact_may_be_unknown(data: bytes) -> bool:
    """Whether the shape of any value is not known; true too where just some number has such bytes."""
    if UNKNOWN_EXTENT in data:
        return True
    try:
        types = read_container(data).types
    except Damaged:
        return True  # whoever reads it says why
    return any(dialect == "vhlo" and data[start] == UNRANKED for dialect, start, end, _ in types if start < end)
