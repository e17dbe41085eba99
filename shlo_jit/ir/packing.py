"""Elements of 2 or 4 bits packed in bytes, in order, the first in the low bits; and back to a byte per element."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shlo_jit.ir.aligned import empty
from shlo_jit.ir.dtypes import DType, packed_bytes

CHUNK = 1 << 22
"""Elements that are packed or unpacked at a time: temporary arrays stay small."""


def pack(elements: np.ndarray, bits: int) -> np.ndarray:
    """Returns u8[n], aligned: the low bits of the bytes of an array, packed. The bits after the last element are
    zero."""
    flat = elements.reshape(-1).view(np.uint8)
    packed = empty(packed_bytes(flat.size, bits))
    for at, part in _parts(flat, CHUNK):
        pack_into(packed[at * bits // 8 :], part, bits)
    return packed


def pack_into(target: np.ndarray, elements: np.ndarray, bits: int) -> None:
    """Packs the low bits of some bytes from the first byte of `target` on."""
    per = 8 // bits
    padded = np.zeros(-(-elements.size // per) * per, np.uint8)
    np.bitwise_and(elements, (1 << bits) - 1, out=padded[: elements.size])
    found = target[: padded.size // per]
    found[:] = padded[::per]
    for k in range(1, per):
        found |= padded[k::per] << (bits * k)


def unpack(packed: np.ndarray, dtype: DType, size: int) -> np.ndarray:
    """Returns `size` elements, a byte each, from the first of the packed ones on. The bits above each are zero."""
    elements = empty(size)
    for at, part in _parts(elements, CHUNK):
        unpack_into(part, packed[at * dtype.bits // 8 :], dtype.bits)
    return elements.view(dtype.numpy)


def unpack_into(target: np.ndarray, packed: np.ndarray, bits: int) -> None:
    """Fills bytes with the first packed elements."""
    per = 8 // bits
    for k in range(min(per, target.size)):
        part = target[k::per]
        np.right_shift(packed[: part.size], bits * k, out=part)
        part &= (1 << bits) - 1


def _parts(flat: np.ndarray, each: int) -> Iterator[tuple[int, np.ndarray]]:
    for at in range(0, flat.size, each):
        yield at, flat[at : at + each]
