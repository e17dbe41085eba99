"""Lanes of a product whose matrix is computed in registers (see `operand_in_registers.py`): what they run along, how
many there are, and which sums are in registers together."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import suppress

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest
from shlo_jit.ir.index import variables
from shlo_jit.ir.types import DType
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.moves import IllegalMove, Vectorize
from shlo_jit.schedule.register_dots import RegisterDots
from shlo_jit.schedule.run_time_offsets import bits_in_memory, is_run
from shlo_jit.schedule.shared_units import bytes_read
from shlo_jit.schedule.space import Order, Space, linear, make_space
from shlo_jit.schedule.sum_order import is_chain

TOGETHER = 2
"""Maximum outputs that are computed together if lanes are terms. With more, rows come from more places in memory at a
time."""
WIDE_TOGETHER = 4
"""The same for wide elements and REUSED vectors or more, so that these are read less often: a sum has one register of
lanes instead of two, which leaves registers for more outputs. On one thread of Zen 4, 8 f32 matrices of 4096x2048 for
four vectors each take 13.3 instead of 18.8 ms."""
FAR_TOGETHER = 8
"""The same for fewer vectors that do not stay in the first-level cache, also with bytes. One thread of Zen 4 reads
4096x11008 weights of 8 bits at 29 instead of 20 GB/s for one vector."""
REUSED = 4
"""Minimum vectors for outputs to be computed together: elements of fewer vectors are loaded again for each output, so
that memory is read in order. On two threads of Zen 4, bf16 weights of 1536x576 from memory take 64 us instead of 79 for
one vector and 103 instead of 110 for three, but 176 instead of 153 for eight. Packed elements take more arithmetic than
reading them does, and the sums of one output are a chain of multiply-adds: 96 MiB in 4 bits with scales for 32 of them
take 4.8 ms instead of 6.9 on one thread for one vector, and 2.7 instead of 3.5 on two."""


def lanes_of(
    nest: Nest,
    along: Collection[int],
    free: Mapping[int, int],
    count: int,
    acc: DType,
    target: Target,
    dots: RegisterDots | None,
) -> tuple[int, Space | None]:
    """The variable along which most of the bytes that are read are contiguous, and the space with lanes along it; None
    if there is no such variable, or it has too few iterations. It numbers outputs if the terms must be added up in
    order. Twice a register's lanes of sums halve the instructions on narrow elements, if the sums of all vectors fit
    the registers, or do not with one register either."""
    full = target.lanes(acc.bits)
    best, most = 0, 0
    for v in free if is_chain(acc, target) else (*free, *along):
        runs = (key for key in nest.loads if is_run(key[0], linear(key).coefficient(v)))
        nbytes = sum(bytes_read(nest, key) for key in runs)
        if nbytes > most and nest.extents[v] >= full:
            best, most = v, nbytes
    kept = [places_in_registers(target, acc, width, nest, free, best, count) for width in (full, 2 * full)]
    # Four vectors gain by two registers of lanes even with the 16 registers of AVX2.
    if best in free:
        fits = kept[0] == kept[1]
    elif dots is None and are_wide(nest, best):
        fits = count < REUSED
    else:
        fits = count <= max(4, _for_sums(target) // 4)
    widths = (*((2 * full,) if fits else ()), full)
    if dots is not None:
        widths = dots.widths(full, nest.extents[best], are_terms=best in along)
    for width in widths if most else ():
        if nest.extents[best] % width == 0 or nest.extents[best] >= 8 * width or width == widths[-1]:
            with suppress(IllegalMove):
                return best, make_space(nest, target, Order.ANY, given=(Vectorize(best, width),))
    return best, None


def places_in_registers(
    target: Target, acc: DType, width: int, nest: Nest, free: Mapping[int, int], lanes: int, count: int
) -> int:
    """Number of iterations of the variables that number outputs between two lanes whose sums, of all vectors, take half
    of the registers at most: all of them, or one, or 0 if not even these fit, or lanes are terms."""
    if lanes not in free:
        return 0
    inner = math.prod(nest.extents[v] for v in free if free[v] < free[lanes])
    each = count * (width // target.lanes(acc.bits))
    most = target.vector_registers // 2
    return inner if each * inner <= most else int(each <= most)


def outputs_together(
    target: Target,
    nest: Nest,
    space: Space,
    lanes: int,
    count: int,
    vector_bytes: int,
    registers: int,
    dots: RegisterDots | None,
) -> int:
    """Number of outputs that are computed together if lanes are terms, a power of two: registers hold their sums, and
    the arrays of which all lanes read the same element, such as scales. `vector_bytes`: bytes of each of `count`
    vectors."""
    moving = [key for key in nest.loads if space.depends(key[1], {lanes})]
    is_wide = are_wide(nest, lanes)
    # One output after the other, memory is read in the order of its addresses.
    in_order = (is_wide and count < REUSED) or (count == 1 and min(bits_in_memory(value) for value, _ in moving) == 8)
    in_order = in_order and (dots is None or dots.is_float)
    if in_order and count * vector_bytes < tuning.COMPUTED_VECTORS_BYTES:
        return 1
    shared = [key for key in nest.loads if linear(key).terms and key not in moving]
    found = 1 << max(1, _for_sums(target) // (count * registers + len(shared))).bit_length() - 1
    return min(found, FAR_TOGETHER if in_order else WIDE_TOGETHER if is_wide and dots is None else TOGETHER)


def are_wide(nest: Nest, lanes: int) -> bool:
    """Whether the elements that lanes read have 16 bits or more: they take little arithmetic per line of memory."""
    return all(bits_in_memory(value) >= 16 for value, at in nest.loads if lanes in variables(at))


def _for_sums(target: Target) -> int:
    """Number of registers for sums: eight others hold elements of M and of the vectors."""
    return target.vector_registers - 8
