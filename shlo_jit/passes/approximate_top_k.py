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
from shlo_jit.ir.core import Block, Module, Op, Region, Value, is_declaration
from shlo_jit.passes.rewriter import Rewriter, rewrite


def exact_top_k(module: Module, function: Op) -> Op:
    """The function with every approximate top-k sorted out."""
    functions = {f.attributes["sym_name"]: f for f in module.functions()}

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != "stablehlo.custom_call" or op.attributes["call_target_name"] != "ApproxTopK":
            return None
        config, called = op.attributes.get("mhlo.backend_config"), op.attributes.get("called_computations", ())
        if not isinstance(config, DictAttr) or len(called) != 1 or not isinstance(called[0], SymbolRef):
            return None
        comparator = functions.get(called[0].name)
        if comparator is None or is_declaration(comparator):
            return None
        return _sorted(rw, op, operands, comparator, as_int(dict(config.items)["reduction_dim"]))

    if not any(op.name == "stablehlo.custom_call" for op in function.block().ops):
        return function
    return rewrite(function, visit)


def _sorted(rw: Rewriter, op: Op, operands: list[Value], comparator: Op, dimension: int) -> Sequence[Value]:
    inputs = operands[: len(op.results)]
    body: Block = rw.sweep(comparator.block())
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
