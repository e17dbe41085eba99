"""Semantics of the ops: one record per op, one file per family. `OPS` has all records by name."""

from shlo_jit.ir.core import Op
from shlo_jit.ops.record import OPS, OpDef, Violation

__all__ = ["OPS", "OpDef", "Violation", "is_elementwise"]


def is_elementwise(op: Op) -> bool:
    """Whether result element i depends only on element i of the operands. A bitcast is elementwise if it keeps the
    shape."""
    record = OPS.get(op.name)
    if record is None:
        return False
    if op.name == "stablehlo.bitcast_convert":
        return op.operands[0].type.shape == op.results[0].type.shape  # type: ignore[attr-defined]
    return record.has("elementwise")
