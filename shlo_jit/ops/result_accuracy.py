"""Check of `result_accuracy` of transcendental ops: only the mode TOLERANCE has tolerances."""

from __future__ import annotations

from typing import Any

from shlo_jit.ir.attributes import EnumAttr, FloatAttr, IntegerAttr, StructAttr
from shlo_jit.ir.core import Op
from shlo_jit.ops.record import Violation


def check_result_accuracy(op: Op) -> None:
    """Checks that all tolerances are zero with the modes DEFAULT and HIGHEST, and not all with TOLERANCE."""
    attr = op.attributes.get("result_accuracy")
    if not isinstance(attr, StructAttr):
        return
    mode = _mode(attr.get("mode"))
    tolerances = [_number(attr.get(name)) for name in ("atol", "rtol", "ulps")]
    if mode in ("DEFAULT", "HIGHEST") and any(tolerances):
        raise Violation(
            "result_accuracy", f"Invalid tolerances for ResultAccuracyAttr with mode {mode}, must be all zero."
        )
    if mode == "TOLERANCE" and not any(tolerances):
        raise Violation("result_accuracy", "mode TOLERANCE requires a nonzero tolerance")


def _mode(attr: Any) -> str:
    if isinstance(attr, EnumAttr):
        return attr.value
    if isinstance(attr, StructAttr) and attr.fields:
        return str(attr.fields[0][1] or attr.fields[0][0])
    return str(attr or "DEFAULT")


def _number(attr: Any) -> float:
    if isinstance(attr, FloatAttr | IntegerAttr):
        return attr.value
    return float(attr or 0)
