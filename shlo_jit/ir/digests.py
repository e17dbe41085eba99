"""Digests of constants by content, computed once even if many programs, such as those for several shapes, read one."""

from __future__ import annotations

import hashlib
import weakref

import numpy as np

MADE = "made-"

_found: dict[int, tuple[weakref.ref[np.ndarray], dict[tuple[int, int], str]]] = {}
"""Id of the array that owns the memory -> weak reference to it, and (address, size) -> digest."""


def digest(data: np.ndarray) -> str:
    """Returns the SHA-256 of a contiguous array's bytes, in hexadecimal."""
    known = _known(data)
    if known is None:
        return _taken(data)
    place = _place(data)
    found = known.get(place)
    if found is None:
        found = known[place] = _taken(data)
    return found


def note(data: np.ndarray, digest: str) -> None:
    """Records the digest of an array that is no longer written to."""
    known = _known(data)
    if known is not None:
        known[_place(data)] = digest


def record_derived(data: np.ndarray, source: np.ndarray, how: str) -> None:
    """Records an identity for an array that was computed from `source` and is no longer written to.

    The identity is computed from the digest of `source`, if it is known, and from `how`, which must describe the whole
    computation. That is faster than reading the array. If the array outlives this process, its identity must also
    include our version (see `is_derived`).
    """
    known = _known(source)
    found = None if known is None else known.get(_place(source))
    if found is not None:
        note(data, MADE + hashlib.sha256(f"{found} {how}".encode()).hexdigest())


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


def _known(data: np.ndarray) -> dict[tuple[int, int], str] | None:
    """Returns the known digests in the memory of an array; None if it is writable."""
    owner = data
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if owner.flags.writeable:
        return None
    number = id(owner)
    entry = _found.get(number)
    if entry is None or entry[0]() is not owner:
        entry = _found[number] = weakref.ref(owner, lambda ref: _forget(number, ref)), {}
    return entry[1]


def _place(data: np.ndarray) -> tuple[int, int]:
    return data.__array_interface__["data"][0], data.nbytes


def _taken(data: np.ndarray) -> str:
    return hashlib.sha256(data.reshape(-1).view(np.uint8).data).hexdigest()


def _forget(number: int, ref: weakref.ref[np.ndarray]) -> None:
    entry = _found.get(number)
    if entry is not None and entry[0] is ref:
        del _found[number]
