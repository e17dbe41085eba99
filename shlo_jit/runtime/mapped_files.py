"""Arrays in memory that is mapped from a file: whether the file may have changed, and digests that outlive a
process."""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np

from shlo_jit import tuning
from shlo_jit.runtime import known_files
from shlo_jit.runtime.cache import ObjectCache
from shlo_jit.runtime.known_files import SETTLED_SECONDS

ARRAYS = "arrays"
"""Kind of the entries about files of arrays in the object cache."""


@dataclass(frozen=True)
class FileStatus:
    """What tells that a file has not changed."""

    path: str
    inode: tuple[int, int]
    times: tuple[int, int, int]
    """Size, and times of modification and of change of status in nanoseconds."""
    status: os.stat_result = field(compare=False)

    @classmethod
    def of(cls, path: str, status: os.stat_result) -> FileStatus:
        times = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        return cls(path, (status.st_dev, status.st_ino), times, status)

    @property
    def is_settled(self) -> bool:
        """Whether another change would change the times."""
        return time.time() - max(self.times[1:]) / 1e9 >= SETTLED_SECONDS


_mapped: WeakKeyDictionary[mmap.mmap, FileStatus] = WeakKeyDictionary()
"""Files that certainly are those in the memory, when they were mapped. A path may lead to another file later."""


def views(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yields an array and the arrays that it is a view of."""
    view: object = array
    while isinstance(view, np.ndarray):
        yield view
        view = view.base


def base(array: np.ndarray) -> object:
    """Returns the object that owns the memory, if it is not an array."""
    *_, last = views(array)
    return last.base


def is_mapped(array: np.ndarray) -> bool:
    """Whether the memory is that of a file, as far as is known."""
    owner = base(array)
    if isinstance(owner, memoryview):
        owner = owner.obj
    return isinstance(owner, mmap.mmap) or any(isinstance(view, np.memmap) for view in views(array))


def file_status(array: np.ndarray) -> FileStatus | None:
    """Returns the current status of the file with the name of the one that an array is mapped from; None if the name
    is unknown or no longer exists."""
    names = [view.filename for view in views(array) if isinstance(view, np.memmap)]
    if not names or names[0] is None:
        return None
    path = os.fsdecode(os.path.abspath(os.fspath(names[0])))
    try:
        return FileStatus.of(path, os.stat(path))
    except OSError:
        return None


def note_mapped(array: np.ndarray, before: os.stat_result) -> None:
    """Records the file that an array was mapped from just now by its name. `before`: the status of a file of that name
    that was open meanwhile."""
    owner, now = base(array), file_status(array)
    if isinstance(owner, mmap.mmap) and now is not None and now.inode == (before.st_dev, before.st_ino):
        _mapped[owner] = now


class RememberedDigests:
    """Digests of arrays in files, kept in the object cache. They hold as long as the files' times do not change."""

    def __init__(self, cache: ObjectCache | None) -> None:
        self._cache = cache
        self._files: dict[FileStatus, dict[str, str]] = {}
        self._new: set[FileStatus] = set()

    def find(self, data: np.ndarray) -> str | None:
        """Returns the digest of bytes in an unchanged file, if it is known."""
        file = self._file(data)
        return None if file is None else self._known(file).get(_place(data))

    def add(self, data: np.ndarray, digest: str) -> None:
        """Takes up a digest that has just been computed."""
        file = self._file(data)
        if file is not None and self._known(file).setdefault(_place(data), digest) == digest:
            self._new.add(file)

    def forget(self, data: np.ndarray) -> None:
        """Deletes what is known of a file: it has changed, although its times have not."""
        file = self._file(data)
        if file is not None and self._cache is not None:
            known_files.forget(file.status, file.path, self._cache)

    def store(self) -> None:
        """Stores what is new in the object cache."""
        for file in self._new:
            assert self._cache is not None
            with contextlib.suppress(OSError):  # the file may be gone
                noted = {"digests": self._files[file]}
                known_files.note(file.status, os.stat(file.path), file.path, ARRAYS, noted, b"", self._cache)

    def _file(self, data: np.ndarray) -> FileStatus | None:
        """Returns the file that bytes are in if it is certainly unchanged since it was mapped. Small arrays are not
        worth remembering."""
        if data.nbytes < tuning.SHARED_CONSTANT_BYTES:
            return None
        owner = base(data)
        mapped = _mapped.get(owner) if isinstance(owner, mmap.mmap) else None
        if self._cache is None or mapped is None or not mapped.is_settled or mapped != file_status(data):
            return None
        return mapped

    def _known(self, file: FileStatus) -> dict[str, str]:
        if file not in self._files:
            assert self._cache is not None
            found = known_files.find(file.status, file.path, ARRAYS, self._cache)
            self._files[file] = {} if found is None else dict(found[0]["digests"])
        return self._files[file]


def _place(data: np.ndarray) -> str:
    """Returns the offset and the size of bytes in their file."""
    *_, whole = (view for view in views(data) if isinstance(view, np.memmap))
    offset = whole.offset + data.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return f"{offset} {data.nbytes}"
