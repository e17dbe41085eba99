"""Results that stay in shared memory as long as they are referenced: the caller receives them without a copy, and a
call that takes them as arguments finds them in place."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any

from shlo_jit.runtime.pool import block_size
from shlo_jit.runtime.transport.layout import Block
from shlo_jit.runtime.transport.shared import Segment


class Kept:
    """Blocks of a part of a segment. Finalizers return blocks, at any point of any thread: each step is one operation
    of a deque, which nothing can interrupt."""

    def __init__(self, segment: Segment, block: Block) -> None:
        self._start = segment.address + block.offset
        self._room = block.nbytes
        self._used = 0
        self._idle: dict[int, deque[int]] = {}
        self._types: dict[int, type[ctypes.Array[Any]]] = {}
        self._segment = segment

    def lease(self, nbytes: int) -> ctypes.Array[Any] | None:
        """Returns a buffer of at least `nbytes` bytes, valid as long as it is referenced; None if there is no room."""
        size = block_size(nbytes)
        try:
            address = self._idle.setdefault(size, deque()).pop()
        except IndexError:
            if self._used + size > self._room:
                return None
            address = self._start + self._used
            self._used += size
        return self._type(size).from_address(address)

    def _type(self, size: int) -> type[ctypes.Array[Any]]:
        if size not in self._types:
            give = self._idle[size].append

            def __del__(lease: Any, give: Any = give, address: Any = ctypes.addressof) -> None:
                give(address(lease))

            # The type refers to the segment, so the segment lives as long as any lease.
            attributes = {"_type_": ctypes.c_char, "_length_": size, "__del__": __del__, "segment": self._segment}
            self._types[size] = type("KeptLease", (ctypes.Array,), attributes)
        return self._types[size]
