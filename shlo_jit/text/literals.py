"""Long literals, cut out of a text before it is parsed, so that the remaining text of a model is small.

    dense<"0x3F80...3F80">     ->     dense<"0x3F80">   with the first KEPT digits, and a Literal at that position

The digits of a literal are read in chunks and decoded directly into the final buffer. The whole text is in memory only
if the caller provided it that way. From then on, a literal is identified by the digest of its bytes.
"""

from __future__ import annotations

import binascii
import errno
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shlo_jit import tuning
from shlo_jit.errors import Source
from shlo_jit.forking import thread_pool
from shlo_jit.text.literal_bytes import LiteralBytes

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

OPENER = b'dense<"0x'
CLOSER = b'">'
KEPT = 100
"""Digits that stay in the text; messages show the first of them."""
WINDOW = 1 << 18
"""Characters that are searched at a time."""
CHUNK = 1 << 19
"""Digits that are decoded at a time, while they are in a core's cache."""


Decode = Callable[[bytes, np.ndarray], bool]
"""A function with the interface of `decode_digits`."""
Fast = Callable[[], Decode]
"""Factory of a faster decoder, called in the thread that uses it."""


class Found(NamedTuple):
    """The bytes of a literal that was read, and their SHA-256 in hexadecimal."""

    data: LiteralBytes
    digest: str


class Characters(NamedTuple):
    """A text of which only a part may be in memory."""

    size: int
    """Size in bytes."""
    read: Callable[[int, int], bytes]
    """Returns the bytes between two offsets; fewer at the end of the text."""
    again: Callable[[int, int], Found] | None = None
    """Reads the literal whose digits are between two offsets again and returns its bytes. Raises OSError."""


class Literal:
    """The bytes of a literal. If they can be read again, they may be released while unused, or be read lazily."""

    __slots__ = ("__weakref__", "_again", "_data", "digest", "nbytes")

    def __init__(self, data: LiteralBytes | None, digest: str, nbytes: int, again: Callable[[], Found] | None) -> None:
        self._data = data
        self._again = again
        self.digest = digest
        """SHA-256 of the bytes, in hexadecimal."""
        self.nbytes = nbytes

    @property
    def is_read(self) -> bool:
        return self._data is not None

    def read(self) -> LiteralBytes:
        """Returns the bytes as they are kept. Raises OSError if they were released and their file has changed."""
        if self._data is None:
            assert self._again is not None
            data, digest = self._again()
            if digest != self.digest:
                raise OSError(errno.ESTALE, "the program's file has changed since it was read")
            self._data = data
        return self._data

    @property
    def data(self) -> np.ndarray:
        """u8[nbytes], aligned, read-only. Raises OSError like `read`."""
        kept = self.read()
        if kept.bits < 8:
            kept.widen(self.digest)
        return kept.packed(8)

    def release(self) -> None:
        """Releases the bytes if they can be read again."""
        if self._again is not None:
            self._data = None

    def digits(self, kept: str) -> str:
        """Returns the digits of the original text, in the letter case of the `kept` ones."""
        found = self.data.tobytes().hex()
        return found if kept.upper() != kept else found.upper()


class Cut(NamedTuple):
    """A literal that was cut out of a text; in the remaining text it begins at character `at`."""

    at: int
    literal: Literal
    start: int = 0
    """Byte offset of its digits in the whole text."""

    @property
    def first(self) -> int:
        """Offset of its digits in the remaining text."""
        return self.at + len(OPENER)

    @property
    def end(self) -> int:
        """Offset after its remaining part."""
        return self.first + KEPT + len(CLOSER)

    @property
    def removed(self) -> int:
        """Number of digits that were removed from the text."""
        return 2 * self.literal.nbytes - KEPT


class LiteralToken(str):
    """The token of a literal that was cut out."""

    __slots__ = ("literal",)
    literal: Literal


