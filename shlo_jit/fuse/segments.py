"""Concatenations that products read in segments, so that they are never materialized.

A product of a few rows with a matrix is bound by reading the matrix. Concatenating the matrix first takes longer than
the product, for example for cached keys and values and those of the newest row. Each segment is a separate product,
which computes its columns of the result, or adds to the sums of the previous segments, in order.

    dot(x, concatenate(a, b))   ->   concatenate(dot(x, a), dot(x, b)), or dot(x', a) + dot(x", b)
"""

from __future__ import annotations

import math
from collections import Counter

from shlo_jit import tuning
from shlo_jit.fuse.grouping import is_fusible
from shlo_jit.fuse.plan import Segments
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir.core import Block, Op, Value, walk
from shlo_jit.ops.runs import Roles, roles_of, run_of
from shlo_jit.sizes import Size, equal

PRODUCT = "stablehlo.dot_general"


def segments_in(block: Block) -> dict[Value, Segments | Refusal]:
    """Returns the concatenations of a block that its products read: their segments, or why they are read as a whole."""
    readers: dict[Value, list[Op]] = {}
    for op in block.ops:
        for value in dict.fromkeys(op.operands) if op.name == PRODUCT else ():
            if value.op is not None and value.op.name == "stablehlo.concatenate":
                readers.setdefault(value, []).append(op)
    if not readers:
        return {}
    here = {id(op) for op in block.ops}
    uses = Counter(value for op in walk(block) for value in op.operands if value in readers)
    found: dict[Value, Segments | Refusal] = {}
    for value, products in readers.items():
        if id(value.op) in here:
            alone = uses[value] == len(products)
            found[value] = (
                _segments(value, products, here)
                if alone
                else Refusal("other-readers", "steps other than products read it too")
            )
    return found


def _segments(value: Value, products: list[Op], here: set[int]) -> Segments | Refusal:
    """Returns the segments of a concatenation that only products read, or the refusal."""
    op = value.op
    assert op is not None
    parts, dimension = [v for v in op.operands if not equal(v.tensor.size, 0)], op.int("dimension")
    if any(isinstance(n, Size) for v in (value, *parts) for n in v.tensor.extents):
        return Refusal("dynamic-size", "its size is known only when the program is called")
    for product in products:
        refusal = _unfit(value, product, parts, dimension, here)
        if refusal is not None:
            return refusal
    return Segments(value, parts, dimension)


def _unfit(value: Value, product: Op, parts: list[Value], dimension: int, here: set[int]) -> Refusal | None:
    """Returns why a product reads the concatenation as a whole."""
    r, shape = roles_of(product), value.tensor.extents
    side = product.operands.index(value)
    batch, contracting, free = _dimensions(r, side)
    rows = math.prod(product.operands[1 - side].tensor.extents[d] for d in _dimensions(r, 1 - side)[2])
    if isinstance(rows, Size) or isinstance(product.result.tensor.size, Size):
        return Refusal("dynamic-size", "the number of rows multiplied by it is known only when the program is called")
    # Segments of the first operand are those of the second one of the transposed product, whose result is one row.
    if rows > (tuning.SEGMENT_ROWS if side == 1 else 1):
        return Refusal(
            "many-rows",
            f"{rows} {'rows' if side == 1 else 'columns'} are multiplied by it; segments pay only for skinny products",
        )
    cut = next((dims for dims in (contracting, free) if dimension in dims), None)
    if cut is None or any(shape[d] != 1 for d in cut[: cut.index(dimension)]):
        return Refusal("segment-not-block", "a segment is not a block of rows or columns")
    if any(run_of(v.tensor.extents, dims) is None for v in parts for dims in (contracting, free)):
        return Refusal("segment-not-strided", "the rows or columns of a segment are not a constant stride apart")
    calls = len(parts) * math.prod(shape[d] for d in batch)
    kept = sum(v.tensor.nbytes for v in parts if _is_written(v, here))
    least = calls * tuning.SEGMENT_BYTES
    return (
        Refusal("saves-too-little", f"segments would save {kept:,} bytes for {calls} products, less than {least:,}")
        if kept < least
        else None
    )


def _dimensions(r: Roles, side: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Returns the batch, the contracting and the free dimensions of an operand."""
    left = (r.lhs_batch, r.lhs_contracting, r.lhs_free)
    return (r.rhs_batch, r.rhs_contracting, r.rhs_free) if side else left


def _is_written(value: Value, here: set[int]) -> bool:
    """Whether the value is in memory anyway. Otherwise a loop would have to write the segment instead of the whole."""
    while value.op is not None and value.op.name == "stablehlo.reshape":
        value = value.op.operands[0]
    return value.op is None or id(value.op) not in here or not is_fusible(value.op)
