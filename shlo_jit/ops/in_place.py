"""Ops with kernels that update an operand in place: the result takes over the memory of the operand."""

from __future__ import annotations

from shlo_jit.ir.core import Op, Value
from shlo_jit.ops.known_calls import RAGGED_ALL_TO_ALL


def updates(op: Op) -> list[tuple[Value, Value]]:
    """Returns the operands whose elements a kernel updates in place, with the results that take over their memory."""
    if op.name == "stablehlo.scatter":
        return list(zip(op.operands, op.results, strict=False))
    if op.name != "stablehlo.custom_call":
        return []
    if op.attributes["call_target_name"] == RAGGED_ALL_TO_ALL:
        return [(op.operands[1], op.result)]
    aliases = op.attributes.get("output_operand_aliases") or ()
    places = [(a.get("operand_index", 0), (*a.get("output_tuple_indices", ()), 0)[0]) for a in aliases]
    found: dict[Value, Value] = {}
    for i, o in places:  # a result can reuse the memory of one operand only
        found.setdefault(op.results[int(o)], op.operands[int(i)])
    return [(operand, result) for result, operand in found.items()]


def may_update(op: Op) -> list[tuple[Value, Value]]:
    """Returns the operands of a kernel, with results that may reuse their memory when they are dead: the kernel reads
    every element before it writes the same one. This holds for an all_reduce over groups of equal size, in which each
    rank reduces a part. Otherwise ranks read each other's operands, which must not be overwritten."""
    if op.name != "stablehlo.all_reduce" or (op.attributes["replica_groups"].array < 0).any():
        return []
    return list(zip(op.operands, op.results, strict=True))
