"""Long literals, cut out of an artifact before it is decoded, so that the rest of a model is small.

The artifact is mapped memory of the file's size, so that offsets are those in the file. The bytes of long literals are
not filled in; untouched pages take no memory. Each literal is read directly into its final buffer. After a release it
can be read again, from the file or from the caller's bytes (`text/literals.py`).
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
from shlo_jit.text.literal_bytes import LiteralBytes
from shlo_jit.text.literals import Found, Literal

Read = Callable[[int, int], bytes]
"""Returns the bytes between two offsets, fewer at the end."""
Literals = Mapping[int, Literal]
"""Literals by the offset of their bytes."""
FRONT = 64
"""Maximum size of the numbers at the start of a section or an entry, in bytes."""
CHUNK = 1 << 20
"""Bytes that are read at a time."""


def without_literals(read: Read, size: int, again: Read, threads: int) -> tuple[Bytes, Literals]:
    """Returns the artifact and its long literals, which are read in `threads` threads and can be read again by `again`.

    If damage is detected here, nothing is cut out, so that the reader reports the error.
    """
    data = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def fill(start: int, end: int) -> None:
        for at in range(start, min(end, size), CHUNK):
            chunk = read(at, min(at + CHUNK, end, size))
            data[at : at + len(chunk)] = chunk

    try:
        spans = list(_spans(data, size, fill))
    except (Damaged, IndexError):
        spans = []
    if not spans:
        return read(0, size), {}
    for start, end in zip([0, *(end for _, end in spans)], [*(start for start, _ in spans), size], strict=True):
        fill(start, end)
    total = sum(end - start for start, end in spans)
    many = threads > 1 and total >= tuning.THREADED_BYTES
    with thread_pool(threads, "shlo_jit literals") if many else nullcontext() as executor:
        run = map if executor is None else executor.map
        found = list(run(lambda span: _literal(span, read, again), spans))
    return data, {start: literal for (start, _), literal in zip(spans, found, strict=True)}


def with_known(rest: bytes, rows: Iterable[tuple[int, str, int]], again: Read) -> tuple[Bytes, Literals]:
    """Returns the same as `without_literals`, from the rest of an artifact and a row (offset, digest, size) for each
    literal. Each literal is read on first use."""
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
    """Returns the bytes outside the literals."""
    if not literals:
        return data[:]
    ends = [at + literal.nbytes for at, literal in literals.items()]
    return b"".join(data[a:b] for a, b in zip([0, *ends], [*literals, len(data)], strict=True))


def _spans(data: mmap.mmap, size: int, fill: Callable[[int, int], None]) -> Iterator[tuple[int, int]]:
    """Yields the start and end of the bytes of each long literal, in order. Raises Damaged."""
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
    return Literal(*_bytes(read, start, end), end - start, partial(_bytes, again, start, end))


def _bytes(read: Read, start: int, end: int) -> Found:
    data = LiteralBytes(end - start)

    def copy(chunk: bytes, to: np.ndarray) -> bool:
        if len(chunk) != to.size:
            raise OSError(errno.ESTALE, "the program's file has become shorter")
        to[:] = np.frombuffer(chunk, np.uint8)
        return True

    for at in range(start, end, CHUNK):
        stop = min(at + CHUNK, end)
        data.fill(at - start, stop - at, partial(copy, read(at, stop)))
    return Found(data, data.finish())
