"""Temporary files of the object cache, which become entries when they are whole.

A process that writes one holds a lock (`flock`) on it. The system lets go of that when the process dies, so a file
whose lock is free was abandoned. Where a file system has no locks, an hour without a change says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import threading
import time
from io import BufferedWriter
from pathlib import Path

ABANDONED_SECONDS = 3600.0
"""Age of a file that nobody writes any more, where there are no locks."""
TRIES = 3
"""How often a file is made anew that somebody has deleted before it was locked."""


def create(path: Path) -> tuple[BufferedWriter, Path]:
    """A new file beside the one that it is to become, locked, and its name. Raises OSError."""
    for _ in range(TRIES - 1):
        file, name = _create(path)
        with contextlib.suppress(BlockingIOError):
            if _lock(file.fileno()) is None or os.fstat(file.fileno()).st_nlink:
                return file, name
        file.close()
    return _create(path)


def _create(path: Path) -> tuple[BufferedWriter, Path]:
    name = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.{random.getrandbits(32):08x}")
    return open(name, "xb", opener=_open_private), name


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _lock(file: int) -> bool | None:
    """True: it is ours now; None where there are no locks. Raises BlockingIOError where it is another's."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return None
    return True


def delete_abandoned(path: str) -> int:
    """Delete a temporary file, or the note of who is writing an entry, if nobody is writing it. Bytes that it had."""
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return 0
    try:
        status = os.fstat(file)
        if _lock(file) is None and time.time() - status.st_mtime < ABANDONED_SECONDS:
            return 0
        os.unlink(path)
    except OSError:
        return 0
    finally:
        os.close(file)
    return status.st_size
