"""Evaluation of shape computations in MLIR's own dialects (`arith`, `tensor`, `shape`), which frontends mix with
StableHLO, if they follow from known shapes and constants. Indices are 64 bits wide. Arrays with sizes that are known
only at the call hold objects, as in `known_sizes`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import TensorType
from shlo_jit.passes.refine.known_sizes import settled
from shlo_jit.sizes import whole

DIALECTS = ("arith", "tensor", "shape")
Array = np.ndarray


def evaluate_foreign(op: Op, arrays: Sequence[Array | None]) -> list[Array] | None:
    """Returns the results of an op of DIALECTS, given the known operands, or None if they do not follow.

    These ops are not verified. The result is None for an op with unexpected operands, attributes or results, and for
    one that is out of bounds: they would fail at run time."""
    if len(op.results) != 1:
        return None
    try:
        found = _of_type(op, arrays) if op.name in _OF_TYPES else _computed(op, arrays)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError):
        return None
    return None if found is None else [found]


_OF_TYPES = ("tensor.dim", "shape.shape_of", "tensor.rank")
"""Ops whose results follow from the types of their operands."""


def _computed(op: Op, arrays: Sequence[Array | None]) -> Array | None:
    function = _FUNCTIONS.get(op.name)
    known = [a for a in arrays if a is not None]
    if function is None or len(known) < len(arrays):
        return None
    with np.errstate(all="ignore"):
        return settled(np.asarray(function(op, *known)))


def _of_type(op: Op, arrays: Sequence[Array | None]) -> Array | None:
    type = op.operands[0].type
    if not isinstance(type, TensorType) or type.shape is None:
        return None
    if op.name == "tensor.rank":
        return np.asarray(type.rank)
    if op.name == "shape.shape_of":
        return None if None in type.shape else settled(np.asarray(type.shape, object))
    index = arrays[1]
    if index is None or not 0 <= int(index) < type.rank:
        return None
    extent = type.shape[int(index)]
    return None if extent is None else np.asarray(extent)


def _division(rounded: Callable[[int, int], int]) -> Callable[..., Array]:
    return lambda op, a, b: np.asarray([rounded(whole(x), whole(y)) for x, y in np.broadcast(a, b)]).reshape(a.shape)


def _together(items: Sequence[Array]) -> Array:
    return np.asarray([item.item() for item in items])


def _broadcast(op: Op, *shapes: Array) -> Array:
    """Returns the shape that all of these broadcast to. Raises ValueError if there is none."""
    rank = max(len(s) for s in shapes)
    found = []
    for extents in zip(*([1] * (rank - len(s)) + list(map(whole, s)) for s in shapes), strict=True):
        wide = [n for n in extents if n != 1]
        if any(n != wide[0] for n in wide):
            raise ValueError(f"{extents} do not broadcast")
        found.append(wide[0] if wide else 1)
    return np.asarray(found)


def _compare(op: Op, a: Array, b: Array) -> Array:
    """Evaluates the predicates of `arith.cmpi`, by number: eq, ne, slt, sle, sgt, sge, and four for unsigned
    numbers."""
    number = op.int("predicate")
    if number >= len(_PREDICATES):
        a, b, number = a.astype(object) % (1 << 64), b.astype(object) % (1 << 64), number - 4
    return _PREDICATES[number](a, b)


_PREDICATES = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
_FUNCTIONS: dict[str, Callable[..., object]] = {
    "arith.addi": lambda op, a, b: a + b,
    "arith.subi": lambda op, a, b: a - b,
    "arith.muli": lambda op, a, b: a * b,
    "arith.divsi": _division(lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)),
    "arith.divui": _division(lambda a, b: a // b),
    "arith.floordivsi": _division(lambda a, b: a // b),
    "arith.ceildivsi": _division(lambda a, b: -(-a // b)),
    "arith.ceildivui": _division(lambda a, b: -(-a // b)),
    "arith.remsi": _division(lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1)),
    "arith.remui": _division(lambda a, b: a % b),
    "arith.maxsi": lambda op, a, b: np.maximum(a, b),
    "arith.minsi": lambda op, a, b: np.minimum(a, b),
    "arith.maxui": lambda op, a, b: np.maximum(a, b),
    "arith.minui": lambda op, a, b: np.minimum(a, b),
    "arith.andi": lambda op, a, b: a & b,
    "arith.ori": lambda op, a, b: a | b,
    "arith.xori": lambda op, a, b: a ^ b,
    "arith.cmpi": _compare,
    "arith.select": lambda op, c, a, b: np.where(c, a, b),
    "arith.index_cast": lambda op, a: a,
    "arith.index_castui": lambda op, a: a,
    "arith.extsi": lambda op, a: a,
    "arith.trunci": lambda op, a: a,
    "tensor.extract": lambda op, t, *indices: t[tuple(int(i) for i in indices)],
    "tensor.from_elements": lambda op, *items: _together(items).reshape(op.result.tensor.extents),
    "tensor.cast": lambda op, a: a,
    "shape.broadcast": _broadcast,
    "shape.num_elements": lambda op, s: math.prod(map(whole, s)),
    "shape.to_extent_tensor": lambda op, s: s,
    "shape.from_extents": lambda op, *items: _together(items),
    "shape.from_extent_tensor": lambda op, s: s,
    "shape.const_shape": lambda op: op.ints("shape"),
    "shape.get_extent": lambda op, s, i: s[int(i)],
    "shape.size_to_index": lambda op, n: n,
    "shape.index_to_size": lambda op, n: n,
    "shape.add": lambda op, a, b: a + b,
    "shape.mul": lambda op, a, b: a * b,
    "shape.div": lambda op, a, b: a // b,
    "shape.concat": lambda op, a, b: np.concatenate([a, b]),
}
