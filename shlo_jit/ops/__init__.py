"""What every op means: one record an op, one file a family. Importing this package fills `OPS`."""

from shlo_jit.ir.core import Op
from shlo_jit.ops import (
    bitcast,
    broadcast,
    chlo,
    chlo_broadcast,
    chlo_structured,
    collective,
    contract,
    control,
    convolution,
    custom_call,
    dynamic,
    elementwise,
    index,
    linalg,
    normalization,
    quantized,
    random,
    reduce,
    scatter,
    shape,
)
from shlo_jit.ops.record import OPS, OpDef, Violation

__all__ = ["OPS", "OpDef", "Violation", "is_elementwise", "lookup"]

FAMILIES = (
    elementwise, shape, broadcast, bitcast, dynamic, contract, convolution, reduce, scatter, index, control,
    custom_call, random, linalg, normalization, quantized, collective, chlo, chlo_broadcast, chlo_structured,
)  # fmt: skip


def lookup(op: Op) -> OpDef | None:
    """The record of an op; None when its name is not known."""
    return OPS.get(op.name)


def is_elementwise(op: Op) -> bool:
    """Result element i depends on element i of the operands only; a bitcast does when it keeps the shape."""
    record = OPS.get(op.name)
    if record is None:
        return False
    if op.name == "stablehlo.bitcast_convert":
        return op.operands[0].type.shape == op.results[0].type.shape  # type: ignore[attr-defined]
    return record.has("elementwise")
