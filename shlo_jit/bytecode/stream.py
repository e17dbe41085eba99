"""The bytes of a file, read and written: numbers of variable length, counts, blocks of bytes.

    varint ::= a byte whose trailing zero bits say how many bytes follow (a zero byte: eight), little-endian
    signed ::= varint of the number in zigzag: 0, -1, 1, -2, ...

What is read is checked against what is there: a count can never be larger than the bytes that are left, so that no file
makes its reader take more memory than some multiple of its size.
"""

from __future__ import annotations

from typing import NoReturn

WIDEST = (1 << 64) - 1
SIGN = 1 << 63


class Damaged(Exception):
    """The file is not what it should be, from this byte on."""

    def __init__(self, message: str, at: int):
        super().__init__(message)
        self.message, self.at = message, at


class Cursor:
    """A place in the bytes `data[at:end]`; places count from the beginning of the file."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: memoryview, at: int, end: int):
        self.data, self.at, self.end = data, at, end

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        raise Damaged(message, self.at if at is None else at)

    def byte(self) -> int:
        at = self.at
        if at >= self.end:
            self.fail("the file ends here, in the middle of something")
        self.at = at + 1
        return self.data[at]

    def varint(self) -> int:
        at = self.at
        if at >= self.end:
            self.fail("the file ends here, in the middle of something")
        first = self.data[at]
        if first & 1:
            self.at = at + 1
            return first >> 1
        more = (first & -first).bit_length() - 1 if first else 8
        end = at + 1 + more
        if end > self.end:
            self.fail("the file ends here, in the middle of a number")
        self.at = end
        if not first:
            return int.from_bytes(self.data[at + 1 : end], "little")
        return int.from_bytes(self.data[at:end], "little") >> (more + 1)

    def signed(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def count(self, least: int = 1) -> int:
        """How many of something follow that take `least` bytes each, or more."""
        at = self.at
        n = self.varint()
        if n * least > self.end - self.at:
            self.fail(f"{n} of something should follow, and {self.end - self.at} bytes are left", at)
        return n

    def take(self, n: int) -> memoryview:
        """The next n bytes, viewed."""
        at = self.at
        if n > self.end - at:
            self.fail(f"{n} bytes should follow, and {self.end - at} are left")
        self.at = at + n
        return self.data[at : at + n]

    def part(self, n: int) -> Cursor:
        """A cursor over the next n bytes, which are passed over."""
        start = self.at
        self.take(n)
        return Cursor(self.data, start, self.at)

    def text(self) -> str:
        """Up to a zero byte."""
        start = self.at
        data = self.data
        at = start
        while at < self.end and data[at]:
            at += 1
        if at == self.end:
            self.fail("the file ends here, in the middle of a text", start)
        self.at = at + 1
        return bytes(data[start:at]).decode("utf-8", "surrogateescape")

    def done(self, what: str) -> None:
        if self.at != self.end:
            self.fail(f"{self.end - self.at} bytes are left of {what}")


class Output:
    """Bytes that are being written."""

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