def token_of(text: str, cut: Cut) -> LiteralToken:
    token = LiteralToken(text[cut.at : cut.end])
    token.literal = cut.literal
    return token


class CutSource(Source):
    """Source of the remaining text; lines and columns are those of the whole text."""

    def __init__(self, text: str, name: str, cuts: Sequence[Cut]):
        super().__init__(text, name)
        self.cuts = cuts

    def line_column(self, offset: int) -> tuple[int, int]:
        line, column = super().line_column(offset)
        start = offset - column + 1
        return line, column + sum(c.removed for c in self.cuts if start <= c.at and c.first + KEPT <= offset)

    def line_text(self, line: int) -> str:
        self.line_column(0)
        assert self._line_starts is not None
        start = self._line_starts[line - 1]
        return self.between(start, start + len(super().line_text(line)))

    def between(self, start: int, end: int) -> str:
        return restored(
            self.text, self.cuts, lambda c: c.literal.digits(self.text[c.first : c.first + KEPT]), start, end
        )


def restored(text: str, cuts: Iterable[Cut], digits: Callable[[Cut], str], start: int, end: int) -> str:
    """Returns a part of a text, with the digits of the literals that lie completely inside it."""
    parts = []
    for cut in cuts:
        if start <= cut.at and cut.end <= end:
            parts += [text[start : cut.first], digits(cut)]
            start = cut.first + KEPT
    return "".join([*parts, text[start:end]])


def identity(text: str, cuts: Sequence[Cut]) -> str:
    """Returns the identity of a text: the text with digests in place of the literals that were cut out."""
    return restored(text, cuts, lambda c: f"sha256:{c.literal.digest}", 0, len(text))


# ---------------------------------------------------------------------- cutting
def cut_string(text: str, threads: int = 1, fast: Fast | None = None) -> tuple[str, tuple[Cut, ...]]:
    """Returns the remaining text and its long literals, as `cut_bytes` does."""
    if len(text) < tuning.LONG_LITERAL_DIGITS or OPENER.decode() not in text:
        return text, ()
    if text.isascii():
        left, cuts = cut_bytes(Characters(len(text), lambda start, end: text[start:end].encode()), threads, fast)
    else:
        left, cuts = cut_bytes(characters(text.encode("utf-8", "surrogatepass")), threads, fast)
    return (left.decode("utf-8", "surrogatepass"), cuts) if cuts else (text, ())


def characters(data: bytes | memoryview) -> Characters:
    """Returns the `Characters` of a text in memory."""
    return Characters(len(data), lambda start, end: bytes(data[start:end]))


def characters_of_file(descriptor: int, size: int, name: str, fast: Fast | None = None) -> Characters:
    """Returns the `Characters` of an open file. Literals of a large file are read again with a decoder from `fast`."""
    path = os.path.abspath(name)

    def again(start: int, end: int) -> Found:
        with open(path, "rb", buffering=0) as file:
            decode = fast() if fast is not None and size >= tuning.THREADED_BYTES else decode_digits
            found = _decoded(lambda a, b: os.pread(file.fileno(), b - a, a), start, end, decode)
        return Found(LiteralBytes(0), "") if found is None else found

    return Characters(size, lambda start, end: os.pread(descriptor, end - start, start), again)


def cut_bytes(given: Characters, threads: int = 1, fast: Fast | None = None) -> tuple[bytes, tuple[Cut, ...]]:
    """Returns the remaining text and its long literals.

    The literals of a large text are decoded in `threads` threads with decoders from `fast`. A literal that contains
    anything but pairs of digits stays in the text. Positions count characters of UTF-8 text, not bytes.
    """
    large = given.size >= tuning.THREADED_BYTES
    make = functools.cache(fast if large and fast is not None else lambda: decode_digits)
    with thread_pool(threads, "shlo_jit literals") if large and threads > 1 else nullcontext() as executor:
        window = _Window(given)
        jobs = [(at, end, _started(executor, given, at, end, make())) for at, end in _spans(window)]
        found = [(at, end, job()) for at, end, job in jobs]
    parts: list[bytes] = []
    cuts: list[Cut] = []
    done = characters = 0
    for at, end, literal in found:
        if literal is not None:
            part = given.read(done, at)
            characters += _count(part)
            cuts.append(Cut(characters - len(OPENER), literal, at))
            parts += [part, given.read(at, at + KEPT)]
            characters += KEPT
            done = end
    return b"".join([*parts, given.read(done, given.size)]), tuple(cuts)


