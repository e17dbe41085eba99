"""Exchanges arrays with other libraries by DLPack if numpy does not know the element type: bf16 and the 8-bit floats.

The capsule that `__dlpack__` returns has a DLManagedTensor, which begins with a DLTensor; the memory lives as long as
the capsule does. From version 1 on, it is another structure with flags, one of which marks read-only memory.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from shlo_jit.ir.dtypes import DTYPES, by_numpy
from shlo_jit.runtime.ffi.functions import capsule_name

CPU = 1
"""Number of the device."""
_VERSIONED_HEAD_BYTES = 32
_TYPES = {
    (4, 16): "bf16",
    (7, 8): "f8E3M4",
    (8, 8): "f8E4M3",
    (9, 8): "f8E4M3B11FNUZ",
    (10, 8): "f8E4M3FN",
    (11, 8): "f8E4M3FNUZ",
    (12, 8): "f8E5M2",
    (13, 8): "f8E5M2FNUZ",
    (14, 8): "f8E8M0FNU",
}
"""Element types by DLDataType's code and bits."""


class _Tensor(ctypes.Structure):
    """The structure DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Memory:
    """Array interface that numpy converts to an array, and keeps."""

    def __init__(self, capsule: Any, tensor: _Tensor, itemsize: int) -> None:
        self._capsule = capsule
        shape = tuple(tensor.shape[: tensor.rank])
        strides = tuple(itemsize * n for n in tensor.strides[: tensor.rank]) if tensor.strides else None
        address = (tensor.data or 0) + tensor.byte_offset
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "shape": shape,
            "strides": strides,
            "typestr": f"<u{itemsize}",
        }


def foreign_array(value: Any) -> np.ndarray | None:
    """Returns an array of another library, by DLPack if it supports that, else by `__array__`; None if it supports
    neither. Raises TypeError with the library's message if it refuses."""
    failure: Exception | None = None
    if hasattr(value, "__dlpack__"):
        for take_from in (np.from_dlpack, from_dlpack):  # numpy's does not support bfloat16, for example
            try:
                found = take_from(value)
            except (BufferError, RuntimeError, TypeError, ValueError) as error:
                failure = failure or error
            else:
                if found is not None:
                    return found
    kind = type(value).__name__
    if hasattr(value, "__array__"):
        try:
            return np.asarray(value)
        except Exception as error:  # another library's: a tensor on another device, or one that has no elements yet
            raise TypeError(f"cannot take {kind} as an array: {error}") from error
    if failure is not None:
        raise TypeError(f"cannot take {kind} by DLPack: {failure}") from failure
    return None


def from_dlpack(value: Any) -> np.ndarray | None:
    """Returns the value's memory as a read-only array; None if it is on another device, or of another element type."""
    capsule = value.__dlpack__()
    tensor = _Tensor.from_address(_pointer(capsule, b"dltensor") or 0)
    name = _TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 and tensor.device == CPU else None
    if name is None:
        return None
    dtype = DTYPES[name].numpy
    return np.asarray(_Memory(capsule, tensor, dtype.itemsize)).view(dtype)


def to_dlpack(array: np.ndarray, max_version: tuple[int, int] | None) -> object:
    """Returns a capsule with an array's memory, for readers of DLPack up to a version, or (None) of unversioned DLPack.
    Raises BufferError for an element type that DLPack does not have, and ValueError for read-only memory if DLPack has
    no flag for it."""
    dtype = by_numpy().get(array.dtype)
    key = next((key for key, name in _TYPES.items() if dtype is not None and name == dtype.name), None)
    given = array if key is None else array.view(f"u{array.dtype.itemsize}")
    is_versioned = max_version is not None and max_version >= (1, 0)
    if not is_versioned and not given.flags.writeable:  # unversioned DLPack has no flag for it
        given = given.view()
        given.flags.writeable = True
    capsule = given.__dlpack__(max_version=max_version) if is_versioned else given.__dlpack__()
    if key is not None:
        name = capsule_name(capsule)
        at = (_pointer(capsule, name) or 0) + (0 if name == b"dltensor" else _VERSIONED_HEAD_BYTES)
        tensor = _Tensor.from_address(at)
        tensor.code, tensor.bits = key
    return capsule
