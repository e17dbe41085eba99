"""Claims of entries that are being written. Large entries of the object cache take a second and more to write. The
writing process claims the key meanwhile. Others that look for the entry wait for it instead of compiling and writing
the same.

A claim is a lock (`flock`) on a file next to the entry; the system releases it when the process dies. It only saves
work: an entry is equally safe without one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from shlo_jit import tuning
from shlo_jit.runtime.cache import ObjectCache

POLL_SECONDS = 0.01
"""Interval between two attempts to lock: `flock` has no timeout."""


class Claim:
    """Marks an entry as being written by this process until `release`, which any thread may call."""

    def __init__(self, file: int, path: str) -> None:
        self._file, self._path = file, path

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        # Closing is not enough: a child of fork may have the file open, too.
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_UN)
        os.close(self._file)


def claim(key: str, cache: ObjectCache) -> Claim | None:
    """Claims a key. Returns None if another process is writing the entry, or the cache cannot be written."""
    path = cache.claim_path(key)
    try:
        cache.make_folder()
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError:
        return None
    if _locked(file):
        return Claim(file, path)
    os.close(file)
    return None


def wait_for_others(key: str, cache: ObjectCache) -> bool:
    """Whether another process was writing the entry. It no longer is, or `tuning.CACHE_WAIT_SECONDS` have passed."""
    path = cache.claim_path(key)
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if _locked(file):  # a process died while it was writing
            os.unlink(path)
            return False
        end = time.monotonic() + tuning.CACHE_WAIT_SECONDS
        while not _locked(file) and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def _locked(file: int) -> bool:
    """Takes the lock. Returns whether it was free. On a file system without locks, there is no process to wait for."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
