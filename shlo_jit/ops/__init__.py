"""What every op means: one record an op, one file a family. `OPS` has them all, by name."""

from shlo_jit.ir.core import Op
from shlo_jit.ops.record import OPS, OpDef, Violation

__all__ = ["OPS", "OpDef", "Violation", "is_elementwise"]


def is_elementwise(op: Op) -> bool:
    """Result element i depends on element i of the operands only; a bitcast does when it keeps the shape."""
    record = OPS.get(op.name)
    if record is None:
        return False
    if op.name == "stablehlo.bitcast_convert":
        return op.operands[0].type.shape == op.results[0].type.shape  # type: ignore[attr-defined]
    return record.has("elementwise")
