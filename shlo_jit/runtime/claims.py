"""Large entries of the object cache take a second and more to write. The process that does it claims the key meanwhile,
and others that look for the entry wait for that one instead of compiling, and writing, the same again.

A claim is a lock (`flock`) on a file beside the entry; the system lets go of it when the process dies. It only saves
work: an entry is as safe without.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from shlo_jit import tuning
from shlo_jit.runtime.cache import ObjectCache

POLL_SECONDS = 0.01
"""Between two looks at a lock: there is no way to wait for one with an end."""


class Claim:
    """That this process is writing an entry, until `release`, which any thread may call."""

    def __init__(self, file: int, path: str) -> None:
        self._file, self._path = file, path

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        # Not left to closing: a child of fork may have the file open, too.
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_UN)
        os.close(self._file)


def claim(key: str, cache: ObjectCache) -> Claim | None:
    """None where another process is writing the entry, or the cache cannot be written."""
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
    """Whether another process was writing the entry. It no longer is, or `tuning.CACHE_WAIT_SECONDS` are over."""
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
    """Whether the lock was free. It is ours now. A file system without locks has nobody who can be waited for."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
