"""Integers of 8 bits in lanes of 32 bits: vectors have no shifts of bytes, and floats are converted from words.

A chain of shifts and masks by constants that begins with a load of bytes and ends in a conversion to floats is computed
in words. They hold the exact values, extended with their sign or zeros.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.fuse.choices import CHOICES
from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const
from shlo_jit.lower.nest.choices import candidates
from shlo_jit.lower.nest.position import Position
from shlo_jit.ops import OPS
from shlo_jit.ops.bit_fields import MASK, SHIFTS, TAKES_BITS

Chain = list[tuple[str, int, DType]]
"""Ops with the constants that they shift or mask by, and the types of their results, the first computed last."""


def chain(nest: Nest, position: Position, key: Key) -> tuple[Key, Chain] | None:
    """Returns the load of bytes that a value is computed from, and the ops between them; None if there is no such
    chain."""
    found: Chain = []
    while True:
        key = _source(nest, position, key)
        if key in nest.loads:
            t = key[0].tensor
            return (key, found) if t.storage.bits == 8 and t.storage.kind in "iu" and not t.is_packed else None
        node = nest.nodes[key]
        amount = _constant(nest, position, node.operands[1]) if node.op.name in TAKES_BITS else None
        if amount is None or (node.op.name in SHIFTS and not 0 <= amount < 8):
            return None
        found.append((node.op.name, amount, key[0].tensor.storage))
        key = node.operands[0]


def compute(b: Builder, load: tuple[Key, Chain], word: Callable[[Key], V]) -> V:
    """Emits the ops of a chain. `word` returns words with the bytes of a load in their lowest bits, and anything in the
    others."""
    key, ops = load
    x = _extended(b, key[0].tensor.storage.kind == "i", word(key))
    for name, amount, dtype in reversed(ops):
        is_signed = dtype.kind == "i"
        if name == MASK:
            x = b.and_(x, const(x.type, amount))
        elif name == "stablehlo.shift_left":
            x = _extended(b, is_signed, b.shl(x, amount))
        elif name == "stablehlo.shift_right_arithmetic":
            x = _extended(b, is_signed, b.ashr(_extended(b, True, x), amount))
        else:
            x = _extended(b, is_signed, b.lshr(_extended(b, False, x), amount))
    return x


def _source(nest: Nest, position: Position, key: Key) -> Key:
    """Follows ops that take elements as they are, as far as it is known here which."""
    while key in nest.nodes:
        node = nest.nodes[key]
        if node.op.name in CHOICES:
            sources = candidates(position, key, node)
            if len(sources) > 1:
                break
            key = sources[0]
        elif node.operands and OPS[node.op.name].index_map is not None:
            key = node.operands[0]
        else:
            break
    return key


def _constant(nest: Nest, position: Position, key: Key) -> int | None:
    node = nest.nodes.get(_source(nest, position, key))
    if node is None or node.op.name != "stablehlo.constant":
        return None
    return int(node.op.constant.array.reshape(-1)[0])


def _extended(b: Builder, is_signed: bool, x: V) -> V:
    """Extends the lowest 8 bits in words, with their sign or zeros."""
    return b.ashr(b.shl(x, 24), 24) if is_signed else b.and_(x, const(x.type, 255))
