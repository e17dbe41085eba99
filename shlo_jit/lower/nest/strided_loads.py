"""Loads and stores with small strides. A load of every second, third, ... element takes whole vectors from the first
element to the last, and shuffles. A store of vectors whose elements are adjacent is one run.

A gather takes a load for each lane. The vectors take one load per unit of the stride. None of them reaches beyond the
last element that is needed: the last vector ends there, and overlaps the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, lanes, scalar, vector
from shlo_jit.lower.elements.registers import Reg, from_memory, memory_type


def load(b: Builder, dtype: DType, pointer: V, first: V, stride: int, width: int, mask: V | None) -> Reg:
    """Loads the elements first, first + stride, ... of an array, one per lane."""
    t, parts = memory_type(dtype), 2 if dtype.is_complex else 1
    lowest = first if stride > 0 else b.add(first, stride * (width - 1))
    base = b.element(pointer, t, b.mul(lowest, parts))
    places = [abs(stride) * parts * i for i in range(width)]
    if mask is not None:
        mask = b.splat(mask, width)
        mask = mask if stride > 0 else b.reverse(mask)
    starts, chunks = _chunks(b, t, base, places, parts, mask)
    order = places if stride > 0 else places[::-1]
    picked = [_pick(b, starts, chunks, [p + part for p in order]) for part in range(parts)]
    return (picked[0], picked[1]) if parts == 2 else from_memory(b, dtype, picked[0])


def _chunks(
    b: Builder, t: str, base: V, places: Sequence[int], parts: int, mask: V | None
) -> tuple[list[int], list[V]]:
    """Loads vectors that hold the elements at `places`, each `parts` long. Returns where they begin, and the
    vectors."""
    width = len(places)
    span = places[-1] + parts
    starts = [min(at, span - width) for at in range(0, span, width)]
    kind = vector(t, width)
    if mask is None:
        return starts, [b.load(kind, b.element(base, t, at)) for at in starts]
    exists = b.shuffle(mask, b.splat(V("i1", "false"), width), range(width + 1))
    lane_of = {p + part: lane for lane, p in enumerate(places) for part in range(parts)}
    chunks = []
    for at in starts:
        wanted = b.shuffle(exists, None, [lane_of.get(at + i, width) for i in range(width)])
        chunks.append(b.masked_load(kind, b.element(base, t, at), wanted))
    return starts, chunks


def _pick(b: Builder, starts: list[int], chunks: list[V], places: Sequence[int]) -> V:
    """A vector of the elements at `places`, assembled by one shuffle per loaded vector."""
    width = lanes(chunks[0].type)
    owner = [max(i for i, at in enumerate(starts) if at <= p) for p in places]
    out = chunks[0]
    for i, (at, chunk) in enumerate(zip(starts, chunks, strict=True)):
        if i == 0:
            picks = [p if o == 0 else 0 for p, o in zip(places, owner, strict=True)]
            out = chunk if picks == list(range(width)) else b.shuffle(chunk, None, picks)
            continue
        picks = [width + p - at if o == i else lane for lane, (p, o) in enumerate(zip(places, owner, strict=True))]
        out = b.shuffle(out, chunk, picks)
    return out


def store(b: Builder, address: V, columns: list[V], mask: V | None) -> None:
    """Stores elements 0 of all columns, elements 1, ... as one run; with a mask, only the elements it has."""
    k, width = len(columns), lanes(columns[0].type)
    for part in range(k):
        places = [divmod(part * width + lane, k) for lane in range(width)]
        out = columns[0]
        for c, column in enumerate(columns):
            picks = [
                width + element if owner == c else lane if c else element
                for lane, (element, owner) in enumerate(places)
            ]
            out = b.shuffle(out, column, picks)
        target = b.element(address, scalar(out.type), part * width)
        if mask is None:
            b.store(out, target)
        else:
            b.masked_store(out, target, b.shuffle(mask, None, [element for element, _ in places]))
