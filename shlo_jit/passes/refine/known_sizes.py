"""Evaluation of shape computations on sizes that are known only at the call, as polynomials.

An op in `_FUNCTIONS` with known operands is evaluated to arrays of objects: ints and sizes. If a comparison depends on
a size, its result is unknown, which may not matter. If a maximum does, NotSymbolic is raised, and the program is
specialized for fixed shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ops.record import OPS
from shlo_jit.sizes import NotSymbolic, Size, surely, whole

Array = np.ndarray


def has_sizes(arrays: Sequence[Array | None]) -> bool:
    """Whether arrays hold sizes that are known only at the call."""
    return any(a is not None and a.dtype == object for a in arrays)


def evaluate_sizes(op: Op, arrays: Sequence[Array]) -> list[Array] | None:
    """Returns the results of an op on integers and sizes, or None if they are unknown."""
    function = _FUNCTIONS.get(op.name)
    if function is None or any(isinstance(x, Size) and x.high >= 2**31 for a in arrays for x in a.flat):
        return None
    result = function(op, *(a.astype(object) for a in arrays))
    if result is None:
        return None
    result = np.asarray(result, object)
    return [settled(result.reshape(op.result.tensor.extents), op.result.tensor.storage.numpy)]


def decided(op: Op, arrays: Sequence[Array | None]) -> Array | None:
    """Returns the result of an op with unknown operands if the known ones decide it: false and x, true or x, select(x,
    y, y). Else None."""
    if op.name == "stablehlo.select":
        _, a, b = arrays
        return a if a is not None and b is not None and surely(lambda: list(a.flat) == list(b.flat)) else None
    absorbing = {"stablehlo.and": False, "stablehlo.or": True}.get(op.name)
    if absorbing is None or op.result.tensor.storage.kind != "b":
        return None
    return next((a for a in arrays if a is not None and all(x == absorbing for x in a.flat)), None)


def settled(array: Array, dtype: np.dtype | None = None) -> Array:
    """Returns an array of objects as an array of numbers if it holds no sizes: of the given type, or of their own."""
    if array.dtype != object or any(isinstance(x, Size) for x in array.flat):
        return array
    return np.asarray(array.tolist()) if dtype is None else array.astype(dtype)


def frozen(array: Array | None) -> object:
    """Returns a hashable key of an array's contents."""
    if array is None:
        return None
    return tuple(map(whole, array.flat)) if array.dtype == object else array.tobytes()


def _divide(op: Op, a: Array, b: Array) -> Array:
    return np.asarray(np.frompyfunc(_quotient, 2, 1)(a, b), object)


def _quotient(x: int, y: int) -> int:
    """Divides, rounding towards zero."""
    if y <= 0:
        raise NotSymbolic("division-unknown", f"{x} is divided by {y}")
    return x // y if x >= 0 else -(-x // y)


def _remainder(op: Op, a: Array, b: Array) -> Array:
    return a - b * _divide(op, a, b)


def _chosen(larger: bool) -> Callable[[Op, Array, Array], Array]:
    pick = np.frompyfunc(lambda x, y: x if (x >= y) == larger else y, 2, 1)
    return lambda op, a, b: pick(a, b)


def _sign(x: int) -> int:
    return 1 if x > 0 else 0 if x == 0 else -1


def _signs(op: Op, a: Array) -> Array:
    return np.asarray(np.frompyfunc(_sign, 1, 1)(a), object)


def _compare(op: Op, a: Array, b: Array) -> Array | None:
    questions: dict[str, Callable[[object, object], bool]] = {
        "EQ": lambda x, y: x == y, "NE": lambda x, y: x != y, "LT": lambda x, y: x < y,  # type: ignore[operator]
        "LE": lambda x, y: x <= y, "GT": lambda x, y: x > y, "GE": lambda x, y: x >= y,  # type: ignore[operator]
    }  # fmt: skip
    ask = np.frompyfunc(questions[op.attributes["comparison_direction"].value], 2, 1)
    try:
        return np.asarray(ask(a, b), object)
    except NotSymbolic:
        return None


def _by_reference(op: Op, *arrays: Array) -> Array:
    """Evaluates ops that move elements by their reference implementation: NumPy moves objects like numbers."""
    reference = OPS[op.name].reference
    assert reference is not None
    (result,) = [reference(op, *arrays)]
    return np.asarray(result, object)


_FUNCTIONS: dict[str, Callable[..., Array | None]] = {
    "stablehlo.add": lambda op, a, b: a + b,
    "stablehlo.subtract": lambda op, a, b: a - b,
    "stablehlo.multiply": lambda op, a, b: a * b,
    "stablehlo.divide": _divide,
    "stablehlo.remainder": _remainder,
    "stablehlo.negate": lambda op, a: -a,
    "stablehlo.sign": _signs,
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
