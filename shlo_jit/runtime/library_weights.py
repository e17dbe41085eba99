"""Files of weights beside exported libraries, mapped once for all functions and instances that read them."""

from __future__ import annotations

import mmap
import os
from weakref import WeakValueDictionary

import numpy as np

from shlo_jit.codegen.library_format import WEIGHTS_HEADER
from shlo_jit.runtime.layout import data_address
from shlo_jit.runtime.mapped_files import FileStatus


class MappedWeights:
    """A file of weights in memory, mapped as long as this is referenced."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.data = np.frombuffer(memory, np.uint8)
        self.address = data_address(self.data)


_mapped: WeakValueDictionary[FileStatus, MappedWeights] = WeakValueDictionary()
"""Files in memory. A file that was replaced or changed has another status."""


def mapped_weights(path: str, nbytes: int) -> MappedWeights | None:
    """Returns a file with `nbytes` bytes of weights in memory; the same object for the same file.

    None if it cannot be read or has another size: then the library says what is wrong with it. The library compares the
    file's header with its own in any case.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            status = FileStatus.of(os.path.abspath(path), os.fstat(file.fileno()))
            found = _mapped.get(status)
            if found is not None:
                return found
            if status.times[0] != WEIGHTS_HEADER.size + nbytes:
                return None
            return _mapped.setdefault(status, MappedWeights(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
    except (OSError, ValueError):
        return None
