"""Data caches of a CPU, and thresholds that are shares of a cache.

    LINE_BUFFER_BYTES = L2 / 2          half of the second-level cache of a core
    caches.bytes_of(LINE_BUFFER_BYTES)  its bytes on one CPU

The size of a cache decides where data is and how work is divided, never the order in which a sum is added. So results
have the same bits whatever the sizes are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

NAMES = {"l1": "first-level", "l2": "second-level", "last_level": "last-level"}


@dataclass(frozen=True, slots=True)
class Share:
    """A fraction of the bytes of a cache."""

    level: str
    """A field of `Caches`."""
    parts: int = 1
    of: int = 1
    least: int = 0
    """Minimum bytes, however small the cache is."""

    def __mul__(self, factor: int) -> Share:
        return replace(self, parts=self.parts * factor, least=self.least * factor)

    def __truediv__(self, divisor: int) -> Share:
        return replace(self, of=self.of * divisor, least=self.least // divisor)

    def at_least(self, nbytes: int) -> Share:
        """Returns the share with a minimum."""
        return replace(self, least=nbytes)

    def __str__(self) -> str:
        least = f", at least {self.least:,} bytes" if self.least else ""
        times = f"{self.parts} times " if self.of == 1 else f"{self.parts}/{self.of} of "
        return f"{'' if self.parts == self.of else times}the {NAMES[self.level]} cache{least}"


L1, L2, LAST_LEVEL = Share("l1"), Share("l2"), Share("last_level")


class Caches(NamedTuple):
    """Sizes in bytes of the data caches that code is tuned for."""

    l1: int
    """First-level data cache of a core."""
    l2: int
    """Second-level cache of a core: its part, if several cores share one."""
    last_level: int
    """The cache before memory: all of it, although several cores share it."""
    cores: int = 1
    """Number of cores that share the last-level cache."""
    line: int = 64
    """A cache line."""

    @property
    def identity(self) -> tuple[int, int, int]:
        """The sizes that thresholds are shares of, and which therefore affect code."""
        return self.l1, self.l2, self.last_level

    @property
    def core_share(self) -> int:
        """The bytes of the last-level cache for each core that shares it."""
        return self.last_level // max(1, self.cores)

    def bytes_of(self, size: Share | int) -> int:
        """Returns the bytes that a threshold is on this CPU. A number of bytes is the same on every CPU."""
        if isinstance(size, int):
            return size
        return max(size.least, getattr(self, size.level) * size.parts // size.of)


PLAIN = Caches(l1=32 << 10, l2=512 << 10, last_level=16 << 20, cores=8)
"""A CPU of which only the architecture is known. Most cores of servers and laptops of the last ten years have at least
these sizes."""
