"""Converts hexadecimal digits to bytes by machine code, for texts so long that compiling it pays off."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np

from shlo_jit.kernels.hexadecimal import DIGITS, HEXADECIMAL
from shlo_jit.runtime import routines
from shlo_jit.runtime.cache import default_cache
from shlo_jit.runtime.layout import data_address
from shlo_jit.runtime.machine import native
from shlo_jit.text.literals import Decode, decode_digits


def decoder() -> Decode:
    """Returns `text.literals.decode_digits` as machine code, which runs without the GIL."""
    blocks_of = _function()

    def decode(digits: bytes, to: np.ndarray) -> bool:
        if len(digits) != 2 * len(to):
            return False
        blocks = len(digits) // DIGITS
        rest, last = digits[blocks * DIGITS :], to[blocks * (DIGITS // 2) :]
        return bool(blocks_of(digits, data_address(to), blocks)) and decode_digits(rest, last)

    return decode


@functools.cache
def _function() -> Callable[[bytes, int, int], int]:
    library = routines.load(HEXADECIMAL.name, native(), default_cache())
    assert library is not None  # it is one of the code generator's own
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)
    return prototype(library.addresses[HEXADECIMAL.symbols[0]])
