"""Types of the states that handlers keep: a number and a deleter for each."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from shlo_jit.runtime.ffi import structures as s
from shlo_jit.runtime.ffi.functions import address_of

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST = 1 << 32
"""The first number that we assign. XLA counts from 1, and may have assigned one to a type before."""


class _Type(NamedTuple):
    number: int
    deleter: int


_types: dict[str, _Type] = {}
_lock = threading.Lock()
_lists: list[Any] = []
"""All lists that ever existed: machine code may still read one."""
_publish: list[Callable[[int], None]] = []
"""Functions that pass the list's address to the machine code."""


def register_ffi_type(name: str, registration: Mapping[str, Any]) -> None:
    """Registers the type of a state that FFI handlers keep, under a unique name, as `jax.ffi.register_ffi_type` does:
    `registration` is a dictionary with `type_id`, a PyCapsule of the type's `XLA_FFI_TypeId`, and `type_info`, a
    PyCapsule of its `XLA_FFI_TypeInfo`, which has the state's destructor. The number is written to the former, unless
    another runtime has done so. Registering the same type again changes nothing.

    Raises TypeError for anything else, and ValueError for a name or a number that another type has.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"FFI type: expected its name, got {name!r}")
    what = f"FFI type {name!r}"
    if not isinstance(registration, Mapping) or not {"type_id"} <= set(registration) <= {"type_id", "type_info"}:
        raise TypeError(f"{what}: expected a dictionary with type_id and type_info, got {registration!r}")
    type_id, info = (address_of(registration.get(key)) for key in ("type_id", "type_info"))
    for key, address in (("type_id", type_id), ("type_info", info)):
        if address is None and registration.get(key) is not None:
            raise TypeError(f"{what}: expected a PyCapsule as {key}, got {type(registration[key]).__name__}")
    if type_id is None:
        raise TypeError(f"{what}: expected a PyCapsule as type_id, got None")
    deleter = s.TypeInfo.from_address(info).deleter if info else None
    register(name, ctypes.c_int64.from_address(type_id), deleter or 0)


def register(name: str, type_id: ctypes.c_int64, deleter: int) -> None:
    """Registers a type, and writes its number if it has none. Raises ValueError as above."""
    with _lock:
        known = _types.get(name)
        number = type_id.value or (known.number if known else FIRST + len(_types))
        if known is not None and known != (number, deleter):
            raise ValueError(f"FFI type {name!r} is registered already, with another number or another deleter")
        others = [n for n, t in _types.items() if t.number == number and n != name]
        if others:
            raise ValueError(f"FFI type {name!r}: its number {number} is that of the type {others[0]!r}")
        _types[name] = _Type(number, deleter)
        type_id.value = number
        for publish in _publish:
            publish(_new_list())


def publish_by(publish: Callable[[int], None]) -> None:
    """Passes the list to machine code now, and whenever it changes."""
    with _lock:
        _publish.append(publish)
        publish(_new_list())


def _new_list() -> int:
    """Returns the address of the list of all types."""
    rows = [s.RegisteredType(type_id=t.number, deleter=t.deleter or None) for t in _types.values()]
    made = (s.RegisteredType * (len(rows) + 1))(*rows)
    _lists.append(made)
    return ctypes.addressof(made)
