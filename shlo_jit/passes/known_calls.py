"""Custom calls that frontends write for something with a meaning here, unless the user has registered their own.

Needs: one process. Guarantees: annotations of shardings are gone, and CHLO and StableHLO ops under MHLO's name are
those ops. An assertion on shapes becomes a call of the run time, which is dropped where its condition is constant.

    custom_call @Sharding(%x)     ->   %x
    custom_call @mhlo.erf(%x)     ->   chlo.erf %x
    custom_call @mhlo.topk(%x) {mhlo.attributes = {k = 3, largest = true}}   ->   chlo.top_k %x, k = 3
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_jit.ir.attributes import DictAttr, IntegerAttr
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ops import OPS
from shlo_jit.passes.rewriter import Rewriter, rewrite

ANNOTATIONS = {
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint", "annotate_device_placement",
    "xla.sdy.FuncResultSharding", "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape",
}  # fmt: skip
SHAPE_ASSERTION = "shape_assertion"
OTHER_NAMES = {"topk": "top_k"}
"""Ops whose name in MHLO is not CHLO's."""


def known_calls(function: Op, is_registered: Callable[[str], bool]) -> Op:
    """The function with those custom calls replaced."""
    if not any(op.name == "stablehlo.custom_call" for op in walk(function.block())):
        return function

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != "stablehlo.custom_call" or is_registered(op.attributes["call_target_name"]):
            return None
        return _replace(rw, op, operands)

    return rewrite(function, visit)


def _replace(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    target = op.attributes["call_target_name"]
    if target in ANNOTATIONS:
        same = [v.type for v in operands] == [r.type for r in op.results]
        return operands if same else None
    if target == SHAPE_ASSERTION:
        if "backend_config" in op.attributes and "error_message" not in op.attributes:
            return None
        config = DictAttr((("error_message", op.attributes.get("error_message", "shape assertion failed")),))
        attributes = {"call_target_name": target, "has_side_effect": True, "backend_config": config}
        attributes["api_version"] = IntegerAttr(4, "i32")  # whose backend_config is a dictionary
        return rw.emit(op.name, operands, [], attributes)
    return _mhlo(rw, op, operands, target.removeprefix("mhlo.")) if target.startswith("mhlo.") else None


def _mhlo(rw: Rewriter, op: Op, operands: list[Value], word: str) -> Sequence[Value] | None:
    """The op of that name; its attributes are those the call has for it."""
    word = OTHER_NAMES.get(word, word)
    record = OPS.get("chlo." + word) or OPS.get("stablehlo." + word)
    if record is None or record.regions or len(record.results) != len(op.results):
        return None
    given = op.attributes.get("mhlo.attributes", op.attributes.get("backend_config"))
    found = dict(given.items) if isinstance(given, DictAttr) else {}
    if not found.get("largest", True):
        return None  # top_k finds the largest
    attributes = {k: v for k, v in found.items() if k in record.attributes}
    if any(spec.required and name not in attributes for name, spec in record.attributes.items()):
        return None
    return rw.emit(record.name, operands, [r.type for r in op.results], attributes)
