"""Functions and data of native libraries, as users specify them: by a PyCapsule, by ctypes, or by address. The foreign
function interface has one function per stage."""

from __future__ import annotations

import ctypes
from typing import Any

STAGES = ("instantiate", "prepare", "initialize", "execute")
"""Stages of a handler of the foreign function interface, by number."""
_CTYPES_FUNCTION: type = ctypes.CFUNCTYPE(None).__mro__[1]
"""Base class of all ctypes functions."""
_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def is_capsule(given: Any) -> bool:
    return type(given).__name__ == "PyCapsule"


def is_native(given: Any) -> bool:
    """Whether the value is a native function or data."""
    is_address = isinstance(given, int) and not isinstance(given, bool) and given > 0
    return is_address or is_capsule(given) or isinstance(given, _CTYPES_FUNCTION)


def address_of(given: Any) -> int | None:
    """Returns the address of a native function; None for anything else."""
    if not is_native(given):
        return None
    if is_capsule(given):
        return _pointer(given, _name(given))
    return given if isinstance(given, int) else ctypes.cast(given, ctypes.c_void_p).value


def capsule_name(given: Any) -> bytes:
    """Returns the name of a PyCapsule; empty if it has none."""
    return _name(given) or b""
