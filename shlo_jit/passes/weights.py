"""Ops that prepare weights: operands of products and convolutions computed from constants only, by a transpose,
convert, slice, a multiplication by a scale and the like. Sums of integers, which correct zero points, count as readers,
too.

Such ops are computed when the program is compiled, whatever their size. At run time they would be computed again in
every call, and only a constant is packed into its kernel's layout once (`schedule/products.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shlo_jit import tuning
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.types import TensorType
from shlo_jit.ops import OPS

PRODUCTS = ("stablehlo.dot_general", "stablehlo.convolution")
REDUCERS = {"stablehlo.add": np.add, "stablehlo.maximum": np.maximum, "stablehlo.minimum": np.minimum}


def reducer_of(op: Op) -> np.ufunc | None:
    """Returns the ufunc of a `reduce` with one integer operand if its body is a single op: the order does not matter
    then."""
    if op.name != "stablehlo.reduce" or len(op.operands) != 2:
        return None
    dtype, body = op.operands[0].tensor.storage, op.block()
    if not dtype.is_integer or dtype.bits < 8 or len(body.ops) != 2:
        return None
    inner, end = body.ops
    straight = inner.operands == body.arguments and end.operands == inner.results
    return REDUCERS.get(inner.name) if straight else None


def weight_ops(function: Op) -> set[Op]:
    """Returns the ops that prepare weights, in all blocks."""
    chains = _Chains()
    for op in _ops_of(function.block()):
        if op.name in PRODUCTS or reducer_of(op) is not None:
            for operand in op.operands:
                chains.follow(operand)
    return chains.found


def _ops_of(block: Block) -> Iterator[Op]:
    for op in block.ops:
        yield op
        for region in op.regions:
            for inner in region.blocks:
                yield from _ops_of(inner)


class _Chains:
    def __init__(self) -> None:
        self.found: set[Op] = set()
        self.nbytes: dict[Value, int | None] = {}
        """Bytes of the constants that a value is computed from; None if it depends on other values."""

    def follow(self, value: Value) -> None:
        """Notes the ops that compute a value from constants, unless it is much larger than these."""
        known, t = self.bytes_of(value), value.type
        if known and isinstance(t, TensorType) and t.is_fixed and t.nbytes <= tuning.WEIGHT_GROWTH * known:
            self._note(value)

    def bytes_of(self, value: Value) -> int | None:
        if value not in self.nbytes:
            self.nbytes[value] = None
            self.nbytes[value] = self._bytes_of(value)
        return self.nbytes[value]

    def _bytes_of(self, value: Value) -> int | None:
        op = value.op
        if op is None or op.regions or len(op.results) != 1:
            return None
        if op.name == "stablehlo.constant":
            return 0 if op.constant.is_splat else op.result.tensor.nbytes
        record = OPS.get(op.name)
        if record is None or record.reference is None or not op.operands:
            return None
        parts = [self.bytes_of(o) for o in op.operands]
        return None if None in parts else sum(p for p in parts if p is not None)

    def _note(self, value: Value) -> None:
        op = value.op
        if op is not None and op.name != "stablehlo.constant" and op not in self.found:
            self.found.add(op)
            for operand in op.operands:
                self._note(operand)
