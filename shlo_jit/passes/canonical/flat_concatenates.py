"""Merge concatenations of concatenations: some frontends limit the operands of one concatenation. The producer of a
segment can then write it directly into the final result.

Needs: static shapes. Guarantees: nothing; a segment that nothing else reads is written once.

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
    """The function with each inner concatenation that is only read by an outer one replaced by its operands. The inner
    ones are dead afterwards."""
    if not any(op.name == CONCATENATE for op in walk(function.block())):
        return function
    uses = Counter(v for op in walk(function.block()) for v in op.operands)

    def is_part(value: Value, dimension: int) -> bool:
        """Whether a value is a concatenation along a dimension that nothing else reads."""
        op = value.op
        return op is not None and op.name == CONCATENATE and uses[value] == 1 and op.int("dimension") == dimension

    concatenates = [op for op in walk(function.block()) if op.name == CONCATENATE]
    inner = {v for op in concatenates for v in op.operands if is_part(v, op.int("dimension"))}

    def parts(op: Op) -> list[Value]:
        """Returns the operands, with those of inner concatenations in their place."""
        found: list[Value] = []
        todo = list(reversed(op.operands))
        while todo:
            value = todo.pop()
            if value in inner and value.op is not None:
                todo += reversed(value.op.operands)
            else:
                found.append(value)
        return found

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != CONCATENATE or op.result in inner or inner.isdisjoint(op.operands):
            return None
        return rw.emit(op.name, [rw.get(part) for part in parts(op)], [op.result.type], op.attributes)

    return rewrite(function, visit)
