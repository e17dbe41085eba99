"""Long literals, kept out of an artifact before anything else looks at it: what is left of a model is small.

The artifact is memory of the file's size, so that places in it are those in the file, in which the bytes of long
literals are left out: pages that nobody touches are nowhere. Each literal is read to where its elements stay, and can
be read anew from a file, or from the bytes that somebody gave, when it was given up (`text/literals.py`).
"""

from __future__ import annotations

import errno
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial

import numpy as np

from shlo_jit import tuning
from shlo_jit.bytecode.container import DIALECTS, NEEDED, OFFSETS, STRINGS, attribute_entries, head, section
from shlo_jit.bytecode.payloads import tensor_of
from shlo_jit.bytecode.stream import Bytes, Cursor, Damaged
from shlo_jit.forking import thread_pool
from shlo_jit.ir import aligned, digests
from shlo_jit.text.literals import Literal

Read = Callable[[int, int], bytes]
"""The bytes from a place to another, fewer where there are none any more."""
Literals = Mapping[int, Literal]
"""By the place of their bytes."""
FRONT = 64
"""Bytes that hold the numbers at the front of a section or an entry."""
PIECE = 1 << 20
"""Bytes that are read at a time."""


def without_literals(read: Read, size: int, again: Read, threads: int) -> tuple[Bytes, Literals]:
    """The artifact, and its long literals, which are read anew by `again`, in so many threads. All of an artifact that
    is damaged as far as can be seen here: its reader says why."""
    data = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def fill(start: int, end: int) -> None:
        for at in range(start, min(end, size), PIECE):
            piece = read(at, min(at + PIECE, end, size))
            data[at : at + len(piece)] = piece

    try:
        spans = list(_spans(data, size, fill))
    except (Damaged, IndexError):
        spans = []
    if not spans:
        return read(0, size), {}
    for start, end in zip([0, *(end for _, end in spans)], [*(start for start, _ in spans), size], strict=True):
        fill(start, end)
    total = sum(end - start for start, end in spans)
    many = threads > 1 and total >= tuning.THREADED_READ_BYTES
    with thread_pool(threads, "shlo_jit literals") if many else nullcontext() as executor:
        run = map if executor is None else executor.map
        found = list(run(lambda span: _literal(span, read, again), spans))
    return data, {start: literal for (start, _), literal in zip(spans, found, strict=True)}


def with_known(rest: bytes, rows: Iterable[tuple[int, str, int]], again: Read) -> tuple[Bytes, Literals]:
    """As `without_literals`, of what is left of an artifact, and place, digest and size of each literal, none of which
    is read before it is asked for."""
    literals = {
        at: Literal(None, digest, nbytes, partial(_bytes, again, at, at + nbytes)) for at, digest, nbytes in rows
    }
    size = len(rest) + sum(literal.nbytes for literal in literals.values())
    data = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    place = done = 0
    for at, nbytes in [*((at, literal.nbytes) for at, literal in literals.items()), (size, 0)]:
        data[place:at] = rest[done : done + at - place]
        done += at - place
        place = at + nbytes
    return data, literals


def rest_of(data: Bytes, literals: Literals) -> bytes:
    """The bytes that are no literals."""
    if not literals:
        return data[:]
    ends = [at + literal.nbytes for at, literal in literals.items()]
    return b"".join(data[a:b] for a, b in zip([0, *ends], [*literals, len(data)], strict=True))


def _spans(data: mmap.mmap, size: int, fill: Callable[[int, int], None]) -> Iterator[tuple[int, int]]:
    """Where the bytes of long literals begin and end, in their order. Raises Damaged."""
    fill(0, FRONT)
    version, _, c = head(data)
    found: dict[int, Cursor] = {}
    while c.at < c.end:
        fill(c.at, c.at + FRONT)
        id, part = section(c)
        found[id] = part
    if any(needed not in found for needed in NEEDED):
        return
    for id in (STRINGS, DIALECTS, OFFSETS):
        fill(found[id].at, found[id].end)
    for dialect, start, end, is_encoded in attribute_entries(found, version):
        if is_encoded and end - start >= tuning.LONG_LITERAL_BYTES:
            fill(start, start + FRONT)
            entry = Cursor(data, start, end)
            if _is_tensor(dialect, entry.varint()):
                entry.varint()  # its type
                if entry.varint() == end - entry.at:
                    yield entry.at, end


def _is_tensor(dialect: str, code: int) -> bool:
    from shlo_jit.bytecode.tables import ATTRIBUTE, KINDS

    kind = KINDS[ATTRIBUTE].get((dialect, code))
    return kind is not None and kind.make is tensor_of


def _literal(span: tuple[int, int], read: Read, again: Read) -> Literal:
    start, end = span
    data = _bytes(read, start, end)
    return Literal(data, digests.digest(data), end - start, partial(_bytes, again, start, end))


def _bytes(read: Read, start: int, end: int) -> np.ndarray:
    data = aligned.empty(end - start)
    for at in range(start, end, PIECE):
        piece = read(at, min(at + PIECE, end))
        if len(piece) != min(PIECE, end - at):
            raise OSError(errno.ESTALE, "the program's file has become shorter")
        data[at - start :][: len(piece)] = np.frombuffer(piece, np.uint8)
    digests.seal(data)
    return data
