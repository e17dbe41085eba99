"""Long literals, cut out of a text before anything else looks at it: what is left of a model is small.

    dense<"0x3F80...3F80">     ->     dense<"0x3F80">   with the first KEPT digits, and a Literal at that place

A literal's digits are read in pieces and decoded to where its elements stay; the whole text is in memory only where
somebody gave it so. Its bytes are known by their digest from then on.
"""

from __future__ import annotations

import binascii
import errno
import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shlo_jit import tuning
from shlo_jit.errors import Source
from shlo_jit.forking import thread_pool
from shlo_jit.ir import aligned, digests

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

OPENER = b'dense<"0x'
CLOSER = b'">'
KEPT = 100
"""Digits that stay, of which messages show the first."""
WINDOW = 1 << 18
"""Characters that are searched at a time."""
PIECE = 1 << 19
"""Digits that are decoded at a time, while they are in a core's cache."""


Decode = Callable[[bytes, np.ndarray], bool]
"""As `decode_digits`."""
Fast = Callable[[], Decode]
"""What makes a faster one, in the thread that asks for it."""


class Characters(NamedTuple):
    """A text that may be longer than what is in memory of it."""

    size: int
    """In bytes."""
    read: Callable[[int, int], bytes]
    """The bytes from a place to another, fewer where there are none any more."""
    again: Callable[[int, int], np.ndarray] | None = None
    """Bytes of the literal whose digits are there, read anew later. Raises OSError."""


class Literal:
    """The bytes of a literal. Those that can be read anew may be given up while nobody needs them, or be read later."""

    __slots__ = ("__weakref__", "_again", "_data", "digest", "nbytes")

    def __init__(
        self, data: np.ndarray | None, digest: str, nbytes: int, again: Callable[[], np.ndarray] | None
    ) -> None:
        self._data = data
        self._again = again
        self.digest = digest
        """SHA-256, in hexadecimal."""
        self.nbytes = nbytes

    @property
    def is_read(self) -> bool:
        return self._data is not None

    @property
    def data(self) -> np.ndarray:
        """u8[nbytes], aligned, read-only. Raises OSError where it was given up and its file has changed."""
        if self._data is None:
            assert self._again is not None
            found = self._again()
            if digests.digest(found) != self.digest:
                raise OSError(errno.ESTALE, "the program's file has changed since it was read")
            self._data = found
        return self._data

    def release(self) -> None:
        """Give the bytes up, if they can be read anew."""
        if self._again is not None:
            self._data = None

    def digits(self, kept: str) -> str:
        """The digits in the text, in the case of those that were kept."""
        found = self.data.tobytes().hex()
        return found if kept.upper() != kept else found.upper()


class Cut(NamedTuple):
    """`literal` begins at this character of the text that is left."""

    at: int
    literal: Literal
    start: int = 0
    """Where its digits begin in the whole text, in bytes."""

    @property
    def first(self) -> int:
        """Where its digits begin."""
        return self.at + len(OPENER)

    @property
    def end(self) -> int:
        """Behind what is left of it."""
        return self.first + KEPT + len(CLOSER)

    @property
    def removed(self) -> int:
        """Digits that are not in the text."""
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
    """What is left of a text; lines and columns are those of all of it."""

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
    """A part of a text, with digits for those literals that are in it as a whole."""
    parts = []
    for cut in cuts:
        if start <= cut.at and cut.end <= end:
            parts += [text[start : cut.first], digits(cut)]
            start = cut.first + KEPT
    return "".join([*parts, text[start:end]])


def identity(text: str, cuts: Sequence[Cut]) -> str:
    """What a text is known by: digests in the place of what was cut out."""
    return restored(text, cuts, lambda c: f"sha256:{c.literal.digest}", 0, len(text))


# ---------------------------------------------------------------------- cutting
def cut_string(text: str, threads: int = 1, fast: Fast | None = None) -> tuple[str, tuple[Cut, ...]]:
    """What is left of a text, and its long literals; as `cut_bytes`."""
    if len(text) < tuning.LONG_LITERAL_DIGITS or OPENER.decode() not in text:
        return text, ()
    if text.isascii():
        left, cuts = cut_bytes(Characters(len(text), lambda start, end: text[start:end].encode()), threads, fast)
    else:
        left, cuts = cut_bytes(characters(text.encode("utf-8", "surrogatepass")), threads, fast)
    return (left.decode("utf-8", "surrogatepass"), cuts) if cuts else (text, ())


