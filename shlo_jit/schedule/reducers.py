"""Properties of reducer bodies: one commutative op with a neutral element may be computed in any grouping."""

from __future__ import annotations

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import F32, DType
from shlo_jit.ops import OPS, OpDef


def simple_op(op: Op) -> OpDef | None:
    """The op of a reducer that is one commutative op of its two arguments and has a neutral element; otherwise None."""
    body = op.block()
    if len(body.ops) != 2 or len(body.arguments) != 2:
        return None
    inner, end = body.ops
    record = OPS[inner.name]
    same = len({o.type for o in [*inner.operands, *inner.results]}) == 1
    complete = set(inner.operands) == set(body.arguments) and end.operands == inner.results
    if not (record.has("elementwise") and record.has("commutative") and same and complete):
        return None
    e = record.neutral_on(_accumulator(record, inner.result.tensor.storage))
    return None if e is None else record


def accumulator(op: Op, simple: OpDef | None) -> DType:
    """The element type of a reduction's accumulator."""
    dtype = op.results[0].tensor.storage
    return dtype if simple is None else _accumulator(simple, dtype)


def _accumulator(simple: OpDef, dtype: DType) -> DType:
    """The accumulator of an element type: f32 for narrow floats, rounded once. An op that only chooses between its
    operands rounds nothing, so it keeps the type."""
    chooses = simple.has("idempotent")
    return F32 if dtype.is_float and dtype.bits < 32 and not chooses else dtype
