"""Offsets of the fields of CPython and numpy objects that the fast call reads, checked against this interpreter.

numpy's array struct has had this layout since 1.7 and promises it to C extensions; the check is for interpreters that
are built differently (no GIL, tracing of references, another implementation).
"""

from __future__ import annotations

import ctypes
import functools
import sys

import numpy as np

# Byte offsets.
TYPE = 8
"""Type of an object."""
DATA, RANK, DIMENSIONS, BASE, DTYPE, FLAGS = 16, 24, 32, 48, 56, 64
"""Fields of an ndarray."""
KIND = 24
"""Field of a dtype: eight bytes with its kind, character, byte order, flags and number."""
SCALAR = 16
"""Value of a numpy scalar."""
ITEMS = 24
"""First item of a tuple."""
PAYLOAD = 32
"""First byte of a bytes object."""
READY = 0x101
"""The flags an argument must have: C_CONTIGUOUS and ALIGNED."""
OWN, WRITEABLE = 0x4, 0x400
"""The flags of an array that owns its memory, and of one that may be written to."""


SCALARS = "?bBhHiIlLqQefdFD"
"""Codes of the types whose scalars hold their value at SCALAR."""


@functools.cache
def as_expected() -> bool:
    """Whether this interpreter's objects have the layout above."""
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:
        return False
    sizes = object.__basicsize__, tuple.__basicsize__, bytes.__basicsize__
    if sizes != (16, ITEMS, PAYLOAD + 1) or np.ndarray.__basicsize__ < FLAGS + 4:
        return False
    pair, text = (object(), 1), b"0123456789"
    if _word(id(pair), ITEMS) != id(pair[0]):
        return False
    if ctypes.string_at(id(text) + PAYLOAD, len(text)) != text:
        return False
    if any(_word(id(d), KIND) >> 32 != d.num for d in map(np.dtype, "?bhifd")):
        return False
    if not all(_scalar_as_expected(np.dtype(code).type(1)) for code in SCALARS):
        return False
    base = np.arange(24.0).reshape(2, 3, 4)
    return all(_array_as_expected(a) for a in (base, base[::2, 1], base.T, np.array(2, np.float32), base > 3))


def _array_as_expected(array: np.ndarray) -> bool:
    at = id(array)
    base = 0 if array.base is None else id(array.base)
    fixed = {TYPE: id(type(array)), DATA: array.__array_interface__["data"][0], BASE: base, DTYPE: id(array.dtype)}
    if any(_word(at, offset) != value for offset, value in fixed.items()):
        return False
    if _half(at, RANK) != array.ndim or _half(at, FLAGS) != array.flags.num:
        return False
    dimensions = _word(at, DIMENSIONS)
    return all(_word(dimensions, 8 * i) == extent for i, extent in enumerate(array.shape))


def _scalar_as_expected(value: np.generic) -> bool:
    return ctypes.string_at(id(value) + SCALAR, value.nbytes) == value.tobytes()


def scalar_of(dtype: np.dtype) -> int:
    """Returns the address of the type of numpy's scalars of one of its own types; 0 for other types."""
    return id(dtype.type) if dtype.isbuiltin == 1 and dtype.char in SCALARS else 0


def kind_of(dtype: np.dtype) -> int:
    """Returns the value that all dtype objects of one of numpy's own numeric types have at KIND, and that those of
    other types and byte orders do not have; 0 for other types."""
    return _word(id(dtype), KIND) if dtype.isbuiltin == 1 and dtype.kind in "biufc" else 0


def _word(address: int, offset: int) -> int:
    return ctypes.c_uint64.from_address(address + offset).value


def _half(address: int, offset: int) -> int:
    return ctypes.c_int32.from_address(address + offset).value


def _slow_address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _fast_address(array: np.ndarray) -> int:
    return ctypes.c_uint64.from_address(id(array) + DATA).value


data_address = _fast_address if as_expected() else _slow_address
"""Returns the address of an array's first element (0.2 us; without the layout 1 us)."""
