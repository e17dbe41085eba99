"""Shapes that depend on data: a separate program, the prelude, computes the sizes, and the rest is refined with these.

%n = reduce(%x > 0), %s = reshape %n          prelude:   func @main(%x) { return %s }
%y = dynamic_iota %s : tensor<?xi32>     ->   rest:      func @main(%x) { %s = constant dense<3>, %y = iota ... }
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shlo_jit.ir.core import Block, Op, Region, Value
from shlo_jit.ir.dynamic_values import is_dynamic
from shlo_jit.ops.call_record import shape_operands_of
from shlo_jit.ops.effects import acting
from shlo_jit.ops.type_algebra import constant_value
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter, rebuilt

SHAPE_OPERANDS = {
    "stablehlo.dynamic_reshape": (1,),
    "chlo.dynamic_reshape": (1,),
    "stablehlo.dynamic_broadcast_in_dim": (1,),
    "stablehlo.dynamic_iota": (0,),
    "stablehlo.dynamic_pad": (2, 3, 4),
    "stablehlo.real_dynamic_slice": (1, 2, 3),
    "stablehlo.dynamic_gather": (2,),
    "stablehlo.dynamic_conv": (2,),
    "stablehlo.set_dimension_size": (1,),
}
"""Operands of an op that specify the shape of its result."""


def shape_operands(op: Op) -> tuple[int, ...]:
    """Returns the indices of the operands that specify the shapes of an op's results."""
    if op.name == "stablehlo.custom_call":
        return shape_operands_of(op)
    return SHAPE_OPERANDS.get(op.name, ())


def sizes_to_compute(function: Op) -> list[Value]:
    """Returns the values that shapes depend on and that can be computed separately: they need no values of unknown
    shape, and no effects."""
    block = function.block()
    effects = acting(block)
    blocked: set[Value] = set()
    found: dict[Value, None] = {}
    for op in block.ops:
        uses = [*op.operands, *(v for inner in _inner(op) for v in inner.operands)]
        if op in effects or any(map(is_dynamic, op.results)) or any(v in blocked or is_dynamic(v) for v in uses):
            blocked.update(op.results)
        if any(map(is_dynamic, op.results)):
            sizes = [op.operands[i] for i in shape_operands(op)]
            found.update((v, None) for v in sizes if constant_value(v) is None and v not in blocked)
    return list(found)


def _inner(op: Op) -> Iterator[Op]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.ops:
                yield inner
                yield from _inner(inner)


def arguments_of_shapes(function: Op) -> set[int]:
    """Returns the indices of the arguments that unknown shapes depend on. A region is treated as a whole."""
    block = function.block()
    needed: set[Value] = set()
    for op in reversed(block.ops):
        inner = list(_inner(op))
        if needed.intersection(op.results) or any(map(_waits_for_shape, inner)):
            needed.update(op.operands)
            needed.update(v for o in inner for v in o.operands)
        elif _waits_for_shape(op):
            needed.update(op.operands[i] for i in shape_operands(op))
    return {i for i, argument in enumerate(block.arguments) if argument in needed}


def _waits_for_shape(op: Op) -> bool:
    return bool(shape_operands(op)) and any(map(is_dynamic, op.results))


def prelude(function: Op, sizes: Sequence[Value]) -> Op:
    """Returns the function that computes the sizes, with only the ops that they need."""
    block = function.block()
    needed = set(sizes)
    kept: list[Op] = []
    for op in reversed(block.ops[:-1]):
        if needed.intersection(op.results):
            kept.append(op)
            needed.update(op.operands)
            needed.update(v for inner in _inner(op) for v in inner.operands)
    end = Op("func.return", list(sizes), [], {})
    rw = Rewriter(lambda rw, op, operands: None)
    short = Op(function.name, [], [], function.attributes, [Region([_Window(block.arguments, [*kept[::-1], end])])],
               function.source, function.start, function.end)  # fmt: skip
    return rebuilt(function, rw.sweep(short.block()))


class _Window(Block):
    """Some ops of a block; their arguments stay those of the other block."""

    def __init__(self, arguments: list[Value], ops: list[Op]) -> None:
        self.arguments, self.ops, self.label, self.locations = arguments, ops, "", ()


def with_sizes(function: Op, sizes: Sequence[Value], arrays: Sequence[np.ndarray]) -> Op:
    """Returns the function with the results of the prelude in place of the sizes."""
    known = dict(zip(sizes, arrays, strict=True))

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if not any(v in known for v in op.results):
            return None
        results = rw.keep(op, operands)
        return [mk.constant(rw, v.tensor, known[v]) if v in known else new
                for v, new in zip(op.results, results, strict=True)]  # fmt: skip

    rw = Rewriter(visit)
    old = function.block()
    made = [Value(a.type, name=a.name) for a in old.arguments]
    rw.blocks.append(Block(made))
    for before, after in zip(old.arguments, made, strict=True):
        rw.values[before] = mk.constant(rw, after.tensor, known[before]) if before in known else after
    rw.run(old.ops)
    return rebuilt(function, rw.block)
