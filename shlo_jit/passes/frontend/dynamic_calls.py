"""Custom calls that JAX writes for ops of dynamic shape, replaced by those ops once the shapes are known.

Needs: the module, whose functions the calls name as their reducers. Guarantees: those calls are replaced by the ops
they represent if their results (and the windows of a reduce_window) are static.

    custom_call @stablehlo.dynamic_top_k(%x, %k) : tensor<3xf32>, tensor<3xi32>   ->   chlo.top_k %x, k = 3
    custom_call @stablehlo.dynamic_rng_bit_generator(%state, %shape)              ->   rng_bit_generator(%state)
    custom_call @stablehlo.dynamic_reduce_window(%x, %init, %size, %strides, %base_dilations, %dilations, %padding)
    ->
    reduce_window(%x, %init) by the function that the call names
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.passes.context import Context
from shlo_jit.passes.frontend.named_region import named_region
from shlo_jit.passes.frontend.replacement import replacement
from shlo_jit.passes.rewriter import Rewriter, rewrite


def dynamic_calls(function: Op, context: Context) -> Op:
    """The function with those calls replaced."""

    def is_one(op: Op) -> bool:
        if op.name != "stablehlo.custom_call" or op.attributes["call_target_name"] not in TARGETS:
            return False
        return not context.is_registered(op.attributes["call_target_name"])

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        meant = replacement(op) if is_one(op) else None
        if meant is None:
            return None
        regions = [named_region(rw, op, context.module)] if meant.regions else []
        arrays = operands[: len(meant.operands)]
        return rw.emit(meant.name, arrays, [r.type for r in op.results], meant.attributes, regions)

    return rewrite(function, visit) if any(map(is_one, walk(function.block()))) else function


TARGETS = {"stablehlo.dynamic_top_k", "stablehlo.dynamic_rng_bit_generator", "stablehlo.dynamic_reduce_window"}
