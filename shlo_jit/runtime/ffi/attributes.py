"""Attributes of a call, in the form that handlers receive.

A number is a Scalar, a string a ByteSpan, an array of numbers an Array (several dimensions in row-major order), and a
dictionary is again attributes, by ascending name. Others cannot be passed to a handler.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from shlo_jit.ir.dtypes import DTYPES
from shlo_jit.runtime.ffi import structures as s

STRING = "string"
"""Type of a string, among those of `codegen.program.Callback.attribute_types`."""


class Unfit(Exception):
    """An attribute that cannot be passed to a handler, with the reason."""


def attributes(values: Mapping[str, Any], types: Mapping[str, Any], keep: list[Any]) -> s.Attrs:
    """Returns the attributes of a dictionary, whose `types` are those of `Callback.attribute_types`. The memory that
    they point to is added to `keep`. Raises Unfit."""
    names = sorted(types, key=str.encode)
    rows = [_attribute(name, values[name], types[name], keep) for name in names]
    kinds = (ctypes.c_int32 * len(rows))(*(kind for kind, _ in rows))
    pointers = (ctypes.c_void_p * len(rows))(*(ctypes.addressof(value) for _, value in rows))
    spans = [_span(name, keep) for name in names]
    named = (ctypes.c_void_p * len(rows))(*map(ctypes.addressof, spans))
    keep += [kinds, pointers, spans, named, *(value for _, value in rows)]
    return s.Attrs(
        size=len(rows),
        types=ctypes.addressof(kinds),
        names=ctypes.addressof(named),
        attrs=ctypes.addressof(pointers),
    )


def _attribute(name: str, value: Any, type: Any, keep: list[Any]) -> tuple[int, ctypes.Structure]:
    """Returns the number of the attribute's kind, and the structure."""
    if isinstance(type, Mapping):
        try:
            return s.DICTIONARY, attributes(value, type, keep)
        except Unfit as error:
            raise Unfit(f"in {name!r}, {error}") from None
    if type == STRING:
        return s.STRING, _span(value, keep)
    element = type.removeprefix("array<").removesuffix(">")
    dtype = DTYPES.get(element[1:] if element.startswith("si") else element)
    if dtype is None or dtype.name not in s.DATA_TYPES:
        what = type if type.startswith("= ") else f"of type {type}"
        can = "numbers, strings, arrays of numbers, and dictionaries of these"
        raise Unfit(f"attribute {name!r} {what}: handlers can be given {can}")
    array = np.array(value, dtype.numpy, order="C")
    keep.append(array)
    number = s.DATA_TYPES[dtype.name]
    if element == type:
        return s.SCALAR, s.Scalar(dtype=number, value=array.ctypes.data)
    return s.ARRAY, s.Array(dtype=number, size=array.size, data=array.ctypes.data if array.size else None)


def _span(text: str, keep: list[Any]) -> s.ByteSpan:
    data = ctypes.create_string_buffer(text.encode("utf-8", "surrogateescape"))
    keep.append(data)
    return s.ByteSpan(ptr=ctypes.addressof(data), len=len(data) - 1)
