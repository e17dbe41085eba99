"""Mark elementwise custom calls, so that the types of their results can be inferred if shapes are unknown.

custom_call @wave(%x) : (tensor<?xf32>) -> tensor<?xf32>   ->   the same, with {shlo_jit.elementwise}
"""

from __future__ import annotations

from collections.abc import Container

from shlo_jit.ir.attributes import UNIT
from shlo_jit.ir.core import Block, Module, Op, Region, Value, walk
from shlo_jit.ops.known_calls import ELEMENTWISE
from shlo_jit.passes.rewriter import Rewriter, rewrite


def elementwise_calls(module: Module, targets: Container[str]) -> Module:
    """Returns the module with calls of those targets marked, or the same module if there are none."""

    def is_one(op: Op) -> bool:
        return op.name == "stablehlo.custom_call" and op.attributes["call_target_name"] in targets

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> list[Value] | None:
        if not is_one(op):
            return None
        return rw.emit(op.name, operands, [r.type for r in op.results], {**op.attributes, ELEMENTWISE: UNIT})

    if not any(map(is_one, walk(module.body))):
        return module
    functions = {f: rewrite(f, visit) if f.regions and f.block().ops else f for f in module.functions()}
    old = module.op
    block = Block(ops=[functions.get(op, op) for op in module.body.ops])
    op = Op(old.name, [], [], old.attributes, [Region([block])], old.source, old.start, old.end, old.location)
    return Module(op, module.source, module.locations)
