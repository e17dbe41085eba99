"""Memory for large results and arenas: blocks that are reused, because the first touch of fresh memory is slow.

A page fault costs more than most kernels (0.5-1 ms per MiB here). A result of POOLED_BYTES or more is an ndarray over
a pooled block; when the last array that refers to the block dies, a `Lease` gives the block back. Smaller results come
from `np.empty`: the C library's heap recycles those about as well (64 KiB: 0.2 us over a fill of 1.3 us).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import threading
from collections import deque

import numpy as np

POOLED_BYTES = 64 << 10
"""Results from this size on come from the pool. Below, the ~1 us a lease costs is more than aligned memory gains."""
HUGE_PAGE = 2 << 20
ALIGNMENT = 64


def block_size(nbytes: int) -> int:
    """The size class of a request: at most a quarter above it, in four steps a doubling."""
    if nbytes <= POOLED_BYTES:
        return POOLED_BYTES
    step = 1 << ((nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step


class BlockPool:
    """Blocks of memory, page-aligned (2 MiB-aligned from that size on). Safe to use from any thread and from
    finalizers, which may run at any point of a thread that is inside the pool."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Bytes of idle blocks kept; what is beyond goes back to the system."""
        self.idle_bytes = 0
        self.mapped_bytes = 0
        self._lock = threading.Lock()
        self._idle: dict[int, list[int]] = {}
        """Size class -> addresses; classes in order of last use."""
        self._mappings: dict[int, mmap.mmap] = {}
        self._returned: deque[tuple[int, int]] = deque()
        """Blocks given back (size, address), not yet sorted in."""

    def take(self, size: int) -> int:
        """Address of a block; `size` is a value of `block_size`. Contents are undefined. Raises MemoryError."""
        with self._lock:
            self._sort_in()
            addresses = self._idle.get(size)
            if addresses:
                self.idle_bytes -= size
                return addresses.pop()
        return self._map(size)

    def give(self, size: int, address: int) -> None:
        """Take a block back. Called by finalizers: it never waits for the lock."""
        self._returned.append((size, address))
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._sort_in()
            finally:
                self._lock.release()

    def _sort_in(self) -> None:
        """Move returned blocks to the idle ones, and drop the least recently used sizes beyond the limit."""
        returned, idle = self._returned, self._idle
        while returned:
            size, address = returned.popleft()
            addresses = idle.pop(size, None) or []
            addresses.append(address)
            idle[size] = addresses
            self.idle_bytes += size
        while self.idle_bytes > self.limit:
            size = next(s for s, addresses in idle.items() if addresses)
            self._unmap(size, idle[size].pop(0))

    def _unmap(self, size: int, address: int) -> None:
        self.idle_bytes -= size
        self.mapped_bytes -= size
        self._mappings.pop(address).close()

    def _map(self, size: int) -> int:
        huge = size >= HUGE_PAGE
        slack = HUGE_PAGE if huge else 0
        try:
            mapping = mmap.mmap(-1, size + slack, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"cannot allocate {size} bytes: {error.strerror}") from None
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        if huge:
            mapping.madvise(mmap.MADV_HUGEPAGE)
            address = -(-address // HUGE_PAGE) * HUGE_PAGE
        with self._lock:
            self._mappings[address] = mapping
            self.mapped_bytes += size
        return address

    def clear(self) -> None:
        """Give all idle blocks back to the system."""
        with self._lock:
            self._sort_in()
            for size, addresses in self._idle.items():
                while addresses:
                    self._unmap(size, addresses.pop())


def _default_limit() -> int:
    text = os.environ.get("SHLO_JIT_POOL_BYTES", "")
    if text.isdigit():
        return int(text)
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(256 << 20, physical // 8)


POOL = BlockPool(_default_limit())
"""The process's pool."""


class _Lease(ctypes.Array):
    """A buffer over a pooled block that gives the block back when it dies. One subclass for each size class."""

    _type_ = ctypes.c_char
    _length_ = 0

    def __del__(self, give=POOL.give, address=ctypes.addressof) -> None:
        give(self._length_, address(self))


@functools.lru_cache(maxsize=None)
def _lease_type(size: int) -> type[_Lease]:
    return type("Lease", (_Lease,), {"_length_": size})


def lease(nbytes: int) -> _Lease:
    """A buffer of at least `nbytes` bytes from the pool, its own for as long as it is referenced."""
    size = block_size(nbytes)
    return _lease_type(size).from_address(POOL.take(size))


def empty(shape: tuple[int, ...], dtype: np.dtype, nbytes: int) -> np.ndarray:
    """An uninitialized array (`nbytes` is its size), from the pool when it is large."""
    if nbytes < POOLED_BYTES:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, lease(nbytes))
