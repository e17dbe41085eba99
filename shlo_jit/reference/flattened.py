"""The reference interpreter with the calling convention of compiled programs: tuples are flattened, tokens omitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shlo_jit.ir.core import Module, Op
from shlo_jit.ir.types import FutureType, TokenType, TupleType, Type
from shlo_jit.reference.interpreter import evaluate


def evaluate_flattened(function: Op, *arrays: Any, module: Module) -> list[np.ndarray]:
    """Returns the flattened results of a function of the module. Raises the same errors as `evaluate`."""
    given = iter(arrays)
    arguments = [_nested(a.type, given) for a in function.block().arguments]
    return [np.asarray(x) for result in evaluate(function, *arguments, module=module) for x in _flat(result)]


def _nested(t: Type, given: Iterator[Any]) -> Any:
    """Builds a value of type `t` from the next arrays."""
    if isinstance(t, TupleType | FutureType):
        return tuple(_nested(part, given) for part in t.types)
    return None if isinstance(t, TokenType) else next(given)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for part in value:
            yield from _flat(part)
    elif value is not None:
        yield value
