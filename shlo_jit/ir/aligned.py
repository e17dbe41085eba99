"""Memory for constants where programs want them, so that nobody has to copy them there."""

from __future__ import annotations

import mmap

import numpy as np

from shlo_jit.ir.digests import seal

ALIGNMENT = 64
"""Bytes."""
MAPPED_BYTES = 1 << 18
"""Of what is a mapping. Chosen: far more than a page."""


def empty(nbytes: int) -> np.ndarray:
    """u8[nbytes] at a multiple of ALIGNMENT. What is large is a mapping of its own, so that the system has it back when
    it is given up, whichever thread asked for it."""
    if nbytes >= MAPPED_BYTES:
        return np.frombuffer(mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    whole = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -whole.__array_interface__["data"][0] % ALIGNMENT
    return whole[start : start + nbytes]


def is_aligned(blob: bytes | memoryview) -> bool:
    return np.frombuffer(blob, np.uint8).__array_interface__["data"][0] % ALIGNMENT == 0


def placed(array: np.ndarray) -> np.ndarray:
    """A contiguous array as bytes where programs want them, read-only."""
    return copied(array.reshape(-1).view(np.uint8).data)


def copied(blob: bytes | memoryview) -> np.ndarray:
    """The bytes there, read-only."""
    data = empty(len(blob))
    data[:] = np.frombuffer(blob, np.uint8)
    seal(data)
    return data
