"""Bytes that are shifted to have no sign, as instructions multiply bytes without sign by bytes with sign."""

from __future__ import annotations

from shlo_jit.fuse.nest import Key
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.position import Position


def less_smallest(b: Builder, ev: Evaluator, position: Position, key: Key, low: int) -> V:
    """Elements of the computed operand less the smallest number that they may be, as bytes without sign."""
    node = ev.nest.nodes.get(key)
    if node is not None and node.op.name == "stablehlo.convert":
        dtype = node.operands[0][0].tensor.storage
        if dtype.is_integer and dtype.kind == "i" and low == -1 << dtype.bits - 1:  # the first bit flips
            x = ev.value(position, node.operands[0])
            assert isinstance(x, V)
            x = b.splat(x, position.width)
            return b.cast("zext", b.xor(x, const(x.type, low)), "i8")
    x = ev.value(position, key)
    assert isinstance(x, V)
    x = b.splat(x, position.width)
    return b.sub(x, const(x.type, low)) if low else x
