"""Regions from Python functions: reducers, comparators, conditions, bodies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shlo_jit.builder.arguments import tensor_of
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.scope import region
from shlo_jit.builder.shapes import shape_text
from shlo_jit.ir.core import Region
from shlo_jit.ir.dtypes import DType
from shlo_jit.ir.types import tensor

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value

Computation = Callable[..., Any]
"""A Python function of values, traced once with values of the right types."""


def callable_of(f: object, argument: str, count: int) -> Computation:
    """Checks a Python function with that number of arguments."""
    if not callable(f):
        raise wrong(argument, f"expected a function, got {type(f).__name__}")
    try:
        inspect.signature(f).bind(*range(count))
    except TypeError as error:
        many = "1 argument" if count == 1 else f"{count} arguments"
        raise wrong(argument, f"expected a function of {many}: {error}") from None
    except ValueError:  # it has no signature
        pass
    return f


def scalar_region(argument: str, f: object, inputs: Sequence[DType], results: Sequence[DType]) -> Region:
    """A region that maps scalars of some element types to scalars of others. Numbers that the function returns take the
    result types."""
    computation = callable_of(f, argument, len(inputs))

    def body(*scalars: Value) -> list[Value]:
        found = computation(*scalars)
        listed = list(found) if isinstance(found, tuple | list) else [found]
        if len(listed) != len(results):
            raise wrong(argument, f"expected the function to return {len(results)} values, got {len(listed)}")
        return [_scalar(x, dtype, argument) for x, dtype in zip(listed, results, strict=True)]

    return region(argument, [tensor((), dtype) for dtype in inputs], body)


def _scalar(x: object, dtype: DType, argument: str) -> Value:
    if x is None:
        raise wrong(argument, "the function returns None: did it forget to return?")
    made = tensor_of(x, argument, dtype)
    if made.type != tensor((), dtype):
        raise wrong(argument, f"expected the function to return {dtype}[], got {shape_text(made.type)}")
    return made


def map_region(argument: str, f: object, inputs: Sequence[DType], more: Sequence[Value]) -> Region:
    """Makes a region like `scalar_region` whose result type is the function's. The function gets `more` after the
    scalars."""
    computation = callable_of(f, argument, len(inputs) + len(more))

    def body(*scalars: Value) -> list[Value]:
        found = tensor_of(computation(*scalars, *more), argument)
        if found.shape != ():
            raise wrong(argument, f"expected the function to return a scalar, got {shape_text(found.type)}")
        return [found]

    return region(argument, [tensor((), dtype) for dtype in inputs], body)
