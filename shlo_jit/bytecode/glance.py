"""What can be said of bytes without reading the program in them: whether there is one, and what sort."""

from __future__ import annotations

import struct
from collections.abc import Callable

from shlo_jit.bytecode.container import MAGIC, read_container
from shlo_jit.bytecode.fields import DYNAMIC
from shlo_jit.bytecode.stream import Bytes, Damaged, Output

MODULE_FIELD = 13
"""Of the table that `jax.export.Exported.serialize` writes, `mlir_module_serialized` (jax's `serialization.fbs`)."""


def artifact_in(read: Callable[[int, int], bytes], size: int) -> tuple[int, int] | None:
    """Where the artifact begins and ends that bytes are, or have in them where `jax.export` wrote them; None where they
    are neither. `read`: those from a place to another, fewer where there are none any more."""
    if read(0, len(MAGIC)) == MAGIC:
        return 0, size
    found = _exported(read)
    return found if found is not None and read(found[0], found[0] + len(MAGIC)) == MAGIC else None


def _exported(read: Callable[[int, int], bytes]) -> tuple[int, int] | None:
    """flatbuffer ::= offset of the table; table ::= offset back to those of its fields ...; vector ::= length bytes"""

    def number(form: str, at: int) -> int:
        (found,) = struct.unpack(form, read(at, at + struct.calcsize(form)))
        return found

    try:
        table = number("<I", 0)
        fields = table - number("<i", table)
        entry = 4 + 2 * MODULE_FIELD
        if fields < 0 or number("<H", fields) < entry + 2:
            return None
        field = number("<H", fields + entry)
        at = table + field
        vector = at + number("<I", at)
        begin = vector + 4
        return (begin, begin + number("<I", vector)) if field else None
    except struct.error:
        return None


def _bytes_of_dynamic() -> bytes:
    out = Output()
    out.signed(DYNAMIC)
    return bytes(out.data)


UNKNOWN_EXTENT = _bytes_of_dynamic()
UNRANKED = 25 << 1 | 1
"""The first byte of an unranked tensor type."""


def artifact_may_be_unknown(data: Bytes, rest: bytes) -> bool:
    """Whether the shape of any value is not known; true too where just some number has such bytes. `rest`: the data
    without long literals."""
    if UNKNOWN_EXTENT in rest:
        return True
    try:
        types = read_container(data).types
    except Damaged:
        return True  # whoever reads it says why
    return any(dialect == "vhlo" and data[start] == UNRANKED for dialect, start, end, _ in types if start < end)
