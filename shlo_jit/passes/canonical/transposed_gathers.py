"""Fold transposes into gathers, which write their slices in the transposed order, for example for attention biases by
distance. Readers of the result access it contiguously then.

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
    """The function with gathers in place of transposes that are the only readers of other gathers. The transpose may
    interleave slice dimensions and index dimensions differently, but must keep the order within each group. Operands of
    products stay: they are read in any order, and copying whole slices is faster."""
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
