"""Anonymous memory that several processes map: it is freed when the last process unmaps it."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile

import numpy as np

PAGE = mmap.PAGESIZE


class Segment:
    """Memory of whole pages, initially zero. Only pages in use take room."""

    def __init__(self, nbytes: int, fd: int | None = None) -> None:
        """Creates it, or maps memory that another process has created. Raises MemoryError if there is no room."""
        self.nbytes = -(-max(1, nbytes) // PAGE) * PAGE
        self.fd = -1 if fd is None else fd
        try:
            if fd is None:
                self.fd = _nameless()
                os.ftruncate(self.fd, self.nbytes)
            self._map = mmap.mmap(self.fd, self.nbytes)
        except (OSError, OverflowError, ValueError) as error:
            self.close_file()
            raise MemoryError(f"cannot share {self.nbytes} bytes with other processes: {error}") from None
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def close_file(self) -> None:
        """Closes the file: no other process can map it any more; existing mappings stay."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def view(self, offset: int, nbytes: int) -> np.ndarray:
        """Returns u8[nbytes] of the memory, which lives at least as long."""
        return np.frombuffer(self._map, np.uint8, nbytes, offset)

    def __contains__(self, address: int) -> bool:
        return self.address <= address < self.address + self.nbytes


def _nameless() -> int:
    """Returns an empty file without a name, in memory if the system supports that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("shlo_jit", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
