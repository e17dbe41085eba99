"""The bytes of a long literal, while it is read and afterwards. Small numbers are kept packed.

The elements of types of 2 and 4 bits take a byte each in a literal. They are packed as they are read, when their type
is not known yet: bytes whose high bits are all zero are kept without these, whatever they mean. Other literals are
recognized by their first part, and are read into their final place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from shlo_jit import tuning
from shlo_jit.ir import aligned, digests
from shlo_jit.ir.dtypes import packed_bytes
from shlo_jit.ir.packing import CHUNK, pack_into, unpack_into

WIDTHS = (2, 4, 8)
"""Numbers of low bits of each byte that are kept."""


class LiteralBytes:
    """Bytes that are filled from the first to the last, in parts of which all but the last are a multiple of four."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.bits = 8 if nbytes < tuning.NARROW_LITERAL_BYTES else WIDTHS[0]
        """Low bits of each byte that are kept. The others are zero."""
        self._kept = aligned.empty(packed_bytes(nbytes, self.bits))
        self._digest = hashlib.sha256()

    def fill(self, at: int, count: int, read: Callable[[np.ndarray], bool]) -> bool:
        """Lets `read` fill the next bytes. Returns what it returns."""
        part = self._kept[at : at + count] if self.bits == 8 else np.empty(count, np.uint8)
        if not read(part):
            return False
        self._digest.update(part.data)
        if self.bits < 8:
            self._keep(at, part)
        return True

    def _keep(self, at: int, part: np.ndarray) -> None:
        largest = int(part.max(initial=0))
        needed = next(bits for bits in WIDTHS if largest < 1 << bits)
        if needed > self.bits:
            self._kept, self.bits = self._with_bits(needed, at), needed
        if self.bits == 8:
            self._kept[at : at + part.size] = part
        else:
            pack_into(self._kept[at * self.bits // 8 :], part, self.bits)

    def finish(self) -> str:
        """Seals the bytes, which are complete. Returns their SHA-256 in hexadecimal."""
        digests.seal(self._kept)
        found = self._digest.hexdigest()
        if self.bits == 8:
            digests.note(self._kept, found)
        return found

    def widen(self, digest: str) -> None:
        """Keeps whole bytes from now on; `digest` is that of `finish`."""
        self._kept, self.bits = self.packed(8), 8
        digests.note(self._kept, digest)

    def packed(self, bits: int) -> np.ndarray:
        """Returns the low bits of each byte, packed; for 8 bits, the bytes."""
        return self._kept if bits == self.bits else digests.sealed(self._with_bits(bits, self.nbytes))

    def _with_bits(self, bits: int, filled: int) -> np.ndarray:
        """Returns new memory with other bits per byte, in which the first bytes are `filled`."""
        found = aligned.empty(packed_bytes(self.nbytes, bits))
        for at in range(0, filled, CHUNK):
            part = self._kept[at : at + min(CHUNK, filled - at)]
            if self.bits < 8:
                part = np.empty(min(CHUNK, filled - at), np.uint8)
                unpack_into(part, self._kept[at * self.bits // 8 :], self.bits)
            if bits == 8:
                found[at : at + part.size] = part
            else:
                pack_into(found[at * bits // 8 :], part, bits)
        return found
