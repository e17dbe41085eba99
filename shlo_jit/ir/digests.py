"""Digests of constants, by content: of one that many programs read, as those for several shapes do, taken once."""

from __future__ import annotations

import hashlib
import weakref

import numpy as np

MADE = "made-"

_found: dict[int, tuple[weakref.ref[np.ndarray], dict[tuple[int, int], str]]] = {}
"""By the number of the array that owns the memory, for as long as that is there: place and size -> digest."""


def digest(data: np.ndarray) -> str:
    """SHA-256 of an array's bytes, in hexadecimal. The array is contiguous."""
    known = _known(data)
    if known is None:
        return _taken(data)
    place = _place(data)
    found = known.get(place)
    if found is None:
        found = known[place] = _taken(data)
    return found


def note(data: np.ndarray, digest: str) -> None:
    """Take down the digest of an array that nobody writes to any more."""
    known = _known(data)
    if known is not None:
        known[_place(data)] = digest


def note_made(data: np.ndarray, source: np.ndarray, how: str) -> None:
    """Take down what an array is known by that was made of another, and that nobody writes to any more: the digest of
    that one, where it is known, and all that decides how it was made; which is read faster than the array. Who keeps
    the array for longer than this process lives has to say, too, which version of us made it (`is_made`)."""
    known = _known(source)
    found = None if known is None else known.get(_place(source))
    if found is not None:
        note(data, MADE + hashlib.sha256(f"{found} {how}".encode()).hexdigest())


def is_made(digest: str) -> bool:
    return digest.startswith(MADE)


def sealed(data: np.ndarray) -> np.ndarray:
    """The array, which nobody writes to any more."""
    seal(data)
    return data


def seal(data: np.ndarray) -> None:
    """Let nobody write to an array any more, nor to those that it is a view of."""
    view: object = data
    while isinstance(view, np.ndarray):
        view.flags.writeable = False
        view = view.base


def _known(data: np.ndarray) -> dict[tuple[int, int], str] | None:
    """What is known of the memory of an array; None where it can be written to."""
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
