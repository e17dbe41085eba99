"""Custom calls whose targets are code that users provide, to be compiled with the program.

Needs: only tensors. Guarantees: such calls are ops, or calls of machine code that is linked with the program
(`ops/machine_code.py`). The compilers of the code's languages choose the replacement (`custom/replace.py`).

    custom_call @wave(%x, %y)   ->   multiply, sine, add ...
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite


def custom_code(function: Op, context: Context) -> Op:
    """The function with those calls replaced. Raises UnsupportedError for code that cannot be compiled."""
    if not any(_target(op) in context.code for op in walk(function.block())):
        return function

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        code = context.code.get(_target(op))
        return None if code is None else code(rw, op, operands)

    return rewrite(function, visit)


def _target(op: Op) -> str:
    return op.attributes["call_target_name"] if op.name == "stablehlo.custom_call" else ""
