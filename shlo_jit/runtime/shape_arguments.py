"""Shapes of arguments, as users specify them: extents, a type's text, or an array that has the shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.errors import ParseError
from shlo_jit.ir.types import DType, ElementType, TensorType, tensor
from shlo_jit.runtime.arguments import describe_array
from shlo_jit.text.types import type_of_text


def type_given(what: str, element: ElementType, dtype: DType, given: object) -> TensorType:
    """Returns the type of an argument with these elements, stored as `dtype`. `what` describes it, for messages. Raises
    TypeError for an invalid shape, and for an array of another dtype, ValueError for an invalid text."""
    if isinstance(given, str):
        return _type_from_text(what, given)
    if isinstance(given, np.ndarray | np.generic):
        if given.dtype != dtype.numpy:
            raise TypeError(f"{what}: expected an array of {dtype.numpy.name}, got {describe_array(np.asarray(given))}")
        return tensor(given.shape, element)
    if not isinstance(given, Sequence) or not all(isinstance(n, int | np.integer) and n >= 0 for n in given):
        raise TypeError(f"{what}: expected extents, a type's text or an array, got {given!r}")
    return tensor(tuple(int(n) for n in given), element)


def _type_from_text(what: str, given: str) -> TensorType:
    try:
        found = type_of_text(given if given.startswith("tensor<") else f"tensor<{given}>")
    except ParseError:
        found = None
    if not isinstance(found, TensorType) or not found.is_static:
        raise ValueError(f"{what}: expected extents and an element type, such as 8x16xf32; got {given!r}")
    return found
