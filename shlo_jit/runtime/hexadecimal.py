"""Digits to bytes by machine code, for texts so long that it pays to compile it."""

from __future__ import annotations

import binascii
import ctypes
import functools
from collections.abc import Callable

import numpy as np

from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.hexadecimal import DIGITS, HEXADECIMAL
from shlo_jit.runtime import routines
from shlo_jit.runtime.cache import default_cache
from shlo_jit.runtime.layout import data_address


def decode(digits: bytes, to: np.ndarray) -> bool:
    """`text.literals.decode`, in machine code and without the GIL."""
    if len(digits) != 2 * len(to):
        return False
    blocks = len(digits) // DIGITS
    if not _function()(digits, data_address(to), blocks):
        return False
    try:
        rest = binascii.unhexlify(digits[blocks * DIGITS :])
    except binascii.Error:
        return False
    to[len(to) - len(rest) :] = np.frombuffer(rest, np.uint8)
    return True


@functools.cache
def _function() -> Callable[[bytes, int, int], int]:
    library = routines.load(HEXADECIMAL.name, resolve(), default_cache())
    assert library is not None  # it is one of the code generator's own
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)
    return prototype(library.addresses[HEXADECIMAL.symbols[0]])
