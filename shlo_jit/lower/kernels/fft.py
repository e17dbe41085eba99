"""fft: one-dimensional transforms, an axis at a time, by the passes of `kernels/fft_plan.py`.

A tensor is seen as [outer, n, inner]. A unit is a block of `columns` of the inner elements for one of the outer; tasks
are ranges of units, each with buffers of its own. A single large block is cut inside of its passes instead.
Cost: O(n log n) for every n.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Op
from shlo_jit.kernels.builder import Builder, V, const, i64
from shlo_jit.kernels.fft_plan import AnyPass, Transform, plan, scratch_elements
from shlo_jit.lower.kernels import Kernel

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering

BLOCK_BYTES = 128 << 10
"""Of a block's elements: the two buffers of a block stay in the second level cache."""
PARALLEL = 1 << 14
"""Elements from which on threads pay."""
TASKS = 64
PARAMS = [("ptr", "source"), ("ptr", "target"), ("ptr", "table"), ("i64", "first"), ("i64", "last")]


@dataclass(frozen=True)
class Axis:
    """The transforms along one axis."""

    transform: Transform
    outer: int
    inner: int
    source_rows: int
    target_rows: int
    source_bytes: int
    target_bytes: int
    """Of an element."""

    @property
    def chunks(self) -> int:
        return self.inner // self.transform.columns

    @property
    def units(self) -> int:
        return self.outer * self.chunks

    @property
    def size(self) -> int:
        return self.outer * self.inner * self.transform.n


