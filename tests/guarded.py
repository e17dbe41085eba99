"""Arrays with an inaccessible page right before or right after them: touching one byte outside ends the process."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_keep: list[mmap.mmap] = []


def guarded(array: np.ndarray, at_end: bool) -> np.ndarray:
    """A copy that ends right before a guard page, or begins right after one."""
    array = np.asarray(array)
    pages = -(-max(1, array.nbytes) // PAGE)
    block = mmap.mmap(-1, (pages + 2) * PAGE)
    _keep.append(block)
    base = ctypes.addressof(ctypes.c_char.from_buffer(block))
    for page in (0, pages + 1):
        if _libc.mprotect(base + page * PAGE, PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    start = PAGE + (pages * PAGE - array.nbytes if at_end else 0)
    copy = np.frombuffer(block, array.dtype, array.size, start).reshape(array.shape)
    copy[...] = array
    return copy
