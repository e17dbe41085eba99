"""Gathers that write their slices where a transpose would move them to, as in the biases of attention by distance:
whoever reads the result goes along it, and not across.

Needs: static shapes. Guarantees: nothing; a gather that only a transpose reads is dead.

    transpose(gather(x, i, offset_dims = [2]), dims = [2, 0, 1])   ->   gather(x, i, offset_dims = [0])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shlo_jit.ir.attributes import StructAttr
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ops.contract import dims_of
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite

GATHER, TRANSPOSE = "stablehlo.gather", "stablehlo.transpose"
PRODUCTS = ("stablehlo.dot_general", "stablehlo.convolution")


def transposed_gathers(function: Op, _: Context) -> Op:
    """The function with gathers in place of the transposes that were the only readers of other ones, wherever
    dimensions of slices pass those of indices and neither change their order among themselves. A product's operand is
    left alone: it is read in any order, and slices are copied faster whole."""
    ops = [*walk(function.block())]
    if not any(op.name == GATHER for op in ops):
        return function
    uses = Counter(v for op in ops for v in op.operands)
    multiplied = {v for op in ops if op.name in PRODUCTS for v in op.operands}

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        source = op.operands[0].op if op.name == TRANSPOSE else None
        if source is None or source.name != GATHER or uses[source.result] != 1 or op.result in multiplied:
            return None
        numbers = source.attributes["dimension_numbers"]
        assert isinstance(numbers, StructAttr)
        order, offsets = op.ints("permutation"), dims_of(numbers, "offset_dims")
        groups = [d for d in order if d in offsets], [d for d in order if d not in offsets]
        if any(group != sorted(group) for group in groups):
            return None
        moved = tuple(place for place, d in enumerate(order) if d in offsets)
        fields = tuple((name, moved if name == "offset_dims" else value) for name, value in numbers.fields)
        attributes = {**source.attributes, "dimension_numbers": StructAttr(numbers.name, fields)}
        return rw.emit(GATHER, [rw.get(v) for v in source.operands], [op.result.type], attributes)

    return rewrite(function, visit)
