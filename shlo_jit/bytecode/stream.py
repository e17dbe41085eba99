"""Encoding of bytecode files: numbers of variable length, counts, blocks of bytes.

    varint ::= a byte whose trailing zero bits count the bytes that follow (a zero byte: eight), little-endian
    signed ::= varint of the number in zigzag: 0, -1, 1, -2, ...

All reads are bounds-checked. A count can never exceed the remaining bytes, so that the memory used by the reader is
bounded by a multiple of the file's size.
"""

from __future__ import annotations

from mmap import mmap
from typing import NoReturn, TypeAlias

Bytes: TypeAlias = "bytes | mmap"
"""Contents of a file, or mapped memory of its size."""
WIDEST = (1 << 64) - 1
SIGN = 1 << 63


class Damaged(Exception):
    """The file is invalid at byte `at`. `is_cut`: it is truncated. `is_unknown`: the contents may be valid in a file of
    another kind or version."""

    def __init__(self, message: str, at: int, *, is_cut: bool = False, is_unknown: bool = False):
        super().__init__(message)
        self.message, self.at, self.is_cut, self.is_unknown = message, at, is_cut, is_unknown


def varint(data: Bytes, at: int) -> tuple[int, int]:
    """Returns a number and the offset after it. Raises IndexError at the end of the file."""
    first = data[at]
    return (first >> 1, at + 1) if first & 1 else long_varint(data, at)


def long_varint(data: Bytes, at: int) -> tuple[int, int]:
    """Returns a number of more than one byte and the offset after it. Raises IndexError at the end of the file."""
    first = data[at]
    if first & 2:
        return (first | data[at + 1] << 8) >> 2, at + 2
    if first & 4:
        return (first | data[at + 1] << 8 | data[at + 2] << 16) >> 3, at + 3
    more = (first & -first).bit_length() - 1 if first else 8
    end = at + 1 + more
    if end > len(data):
        raise IndexError
    if not first:
        return int.from_bytes(data[at + 1 : end], "little"), end
    return int.from_bytes(data[at:end], "little") >> (more + 1), end


class Cursor:
    """A position in the bytes `data[at:end]`; offsets are relative to the start of the file."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: Bytes, at: int, end: int):
        self.data, self.at, self.end = data, at, end

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        raise Damaged(message, self.at if at is None else at)

    def end_early(self, message: str, at: int | None = None) -> NoReturn:
        """Raises Damaged for data that should be longer; the file is truncated if its own end is reached."""
        raise Damaged(message, self.at if at is None else at, is_cut=self.end == len(self.data))

    def byte(self) -> int:
        at = self.at
        if at >= self.end:
            self.end_early("the file ends here, in the middle of something")
        self.at = at + 1
        return self.data[at]

    def varint(self) -> int:
        at = self.at
        if at >= self.end:
            self.end_early("the file ends here, in the middle of something")
        first = self.data[at]
        if first & 1:
            self.at = at + 1
            return first >> 1
        try:
            value, end = long_varint(self.data, at)
        except IndexError:
            value, end = 0, self.end + 1
        if end > self.end:
            self.end_early("the file ends here, in the middle of a number")
        self.at = end
        return value

    def varints(self, count: int) -> list[int]:
        data, at = self.data, self.at
        found: list[int] = []
        try:
            for _ in range(count):
                value = data[at]
                if value & 1:
                    value, at = value >> 1, at + 1
                else:
                    value, at = long_varint(data, at)
                found.append(value)
        except IndexError:
            at = self.end + 1
        if at > self.end:
            self.end_early("the file ends here, in the middle of a list")
        self.at = at
        return found

    def signed(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def count(self, least: int = 1) -> int:
        """Reads the number of the following items, each of which takes at least `least` bytes."""
        at = self.at
        n = self.varint()
        if n * least > self.end - self.at:
            self.end_early(f"{n} items should follow, but {self.end - self.at} bytes are left", at)
        return n

    def skip(self, n: int) -> None:
        if n > self.end - self.at:
            self.end_early(f"{n} bytes should follow, but {self.end - self.at} are left")
        self.at += n

    def take(self, n: int) -> memoryview:
        """Consumes the next n bytes and returns a view of them."""
        at = self.at
        self.skip(n)
        return memoryview(self.data)[at : at + n]

    def part(self, n: int) -> Cursor:
        """Consumes the next n bytes and returns a cursor over them."""
        start = self.at
        self.skip(n)
        return Cursor(self.data, start, self.at)

    def text(self) -> str:
        """Reads a string that ends with a zero byte."""
        start = self.at
        at = self.data.find(b"\0", start, self.end)
        if at < 0:
            self.end_early("the file ends here, in the middle of a string", start)
        self.at = at + 1
        return self.data[start:at].decode("utf-8", "surrogateescape")

    def done(self, what: str) -> None:
        if self.at != self.end:
            self.fail(f"{self.end - self.at} bytes are left over in {what}")


class Output:
    """Buffer of bytes being written."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def byte(self, value: int) -> None:
        self.data.append(value)

    def varint(self, value: int) -> None:
        if value < 1 << 7:
            self.data.append((value << 1) | 1)
            return
        n = -(-value.bit_length() // 7)
        if n > 8:
            self.data.append(0)
            self.data += value.to_bytes(8, "little")
        else:
            self.data += ((value << n) | (1 << (n - 1))).to_bytes(n, "little")

    def signed(self, value: int) -> None:
        self.varint(value << 1 if value >= 0 else ((-value) << 1) - 1)

    def text(self, value: str) -> None:
        self.data += value.encode("utf-8", "surrogateescape") + b"\0"