def axes_of(op: Op, lanes: int) -> list[Axis]:
    """The axes in the order they are transformed: the real end of a real transform is next to the real tensor."""
    kind, lengths = op.attributes["fft_type"].value, op.ints("fft_length")
    source, target = op.operands[0].tensor, op.result.tensor
    part = {8: "float", 16: "double"}[max(source.storage.itemsize, target.storage.itemsize)]
    rank = source.rank
    complex_bytes = 8 if part == "float" else 16
    inverse = kind in ("IFFT", "IRFFT")
    complex_shape = source.extents if kind == "IRFFT" else target.extents
    first = rank - len(lengths)

    def complex_axis(d: int) -> Axis:
        n, inner = complex_shape[d], math.prod(complex_shape[d + 1 :])
        columns = _columns(n, inner, lanes, complex_bytes)
        t = Transform("c2c", part, n, columns, inner, inverse, lanes)
        return Axis(t, math.prod(complex_shape[:d]), inner, n, n, complex_bytes, complex_bytes)

    if kind in ("FFT", "IFFT"):
        return [complex_axis(d) for d in range(rank - 1, first - 1, -1)]
    n, outer = lengths[-1], math.prod(complex_shape[:-1])
    half = n // 2 + 1
    if kind == "RFFT":
        t = Transform("r2c", part, n, 1, 1, False, lanes)
        real = Axis(t, outer, 1, n, half, complex_bytes // 2, complex_bytes)
        return [real, *(complex_axis(d) for d in range(rank - 2, first - 1, -1))]
    t = Transform("c2r", part, n, 1, 1, True, lanes)
    real = Axis(t, outer, 1, half, n, complex_bytes, complex_bytes // 2)
    return [*(complex_axis(d) for d in range(first, rank - 1)), real]


def _columns(n: int, inner: int, lanes: int, itemsize: int) -> int:
    """How many of the inner elements make a block: all, or a divisor that fits the cache."""
    if n * inner * itemsize <= BLOCK_BYTES:
        return inner
    most = max(lanes, BLOCK_BYTES // (n * itemsize))
    fitting = [c for c in range(lanes, min(most, inner) + 1, lanes) if inner % c == 0]
    return max(fitting, default=inner)


def _axes(low: ProgramLowering, op: Op) -> list[Axis]:
    part = op.result.tensor.storage
    bits = part.itemsize * 8 // (2 if part.is_complex else 1)
    return axes_of(op, low.target.lanes(bits))


def _block_bytes(axis: Axis) -> int:
    """Of both buffers of one worker."""
    nbytes = 2 * scratch_elements(plan(axis.transform)) * 2 * (4 if axis.transform.part == "float" else 8)
    return -(-nbytes // 64) * 64


def _copy_bytes(op: Op, axes: list[Axis]) -> int:
    """Of the tensor between the complex axes and the real one of an inverse transform."""
    return op.operands[0].tensor.nbytes if op.attributes["fft_type"].value == "IRFFT" and len(axes) > 1 else 0


def scratch(low: ProgramLowering, step: OpStep) -> int:
    if step.op.result.tensor.size == 0:
        return 0
    axes = _axes(low, step.op)
    return -(-_copy_bytes(step.op, axes) // 64) * 64 + low.threads * max(_block_bytes(a) for a in axes)


def lower(low: ProgramLowering, step: OpStep) -> None:
    op = step.op
    if op.result.tensor.size == 0:
        return
    if 0 in op.operands[0].tensor.extents:
        raise UnsupportedError(diagnose("fft: an empty operand with a result that is not", op.span))
    axes = _axes(low, op)
    work = low.scratch(step) if id(step) in low.memory.scratch else const("ptr", 0)
    source, result = low.pointer(op.operands[0]), low.pointer(op.result)
    copy, buffers = work, low.b.offset(work, -(-_copy_bytes(op, axes) // 64) * 64)
    for k, axis in enumerate(axes):
        last = k == len(axes) - 1
        target = copy if _copy_bytes(op, axes) and not last else result
        _run_axis(low, axis, source, target, buffers)
        source = target


def _run_axis(low: ProgramLowering, axis: Axis, source: V, target: V, buffers: V) -> None:
    passes = plan(axis.transform)
    names, tables = [], []
    for p in passes:
        name = low.new_name("fft_pass")
        b = low.module.function(name, PARAMS, attributes="nounwind")
        p.write(b, *b.params)
        b.ret()
        names.append(low.share("fft_pass", name))
        table = p.table()
        tables.append(low.constant_array(table) if table.size else const("ptr", 0))
    if axis.units > 1 or axis.size < PARALLEL:
        _run_units(low, axis, passes, names, [source, target, buffers, *tables])
    else:
        _run_passes(low, axis, passes, names, tables, [source, target, buffers])


def _ends(b: Builder, axis: Axis, count: int, source: V, target: V, buffers: V) -> list[tuple[V, V]]:
    """Source and target of every pass: the tensors at the ends, two buffers in turn between."""
    spare = [buffers, b.offset(buffers, _block_bytes(axis) // 2)]
    places = [source, *(spare[k % 2] for k in range(count - 1)), target]
    return list(itertools.pairwise(places))


def _run_units(low: ProgramLowering, axis: Axis, passes: list[AnyPass], names: list[str], pointers: list[V]) -> None:
    """Tasks of whole blocks: `void task(ptr frame, i64 index, i64 worker)`."""
    tasks = 1 if axis.size < PARALLEL else min(TASKS, axis.units)
    grain = -(-axis.units // tasks)
    tasks = -(-axis.units // grain)
    name = low.new_name("fft")
    b = low.module.function(name, [("ptr", "frame"), ("i64", "index"), ("i64", "worker")], attributes="nounwind")
    frame, index, worker = b.params
    source, target, buffers, *tables = (b.load("ptr", b.element(frame, "ptr", i)) for i in range(len(pointers)))
    buffers = b.offset(buffers, b.mul(worker, _block_bytes(axis)))
    first = b.mul(index, grain)
    t, chunks = axis.transform, axis.chunks
    with b.loop(first, b.min_(b.add(first, grain), axis.units), 1, "block") as unit:
        outer, chunk = b.udiv(unit, chunks), b.mul(b.urem(unit, chunks), t.columns)
        rows = b.add(b.mul(outer, axis.source_rows * axis.inner), chunk)
        here = b.offset(source, b.mul(rows, axis.source_bytes))
        rows = b.add(b.mul(outer, axis.target_rows * axis.inner), chunk)
        there = b.offset(target, b.mul(rows, axis.target_bytes))
        ends_of = _ends(b, axis, len(passes), here, there, buffers)
        for p, f, table, ends in zip(passes, names, tables, ends_of, strict=True):
            b.call("void", f, [*ends, table, i64(0), i64(p.units)], declare=False)
    b.ret()
    low.parallel(low.share("fft", name), pointers, tasks)


def _run_passes(
    low: ProgramLowering, axis: Axis, passes: list[AnyPass], names: list[str], tables: list[V], pointers: list[V]
) -> None:
    """One block: every pass is cut into tasks of its own."""
    b = low.b
    source, target, buffers = pointers
    ends_of = _ends(b, axis, len(passes), source, target, buffers)
    for p, f, table, ends in zip(passes, names, tables, ends_of, strict=True):
        if p.units < 2:
            b.call("void", f, [*ends, table, i64(0), i64(p.units)], declare=False)
            continue
        grain = -(-p.units // TASKS)
        low.parallel(low.task_of(f, 3, p.units, grain), [*ends, table], -(-p.units // grain))


KERNEL = Kernel(lower, scratch)
