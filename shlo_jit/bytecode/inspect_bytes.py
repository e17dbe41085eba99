"""Quick inspection of bytes without reading the program: whether they contain an artifact, and of which kind."""

from __future__ import annotations

import struct
from collections.abc import Callable

from shlo_jit.bytecode.container import MAGIC, read_container
from shlo_jit.bytecode.fields import DYNAMIC
from shlo_jit.bytecode.stream import Bytes, Damaged, Output

MODULE_FIELD = 13
"""Number of the field `mlir_module_serialized` in the table that `jax.export.Exported.serialize` writes (JAX's
`serialization.fbs`)."""


def artifact_in(read: Callable[[int, int], bytes], size: int) -> tuple[int, int] | None:
    """Returns the start and end of the artifact in bytes that are an artifact or were written by `jax.export`; None
    for other bytes. `read` returns the bytes between two offsets, fewer at the end."""
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
"""First byte of an unranked tensor type."""


def artifact_may_be_dynamic(data: Bytes, rest: bytes) -> bool:
    """Whether any value may have an unknown shape. Conservative: also true if some unrelated number has the same bytes.
    `rest` is the data without long literals."""
    if UNKNOWN_EXTENT in rest:
        return True
    try:
        types = read_container(data).types
    except Damaged:
        return True  # the reader reports the error
    return any(dialect == "vhlo" and data[start] == UNRANKED for dialect, start, end, _ in types if start < end)
