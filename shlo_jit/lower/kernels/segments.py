"""Lowers products whose matrix is read as segments of a concatenation, as `schedule/segments.py` has decided."""

from __future__ import annotations

from shlo_jit.fuse.plan import SegmentsStep
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import strides_of
from shlo_jit.kernels.gemm.gemm import gemm_symbol
from shlo_jit.kernels.gemm.precision import itemsize
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.kernels.epilogue import NULL
from shlo_jit.lower.nest.nest_step import lower_nest
from shlo_jit.lower.services import Services
from shlo_jit.schedule.segments import SegmentsSchedule


def lower(low: Services, step: SegmentsStep, schedule: SegmentsSchedule) -> None:
    s = schedule
    work = low.scratch(step)
    pointers = [low.pointer(s.a), low.pointer(step.op.result), *(low.pointer(part.value) for part in s.parts)]
    _outer_batches(low, step, s, 0, pointers, work)
    if s.epilogue is not None:
        lower_nest(low, s.epilogue.step, s.epilogue.schedule)


def _outer_batches(
    low: Services, step: SegmentsStep, s: SegmentsSchedule, nth: int, pointers: list[V], work: V
) -> None:
    """Loops over the batch dimensions from this one on; `pointers` are those of A, the result and the parts."""
    if nth == s.looped:
        _call(low, s, pointers, work)
        return
    b, result = low.b, step.op.result
    values = [(s.a, s.a_batch[nth]), (result, nth), *((part.value, s.b_batch[nth]) for part in s.parts)]
    with b.loop(0, s.a.tensor.extents[s.a_batch[nth]], 1, "batch") as i:
        inner = [b.offset(p, b.mul(i, _stride_bytes(*of))) for p, of in zip(pointers, values, strict=True)]
        _outer_batches(low, step, s, nth + 1, inner, work)


def _stride_bytes(value: Value, dimension: int) -> int:
    return strides_of(value.tensor.extents)[dimension] * value.tensor.storage.itemsize


def _call(low: Services, s: SegmentsSchedule, pointers: list[V], work: V) -> None:
    """Emits a call for each part, in order."""
    b = low.b
    a, out, *matrices = pointers
    size_a, size_c = s.a.tensor.storage.itemsize, itemsize(s.types.acc)
    for part, matrix, b_bs in zip(s.parts, matrices, s.b_strides, strict=True):
        left = b.offset(a, part.k0 * s.a_strides[1] * size_a)
        right = [matrix, *(i64(x) for x in (part.row, part.column, b_bs)), i64(0)]
        result = [b.offset(out, part.n0 * size_c), i64(s.n), i64(s.m * s.n)]
        sizes = [i64(x) for x in (s.batch, s.m, part.n, part.k, part.k0)]
        nothing = [NULL, NULL, NULL, i64(0), NULL]
        args = [left, *(i64(x) for x in s.a_strides), *right, *result, *sizes, work, *nothing, low.thread_count]
        b.call("void", gemm_symbol(s.types, s.way), args)
