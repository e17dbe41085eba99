"""Digests of constants by content, computed once even if many programs, such as those for several shapes, read one."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Hashable

import numpy as np

MADE = "made-"

Version = Hashable
"""State of memory that may change although it is read-only to us: that of a mapped file. None for other memory."""

_found: dict[int, tuple[weakref.ref[np.ndarray], dict[tuple[int, int], tuple[str, Version]]]] = {}
"""Id of the array that owns the memory -> weak reference to it, and (address, size) -> digest and version."""
_derived: dict[str, tuple[weakref.ref[np.ndarray], int, int]] = {}
"""Identity of a derived array -> weak reference to the array that owns its memory, and its start and end there."""


def digest(data: np.ndarray) -> str:
    """Returns the SHA-256 of a contiguous array's bytes, in hexadecimal."""
    known = _known(data)
    if known is None:
        return content_digest(data)
    place = _place(data)
    if place not in known:
        known[place] = content_digest(data), None
    return known[place][0]


def known_digest(data: np.ndarray) -> tuple[str, Version] | None:
    """Returns the digest of an array that has been computed or noted before, and the version of the memory."""
    known = _known(data)
    return None if known is None else known.get(_place(data))


def note(data: np.ndarray, digest: str, version: Version = None) -> None:
    """Records the digest of an array that is no longer written to, or that of a version of a mapped file."""
    known = _known(data)
    if known is not None:
        known[_place(data)] = digest, version


def derived(source: np.ndarray, how: str, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Returns `make()`, the contiguous bytes of an array that is computed from `source`, sealed; or an existing array
    that was computed in the same way from the same bytes.

    If the digest of `source` is known, the identity of the result is computed from it and from `how`, which must
    describe the whole computation. That is faster than reading the result. If the result outlives this process, its
    identity must also include our version (see `is_derived`).
    """
    found = known_digest(source)
    if found is None:
        return sealed(make())
    identity = MADE + hashlib.sha256(f"{found[0]} {how}".encode()).hexdigest()
    existing = _existing(identity)
    if existing is not None:
        return existing
    data = sealed(make())
    note_derived(data, identity)
    return data


def note_derived(data: np.ndarray, identity: str) -> None:
    """Records a sealed array by its identity (see `derived`), so that it is not computed again while it exists."""
    note(data, identity)
    owner = _owner(data)
    start = _place(data)[0] - _place(owner)[0]
    if identity not in _derived and owner.flags.c_contiguous and not owner.flags.writeable:
        reference = weakref.ref(owner, lambda ref: _forget_derived(identity, ref))
        _derived[identity] = reference, start, start + data.nbytes


def _existing(identity: str) -> np.ndarray | None:
    entry = _derived.get(identity)
    owner = None if entry is None else entry[0]()
    if entry is None or owner is None:
        return None
    return owner.reshape(-1).view(np.uint8)[entry[1] : entry[2]]


def _forget_derived(identity: str, ref: weakref.ref[np.ndarray]) -> None:
    entry = _derived.get(identity)
    if entry is not None and entry[0] is ref:
        del _derived[identity]


def is_derived(digest: str) -> bool:
    return digest.startswith(MADE)


def sealed(data: np.ndarray) -> np.ndarray:
    """Makes an array read-only and returns it."""
    seal(data)
    return data


def seal(data: np.ndarray) -> None:
    """Makes an array read-only, and also the arrays that it is a view of."""
    view: object = data
    while isinstance(view, np.ndarray):
        view.flags.writeable = False
        view = view.base


def _known(data: np.ndarray) -> dict[tuple[int, int], tuple[str, Version]] | None:
    """Returns the known digests in the memory of an array; None if it is writable."""
    owner = _owner(data)
    if owner.flags.writeable:
        return None
    number = id(owner)
    entry = _found.get(number)
    if entry is None or entry[0]() is not owner:
        entry = _found[number] = weakref.ref(owner, lambda ref: _forget(number, ref)), {}
    return entry[1]


def _owner(data: np.ndarray) -> np.ndarray:
    """Returns the array that owns the memory of an array."""
    while isinstance(data.base, np.ndarray):
        data = data.base
    return data


def _place(data: np.ndarray) -> tuple[int, int]:
    return data.__array_interface__["data"][0], data.nbytes


def content_digest(data: np.ndarray) -> str:
    """Returns the SHA-256 of a contiguous array's bytes, which are read."""
    return hashlib.sha256(data.reshape(-1).view(np.uint8).data).hexdigest()


def _forget(number: int, ref: weakref.ref[np.ndarray]) -> None:
    entry = _found.get(number)
    if entry is not None and entry[0] is ref:
        del _found[number]
