"""Rewrite ops whose regions do more than arithmetic on scalars as ops on whole tensors.

Needs: inlined functions. Guarantees: the regions of the ops in `BODIES` have only elementwise ops, on their own
scalars, and take scalars. Initial values with a shape, which the specification of some reductions allows, are refused.
The rules are in `batched_ops.py`, `batched_region.py` and `outline.py`, which few programs need.

    map(x, y) by a body with an `if`           ->   the body on x and y: both branches, then a select
    reduce(x, init) by a body with a `while`   ->   for k { total = body(total, x[:, k]) }, on whole columns of x
    sort(x) by a comparator with a `while`     ->   a sort that calls the comparator as a function
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import TensorType
from shlo_jit.ops.bodies import PLAIN_BODIES, is_plain
from shlo_jit.ops.type_algebra import type_text
from shlo_jit.passes.context import Context, Outlined
from shlo_jit.passes.rewriter import Rewriter, rewrite

BODIES = PLAIN_BODIES | {"stablehlo.all_reduce", "stablehlo.reduce_scatter"}
"""Ops whose regions must be arithmetic."""


def elementwise_bodies(function: Op, context: Context) -> Op:
    """The function with those ops replaced. Raises UnsupportedError for a region over values that are not scalars."""
    for op in walk(function.block()):
        if op.name in BODIES:
            _require_scalars(op)
    if not any(op.name in BODIES and _is_general(op) for op in walk(function.block())):
        return function

    outlined = context.functions or Outlined(function.attributes["sym_name"])

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name not in BODIES or not _is_general(op):
            return None
        from shlo_jit.passes.regions.batched_ops import RULES, general_sort

        if op.name == "stablehlo.sort":
            return general_sort(rw, op, operands, outlined)
        return RULES[op.name](rw, op, operands)

    return rewrite(function, visit)


def _require_scalars(op: Op) -> None:
    for region in op.regions:
        for a in region.block.arguments:
            if isinstance(a.type, TensorType) and a.type.shape != ():
                what = f"{op.name}: expected a region over scalars, but an argument has type {type_text(a.type)}"
                raise UnsupportedError(diagnose(what, op.span, label="region-types"))


def _is_general(op: Op) -> bool:
    static = all(isinstance(v.type, TensorType) and v.type.is_static for v in (*op.operands, *op.results))
    return static and not all(is_plain(region.block) for region in op.regions)
