"""Outline regions as functions of the program.

    sort(x) by a comparator with a `while`   ->   custom_call @shlo_jit.sort(x), which calls @"main: comparator 0"

The kernel that runs such a call compares two elements by calling the function, so the comparator may hold whatever a
function may hold. Values from outside the region become operands of the call and arguments of the function.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.attributes import IntegerAttr, TypeAttr
from shlo_jit.ir.core import Block, Op, Region, Value, walk
from shlo_jit.ir.types import FunctionType, TensorType
from shlo_jit.ops import OPS
from shlo_jit.ops.effects import acting
from shlo_jit.ops.known_calls import AMONG_PROCESSES, SORT, OutlinedRef
from shlo_jit.passes.context import Outlined
from shlo_jit.passes.rewriter import Rewriter


def outer_values(block: Block) -> list[Value]:
    """Returns the values from outside that a block, or a region nested in it, reads."""
    own = set(block.arguments)
    for op in walk(block):
        own.update(op.results)
        own.update(a for region in op.regions for inner in region.blocks for a in inner.arguments)
    return list(dict.fromkeys(v for op in walk(block) for v in op.operands if v not in own))


def is_constant(value: Value) -> bool:
    """Whether a value is the result of a constant op, which can be cloned anywhere."""
    return value.op is not None and value.op.name == "stablehlo.constant"


def check_region(ops: Sequence[Op]) -> None:
    """Raises UnsupportedError for ops that communicate with other processes, and for values that are not tensors."""
    for op in walk(Block([], list(ops))):
        record = OPS.get(op.name)
        meets = record is not None and record.has("collective") and op.name != "stablehlo.replica_id"
        meets = meets or op.attributes.get("call_target_name") in AMONG_PROCESSES
        if meets or not all(isinstance(v.type, TensorType) for v in (*op.operands, *op.results)):
            raise UnsupportedError(
                diagnose(f"{op.name} is not supported in the region of another op", op.span, label="region-op")
            )


def sort_by_function(rw: Rewriter, op: Op, operands: Sequence[Value], outlined: Outlined) -> Sequence[Value]:
    """Emits a call that sorts by a function, and adds that function to the outlined ones."""
    body = op.block()
    check_region(body.ops)
    captured = [v for v in outer_values(body) if not is_constant(v)]
    function = _function(op, body, captured, outlined)
    attributes = {
        "call_target_name": SORT,
        "callee": OutlinedRef((function.attributes["sym_name"],)),
        "dimension": IntegerAttr(op.int("dimension", -1) % max(1, op.operands[0].tensor.rank)),
        "has_side_effect": bool(acting(body)),
    }
    values = [*operands, *(rw.get(v) for v in captured)]
    return rw.emit("stablehlo.custom_call", values, [r.type for r in op.results], attributes)


def _function(op: Op, body: Block, captured: list[Value], outlined: Outlined) -> Op:
    """Returns a region as a function of its arguments and of the values that it reads from outside."""
    copier = Rewriter(lambda *_: None)
    block = Block([Value(a.type, name=a.name) for a in (*body.arguments, *captured)])
    copier.values.update(zip((*body.arguments, *captured), block.arguments, strict=True))
    copier.blocks.append(block)
    copier.run([v.op for v in outer_values(body) if v.op is not None and is_constant(v)])
    copier.run(body.ops[:-1])
    end = body.terminator
    results = [copier.get(v) for v in end.operands]
    block.ops.append(Op("func.return", results, [], {}, None, end.source, end.start, end.end))
    type = FunctionType(tuple(a.type for a in block.arguments), tuple(v.type for v in results))
    attributes = {"sym_name": outlined.new_name("comparator"), "function_type": TypeAttr(type)}
    function = Op("func.func", [], [], attributes, [Region([block])], op.source, op.start, op.end)
    outlined.functions.append(function)
    return function
