"""Approximate top-k, exactly: JAX's `approx_max_k` and `approx_min_k` as a sort and a slice.

Needs: the module, whose functions the calls name as their comparators. Guarantees: no `custom_call @ApproxTopK` whose
comparator is a function with one block.

    %v:2 = custom_call @ApproxTopK(%x, %i, %a, %b) {called_computations = [@f], ... {reduction_dim = 1, top_k = 2}}
    ->
    %s:2 = sort(%x, %i) by @f along 1;  %v:2 = the first elements of %s:2 along dimension 1, as many as %v has
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.attributes import DenseArray, IntegerAttr
from shlo_jit.ir.core import Op, Region, Value, walk
from shlo_jit.ops.call_record import configuration
from shlo_jit.ops.known_calls import APPROXIMATE_TOP_K
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.frontend.named_region import named_region
from shlo_jit.passes.rewriter import Rewriter, rewrite


def exact_top_k(function: Op, context: Context) -> Op:
    """The function with every approximate top-k replaced by a sort and a slice."""

    def is_approximate(op: Op) -> bool:
        if op.name != "stablehlo.custom_call" or op.attributes["call_target_name"] not in APPROXIMATE_TOP_K:
            return False
        return not context.is_registered(op.attributes["call_target_name"]) and all(map(mk.is_static, op.results))

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if not is_approximate(op):
            return None
        comparator = named_region(rw, op, context.module)
        return _sorted(rw, op, operands, comparator, configuration(op)["reduction_dim"])

    return rewrite(function, visit) if any(map(is_approximate, walk(function.block()))) else function


def _sorted(rw: Rewriter, op: Op, operands: list[Value], comparator: Region, dimension: int) -> Sequence[Value]:
    inputs = operands[: len(op.results)]
    dimension %= inputs[0].tensor.rank
    attributes = {"dimension": IntegerAttr(dimension), "is_stable": True}
    whole = rw.emit("stablehlo.sort", inputs, [v.type for v in inputs], attributes, [comparator])
    out = []
    for value, result in zip(whole, op.results, strict=True):
        limits = tuple(result.tensor.extents)
        ones, zeros = (1,) * len(limits), (0,) * len(limits)
        slices = {"start_indices": zeros, "limit_indices": limits, "strides": ones}
        slices = {k: DenseArray("i64", v) for k, v in slices.items()}
        out += rw.emit("stablehlo.slice", [value], [result.type], slices)
    return out
