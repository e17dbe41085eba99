"""Custom calls of frontends that have a known meaning, replaced unless the user has registered an implementation.

Needs: one process. Guarantees: annotations of shardings are gone. CHLO and StableHLO ops under MHLO names, as calls or
ops, are replaced by those ops. An assertion on shapes becomes a call to the runtime, which is dropped if its condition
is constant.

    custom_call @Sharding(%x)       ->   %x
    custom_call @AllocateBuffer()   ->   zeros
    custom_call @mhlo.erf(%x)       ->   chlo.erf %x
    mhlo.erf %x                     ->   chlo.erf %x
    custom_call @mhlo.topk(%x) {mhlo.attributes = {k = 3, largest = true}}    ->   chlo.top_k %x, k = 3
    custom_call @mhlo.topk(%x) {mhlo.attributes = {k = 3, largest = false}}   ->   the first 3 of sort(%x, iota)
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.attributes import DictAttr, EnumAttr, IntegerAttr
from shlo_jit.ir.core import Block, Op, Region, Value, walk
from shlo_jit.ir.types import I1, TensorType, tensor
from shlo_jit.ops.known_calls import SHAPE_ASSERTION, SPARSE_PRODUCT
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.frontend.replacement import replacement
from shlo_jit.passes.rewriter import Rewriter, rewrite

ANNOTATIONS = {
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint", "annotate_device_placement",
    "MoveToHost", "MoveToDevice", "PinToDevice", "PinToDeviceSram", "mhlo.copy", "xla.sdy.FuncResultSharding",
    "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape", "xla.sdy.PropagationBarrier", "InspectSharding",
}  # fmt: skip
"""Targets that say where a value is stored or how it is laid out: on one device with one memory, the result is the
operand."""
DROPPED = {"dce_sink", "xla.sdy.ShardingGroup"}
"""Targets that take operands and return nothing."""


def known_calls(function: Op, context: Context) -> Op:
    """The function with those custom calls replaced."""
    if not any(op.name == "stablehlo.custom_call" or op.name.startswith("mhlo.") for op in walk(function.block())):
        return function

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name == "mhlo.copy":
            return _annotated(op, operands)
        if op.name.startswith("mhlo."):
            return _meant(rw, op, operands)
        if op.name != "stablehlo.custom_call" or context.is_registered(op.attributes["call_target_name"]):
            return None
        return _replace(rw, op, operands)

    return rewrite(function, visit)


def _replace(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    target = op.attributes["call_target_name"]
    if target in ANNOTATIONS:
        return _annotated(op, operands)
    if target in DROPPED and not op.results:
        return []
    if target == "AllocateBuffer" and all(map(mk.is_static, op.results)):
        return [mk.constant(rw, r.tensor, 0) for r in op.results]
    if target == SPARSE_PRODUCT:
        from shlo_jit.passes.frontend.sparse_calls import sparse_product

        return sparse_product(rw, op, operands)
    if target == SHAPE_ASSERTION:
        if "backend_config" in op.attributes and "error_message" not in op.attributes:
            return None
        config = DictAttr((("error_message", op.attributes.get("error_message", "shape assertion failed")),))
        attributes = {"call_target_name": target, "has_side_effect": True, "backend_config": config}
        attributes["api_version"] = IntegerAttr(4, "i32")  # in this version, backend_config is a dictionary
        return rw.emit(op.name, operands, [], attributes)
    return _meant(rw, op, operands) if target.startswith("mhlo.") else None


def _annotated(op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """Returns the operands if the results have the same types, apart from what the call annotates."""
    return operands if [v.type for v in operands] == [r.type for r in op.results] else None


def _meant(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """Replaces an MHLO call or op by the op that it represents."""
    meant = replacement(op)
    if meant is None:
        return None
    given = op.attributes.get("mhlo.attributes", op.attributes.get("backend_config"))
    found = dict(given.items) if isinstance(given, DictAttr) else op.attributes
    if not found.get("largest", True):
        return _smallest(rw, op, operands[0])
    return rw.emit(meant.name, operands, [r.type for r in op.results], meant.attributes)


def _smallest(rw: Rewriter, op: Op, x: Value) -> Sequence[Value] | None:
    """Returns the first elements of x in ascending order along its last dimension, as many as the result has, and their
    indices. Ties are ordered by index."""
    values, indices = (r.type for r in op.results)
    if not isinstance(values, TensorType) or not isinstance(indices, TensorType):
        return None
    if not (mk.is_static(x) and values.is_static):
        return None
    dimension = x.tensor.rank - 1
    places = mk.iota(rw, tensor(mk.shape_of(x), indices.storage), dimension)
    arguments = [Value(tensor((), v.tensor.storage)) for v in (x, x, places, places)]
    attributes = {"comparison_direction": EnumAttr("stablehlo", "comparison_direction", "LT")}
    if x.tensor.storage.is_float:
        attributes["compare_type"] = EnumAttr("stablehlo", "comparison_type", "TOTALORDER")
    source, start, end = rw.place()
    less = Op("stablehlo.compare", arguments[:2], [tensor((), I1)], attributes, None, source, start, end)
    done = Op("stablehlo.return", list(less.results), [], None, None, source, start, end)
    order = {"dimension": IntegerAttr(dimension), "is_stable": True}
    region = Region([Block(arguments, [less, done])])
    found = rw.emit("stablehlo.sort", [x, places], [x.type, places.type], order, [region])
    return [mk.slice_dim(rw, v, dimension, 0, values.extents[-1]) for v in found]
