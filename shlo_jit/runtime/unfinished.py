"""Temporary files of the object cache, which become entries when they are complete.

A process that writes one holds a lock (`flock`) on it. The system releases the lock when the process dies, so a file
whose lock is free was abandoned. If a file system has no locks, a file without a change for an hour counts as
abandoned.
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
"""Age from which on an unlocked file counts as abandoned, if there are no locks."""
TRIES = 3
"""Number of attempts to create a file that another process deleted before it was locked."""


def create(path: Path) -> tuple[BufferedWriter, Path]:
    """Creates a new, locked file next to its final path. Returns the file and its name. Raises OSError."""
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
    """Locks a file. Returns True if it is ours now; None if there are no locks. Raises BlockingIOError if another
    process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return None
    return True


def delete_abandoned(path: str) -> int:
    """Deletes a temporary file, or the claim of an entry, if no process is writing it. Returns the number of bytes that
    it had."""
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
