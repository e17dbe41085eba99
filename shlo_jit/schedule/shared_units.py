"""Loops over elements that share bytes or words, for a matrix that is computed in registers (see
`operand_in_registers.py`): they are split, so that lanes run along these units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.fuse.plan import ComputedOperand
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import variables
from shlo_jit.kernels.target import Target
from shlo_jit.ops.bit_fields import TAKES_BITS
from shlo_jit.schedule.run_time_offsets import bits_in_memory, is_run
from shlo_jit.schedule.space import linear

MOST_IN_UNIT = 16
"""Maximum elements of a byte or word, and other terms or outputs between those of two lanes: code is emitted for each.
Two bits in a word of 32."""
FEW = 8
"""Minimum ratio of the bytes of an array to those of another for its order to decide."""


def split_units(
    nest: Nest, operand: ComputedOperand, target: Target, *, are_bytes: bool
) -> tuple[Nest, ComputedOperand]:
    """Splits variables along which elements share bytes or words, so that lanes run along these, and the elements of
    one are computed one after the other. `are_bytes`: elements are multiplied as bytes, and stay in theirs."""
    splits: dict[int, int] = {}
    cut = set[Key]() if are_bytes else in_words(nest, target)
    for key in nest.loads:
        if key[0].tensor.is_packed or key in cut:
            for v in (v for v, c in linear(key).terms if c == 1 and not _is_run_of_others(nest, v, key)):
                count = _elements_of_unit(key[0], nest.extents[v], None if are_bytes else target)
                if count > 1:
                    splits[v] = count
    if not splits:
        return nest, operand
    nest = replace(nest, extents=list(nest.extents), stores=[replace(store) for store in nest.stores])
    parts = [dict(part) for part in operand.parts]
    for v, n in splits.items():
        nest.split(v, n)
        for part in parts:
            if v in part:
                part[len(nest.extents) - 1], part[v] = part[v], part[v] * n
    return nest, ComputedOperand(operand.side, tuple(parts))


def _is_run_of_others(nest: Nest, v: int, key: Key) -> bool:
    """Whether much larger arrays than this one have a run of bytes or words along a variable, which a split would take
    apart."""
    most = bytes_read(nest, key) * FEW
    others = ((other, linear(other).coefficient(v)) for other in nest.loads if bytes_read(nest, other) >= most)
    return any(c != 1 and is_run(other[0], c) for other, c in others)


def in_words(nest: Nest, target: Target) -> set[Key]:
    """The loads of bytes that are taken from words: integers of 8 bits that shifts and masks take apart, and numbers of
    4 bits in bytes, if these are looked up by the lowest bits of words."""
    readers = [node for node in nest.nodes.values() if node.op.name in TAKES_BITS]
    found = {key for node in readers for key in node.operands if key in nest.loads and key[0].tensor.storage.bits == 8}
    if target.looks_up_words:
        found |= {k for k in nest.loads if k[0].tensor.storage.name in ("i4", "ui4") and not k[0].tensor.is_packed}
    return found


def _elements_of_unit(value: Value, extent: int, target: Target | None) -> int:
    """Number of elements of a word or byte, of which lanes can run along several. Elements of a word are shifted in the
    lanes that they are converted in; bytes would be widened before. Without a target: that of a byte."""
    bits = bits_in_memory(value)
    count = 32 // bits
    if target is not None and count <= MOST_IN_UNIT and extent % count == 0 and extent // count >= target.lanes(32):
        return count
    return 8 // bits if extent % (8 // bits) == 0 and extent > 8 // bits else 1


def short_of(nest: Nest, along: Mapping[int, int], lanes: int) -> list[int]:
    """The variables that number terms between two lanes, and those that number elements of bytes or words which lanes
    have one each of, wherever their terms are."""
    offsets = [linear(key) for key in nest.loads if bits_in_memory(key[0]) < 8]

    def is_within(v: int) -> bool:
        return any(0 < abs(offset.coefficient(v)) < offset.coefficient(lanes) for offset in offsets)

    return [v for v in along if v != lanes and (along[v] < along[lanes] or is_within(v))]


def bytes_read(nest: Nest, key: Key) -> int:
    """Bytes of the elements of an array that a product reads; those of a matrix that several vectors gather count for
    each of them."""
    return math.prod(nest.extents[v] for v in variables(key[1])) * bits_in_memory(key[0]) // 8
