"""Memory for constants where programs want them, so that nobody has to copy them there."""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.digests import seal

ALIGNMENT = 64
"""Bytes."""


def empty(nbytes: int) -> np.ndarray:
    """u8[nbytes] at a multiple of ALIGNMENT; its owner is `base`."""
    whole = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -whole.__array_interface__["data"][0] % ALIGNMENT
    return whole[start : start + nbytes]


def is_aligned(blob: bytes | memoryview) -> bool:
    return np.frombuffer(blob, np.uint8).__array_interface__["data"][0] % ALIGNMENT == 0


def copied(blob: bytes | memoryview) -> np.ndarray:
    """The bytes there, read-only."""
    data = empty(len(blob))
    data[:] = np.frombuffer(blob, np.uint8)
    seal(data)
    return data
