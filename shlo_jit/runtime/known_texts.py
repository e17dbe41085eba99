"""What is left of the texts in files once their long literals are cut out, kept in the object cache: a program whose
file is as it was needs no look at its literals, whose digests are known.

A file is known by its place, size and times, as `make` and `git` do. A literal that somebody asks for all the same is
read, and held against its digest (`text/literals.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from shlo_jit import tuning
from shlo_jit.runtime.cache import ObjectCache, file_key
from shlo_jit.text.literals import Cut, Literal

SETTLED_SECONDS = 2.0
"""A file that was changed less than so long ago may be changed again without its times telling."""

Read = Callable[[int, int], np.ndarray]
"""As `Characters.again`."""


def find(status: os.stat_result, name: str, again: Read, cache: ObjectCache) -> tuple[bytes, tuple[Cut, ...]] | None:
    """As `text.literals.cut_bytes` of the file's text; None where it is not known. Literals are not read yet."""
    if status.st_size < tuning.KNOWN_TEXT_BYTES:
        return None

    def decode(header: Mapping[str, Any], blobs: Sequence[memoryview]) -> tuple[bytes, tuple[Cut, ...]]:
        if header["kind"] != "text":
            raise ValueError("not a text")
        (left,) = blobs
        return bytes(left), tuple(_cut(again, *row) for row in header["cuts"])

    return cache.read(_key(status, name), decode)


def _cut(again: Read, at: int, start: int, digest: str, nbytes: int) -> Cut:
    return Cut(at, Literal(None, digest, nbytes, partial(again, start, start + 2 * nbytes)), start)


def note(
    before: os.stat_result, after: os.stat_result, name: str, left: bytes, cuts: Sequence[Cut], cache: ObjectCache
) -> None:
    """Keep what was made of a file's text between two looks at its times."""
    changed = max(after.st_mtime, after.st_ctime)
    if after.st_size < tuning.KNOWN_TEXT_BYTES or _times(before) != _times(after):
        return
    if not cuts or time.time() - changed < SETTLED_SECONDS:
        return
    rows = [(c.at, c.start, c.literal.digest, c.literal.nbytes) for c in cuts]
    cache.store(_key(after, name), {"kind": "text", "cuts": rows}, [left])


def _times(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _key(status: os.stat_result, name: str) -> str:
    return file_key(f"{_times(status)} ".encode() + os.fsencode(os.path.abspath(name)))
