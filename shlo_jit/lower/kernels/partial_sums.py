"""Adds up the partial sums of row blocks, as `schedule/row_blocks.py` has decided."""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.gemm.precision import itemsize, storage
from shlo_jit.kernels.llvm_values import V, bits, is_float, vector
from shlo_jit.lower.services import Services
from shlo_jit.ops.runs import extents_of
from shlo_jit.schedule.row_blocks import RowBlocksSchedule
from shlo_jit.schedule.scratch import ALIGN


def add_up(low: Services, s: RowBlocksSchedule, scratch: V) -> None:
    """Adds the partial sums of the later row parts to those of the first, in order."""
    sums = [(p, p.partial) for p in s.products if p.partial is not None]
    sizes = [s.step.batch * extents_of(p.step.op)[1] * p.product.n for p, _ in sums]
    places = [s.scratch.shared_offsets[field.name] for _, field in sums]
    kinds = [p.product.types.acc for p, _ in sums]
    results = [low.pointer(p.step.op.result) for p, _ in sums]
    name = ".".join(map(str, ("add_up", s.slices, s.division.parts, *sizes, *places, *kinds)))
    if name not in low.module.functions:
        b = low.task(name, 1 + len(results))
        frame, index, _ = b.params
        memory, *into = (b.load("ptr", b.element(frame, "ptr", i)) for i in range(1 + len(results)))
        for kind, size, place, result in zip(kinds, sizes, places, into, strict=True):
            _add_slice(b, kind, s, (b.offset(memory, place), result), size, index)
        b.ret()
    low.parallel(name, [scratch, *results], s.slices)


def _add_slice(b: Builder, kind: str, s: RowBlocksSchedule, at: tuple[V, V], size: int, index: V) -> None:
    """Adds all parts for the elements of the slice `index`: one cache line per iteration, then single elements."""
    partial, result = at
    size, kind = size * itemsize(kind) * 8 // bits(storage(kind)), storage(kind)  # both parts of complex elements
    item = bits(kind) // 8
    lanes = ALIGN // item
    grain = -(-size // (s.slices * lanes)) * lanes
    start = b.mul(index, grain)
    stop = b.min_(b.add(start, grain), size)
    whole = b.add(start, b.mul(b.udiv(b.max_(b.sub(stop, start), 0), lanes), lanes))
    add = b.fadd if is_float(kind) else b.add
    for first, last, n in ((start, whole, lanes), (whole, stop, 1)):
        with b.loop(first, last, n, "elements") as i:
            here, type_ = b.offset(result, b.mul(i, item)), vector(kind, n)
            total = b.load(type_, here, item)
            for k in range(s.division.parts - 1):
                place = b.mul(b.add(i, k * size), item)
                total = add(total, b.load(type_, b.offset(partial, place), item))
            b.store(total, here, item)
