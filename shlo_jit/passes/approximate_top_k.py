"""Approximate top-k, exactly: JAX's `approx_max_k` and `approx_min_k` as a sort and a slice.

Needs: the module, whose functions the calls name as their comparators. Guarantees: no `custom_call @ApproxTopK` whose
comparator is a function with one block.

    %v:2 = custom_call @ApproxTopK(%x, %i, %a, %b) {called_computations = [@f], ... {reduction_dim = 1, top_k = 2}}
    ->
    %s:2 = sort(%x, %i) by @f along 1;  %v:2 = the first elements of %s:2 along dimension 1, as many as %v has
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.attributes import DenseArray, DictAttr, IntegerAttr, SymbolRef, as_int
from shlo_jit.ir.core import Module, Op, Region, Value, is_declaration, walk
from shlo_jit.ir.types import TensorType
from shlo_jit.passes.inline import inline
from shlo_jit.passes.rewriter import Rewriter, rewrite

TARGETS = {"ApproxTopK", "stablehlo.dynamic_approx_top_k"}
"""The second has k as an operand; the result's type says it too."""


def exact_top_k(module: Module, function: Op) -> Op:
    """The function with every approximate top-k sorted out."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if not _is_approximate(op):
            return None
        config = op.attributes.get("mhlo.backend_config", op.attributes.get("backend_config"))
        called = op.attributes.get("called_computations", ())
        if not isinstance(config, DictAttr) or len(called) != 1 or not isinstance(called[0], SymbolRef):
            return None
        comparator = module.function(called[0].name)
        if comparator is None or is_declaration(comparator):
            return None
        return _sorted(rw, op, operands, inline(module, comparator), as_int(dict(config.items)["reduction_dim"]))

    return rewrite(function, visit) if any(map(_is_approximate, walk(function.block()))) else function


def _is_approximate(op: Op) -> bool:
    if op.name != "stablehlo.custom_call" or op.attributes["call_target_name"] not in TARGETS:
        return False
    return all(isinstance(r.type, TensorType) and r.type.is_static for r in op.results)


def _sorted(rw: Rewriter, op: Op, operands: list[Value], comparator: Op, dimension: int) -> Sequence[Value]:
    inputs = operands[: len(op.results)]
    dimension %= inputs[0].tensor.rank
    body = rw.sweep(comparator.block())
    end = body.ops.pop()
    body.ops.append(Op("stablehlo.return", end.operands, []))
    attributes = {"dimension": IntegerAttr(dimension), "is_stable": True}
    whole = rw.emit("stablehlo.sort", inputs, [v.type for v in inputs], attributes, [Region([body])])
    out = []
    for value, result in zip(whole, op.results, strict=True):
        limits = tuple(result.tensor.extents)
        ones, zeros = (1,) * len(limits), (0,) * len(limits)
        slices = {"start_indices": zeros, "limit_indices": limits, "strides": ones}
        slices = {k: DenseArray("i64", v) for k, v in slices.items()}
        out += rw.emit("stablehlo.slice", [value], [result.type], slices)
    return out
