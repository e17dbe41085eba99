"""Memory that several processes map, and that no name refers to: it is gone with the last process that has it."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile

import numpy as np

PAGE = mmap.PAGESIZE


class Segment:
    """Memory of whole pages, zero at first, of which only what is used takes room."""

    def __init__(self, nbytes: int, fd: int | None = None) -> None:
        """Make it, or map what another process has made. Raises MemoryError when there is no room."""
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
        """Nobody else will map it; what is mapped stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def view(self, offset: int, nbytes: int) -> np.ndarray:
        """u8[nbytes] of the memory, which lives at least as long."""
        return np.frombuffer(self._map, np.uint8, nbytes, offset)

    def __contains__(self, address: int) -> bool:
        return self.address <= address < self.address + self.nbytes


def _nameless() -> int:
    """An empty file without a name, in memory where the system has that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("shlo_jit", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
