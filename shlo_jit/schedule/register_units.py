"""Blocks of terms, and units of outputs, of a product with a matrix that is computed in registers (see
`operand_in_registers.py`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import variables
from shlo_jit.ir.types import DType
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.register_dots import RegisterDots
from shlo_jit.schedule.register_vectors import LINE
from shlo_jit.schedule.run_time_offsets import bits_in_memory, is_run
from shlo_jit.schedule.space import linear

STEPS = 8
"""Vectors of M that are in registers together, if the sums are not."""
SUMMED_STEPS = 8
"""Steps of k that are added to sums in registers together: sums and scales are loaded once for all of them."""
RUN = 64 << 10
"""Bytes that a unit reads if lanes are terms, and there are enough for EVEN units: what it fetches ahead at its end may
be another thread's. 1536x576 in 4 bits from memory, two threads of Zen 4: 43 us with units of 20 KiB, 33 with these."""
EVEN = 4
"""Units with few outputs come in multiples of this number."""


class Blocks(NamedTuple):
    """The loops along k, outermost first, if lanes run along outputs."""

    serial: list[int]
    loop: int | None
    """The one of which `step` iterations are computed together; None if there is none."""
    step: int
    unrolled: list[int]
    """Those that are computed together as a whole."""


def blocks_of(nest: Nest, along: Iterable[int], room: int) -> Blocks:
    """The loops along k if lanes are outputs, with `room` for vectors of M in registers."""
    unrolled, order = list[int](), list(along)
    while order and nest.extents[order[-1]] <= room:
        room //= nest.extents[order[-1]]
        unrolled.insert(0, order.pop())
    if not order or room < 2:
        return Blocks(order, None, 1, unrolled)
    return Blocks(order[:-1], order[-1], room, unrolled)


def steps_of(target: Target, acc: DType, width: int, are_kept: bool, dots: RegisterDots | None) -> int:
    if dots is not None:
        return dots.short or STEPS
    return SUMMED_STEPS if are_kept else max(1, STEPS * target.lanes(acc.bits) // width)


def divide(
    nest: Nest,
    along: Mapping[int, int],
    free: Mapping[int, int],
    lanes: int,
    count: int,
    acc: DType,
    width: int,
    together: int,
    blocks: Blocks,
    most_parts: int,
) -> tuple[int, int, int]:
    """Iterations of the variable that is cut, in a unit; parts of the terms, and the variable that is cut into these.
    Memory is read fastest in long runs, so the units of a matrix that no cache keeps have many outputs, and a part of
    the terms."""
    first = next(iter(along), lanes)
    if lanes not in free:
        innermost = nest.extents[next(reversed(free))]
        each = max(1, tuning.TASK_WORK // max(1, math.prod(nest.extents) // max(1, innermost)))
        row = _nbytes(nest) // math.prod(nest.extents[v] for v in free)
        each = max(each, min(RUN // max(1, row), -(-innermost // EVEN)))
        chunks = -(-innermost // each)
        if chunks > EVEN:  # as many as few threads share evenly
            chunks = -(-chunks // EVEN) * EVEN
        return min(innermost, -(-innermost // (chunks * together)) * together), 1, first
    extent = nest.extents[lanes]
    row = count * math.prod(nest.extents[v] for v in free if free[v] < free[lanes]) * acc.itemsize
    line = max(width, LINE * 8 // _run_bits(nest, lanes))
    loops = [*blocks.serial, *([blocks.loop] if blocks.loop is not None else [])]
    split = next((v for v in loops if nest.extents[v] > tuning.UNPACKED_SEGMENTS), None)
    outputs = math.prod(nest.extents[v] for v in free) * count * acc.itemsize
    room = tuning.COMPUTED_PARTS_BYTES // outputs
    parts = 1
    if split is not None:
        least = 2 * STEPS if split == blocks.loop else 1
        parts = min(tuning.COMPUTED_OPERAND_PARTS, most_parts, room, nest.extents[split] // least)
    most = max(width, tuning.COMPUTED_OPERAND_SUMS // row // width * width)
    chunk = _evenly(extent, min(max(4 * line, -(-extent // (8 * line)) * line), most), width)
    # Fewer units than a few threads share evenly have parts of the terms even if a cache may keep the matrix.
    are_few = -(-extent // chunk) * EVEN < most_parts
    if split is not None and parts > 1 and _nbytes(nest) >= tuning.COMPUTED_FAR_BYTES // (EVEN if are_few else 1):
        units = -(-most_parts // parts)
        least, most = 4 * line, max(width, tuning.COMPUTED_FAR_SUMS // row // width * width)
        return min(max(least, -(-extent // (units * line)) * line), most), parts, split
    return chunk, 1, first


def _nbytes(nest: Nest) -> int:
    """The bytes that a matrix is computed from. Of a stack of matrices, one is read."""
    read: dict[Value, int] = {}
    for v, at in nest.loads:
        read[v] = read.get(v, 0) + math.prod(nest.extents[x] for x in variables(at))
    return sum(v.tensor.nbytes * min(n, v.tensor.size) // max(1, v.tensor.size) for v, n in read.items())


def _run_bits(nest: Nest, lanes: int) -> int:
    """The most bits from lane to lane of an array that is contiguous along the lanes."""
    runs = ((k[0], linear(k).coefficient(lanes)) for k in nest.loads)
    return max((bits_in_memory(value) * moves for value, moves in runs if is_run(value, moves)), default=8)


def _evenly(extent: int, chunk: int, width: int) -> int:
    """A chunk of whole vectors, of about this size, so that the chunks of an extent are even in number if possible."""
    count = -(-extent // chunk)
    if count == 1 or count % 2 == 0:
        return chunk
    for n in (count + 1, count - 1):
        found = -(-extent // (n * width)) * width
        if -(-extent // found) % 2 == 0:
            return found
    return chunk
