"""The record that a program's code reads while it runs; see `codegen/abi.py`."""

from __future__ import annotations

import ctypes
import functools

from shlo_jit.codegen import abi

_TYPES = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "ptr": ctypes.c_void_p}


@functools.cache
def record_type(constants: int) -> type[ctypes.Structure]:
    """The record of a program with so many constants: the fields of `abi.INSTANCE`, and the array `constants`."""
    fields = [*((name, _TYPES[field.type]) for name, field in abi.INSTANCE.items())]
    return type(
        "InstanceRecord", (ctypes.Structure,), {"_fields_": [*fields, ("constants", ctypes.c_void_p * constants)]}
    )