def read_all(literals: Iterable[Literal], threads: int) -> None:
    """Reads the literals that have not been read yet, in `threads` threads. Raises OSError like `Literal.read`."""
    waiting = [literal for literal in literals if not literal.is_read]
    if sum(literal.nbytes for literal in waiting) < tuning.THREADED_BYTES or threads < 2:
        return  # they are read on first use
    with thread_pool(threads, "shlo_jit literals") as executor:
        for _ in executor.map(Literal.read, waiting):
            pass


def _count(part: bytes) -> int:
    """Counts the characters of UTF-8 text: bytes that are not continuation bytes."""
    return len(part) if part.isascii() else sum(byte & 0xC0 != 0x80 for byte in part)


def _started(
    executor: ThreadPoolExecutor | None, given: Characters, start: int, end: int, decode: Decode
) -> Callable[[], Literal | None]:
    def literal() -> Literal | None:
        found = _decoded(given.read, start, end, decode)
        again = given.again
        if found is None:
            return None
        return Literal(*found, found.data.nbytes, None if again is None else lambda: again(start, end))

    if executor is None:
        made = literal()
        return lambda: made
    future: Future[Literal | None] = executor.submit(literal)
    return future.result


class _Window:
    """A sliding window: the part of a text that is in memory and moves with the search."""

    def __init__(self, given: Characters) -> None:
        self.given = given
        self.start = 0
        self.data = b""

    def find(self, word: bytes, at: int) -> int:
        """Returns the first offset of a word from `at` on; -1 if there is none."""
        while True:
            if not self.start <= at <= self.start + len(self.data) - len(word):
                self.start, self.data = at, self.given.read(at, min(at + WINDOW, self.given.size))
                if len(self.data) < len(word):
                    return -1
            found = self.data.find(word, at - self.start)
            if found >= 0:
                return self.start + found
            at = self.start + len(self.data) - len(word) + 1


def _spans(window: _Window) -> Iterator[tuple[int, int]]:
    """Yields the start and end of the digits of each possible long literal."""
    at = 0
    while (start := window.find(OPENER, at)) >= 0:
        first = start + len(OPENER)
        at = window.find(b'"', first)
        if at < 0:
            return
        if at - first >= tuning.LONG_LITERAL_DIGITS and window.given.read(at, at + len(CLOSER)) == CLOSER:
            yield first, at


def _decoded(read: Callable[[int, int], bytes], start: int, end: int, decode: Decode) -> Found | None:
    """Returns the decoded bytes. None if there is anything but digits, or if the file has become shorter."""
    nbytes, odd = divmod(end - start, 2)
    if odd:
        return None
    data = LiteralBytes(nbytes)
    for at in range(0, nbytes, CHUNK // 2):
        count = min(CHUNK // 2, nbytes - at)
        digits = read(start + 2 * at, start + 2 * (at + count))
        if not data.fill(at, count, partial(decode, digits)):
            return None
    return Found(data, data.finish())


def decode_digits(digits: bytes, to: np.ndarray) -> bool:
    """Decodes pairs of digits into `to`. Returns False if they are not digits, or do not fill `to` exactly."""
    try:
        found = binascii.unhexlify(digits)
    except binascii.Error:
        return False
    if len(found) != len(to):
        return False
    to[:] = np.frombuffer(found, np.uint8)
    return True
