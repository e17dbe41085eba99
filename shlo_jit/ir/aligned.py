"""Memory for constants where programs want them, so that nobody has to copy them there."""

from __future__ import annotations

import mmap

import numpy as np

from shlo_jit.ir.digests import seal

ALIGNMENT = 64
"""Bytes."""
MAPPED_BYTES = 1 << 18
"""Of what is a mapping. Chosen: far more than a page."""
HUGE_PAGE = 2 << 20


def empty(nbytes: int) -> np.ndarray:
    """u8[nbytes] at a multiple of ALIGNMENT. What is large is a mapping of its own, so that the system has it back when
    it is given up, whichever thread asked for it."""
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
    """As `empty`, of zeros."""
    data = empty(nbytes)
    if nbytes < MAPPED_BYTES:
        data[:] = 0
    return data


def copied(blob: bytes | memoryview) -> np.ndarray:
    """The bytes there, read-only."""
    data = empty(len(blob))
    data[:] = np.frombuffer(blob, np.uint8)
    seal(data)
    return data
