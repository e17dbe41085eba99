"""What a reducer body allows: one commutative op with a neutral element may be computed in any grouping."""

from __future__ import annotations

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import F32, DType

COMMUTATIVE = {
    "stablehlo.add", "stablehlo.multiply", "stablehlo.maximum", "stablehlo.minimum", "stablehlo.and", "stablehlo.or",
    "stablehlo.xor",
}  # fmt: skip


def simple_op(op: Op) -> str | None:
    """Name of the op a reducer consists of, when that is one commutative op of its two arguments; else None."""
    body = op.block()
    if len(body.ops) != 2 or len(body.arguments) != 2:
        return None
    inner, end = body.ops
    same = len({o.type for o in [*inner.operands, *inner.results]}) == 1
    complete = set(inner.operands) == set(body.arguments) and end.operands == inner.results
    return inner.name if inner.name in COMMUTATIVE and same and complete and _has_neutral(inner) else None


def _has_neutral(inner: Op) -> bool:
    """Complex and saturating small-float extremes have no neutral element we can name."""
    dtype = inner.result.tensor.storage
    extreme = inner.name in ("stablehlo.maximum", "stablehlo.minimum")
    return not (extreme and (dtype.is_complex or (dtype.is_float and dtype.bits < 16))) and not (
        dtype.is_complex and inner.name == "stablehlo.multiply"
    )


def accumulator(op: Op, simple: str | None) -> DType:
    """What a reduction carries: sums and products of narrow floats are carried in f32 and rounded once."""
    dtype = op.results[0].tensor.storage
    sums = simple in ("stablehlo.add", "stablehlo.multiply")
    return F32 if sums and dtype.is_float and dtype.bits < 32 else dtype
