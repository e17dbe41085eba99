"""Custom calls that frontends write for something with a meaning here, unless the user has registered their own.

Needs: one process. Guarantees: annotations of shardings are gone, and CHLO and StableHLO ops under MHLO's name, calls
or ops, are those ops. An assertion on shapes becomes a call of the run time, which is dropped where its condition is
constant.

    custom_call @Sharding(%x)       ->   %x
    custom_call @AllocateBuffer()   ->   zeros
    custom_call @mhlo.erf(%x)       ->   chlo.erf %x
    mhlo.erf %x                     ->   chlo.erf %x
    custom_call @mhlo.topk(%x) {mhlo.attributes = {k = 3, largest = true}}    ->   chlo.top_k %x, k = 3
    custom_call @mhlo.topk(%x) {mhlo.attributes = {k = 3, largest = false}}   ->   the first 3 of sort(%x, iota)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shlo_jit.ir.attributes import DictAttr, EnumAttr, IntegerAttr
from shlo_jit.ir.core import Block, Op, Region, Value, walk
from shlo_jit.ir.types import I1, TensorType, tensor
from shlo_jit.ops import OPS
from shlo_jit.passes import expand_build as mk
from shlo_jit.passes.rewriter import Rewriter, rewrite

ANNOTATIONS = {
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint", "annotate_device_placement",
    "MoveToHost", "MoveToDevice", "PinToDevice", "PinToDeviceSram", "mhlo.copy", "xla.sdy.FuncResultSharding",
    "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape", "xla.sdy.PropagationBarrier",
}  # fmt: skip
"""Where something lives, or how it is laid out: on one device of one memory, the operand."""
DROPPED = {"dce_sink", "xla.sdy.ShardingGroup"}
"""What takes an operand and gives nothing."""
SHAPE_ASSERTION = "shape_assertion"
SPARSE_PRODUCT = "cpu_csr_sparse_dense_ffi"
OTHER_NAMES = {"topk": "top_k"}
"""Ops whose name in MHLO is not CHLO's."""


def known_calls(function: Op, is_registered: Callable[[str], bool]) -> Op:
    """The function with those custom calls replaced."""
    if not any(op.name == "stablehlo.custom_call" or op.name.startswith("mhlo.") for op in walk(function.block())):
        return function

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name == "mhlo.copy":
            return operands
        if op.name.startswith("mhlo."):
            return _mhlo(rw, op, operands, op.name.removeprefix("mhlo."), op.attributes)
        if op.name != "stablehlo.custom_call" or is_registered(op.attributes["call_target_name"]):
            return None
        return _replace(rw, op, operands)

    return rewrite(function, visit)


def _replace(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    target = op.attributes["call_target_name"]
    if target in ANNOTATIONS:
        same = [v.type for v in operands] == [r.type for r in op.results]
        return operands if same else None
    if target in DROPPED and not op.results:
        return []
    if target == "AllocateBuffer" and not operands:
        return [mk.constant(rw, r.tensor, 0) for r in op.results]
    if target == SPARSE_PRODUCT:
        from shlo_jit.passes.sparse_calls import sparse_product

        return sparse_product(rw, op, operands)
    if target == SHAPE_ASSERTION:
        if "backend_config" in op.attributes and "error_message" not in op.attributes:
            return None
        config = DictAttr((("error_message", op.attributes.get("error_message", "shape assertion failed")),))
        attributes = {"call_target_name": target, "has_side_effect": True, "backend_config": config}
        attributes["api_version"] = IntegerAttr(4, "i32")  # whose backend_config is a dictionary
        return rw.emit(op.name, operands, [], attributes)
    if not target.startswith("mhlo."):
        return None
    given = op.attributes.get("mhlo.attributes", op.attributes.get("backend_config"))
    found = dict(given.items) if isinstance(given, DictAttr) else {}
    return _mhlo(rw, op, operands, target.removeprefix("mhlo."), found)


def _mhlo(rw: Rewriter, op: Op, operands: list[Value], word: str, found: Mapping[str, Any]) -> Sequence[Value] | None:
    """The op of that name; its attributes are those found with the call or the op of MHLO."""
    word = OTHER_NAMES.get(word, word)
    record = OPS.get("chlo." + word) or OPS.get("stablehlo." + word)
    if record is None or record.regions or len(record.results) != len(op.results):
        return None
    if not found.get("largest", True):
        return _smallest(rw, op, operands[0])
    attributes = {k: v for k, v in found.items() if k in record.attributes}
    if any(spec.required and name not in attributes for name, spec in record.attributes.items()):
        return None
    return rw.emit(record.name, operands, [r.type for r in op.results], attributes)


def _smallest(rw: Rewriter, op: Op, x: Value) -> Sequence[Value] | None:
    """The first elements of x in ascending order along its last dimension, as many as the result has, and their
    indices; of equal ones those with the lower index."""
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
