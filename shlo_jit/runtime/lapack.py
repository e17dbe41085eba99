"""Addresses of LAPACK and BLAS: the functions of SciPy's `cython_lapack` and `cython_blas`.

Compiled programs refer to them as external symbols, `shlo_lapack_spotrf` for SPOTRF, which are defined when a program
is loaded. So object code in the cache holds no address, and machine code calls LAPACK with no Python in between. SciPy
is the extra `lapack`.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
from collections.abc import Iterable

from shlo_jit.errors import ExecutionError
from shlo_jit.kernels.externals import LAPACK_MISSING, LAPACK_PREFIX


def is_available() -> bool:
    """Whether SciPy is installed."""
    return importlib.util.find_spec("scipy") is not None


def addresses(symbols: Iterable[str]) -> dict[str, int]:
    """Returns the address of each symbol's function. Raises ExecutionError if SciPy, or the function, is missing."""
    return {symbol: _address(symbol) for symbol in symbols}


@functools.cache
def _address(symbol: str) -> int:
    name = symbol.removeprefix(LAPACK_PREFIX)
    capsules = _capsules()
    if capsules is None:
        raise ExecutionError(f"the program calls {name} and {LAPACK_MISSING}")
    if name not in capsules:
        raise ExecutionError(f"the program calls {name}, which SciPy's LAPACK does not have")
    capsule = capsules[name]
    api = ctypes.pythonapi
    get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    return get(capsule, get_name(capsule))


@functools.cache
def _capsules() -> dict[str, object] | None:
    """Returns the capsules with the functions' addresses, by Fortran name; None without SciPy."""
    found: dict[str, object] = {}
    for module in ("cython_blas", "cython_lapack"):
        try:
            found |= importlib.import_module(f"scipy.linalg.{module}").__pyx_capi__
        except ImportError:
            return None
    return found
