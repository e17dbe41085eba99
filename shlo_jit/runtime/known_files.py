"""What is left of the programs in files once their long literals are cut out, kept in the object cache: a program whose
file is as it was needs no look at its literals, whose digests are known.

A file is known by its place, size and times, as `make` and `git` do. A literal that somebody asks for all the same is
read, and held against its digest (`text/literals.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from shlo_jit import tuning
from shlo_jit.runtime.cache import ObjectCache, file_key

SETTLED_SECONDS = 2.0
"""A file that was changed less than so long ago may be changed again without its times telling."""
TEXT, ARTIFACT = "text", "artifact"
"""Kinds of programs."""


def find(status: os.stat_result, name: str, kind: str, cache: ObjectCache) -> tuple[Mapping[str, Any], bytes] | None:
    """What was noted of a file of this kind, and what is left of its program; None where it is not known."""
    if status.st_size < tuning.KNOWN_FILE_BYTES:
        return None

    def decode(header: Mapping[str, Any], blobs: Sequence[memoryview]) -> tuple[Mapping[str, Any], bytes]:
        if header["kind"] != kind:
            raise ValueError(f"not {kind}")
        (left,) = blobs
        return header, bytes(left)

    return cache.read(_key(status, name), decode)


def note(
    before: os.stat_result,
    after: os.stat_result,
    name: str,
    kind: str,
    noted: Mapping[str, Any],
    left: bytes,
    cache: ObjectCache,
) -> None:
    """Keep what was made of a file's program between two looks at its times."""
    changed = max(after.st_mtime, after.st_ctime)
    if after.st_size < tuning.KNOWN_FILE_BYTES or _times(before) != _times(after):
        return
    if time.time() - changed >= SETTLED_SECONDS:
        cache.store(_key(after, name), {"kind": kind, **noted}, [left])


def _times(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _key(status: os.stat_result, name: str) -> str:
    return file_key(f"{_times(status)} ".encode() + os.fsencode(os.path.abspath(name)))
