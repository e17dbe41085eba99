"""Pack constants of 2 and 4 bits per element: several elements share a byte, in the program, its files and its caches.

Needs: the last pass, since it introduces types that other passes do not know. Guarantees: what reads a packed constant
is a `convert` to the type with a byte per element, or a reshape that leaves it packed. Loop nests compute these as they
load; a kernel reads what a nest has unpacked. Splats, and constants that are part of the program's text, stay.

    add(%x, constant : tensor<64x64xi4>)   ->   add(%x, convert(constant : tensor<64x64xi4, packed>))
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit import tuning
from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Block, Op, Value, walk
from shlo_jit.ir.types import TensorType
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.simplify import eliminate

CONSTANT = "stablehlo.constant"


def pack_constants(function: Op, _: Context) -> Op:
    """The function with packed constants."""
    if not any(_is_packable(op) for op in walk(function.block())):
        return function
    packed: dict[Value, Value] = {}
    """New values with a byte per element -> packed ones. The former are in no block: each block unpacks its own."""
    unpacked: dict[tuple[Block, Value], Value] = {}

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if _is_packable(op):
            return [_packed(rw, op.constant, op.result.tensor, packed)]
        if op.name == "stablehlo.reshape" and operands[0] in packed:
            source = packed[operands[0]].op
            assert source is not None
            return [_packed(rw, source.constant, op.result.tensor, packed)]
        if not any(o in packed for o in operands):
            return None
        return rw.keep(op, [_unpacked(rw, o, packed, unpacked) for o in operands])

    return eliminate(rewrite(function, visit))


def _is_packable(op: Op) -> bool:
    if op.name != CONSTANT:
        return False
    t = op.result.tensor
    large = t.is_fixed and t.constant_nbytes > tuning.INLINE_CONSTANT_BYTES
    return t.storage.is_packable and not t.is_packed and large and not op.constant.is_splat


def _packed(rw: Rewriter, constant: Dense, t: TensorType, packed: dict[Value, Value]) -> Value:
    """Emits a packed constant. Returns a value that stands for its elements."""
    value = Value(t)
    packed[value] = rw.emit1(CONSTANT, [], t.packed, {"value": constant.with_type(t.packed)})
    return value


def _unpacked(
    rw: Rewriter, value: Value, packed: dict[Value, Value], unpacked: dict[tuple[Block, Value], Value]
) -> Value:
    """Returns a value that the current block may read: one that stands for a packed constant is converted here, so that
    loops read the packed one from outside."""
    if value not in packed:
        return value
    key = rw.block, value
    if key not in unpacked:
        unpacked[key] = rw.emit1("stablehlo.convert", [packed[value]], value.type)
    return unpacked[key]
