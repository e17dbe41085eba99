"""Identity of a Python function: its code and everything that its code refers to. It finds a program with the function
in the object cache without asking Numba for its code."""

from __future__ import annotations

import builtins
import functools
import importlib.metadata
import types
from collections.abc import Iterator
from typing import Any

KNOWN_PACKAGES = frozenset(("math", "cmath", "operator", "builtins", "numpy", "numba"))
"""Packages whose functions are the same if their versions are."""
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


def identity_of(function: Any) -> str | None:
    """Returns a text that changes with everything that Numba's code for the function may depend on. Returns None if the
    function refers to an object without an identity."""
    try:
        return f"{_versions()} {'; '.join(_function(function, set()))}"
    except _Unknown:
        return None


class _Unknown(Exception):
    """An object that has no identity beyond itself."""


@functools.cache
def _versions() -> str:
    try:
        found = [f"{name} {importlib.metadata.version(name)}" for name in ("numba", "numpy")]
    except importlib.metadata.PackageNotFoundError:
        found = []
    return " ".join(found)


def _function(function: Any, seen: set[int]) -> Iterator[str]:
    """Yields the function's own code, and then each object that it refers to."""
    if id(function) in seen:
        yield "again"
        return
    seen.add(id(function))
    yield from _code(function.__code__)
    yield from _value(function.__defaults__, seen)
    for cell in function.__closure__ or ():
        yield from _value(cell.cell_contents, seen)
    for name in sorted(set(_names(function.__code__))):
        if name in function.__globals__:
            yield name
            yield from _value(function.__globals__[name], seen)
        elif hasattr(builtins, name):
            yield name


def _names(code: types.CodeType) -> Iterator[str]:
    """Yields the names of globals. Names of attributes are among them and do no harm."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _code(code: types.CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_argcount, code.co_flags))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant)
        else:
            yield repr(constant)


def _value(value: Any, seen: set[int]) -> Iterator[str]:
    """Yields the identity of the value of a global or a cell."""
    package = (getattr(value, "__module__", None) or "").partition(".")[0]
    if isinstance(value, PLAIN):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, tuple):
        yield f"tuple {len(value)} {getattr(value, '_fields', '')}"
        for item in value:
            yield from _value(item, seen)
    elif hasattr(value, "py_func"):
        yield repr(getattr(value, "targetoptions", ""))
        yield from _function(value.py_func, seen)
    elif isinstance(value, types.ModuleType):
        if value.__name__.partition(".")[0] not in KNOWN_PACKAGES:
            raise _Unknown
        yield value.__name__
    elif package in KNOWN_PACKAGES and hasattr(value, "__name__"):
        yield f"{value.__module__}.{value.__name__}"
    elif package in KNOWN_PACKAGES or type(value).__module__ == "numpy":
        yield from _numpy_value(value)
    else:
        raise _Unknown


def _numpy_value(value: Any) -> Iterator[str]:
    import numpy as np

    if isinstance(value, np.generic | np.ndarray):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise _Unknown
        yield f"{array.dtype.descr} {array.shape} {array.strides} {array.tobytes().hex()}"
    elif " at 0x" not in repr(value):  # types of Numba and of NumPy, and NumPy functions
        yield repr(value)
    else:
        raise _Unknown