def characters(data: bytes | memoryview) -> Characters:
    """Of a text that is in memory."""
    return Characters(len(data), lambda start, end: bytes(data[start:end]))


def file_characters(descriptor: int, size: int, name: str, fast: Fast | None = None) -> Characters:
    """Of an open file. Literals of a large one are read anew by what `fast` makes."""
    path = os.path.abspath(name)

    def again(start: int, end: int) -> np.ndarray:
        with open(path, "rb", buffering=0) as file:
            decode = fast() if fast is not None and size >= tuning.THREADED_TEXT_BYTES else decode_digits
            found = _decoded(lambda a, b: os.pread(file.fileno(), b - a, a), start, end, decode)
        return np.empty(0, np.uint8) if found is None else found[0]

    return Characters(size, lambda start, end: os.pread(descriptor, end - start, start), again)


def cut_bytes(given: Characters, threads: int = 1, fast: Fast | None = None) -> tuple[bytes, tuple[Cut, ...]]:
    """What is left of a text, and its long literals, those of a large text decoded in so many threads by what `fast`
    makes. What has anything but pairs of digits in it is no literal, and stays. Places count characters, of text in
    UTF-8."""
    large = given.size >= tuning.THREADED_TEXT_BYTES
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
    """Read those literals that have not been read yet, in so many threads. Raises OSError as `Literal.data`."""
    waiting = [literal for literal in literals if not literal.is_read]
    if sum(literal.nbytes for literal in waiting) < tuning.THREADED_TEXT_BYTES or threads < 2:
        return  # they are read when they are asked for
    with thread_pool(threads, "shlo_jit literals") as executor:
        for _ in executor.map(lambda literal: literal.data, waiting):
            pass


def _count(part: bytes) -> int:
    """Characters of UTF-8: bytes that do not go on with one."""
    return len(part) if part.isascii() else sum(byte & 0xC0 != 0x80 for byte in part)


def _started(
    executor: ThreadPoolExecutor | None, given: Characters, start: int, end: int, decode: Decode
) -> Callable[[], Literal | None]:
    def literal() -> Literal | None:
        found = _decoded(given.read, start, end, decode)
        again = given.again
        if found is None:
            return None
        data, digest = found
        return Literal(data, digest, data.nbytes, None if again is None else lambda: again(start, end))

    if executor is None:
        made = literal()
        return lambda: made
    future: Future[Literal | None] = executor.submit(literal)
    return future.result


class _Window:
    """A part of a text in memory, that follows the search."""

    def __init__(self, given: Characters) -> None:
        self.given = given
        self.start = 0
        self.data = b""

    def find(self, word: bytes, at: int) -> int:
        """Where a word comes first from a place on; -1 where it does not."""
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
    """Where the digits of long literals may begin and end."""
    at = 0
    while (start := window.find(OPENER, at)) >= 0:
        first = start + len(OPENER)
        at = window.find(b'"', first)
        if at < 0:
            return
        if at - first >= tuning.LONG_LITERAL_DIGITS and window.given.read(at, at + len(CLOSER)) == CLOSER:
            yield first, at


def _decoded(read: Callable[[int, int], bytes], start: int, end: int, decode: Decode) -> tuple[np.ndarray, str] | None:
    """The bytes whose digits are there, and their digest; None where anything else is among them, or the file has
    become shorter."""
    nbytes, odd = divmod(end - start, 2)
    if odd:
        return None
    data = aligned.empty(nbytes)
    found = hashlib.sha256()
    for at in range(0, nbytes, PIECE // 2):
        place = data[at : at + PIECE // 2]
        if not decode(read(start + 2 * at, start + 2 * (at + len(place))), place):
            return None
        found.update(place.data)
    digests.seal(data)
    digests.note(data, found.hexdigest())
    return data, found.hexdigest()


def decode_digits(digits: bytes, to: np.ndarray) -> bool:
    """Pairs of digits to bytes that fill `to`; False where they are none, or not as many."""
    try:
        found = binascii.unhexlify(digits)
    except binascii.Error:
        return False
    if len(found) != len(to):
        return False
    to[:] = np.frombuffer(found, np.uint8)
    return True
