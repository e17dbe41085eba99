"""Hints for arguments that do not fit the program, which end the messages of `arguments.py`."""

from __future__ import annotations

import array as buffers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from shlo_jit.codegen.program import Port
    from shlo_jit.runtime.ports import DynamicPort


def dtype_name(dtype: np.dtype) -> str:
    """Returns an element type as Python writes it."""
    if dtype == np.bool_:
        return "bool"
    return f"{'np' if hasattr(np, dtype.name) else 'ml_dtypes'}.{dtype.name}"


def cast_hint(array: np.ndarray, wanted: np.dtype) -> str:
    """Returns a hint for an array of another element type. Arrays are never cast automatically."""
    if array.dtype.kind in "biufc" or (array.dtype.kind == "V" and array.dtype.isbuiltin == 2):  # 2: ml_dtypes
        return f"cast it with .astype({dtype_name(wanted)})"
    return "convert it to an array of numbers" if array.dtype.kind in "OSUVT" else ""


def shape_hint(array: np.ndarray, port: Port | DynamicPort) -> str:
    """Returns a hint for an array of another shape."""
    wanted, found = port.shape, array.shape
    if wanted is None or not all(isinstance(n, int) and n >= 0 for n in wanted):
        return ""
    shape = tuple(int(n) for n in wanted)  # type: ignore[arg-type]
    if len(found) == len(shape) > 1 and found == shape[::-1]:
        return "pass its transpose, .T"
    if array.size == int(np.prod(shape)):
        return f"pass .reshape({shape})"
    try:
        np.broadcast_shapes(found, shape)
    except ValueError:
        pass
    else:
        if np.broadcast_shapes(found, shape) == shape:
            return f"repeat it with np.broadcast_to(x, {shape})"
    if len(found) == len(shape):
        return "the program is for this shape: compile it for the other one, or with unknown dimensions (?)"
    return ""


def kind_hint(value: object, port: Port | DynamicPort) -> str:
    """Returns a hint for an object that is not an array."""
    dtype = dtype_name(port.dtype.numpy)
    if isinstance(value, list | tuple) and any(getattr(item, "ndim", 0) for item in value):
        return "use numpy.stack for one array of them, or pass them one by one: exe(*arguments)"
    if isinstance(value, list | tuple | range | memoryview | buffers.array):
        return f"use numpy.asarray(x, {dtype})"
    if isinstance(value, dict):
        return "pass it as keywords: exe(**arguments)"
    if isinstance(value, str) and value.endswith((".npy", ".npz")):
        return "load the file: numpy.load(path)"
    if value is None:
        return "pass an array"
    return ""


def number_hint(value: complex, port: Port | DynamicPort) -> str:
    """Returns a hint that makes an array of one number."""
    if port.shape is None or not all(isinstance(n, int) and n >= 0 for n in port.shape):
        return ""
    if isinstance(value, int) and value.bit_length() > 64:
        return ""
    return f"write np.full({tuple(port.shape)}, {value!r}, {dtype_name(port.dtype.numpy)})"


def order_hint(args: Sequence[Any], ports: Sequence[Port | DynamicPort], names: Sequence[str]) -> str:
    """Returns a hint if the arrays fit the program in exactly one other order."""
    fits = [[i for i, port in enumerate(ports) if _fits(value, port)] for value in args]
    if len(args) != len(ports) or any(len(places) != 1 for places in fits):
        return ""
    order = [places[0] for places in fits]
    if sorted(order) != list(range(len(ports))) or order == sorted(order):
        return ""
    return f"the arrays are in another order than the arguments: expected {', '.join(names)}"


def _fits(value: Any, port: Port | DynamicPort) -> bool:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return (
        shape is not None and port.shape is not None and tuple(shape) == tuple(port.shape) and dtype == port.dtype.numpy
    )
