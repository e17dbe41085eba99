"""Memory for large results and arenas: blocks that are reused, because the first touch of fresh memory is slow.

A page fault costs more than most kernels (0.5-1 ms per MiB here). A result of POOLED_BYTES or more is an ndarray over a
pooled block. When the last array that refers to the block dies, a `Lease` returns the block. Smaller results come from
`np.empty`: the C library's heap reuses those as well (64 KiB: 0.2 us over a fill of 1.3 us).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np

from shlo_jit import environment

VARIABLE = "SHLO_JIT_POOL_BYTES"
POOLED_BYTES = 128 << 10
"""Minimum size of results from the pool. Below, the ~1 us of a lease costs more than aligned memory gains."""
CHECKED_BYTES = 256 << 20
"""Minimum size of blocks that are checked against the machine's available memory: the system would promise a larger
one, and end the process when it is used."""
SMALLEST_BLOCK = 16 << 10
"""Smallest block of an arena; a multiple of four pages, so that all sizes are multiples of a page."""
HUGE_PAGE = 2 << 20
ALIGNMENT = 64


def block_size(nbytes: int) -> int:
    """Returns the size class of a request: at most a quarter above it, in four steps per doubling."""
    if nbytes <= SMALLEST_BLOCK:
        return SMALLEST_BLOCK
    step = 1 << ((nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step


def available_bytes() -> int | None:
    """Returns the memory that the system can provide without taking it from other processes, including swap; None if it
    does not report this. In a container with a limit, returns the rest of the limit."""
    meminfo = _numbers("/proc/meminfo")
    if "MemAvailable:" not in meminfo:
        return None
    found = [(meminfo["MemAvailable:"] + meminfo.get("SwapFree:", 0)) << 10]
    for folder, limit, usage in (("", "memory.max", "memory.current"),
                                 ("memory/", "memory.limit_in_bytes", "memory.usage_in_bytes")):  # fmt: skip
        try:
            numbers = [int(Path(f"/sys/fs/cgroup/{folder}{name}").read_text()) for name in (limit, usage)]
        except (OSError, ValueError):  # no such file; "max"
            continue
        stat = _numbers(f"/sys/fs/cgroup/{folder}memory.stat")
        cached = stat.get("inactive_file", 0) + stat.get("active_file", 0)
        found.append(numbers[0] - numbers[1] + cached)
    return max(0, min(found))


def _numbers(path: str) -> dict[str, int]:
    """Parses the lines `word number ...` of a file of the system."""
    try:
        lines = [line.split() for line in Path(path).read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}


class BlockPool:
    """Blocks of memory, page-aligned (from 2 MiB on, aligned to 2 MiB).

    Safe to use from any thread, and from finalizers, which may run at any point of a thread that is inside the pool: a
    block is taken and returned by one `deque` operation, which nothing can interrupt. The lock is for mapping and
    unmapping memory only, and a finalizer does not wait for it.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None:
            self.limit = limit
        self.mapped_bytes = 0
        """Total size of all blocks, idle or not."""
        self._lock = threading.Lock()
        self._idle: dict[int, deque[int]] = {}
        """Addresses by size class, the most recently used ones on the right."""
        self._mappings: dict[int, mmap.mmap] = {}

    @functools.cached_property
    def limit(self) -> int:
        """Bytes of idle blocks that are kept; the excess goes back to the system. Raises ValueError if the environment
        sets an invalid size."""
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return environment.size(os.environ.get(VARIABLE, ""), VARIABLE, max(256 << 20, physical // 8))

    @property
    def idle_bytes(self) -> int:
        return sum(size * len(addresses) for size, addresses in list(self._idle.items()))

    def idle(self, size: int, empty: type[deque[int]] = deque) -> deque[int]:
        """Returns the idle blocks of a size class. (Globals are gone when the last arrays die with the interpreter.)"""
        return self._idle.setdefault(size, empty())

    def take(self, size: int) -> int:
        """Returns the address of a block; `size` is a value of `block_size`. Contents are undefined. Raises
        MemoryError."""
        try:
            return self.idle(size).pop()
        except IndexError:
            return self._map(size)

    def give(self, size: int, address: int) -> None:
        """Puts a block back."""
        self.idle(size).append(address)
        if self.mapped_bytes > self.limit:
            self.trim(self.limit)

    def trim(self, limit: int) -> None:
        """Returns idle blocks to the system until `limit` bytes of them are left; first those of the size class with
        the most. Does nothing if another thread is doing so."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            while self.idle_bytes > limit:
                size, addresses = max(list(self._idle.items()), key=lambda item: item[0] * len(item[1]))
                try:
                    mapping = self._mappings.pop(addresses.popleft())
                except IndexError:  # taken meanwhile
                    continue
                self.mapped_bytes -= size
                mapping.close()
        finally:
            self._lock.release()

    def _map(self, size: int) -> int:
        if size >= CHECKED_BYTES:
            self._check_available(size)
        huge = size >= HUGE_PAGE
        slack = HUGE_PAGE if huge else 0
        try:
            mapping = mmap.mmap(-1, size + slack, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"cannot allocate {size} bytes: {error}") from None
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        if huge:
            mapping.madvise(mmap.MADV_HUGEPAGE)
            address = -(-address // HUGE_PAGE) * HUGE_PAGE
        with self._lock:
            self._mappings[address] = mapping
            self.mapped_bytes += size
        return address

    def _check_available(self, size: int) -> None:
        available = available_bytes()
        if available is not None and size > available:
            self.clear()
            available = available_bytes() or 0
            if size > available:
                raise MemoryError(f"cannot allocate {size} bytes: {available} bytes of memory are available")

    def clear(self) -> None:
        """Returns all idle blocks to the system."""
        self.trim(0)


POOL = BlockPool()
"""The process's pool."""


def _after_fork() -> None:
    """Replaces the lock: another thread may have held it, and does not exist in the child."""
    POOL._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class Lease(ctypes.Array):
    """A buffer over a pooled block that returns the block when it dies. One subclass for each size class."""

    _type_ = ctypes.c_char  # type: ignore[assignment]
    _length_ = 0  # type: ignore[assignment]

    def __del__(self, give=POOL.give, address=ctypes.addressof) -> None:
        give(self._length_, address(self))


@functools.cache
def _lease_type(size: int) -> type[Lease]:
    return type("Lease", (Lease,), {"_length_": size})


def lease(nbytes: int) -> Lease:
    """Returns a buffer of at least `nbytes` bytes from the pool, valid as long as it is referenced."""
    size = block_size(nbytes)
    return _lease_type(size).from_address(POOL.take(size))


def empty(shape: tuple[int, ...], dtype: np.dtype, nbytes: int) -> np.ndarray:
    """Returns an uninitialized array (`nbytes` is its size), from the pool if it is large."""
    if nbytes < POOLED_BYTES:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, lease(nbytes))  # type: ignore[arg-type]  ctypes arrays are buffers


def maker(shape: tuple[int, ...], dtype: np.dtype, nbytes: int) -> Callable[[], np.ndarray]:
    """Returns a fast version of `empty` for one kind of large array."""
    size = block_size(nbytes)
    take, from_address, new = POOL.take, _lease_type(size).from_address, np.ndarray
    return lambda: new(shape, dtype, from_address(take(size)))  # type: ignore[arg-type]
