"""Caches the programs of files without their long literals in the object cache. The literals of an unchanged file need
not be read, since their digests are known.

A file is identified by its path, size and times, as in `make` and `git`. If a literal is requested nevertheless, it is
read and verified against its digest (`text/literals.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from shlo_jit import tuning
from shlo_jit.runtime.cache import ObjectCache, file_key

SETTLED_SECONDS = 2.0
"""A file that changed more recently than this may change again without a change of its times."""
TEXT, ARTIFACT = "text", "artifact"
"""Kinds of programs."""


def find(status: os.stat_result, name: str, kind: str, cache: ObjectCache) -> tuple[Mapping[str, Any], bytes] | None:
    """Returns the data recorded for a file of this kind, and the rest of its program; None if the file is not known."""
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
    """Stores the data of a file's program, if its times did not change between `before` and `after`."""
    changed = max(after.st_mtime, after.st_ctime)
    if after.st_size < tuning.KNOWN_FILE_BYTES or _times(before) != _times(after):
        return
    if time.time() - changed >= SETTLED_SECONDS:
        cache.store(_key(after, name), {"kind": kind, **noted}, [left])


def forget(status: os.stat_result, name: str, cache: ObjectCache) -> None:
    """Deletes the data of a file."""
    cache.forget(_key(status, name))


def _times(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _key(status: os.stat_result, name: str) -> str:
    return file_key(f"{_times(status)} ".encode() + os.fsencode(os.path.abspath(name)))
