"""Unroll short counted loops of elementwise work, so that their iterations fuse.

Needs: nothing. Guarantees: no short `while` remains whose counter starts at a constant, increases by a constant and is
compared with a constant. Short means at most UNROLL_TRIP_COUNT iterations, with only fusible ops in the body.

    while i < 5 { x = round(x, i); i = i + 1 }   ->   x = round(x, 0); ...; x = round(x, 4)

JAX's Threefry is such a loop of five groups of rounds: if it is not unrolled, every group reads and writes all words.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit import tuning
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import TensorType
from shlo_jit.ops import OPS, is_elementwise
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite


def unroll(function: Op, _: Context) -> Op:
    """The function without such loops."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        trip_count = trip_count_of(op) if op.name == "stablehlo.while" else None
        body = op.block(1).ops if trip_count is not None else []
        if trip_count is None or trip_count > tuning.UNROLL_TRIP_COUNT or trip_count * len(body) > tuning.UNROLL_OPS:
            return None
        if not all(map(_is_fusible, body)):
            return None
        values = list(operands)
        for _ in range(trip_count):
            rw.values.update(zip(op.block(1).arguments, values, strict=True))
            rw.run(body[:-1])
            values = [rw.get(v) for v in body[-1].operands]
        return values

    return rewrite(function, visit)


def _is_fusible(op: Op) -> bool:
    """Whether an op computes, or copies from known places (one operand: no start indices)."""
    copies = OPS[op.name].index_map is not None and len(op.operands) <= 1
    return op.name == "stablehlo.return" or copies or is_elementwise(op)


def trip_count_of(op: Op) -> int | None:
    """Returns the trip count of a counted loop, or None if it is not obvious."""
    condition, body = op.block(0), op.block(1)
    test = condition.terminator.operands[0].op
    if test is None or test.name != "stablehlo.compare" or test.attributes["comparison_direction"].value != "LT":
        return None
    counter, limit = test.operands
    if counter not in condition.arguments:
        return None
    k = condition.arguments.index(counter)
    step = body.terminator.operands[k].op
    if step is None or step.name != "stablehlo.add" or body.arguments[k] not in step.operands:
        return None
    (other,) = [v for v in step.operands if v is not body.arguments[k]] or [body.arguments[k]]
    first, last, by = (_integer(v) for v in (op.operands[k], limit, other))
    if first is None or last is None or by is None or by <= 0:
        return None
    return max(0, -(-(last - first) // by))


def _integer(value: Value) -> int | None:
    op, t = value.op, value.type
    if op is None or op.name != "stablehlo.constant" or not isinstance(t, TensorType) or t.rank:
        return None
    return int(op.constant.array.reshape(-1)[0]) if t.storage.kind in "iu" else None
