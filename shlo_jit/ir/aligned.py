"""Aligned memory for constants, so that programs can use them without a copy."""

from __future__ import annotations

import mmap

import numpy as np

from shlo_jit.ir.digests import seal

ALIGNMENT = 64
"""Alignment of the memory, in bytes."""
MAPPED_BYTES = 1 << 18
"""Minimum size of memory that gets its own mapping. Chosen: far more than a page."""
HUGE_PAGE = 2 << 20


def empty(nbytes: int) -> np.ndarray:
    """Returns an uninitialized u8[nbytes] at a multiple of ALIGNMENT.

    Large memory is a separate mapping, so that the system gets it back when it is freed, whichever thread allocated
    it.
    """
    if nbytes >= MAPPED_BYTES:
        mapping = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if nbytes >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):  # the first touch of small pages takes longer
            mapping.madvise(mmap.MADV_HUGEPAGE)
        return np.frombuffer(mapping, np.uint8)
    whole = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -whole.__array_interface__["data"][0] % ALIGNMENT
    return whole[start : start + nbytes]


def is_aligned(blob: bytes | memoryview) -> bool:
    return np.frombuffer(blob, np.uint8).__array_interface__["data"][0] % ALIGNMENT == 0


def zeros(nbytes: int) -> np.ndarray:
    """Returns u8[nbytes] of zeros, allocated like `empty`."""
    data = empty(nbytes)
    if nbytes < MAPPED_BYTES:
        data[:] = 0
    return data


def copied(blob: bytes | memoryview) -> np.ndarray:
    """Returns a read-only aligned copy of the bytes."""
    data = empty(len(blob))
    data[:] = np.frombuffer(blob, np.uint8)
    seal(data)
    return data
