"""Shape computations on sizes that are known at the call only: the arithmetic of refinement, on polynomials.

An op of those in `_FUNCTIONS` whose operands are known gives arrays of objects, ints and sizes. Where the answer
depends on the size (a comparison, a maximum), NotSymbolic is raised, and the program is made for fixed shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ops.record import OPS
from shlo_jit.sizes import NotSymbolic, Size, whole

Array = np.ndarray


def has_sizes(arrays: Sequence[Array | None]) -> bool:
    """Whether sizes that are known at the call only are among what arrays hold."""
    return any(a is not None and a.dtype == object for a in arrays)


def evaluate_sizes(op: Op, arrays: Sequence[Array]) -> list[Array] | None:
    """The results of an op on integers of which some are sizes; None where nobody knows."""
    function = _FUNCTIONS.get(op.name)
    if function is None or any(isinstance(x, Size) and x.high >= 2**31 for a in arrays for x in a.flat):
        return None
    result = np.asarray(function(op, *(a.astype(object) for a in arrays)), object)
    return [settled(result.reshape(op.result.tensor.extents), op.result.tensor.storage.numpy)]


def settled(array: Array, dtype: np.dtype) -> Array:
    """An array of objects; one of numbers, where no size is left in it."""
    return array if any(isinstance(x, Size) for x in array.flat) else array.astype(dtype)


def frozen(array: Array | None) -> object:
    """What identifies an array's contents."""
    if array is None:
        return None
    return tuple(map(whole, array.flat)) if array.dtype == object else array.tobytes()


def _divide(op: Op, a: Array, b: Array) -> Array:
    if any(x < 0 for x in (*a.flat, *b.flat)) or any(y == 0 for y in b.flat):
        raise NotSymbolic(f"{op.name} of negative numbers or by zero")
    return a // b


def _remainder(op: Op, a: Array, b: Array) -> Array:
    return a - b * _divide(op, a, b)


def _chosen(larger: bool) -> Callable[[Op, Array, Array], Array]:
    pick = np.frompyfunc(lambda x, y: x if (x >= y) == larger else y, 2, 1)
    return lambda op, a, b: pick(a, b)


def _compare(op: Op, a: Array, b: Array) -> Array:
    questions: dict[str, Callable[[object, object], bool]] = {
        "EQ": lambda x, y: x == y, "NE": lambda x, y: x != y, "LT": lambda x, y: x < y,  # type: ignore[operator]
        "LE": lambda x, y: x <= y, "GT": lambda x, y: x > y, "GE": lambda x, y: x >= y,  # type: ignore[operator]
    }  # fmt: skip
    return np.asarray(np.frompyfunc(questions[op.attributes["comparison_direction"].value], 2, 1)(a, b), object)


def _by_reference(op: Op, *arrays: Array) -> Array:
    """Ops that move elements: NumPy moves objects as it does numbers."""
    reference = OPS[op.name].reference
    assert reference is not None
    (result,) = [reference(op, *arrays)]
    return np.asarray(result, object)


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "stablehlo.add": lambda op, a, b: a + b,
    "stablehlo.subtract": lambda op, a, b: a - b,
    "stablehlo.multiply": lambda op, a, b: a * b,
    "stablehlo.divide": _divide,
    "stablehlo.remainder": _remainder,
    "stablehlo.maximum": _chosen(larger=True),
    "stablehlo.minimum": _chosen(larger=False),
    "stablehlo.compare": _compare,
    "stablehlo.select": lambda op, c, a, b: np.where(c.astype(bool), a, b),
    "stablehlo.convert": lambda op, a: a,
    "stablehlo.reshape": lambda op, a: a,
    "stablehlo.concatenate": lambda op, *parts: np.concatenate(parts, axis=op.int("dimension")),
    "stablehlo.slice": _by_reference,
    "stablehlo.broadcast_in_dim": _by_reference,
    "stablehlo.transpose": _by_reference,
}
