"""Concatenations of concatenations as one: frontends put at most some operands together at a time, and what a part is
computed by can write it where it ends up.

Needs: static shapes. Guarantees: nothing; a part that nothing else reads is written once.

    concatenate(concatenate(x, y, dim = 1), z, dim = 1)   ->   concatenate(x, y, z, dim = 1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite

CONCATENATE = "stablehlo.concatenate"


def flat_concatenates(function: Op, _: Context) -> Op:
    """The function with the operands of inner concatenations, of which outer ones are the only readers, in the outer
    ones. The inner ones are dead afterwards."""
    if not any(op.name == CONCATENATE for op in walk(function.block())):
        return function
    uses = Counter(v for op in walk(function.block()) for v in op.operands)

    def parts(value: Value, dimension: int) -> list[Value]:
        op = value.op
        if op is None or op.name != CONCATENATE or uses[value] != 1 or op.int("dimension") != dimension:
            return [value]
        return [part for operand in op.operands for part in parts(operand, dimension)]

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != CONCATENATE:
            return None
        flat = [part for operand in op.operands for part in parts(operand, op.int("dimension"))]
        if len(flat) == len(operands):
            return None
        return rw.emit(op.name, [rw.get(part) for part in flat], [op.result.type], op.attributes)

    return rewrite(function, visit)
