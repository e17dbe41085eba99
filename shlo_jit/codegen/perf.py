"""Names for perf: `SHLO_JIT_PERF=1` writes the addresses of the functions of loaded code to the file that perf reads,
`/tmp/perf-PID.map`, one per line:

    START SIZE NAME         in hexadecimal, without 0x

Other compilers in the process may append to the same file, as CPython does. Unloaded code stays in the file.
"""

from __future__ import annotations

import os
import stat
import threading
import time
import warnings
from collections.abc import Sequence

FOLDER = "/tmp"
"""Folder in which perf looks; it reads no environment variable."""
PREFIX = "shlo_jit:"
"""Prefix of the names in a report."""

_lock = threading.Lock()


def _after_fork() -> None:
    """Replaces the lock: another thread may have held it, and that thread does not exist in the child."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def path() -> str:
    """The file of this process."""
    return os.path.join(FOLDER, f"perf-{os.getpid()}.map")


def note(functions: Sequence[tuple[str, int, int]]) -> None:
    """Appends name, address and size in bytes of functions. Leaves a file that is not exclusively ours unchanged, with
    a warning."""
    lines = "".join(f"{address:x} {size:x} {PREFIX}{name}\n" for name, address, size in functions if size)
    with _lock:
        try:
            file = os.open(path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError as error:  # a link that another user left there, or no folder
            _warn(str(error))
            return
        with os.fdopen(file, "wb") as stream:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
                _warn(f"{path()} is not a regular file of this user alone")
                return
            os.fchmod(file, 0o600)
            if status.st_mtime < _start_of_process():
                os.ftruncate(file, 0)  # an earlier process had our number
            stream.write(lines.encode())


def _warn(why: str) -> None:
    warnings.warn(f"shlo_jit: no names for perf: {why}", RuntimeWarning, stacklevel=4)


def _start_of_process() -> float:
    """Start of this process, in seconds since 1970."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age
