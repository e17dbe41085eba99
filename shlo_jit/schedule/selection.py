"""Reductions of (value, index) pairs that select one element: argmax, argmin and similar ones.

The body is evaluated for every relation that two values may have. If it only compares, combines truth values and
selects, these relations determine what it does with all values. An element then precedes another by its value or, if
values are equal, by its index. So the elements of a row may be compared in any grouping and any order.

A body like `select(a >= b, a, b)` keeps or drops a NaN depending on its position. The specification lets initial values
stand between any elements ("reduce": the schedule). So we choose that one follows or precedes each NaN, and drops it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.index import Expr
from shlo_jit.ir.types import F32, I32, DType
from shlo_jit.ops import OPS

NAN = float("nan")
RELATIONS = {
    "LT": (0.0, 1.0),
    "EQ": (1.0, 1.0),
    "GT": (1.0, 0.0),
    "NaN left": (NAN, 0.0),
    "NaN right": (0.0, NAN),
    "NaN both": (NAN, NAN),
}
"""An example of each relation: values that compare alike have the same result."""
ORDERED, ALIKE, DROPPED = ("LT", "EQ", "GT"), ("EQ", "NaN both"), ("NaN left", "NaN right")
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
}  # fmt: skip
LOGIC: dict[str, Callable[..., bool]] = {
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "not": operator.not_,
}  # fmt: skip


class Selection(NamedTuple):
    """The selection that a reduction of pairs computes."""

    greatest: bool
    """Whether it selects the greatest value; otherwise the least."""
    nan_first: bool
    """Whether a NaN precedes all numbers; otherwise it is dropped."""
    with_value: bool
    """Whether the value is read, not only the index."""
    dtype: DType

    @property
    def accumulators(self) -> tuple[DType, DType]:
        """Element types of the accumulators for value and index. Narrow floats that are only compared are accumulated
        as f32."""
        narrow = self.dtype.is_float and self.dtype.bits < 32
        return F32 if narrow and not self.with_value else self.dtype, I32


def selection_of(nest: Nest, op: Op) -> Selection | None:
    """The selection of a nest's reduce, if it selects the first of the greatest or least elements of a row; otherwise
    None."""
    if len(op.results) != 2:
        return None
    value, index = (r.tensor.storage for r in op.results)
    if value.is_complex or not index.is_integer:
        return None
    with_value = any(k[0] is op.results[0] for k, n in nest.nodes.items() if n.op is op)
    found = _meaning(op.block(), value, with_value)
    if found is None or not _counts_up(nest, op, index):
        return None
    if value.is_float and not found.nan_first and not _is_number(op.operands[2]):
        return None  # an initial value that is a NaN drops nothing
    return found


# ---------------------------------------------------------------------------- the body
def _meaning(body: Block, dtype: DType, with_value: bool) -> Selection | None:
    """The selection of a body, for elements in ascending order of their indices."""
    side: dict[str, int] = {}
    for relation in RELATIONS if dtype.is_float else ORDERED:
        first = _choice(body, relation, 0.0, 1.0)
        if first is None:
            return None
        value, side[relation] = first
        # of equal values either may be returned, unless they differ as 0 and -0 do
        if relation in ALIKE and not (with_value and dtype.is_float):
            continue
        # at equal indices, those of the initial value and the first element, the value decides
        others = [_choice(body, relation, 0.0, 0.0)]
        if relation in DROPPED:
            others.append(_choice(body, relation, 1.0, 0.0))
        if value != side[relation] or any(o is None or o[0] != value for o in others):
            return None
    if side["EQ"] != 0 or side["LT"] == side["GT"]:
        return None
    nans = [side[r] for r in RELATIONS if r not in ORDERED and r in side]
    if nans[:2] == [0, 1] and nans[2] != 0:
        return None  # selects the last NaN
    return Selection(side["GT"] == 0, nans == [0, 1, 0], with_value, dtype)


def _choice(body: Block, relation: str, *indices: float) -> tuple[int, int] | None:
    """The argument whose value, and the one whose index, the body returns: 0 is the left, 1 the right one. None if that
    cannot be determined."""
    a, i, b, k = body.arguments
    numbers: dict[Value, float] = dict(zip((a, b, i, k), (*RELATIONS[relation], *indices), strict=True))
    env: dict[Value, Value | bool] = {v: v for v in numbers}
    for op in body.ops[:-1]:
        operands = [env.get(o) for o in op.operands]
        result = _step(op, operands, numbers)
        if result is None:
            return None
        env[op.result] = result
    value, place = (env.get(o) for o in body.ops[-1].operands)
    if value not in (a, b) or place not in (i, k):
        return None
    return int(value is b), int(place is k)


def _step(op: Op, operands: list[Value | bool | None], numbers: dict[Value, float]) -> Value | bool | None:
    """The result of an op of the body: one of its arguments, or a truth value; None if it is neither."""
    name = op.name.partition(".")[2]
    values = [o for o in operands if isinstance(o, Value)]
    truths = [o for o in operands if isinstance(o, bool)]
    if name == "constant" and op.result.tensor.storage.kind == "b":
        return bool(op.constant.array.reshape(-1)[0])
    if name == "compare" and len(values) == 2:
        return _compare(op, values[0], values[1], numbers)
    if name == "select" and isinstance(operands[0], bool):
        return operands[1] if operands[0] else operands[2]
    if name in LOGIC and len(truths) == len(operands):
        return LOGIC[name](*truths)
    if name in ("minimum", "maximum") and len(values) == 2 and op.result.tensor.storage.is_integer:
        x, y = values
        first = numbers[x] <= numbers[y] if name == "minimum" else numbers[x] >= numbers[y]
        return x if first else y
    return None


def _compare(op: Op, x: Value, y: Value, numbers: dict[Value, float]) -> bool | None:
    kind = op.attributes.get("compare_type")
    if x.type != y.type or (kind is not None and kind.value == "TOTALORDER"):
        return None
    return COMPARE[op.attributes["comparison_direction"].value](numbers[x], numbers[y])


# ---------------------------------------------------------------------------- the indices
def _counts_up(nest: Nest, op: Op, dtype: DType) -> bool:
    """Whether the second operand numbers the elements of a row in ascending order, starting at its initial value or
    above."""
    node = next(n for n in nest.nodes.values() if n.op is op)
    found = _iota(nest, node.operands[1])
    start = op.operands[3]
    if found is None or start.op is None or start.op.name != "stablehlo.constant" or not isinstance(nest.reduced, int):
        return False
    expr, limit = found
    if (
        expr.syms
        or any(c < 0 for _, c in expr.terms)
        or any(not isinstance(nest.extents[v], int) for v, _ in expr.terms)
    ):
        return False
    highest = expr.const + sum(c * (nest.extents[v] - 1) for v, c in expr.terms)
    if highest > min(limit, _highest(dtype), _highest(I32)):
        return False
    below = 0
    for v in reversed(nest.reduce_vars):
        if nest.extents[v] > 1:
            if expr.coefficient(v) <= below:
                return False
            below += expr.coefficient(v) * (nest.extents[v] - 1)
    return -_highest(I32) <= int(start.op.constant.array.reshape(-1)[0]) <= expr.const


def index_values(nest: Nest, op: Op) -> list[Value]:
    """The indices of a reduce that selects: its second result, and the values that its second operand is computed
    from."""
    node = next(n for n in nest.nodes.values() if n.op is op)
    return [op.results[1], *(key[0] for key in _chain(nest, node.operands[1]))]


def _chain(nest: Nest, key: Key) -> list[Key]:
    """A value followed by the values that it is converted or moved from."""
    keys = [key]
    while (node := nest.nodes.get(keys[-1])) is not None:
        moves = OPS[node.op.name].index_map is not None and node.op.name != "stablehlo.pad"
        if not node.operands or not (moves or node.op.name == "stablehlo.convert"):
            break
        keys.append(node.operands[0])
    return keys


def _iota(nest: Nest, key: Key) -> tuple[Expr, int] | None:
    """The iota that a value is computed from: its index, and the greatest number that all intermediate types can hold.
    None if there is no such iota."""
    keys = _chain(nest, key)
    source = nest.nodes.get(keys[-1])
    dtypes = [value.tensor.storage for value, _ in keys]
    if source is None or source.op.name != "stablehlo.iota" or not all(d.is_integer for d in dtypes):
        return None
    at = keys[-1][1]
    return None if at.conditions else (at.index[source.op.int("iota_dimension")], min(map(_highest, dtypes)))


def _highest(dtype: DType) -> int:
    return 2 ** (dtype.bits - (dtype.kind != "u")) - 1


def _is_number(value: Value) -> bool:
    if value.op is None or value.op.name != "stablehlo.constant":
        return False
    return not np.isnan(value.op.constant.array.reshape(-1)[0])
