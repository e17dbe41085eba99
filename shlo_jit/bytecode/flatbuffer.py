"""Reader of flatbuffers that checks all offsets and lengths (`flatbuffers.dev/internals`); `jax.export` writes them.

    buffer ::= u32 offset of the root table
    table  ::= i32 distance back to its vtable, then fields
    vtable ::= u16 size, u16 size of the table, u16 offset in the table of each field, 0 if it is omitted
    vector ::= u32 length, then the elements; a string is a vector of bytes

Offsets of tables, vectors and strings are relative to the position of the offset.
"""

from __future__ import annotations

import struct

from shlo_jit.bytecode.stream import Damaged

_U32 = struct.Struct("<I")
ENTRY_BYTES = 2
VTABLE_HEAD_BYTES = 4


class Buffer:
    """The bytes of a flatbuffer. Limits the total that is read, since a damaged table could refer to the same bytes
    repeatedly and expand beyond any memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._left = 4 * len(data)

    def root(self) -> Table:
        return Table(self, self.target(0))

    def read(self, form: str, at: int) -> int:
        """Returns the number at a byte offset. Raises Damaged outside the buffer."""
        size = struct.calcsize(form)
        if not 0 <= at <= len(self.data) - size:
            raise Damaged(
                f"the flatbuffer has {len(self.data)} bytes, but refers to byte {at}", min(at, len(self.data))
            )
        (found,) = struct.unpack_from(form, self.data, at)
        return found

    def target(self, at: int) -> int:
        """Returns the position that the offset at a byte refers to."""
        offset = self.read("<I", at)
        if offset < _U32.size:
            raise Damaged(f"invalid offset of {offset} bytes", at)
        return at + offset

    def vector(self, at: int, item: int) -> tuple[int, int]:
        """Returns the start and the number of the elements of a vector. `item` is their size in bytes."""
        count, begin = self.read("<I", at), at + _U32.size
        if count * item > len(self.data) - begin:
            raise Damaged(f"a vector of {count} elements of {item} bytes is longer than the flatbuffer", at)
        self.spend(count * item, at)
        return begin, count

    def bytes(self, at: int) -> bytes:
        begin, count = self.vector(at, 1)
        return self.data[begin : begin + count]

    def text(self, at: int) -> str:
        try:
            return self.bytes(at).decode()
        except UnicodeDecodeError:
            raise Damaged("a string is not UTF-8", at) from None

    def spend(self, count: int, at: int) -> None:
        """Records that `count` bytes were read."""
        self._left -= count + _U32.size
        if self._left < 0:
            raise Damaged("tables refer to the same bytes too often", at)


class Table:
    """A table with numbered fields. An omitted field has its default."""

    def __init__(self, buffer: Buffer, at: int) -> None:
        """Raises Damaged unless the table and all its fields are in the buffer."""
        self._buffer, self.at = buffer, at
        vtable = at - buffer.read("<i", at)
        nbytes = buffer.read("<H", vtable)
        self._nbytes = buffer.read("<H", vtable + ENTRY_BYTES)
        if nbytes < VTABLE_HEAD_BYTES or nbytes % ENTRY_BYTES or vtable + nbytes > len(buffer.data):
            raise Damaged(f"invalid size of a vtable: {nbytes} bytes", max(vtable, 0))
        if self._nbytes < _U32.size or at + self._nbytes > len(buffer.data):
            raise Damaged(f"invalid size of a table: {self._nbytes} bytes", at)
        buffer.spend(nbytes, at)
        count = (nbytes - VTABLE_HEAD_BYTES) // ENTRY_BYTES
        self._fields = struct.unpack_from(f"<{count}H", buffer.data, vtable + VTABLE_HEAD_BYTES)

    def _place(self, field: int, nbytes: int) -> int | None:
        """Returns the position of a field; None if it is omitted."""
        offset = self._fields[field] if field < len(self._fields) else 0
        if not offset:
            return None
        if not _U32.size <= offset <= self._nbytes - nbytes:
            raise Damaged(f"field {field} is outside its table", self.at)
        return self.at + offset

    def number(self, field: int, form: str, default: int = 0) -> int:
        """Returns a number in the format `form` of the module `struct`."""
        place = self._place(field, struct.calcsize(form))
        return default if place is None else self._buffer.read(form, place)

    def _target(self, field: int) -> int | None:
        place = self._place(field, _U32.size)
        return None if place is None else self._buffer.target(place)

    def table(self, field: int) -> Table | None:
        at = self._target(field)
        return None if at is None else Table(self._buffer, at)

    def bytes(self, field: int) -> bytes | None:
        at = self._target(field)
        return None if at is None else self._buffer.bytes(at)

    def text(self, field: int) -> str | None:
        at = self._target(field)
        return None if at is None else self._buffer.text(at)

    def numbers(self, field: int, form: str) -> tuple[int, ...]:
        """Returns a vector of numbers. `form` is the `struct` format of one number, without byte order."""
        at = self._target(field)
        if at is None:
            return ()
        begin, count = self._buffer.vector(at, struct.calcsize(f"<{form}"))
        return struct.unpack_from(f"<{count}{form}", self._buffer.data, begin)

    def _targets(self, field: int) -> list[int]:
        at = self._target(field)
        if at is None:
            return []
        begin, count = self._buffer.vector(at, _U32.size)
        return [self._buffer.target(begin + _U32.size * i) for i in range(count)]

    def tables(self, field: int) -> list[Table]:
        return [Table(self._buffer, at) for at in self._targets(field)]

    def texts(self, field: int) -> list[str]:
        return [self._buffer.text(at) for at in self._targets(field)]

    def need(self, field: int, name: str) -> Table:
        """Returns a mandatory table. Raises Damaged if it is missing."""
        found = self.table(field)
        if found is None:
            raise Damaged(f"{name} is missing", self.at)
        return found
