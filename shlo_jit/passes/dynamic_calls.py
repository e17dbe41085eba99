"""Custom calls in which JAX writes ops whose shapes it does not know, where the shapes are known after all.

Needs: the module, whose functions the calls name as their reducers. Guarantees: those calls are the ops they stand for,
as far as their results (and the windows of a reduce_window) are static.

    custom_call @stablehlo.dynamic_top_k(%x, %k) : tensor<3xf32>, tensor<3xi32>   ->   chlo.top_k %x, k = 3
    custom_call @stablehlo.dynamic_rng_bit_generator(%state, %shape)              ->   rng_bit_generator(%state)
    custom_call @stablehlo.dynamic_reduce_window(%x, %init, %size, %strides, %base_dilations, %dilations, %padding)
    ->
    reduce_window(%x, %init) by the function that the call names
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import Dense, EnumAttr, IntegerAttr, SymbolRef
from shlo_jit.ir.core import Module, Op, Region, Value, is_declaration, walk
from shlo_jit.ir.types import I64, tensor
from shlo_jit.ops.shapes import constant_ints
from shlo_jit.passes import expand_build as mk
from shlo_jit.passes.inline import inline
from shlo_jit.passes.rewriter import Rewriter, rewrite

Rule = Callable[[Rewriter, Op, list[Value], Module], "Sequence[Value] | None"]


def dynamic_calls(module: Module, function: Op) -> Op:
    """The function with those calls replaced."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        rule = _rule(op)
        return None if rule is None else rule(rw, op, operands, module)

    return rewrite(function, visit) if any(map(_rule, walk(function.block()))) else function


def _rule(op: Op) -> Rule | None:
    if op.name != "stablehlo.custom_call" or not all(map(mk.is_static, op.results)):
        return None
    return RULES.get(op.attributes["call_target_name"])


def _top_k(rw: Rewriter, op: Op, operands: list[Value], module: Module) -> Sequence[Value]:
    k = op.results[0].tensor.extents[-1]
    return rw.emit("chlo.top_k", operands[:1], [r.type for r in op.results], {"k": IntegerAttr(k)})


def _random_bits(rw: Rewriter, op: Op, operands: list[Value], module: Module) -> Sequence[Value]:
    default = EnumAttr("stablehlo", "rng_algorithm", "DEFAULT")
    attributes = {"rng_algorithm": op.attributes.get("rng_algorithm", default)}
    return rw.emit("stablehlo.rng_bit_generator", operands[:1], [r.type for r in op.results], attributes)


WINDOW = ("window_dimensions", "window_strides", "base_dilations", "window_dilations", "padding")


def _reduce_window(rw: Rewriter, op: Op, operands: list[Value], module: Module) -> Sequence[Value] | None:
    called = op.attributes.get("called_computations", ())
    if len(called) != 1 or not isinstance(called[0], SymbolRef) or len(operands) != 2 * len(op.results) + len(WINDOW):
        return None
    reducer = module.function(called[0].name)
    arrays, window = operands[: -len(WINDOW)], [constant_ints(v) for v in operands[-len(WINDOW) :]]
    if reducer is None or is_declaration(reducer) or not all(map(mk.is_static, arrays)):
        return None
    attributes: dict[str, Any] = {}
    for name, known in zip(WINDOW, window, strict=True):
        if known is None:
            return None
        attributes[name] = mk.dims(known)
    pairs = np.asarray(window[-1], np.int64).reshape(-1, 2)
    attributes["padding"] = Dense(tensor(pairs.shape, I64), pairs)
    body = rw.sweep(inline(module, reducer).block())
    end = body.ops.pop()
    body.ops.append(Op("stablehlo.return", end.operands, []))
    return rw.emit("stablehlo.reduce_window", arrays, [r.type for r in op.results], attributes, [Region([body])])


RULES: dict[str, Rule] = {
    "stablehlo.dynamic_top_k": _top_k,
    "stablehlo.dynamic_rng_bit_generator": _random_bits,
    "stablehlo.dynamic_reduce_window": _reduce_window,
}
"""What replaces a call of that target, in a module."""
