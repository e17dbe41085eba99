"""Constants in memory. Those with a digest exist once per content, however many programs, or targets of one program,
read them, and are separate files in the object cache."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from shlo_jit import tuning
from shlo_jit.codegen.abi import ALIGNMENT
from shlo_jit.codegen.objects import Compiled, Constant, constant_entry, read_constant
from shlo_jit.forking import thread_pool
from shlo_jit.ir import aligned
from shlo_jit.ir.digests import is_derived, note_derived
from shlo_jit.runtime import placement, pool
from shlo_jit.runtime.cache import ObjectCache, constant_key
from shlo_jit.runtime.cpus import usable_cpus
from shlo_jit.runtime.layout import data_address
from shlo_jit.text.literals import Literal


class GivenBytes:
    """The bytes of an array that the caller gives as a constant, in memory that nobody changes."""

    __slots__ = ("__weakref__", "data", "digest", "nbytes")

    def __init__(self, data: np.ndarray, digest: str) -> None:
        self.data = data
        """u8[nbytes], read-only, aligned for elements of the array's type."""
        self.digest = digest
        self.nbytes = data.nbytes


class Resident:
    """A constant at an address that does not change as long as the object is referenced."""

    __slots__ = ("__weakref__", "address", "data")

    def __init__(self, data: np.ndarray, in_place: bool = False) -> None:
        """`in_place`: whether the data stay where they are, though they may be aligned for their elements only."""
        self.data = data if in_place else _aligned(data)
        self.address = data_address(self.data)
        placement.interleave(self.address, self.data.nbytes)


_residents: WeakValueDictionary[str, Resident] = WeakValueDictionary()
"""Resident constants by digest."""
_brought: dict[str, WeakSet[Literal | GivenBytes]] = {}
"""Literals in the texts of programs, and arrays given as constants, by digest. A request to the object cache for one of
these returns it."""


def bring(literals: Iterable[Literal | GivenBytes]) -> None:
    """Registers literals of a text, or given arrays, as long as they are referenced."""
    for literal in literals:
        if literal.nbytes >= tuning.SHARED_CONSTANT_BYTES:
            _brought.setdefault(literal.digest, WeakSet()).add(literal)
            weakref.finalize(literal, _forget_unless_used, literal.digest).atexit = False


def _forget_unless_used(digest: str) -> None:
    if brought(digest) is None:
        _brought.pop(digest, None)


def brought(digest: str) -> Literal | GivenBytes | None:
    """Returns a literal or an array with this digest, preferably an array, which is in memory."""
    found = [*_brought.get(digest, ())]
    return next((each for each in found if isinstance(each, GivenBytes)), found[0] if found else None)


def forget(digest: str) -> None:
    """Forgets the constant in memory: the file that it is mapped from has other bytes now."""
    _residents.pop(digest, None)
    _brought.pop(digest, None)


def resident(constant: Constant) -> Resident:
    """Returns the constant in memory: the existing one, or a new one."""
    if not constant.digest:
        return Resident(constant.data)
    found = _residents.get(constant.digest)
    if found is None:
        is_given = isinstance(brought(constant.digest), GivenBytes)
        found = _residents.setdefault(constant.digest, Resident(constant.data, is_given))
        if is_derived(constant.digest):
            note_derived(found.data, constant.digest)
    return found


def find(digest: str, cache: ObjectCache) -> np.ndarray | None:
    """Returns the bytes of a constant that is in memory or in the cache."""
    key, found = constant_key(digest), _residents.get(digest) or brought(digest)
    if found is None:
        return cache.read(key, read_constant)
    cache.touch(key)
    return found.data


def find_all(wanted: Iterable[str], cache: ObjectCache) -> dict[str, np.ndarray]:
    """Returns those of the constants that are in memory or in the cache. Most of the time goes into the first touch of
    memory and into checksums, which do not hold the GIL."""
    digests = [*dict.fromkeys(wanted)]
    threads = min(usable_cpus(), len(digests))
    if threads < 2 or sum(cache.nbytes(constant_key(digest)) for digest in digests) < tuning.THREADED_BYTES:
        found = [find(digest, cache) for digest in digests]
    else:
        with thread_pool(threads, "shlo_jit constants") as executor:
            found = [*executor.map(lambda digest: find(digest, cache), digests)]
    return {digest: data for digest, data in zip(digests, found, strict=True) if data is not None}


def to_store(compiled: Compiled) -> list[Constant]:
    """Returns a program's constants that are separate files, without those that its text or the caller's arrays
    contain."""
    return [*{c.digest: c for c in compiled.constants if c.digest and brought(c.digest) is None}.values()]


def store(shared: Sequence[Constant], cache: ObjectCache) -> bool:
    """Ensures that a cache has the constants. Returns whether it does."""
    if sum(c.data.nbytes for c in shared) > cache.limit:
        return False
    return all(_store(constant, cache) for constant in shared)


def _store(constant: Constant, cache: ObjectCache) -> bool:
    key = constant_key(constant.digest)
    if cache.has(key):
        cache.touch(key)
        return True
    return cache.store(key, *constant_entry(constant))


def _aligned(data: np.ndarray) -> np.ndarray:
    """Returns the bytes at a multiple of ALIGNMENT, as a copy if necessary."""
    if data_address(data) % ALIGNMENT == 0:
        return data
    if data.nbytes >= pool.POOLED_BYTES:
        copy = pool.empty(data.shape, data.dtype, data.nbytes)
    else:
        copy = aligned.empty(data.nbytes)
    copy[...] = data
    return copy
