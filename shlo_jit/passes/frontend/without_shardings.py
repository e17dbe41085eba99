"""Remove ops of the Shardy dialect: on one device, a sharding has no effect.

Needs: inlined functions. Guarantees: no op of the `sdy` dialect whose local types are the global ones remains. Raises
UnsupportedError for a computation on parts, which was written for several devices.

    sharding_constraint(x), reshard(x), all_gather(x) ...   ->   x
    sharding_group(x)                                       ->   nothing
    manual_computation(x) { body }                          ->   body(x)
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite


def without_shardings(function: Op, _: Context) -> Op:
    """The function as one device runs it."""
    return rewrite(function, _visit) if any(op.dialect == "sdy" for op in walk(function.block())) else function


def _visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    if op.dialect != "sdy":
        return None
    if op.regions:
        return _body(rw, op, operands)
    if op.name == "sdy.constant":
        return rw.emit("stablehlo.constant", [], [op.result.type], {"value": op.attributes["value"]})
    if not op.results:
        return []
    return operands if [v.type for v in operands] == [r.type for r in op.results] else None


def _body(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """Inlines the op's region, which computes on whole operands."""
    body = op.block()
    inside = [*body.arguments, *body.terminator.operands]
    if [v.type for v in inside] != [v.type for v in (*operands, *op.results)]:
        what = f"{op.name} computes on parts of its operands, but the program is compiled for one device"
        raise UnsupportedError(
            diagnose(
                what, op.span, hint="compile the program of one device with num_partitions", label="several-devices"
            )
        )
    rw.values.update(zip(body.arguments, operands, strict=True))
    rw.run(body.ops[:-1])
    return [rw.get(v) for v in body.terminator.operands]
