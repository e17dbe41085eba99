"""fft: one-dimensional transforms, an axis at a time, by the passes of `kernels/fft/plan.py`.

A tensor is seen as [outer, n, inner]. A unit is a block of `columns` of the inner elements for one of the outer, or a
block of several of the outer where there is no inner; tasks are ranges of units, each with buffers of its own. A single
large block is cut inside of its passes instead. Cost: O(n log n) for every n.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Op
from shlo_jit.kernels.builder import Builder, V, const, i64
from shlo_jit.kernels.fft.fft import PARAMS, Step
from shlo_jit.kernels.fft.plan import Transform, in_blocks, plan, scratch_numbers
from shlo_jit.lower.kernels import Kernel
from shlo_jit.memory.scratch import Scratch

if TYPE_CHECKING:
    from shlo_jit.kernels.routine import Routine
    from shlo_jit.kernels.target import Target
    from shlo_jit.lower.program import ProgramLowering

BLOCK_BYTES = 128 << 10
"""Of a block's elements: the two buffers of a block stay in the second level cache."""
PARALLEL = 1 << 14
"""Elements from which on threads pay."""
TASKS = 64
HEADER = 64
"""Bytes in front of a buffer that passes may use."""


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
        t = self.transform
        return -(-self.outer // t.lanes) if t.block else self.outer * self.chunks

    @property
    def part_bytes(self) -> int:
        return 4 if self.transform.part == "float" else 8

    @property
    def size(self) -> int:
        return self.outer * self.inner * self.transform.n


def axes_of(op: Op, target: Target) -> list[Axis]:
    """The axes in the order they are transformed: from first to last, but the real end of a real transform is next to
    the real tensor. An inverse transform is scaled once, on the first of complex axes or on the real one."""
    kind, lengths = op.attributes["fft_type"].value, op.ints("fft_length")
    source, result = op.operands[0].tensor, op.result.tensor
    complex_bytes = max(source.storage.itemsize, result.storage.itemsize)
    part = {8: "float", 16: "double"}[complex_bytes]
    rank, lanes = source.rank, target.lanes(complex_bytes * 4)
    inverse = kind in ("IFFT", "IRFFT")
    complex_shape = source.extents if kind == "IRFFT" else result.extents
    first = rank - len(lengths)
    scale = 1 / math.prod(lengths) if inverse else 1.0

    def complex_axis(d: int) -> Axis:
        n, inner, outer = complex_shape[d], math.prod(complex_shape[d + 1 :]), math.prod(complex_shape[:d])
        columns = _columns(n, inner, lanes, complex_bytes)
        block = inner == 1 and in_blocks("c2c", n, outer, lanes)
        factor = scale if d == first and kind == "IFFT" else 1.0
        t = Transform("c2c", part, n, columns, inner, inverse, lanes, factor, block)
        return Axis(t, outer, inner, n, n, complex_bytes, complex_bytes)

    if kind in ("FFT", "IFFT"):
        return [complex_axis(d) for d in range(first, rank)]
    n, outer = lengths[-1], math.prod(complex_shape[:-1])
    half = n // 2 + 1
    which = "r2c" if kind == "RFFT" else "c2r"
    t = Transform(which, part, n, 1, 1, inverse, lanes, scale, in_blocks(which, n, outer, lanes))
    others = [complex_axis(d) for d in range(first, rank - 1)]
    if kind == "RFFT":
        return [Axis(t, outer, 1, n, half, complex_bytes // 2, complex_bytes), *others]
    return [*others, Axis(t, outer, 1, half, n, complex_bytes, complex_bytes // 2)]


def _columns(n: int, inner: int, lanes: int, itemsize: int) -> int:
    """How many of the inner elements make a block: all, or a divisor that fits the cache."""
    if n * inner * itemsize <= BLOCK_BYTES:
        return inner
    most = max(lanes, BLOCK_BYTES // (n * itemsize))
    fitting = [c for c in range(lanes, min(most, inner) + 1, lanes) if inner % c == 0]
    return max(fitting, default=inner)


def _block_bytes(axis: Axis) -> int:
    """Of both buffers of one worker."""
    nbytes = HEADER + scratch_numbers(plan(axis.transform)) * axis.part_bytes
    return 2 * (-(-nbytes // 64) * 64)


def _copy_bytes(op: Op, axes: list[Axis]) -> int:
    """Of the tensor between the complex axes and the real one of an inverse transform."""
    return op.operands[0].tensor.nbytes if op.attributes["fft_type"].value == "IRFFT" and len(axes) > 1 else 0


def scratch(low: ProgramLowering, step: OpStep) -> Scratch:
    if step.op.result.tensor.size == 0:
        return Scratch()
    axes = axes_of(step.op, low.target)
    return Scratch(-(-_copy_bytes(step.op, axes) // 64) * 64, max(_block_bytes(a) for a in axes))


def routines(op: Op, target: Target) -> list[Routine]:
    if op.result.tensor.size == 0:
        return []
    return [s.routine for axis in axes_of(op, target) for s in plan(axis.transform)]


def lower(low: ProgramLowering, step: OpStep) -> None:
    op = step.op
    if op.result.tensor.size == 0:
        return
    if 0 in op.operands[0].tensor.extents:
        raise UnsupportedError(diagnose("fft: an empty operand with a result that is not", op.span))
    axes = axes_of(op, low.target)
    work = low.scratch(step) if id(step) in low.memory.scratch else const("ptr", 0)
    source, result = low.pointer(op.operands[0]), low.pointer(op.result)
    copy, buffers = work, low.b.offset(work, -(-_copy_bytes(op, axes) // 64) * 64)
    for k, axis in enumerate(axes):
        last = k == len(axes) - 1
        target = copy if _copy_bytes(op, axes) and not last else result
        _run_axis(low, axis, source, target, buffers)
        source = target


def _run_axis(low: ProgramLowering, axis: Axis, source: V, target: V, buffers: V) -> None:
    steps = plan(axis.transform)
    arguments = []
    for step in steps:
        arguments += [low.constant_array(step.table), low.constant_array(np.array(step.sizes, np.int64))]
    if axis.units > 1 or axis.size < PARALLEL or axis.transform.block:
        _run_units(low, axis, steps, [source, target, buffers, *arguments])
    else:
        _run_passes(low, axis, steps, arguments, [source, target, buffers])


def _ends(b: Builder, axis: Axis, count: int, source: V, target: V, buffers: V) -> list[tuple[V, V]]:
    """Source and target of every pass: the tensors at the ends, two buffers in turn between."""
    spare = [b.offset(buffers, HEADER), b.offset(buffers, _block_bytes(axis) // 2 + HEADER)]
    places = [source, *(spare[k % 2] for k in range(count - 1)), target]
    return list(itertools.pairwise(places))


def _run_units(low: ProgramLowering, axis: Axis, steps: list[Step], pointers: list[V]) -> None:
    """Tasks of whole blocks: `void task(ptr frame, i64 index, i64 worker)`."""
    tasks = 1 if axis.size < PARALLEL else min(TASKS, axis.units)
    grain = -(-axis.units // tasks)
    tasks = -(-axis.units // grain)
    name = low.new_name("fft")
    b = low.module.function(name, [("ptr", "frame"), ("i64", "index"), ("i64", "worker")], attributes="nounwind")
    frame, index, worker = b.params
    source, target, buffers, *arguments = (b.load("ptr", b.element(frame, "ptr", i)) for i in range(len(pointers)))
    buffers = b.offset(buffers, b.mul(worker, _block_bytes(axis)))
    first = b.mul(index, grain)
    t, chunks = axis.transform, axis.chunks
    with b.loop(first, b.min_(b.add(first, grain), axis.units), 1, "block") as unit:
        if t.block:
            outer, chunk = b.mul(unit, t.lanes), i64(0)
        else:
            outer, chunk = b.udiv(unit, chunks), b.mul(b.urem(unit, chunks), t.columns)
        rows = b.add(b.mul(outer, axis.source_rows * axis.inner), chunk)
        here = b.offset(source, b.mul(rows, axis.source_bytes))
        rows = b.add(b.mul(outer, axis.target_rows * axis.inner), chunk)
        there = b.offset(target, b.mul(rows, axis.target_bytes))
        for k, ends in enumerate(_ends(b, axis, len(steps), here, there, buffers)):
            units = i64(steps[k].units)
            if steps[k].sequences:
                units = b.min_(b.sub(i64(axis.outer), outer), t.lanes)
            b.call("void", steps[k].symbol, [*ends, *arguments[2 * k : 2 * k + 2], i64(0), units])
    b.ret()
    low.parallel(low.share("fft", name), pointers, tasks)


def _run_passes(low: ProgramLowering, axis: Axis, steps: list[Step], arguments: list[V], pointers: list[V]) -> None:
    """One block: every pass is cut into tasks of its own."""
    b = low.b
    source, target, buffers = pointers
    for k, ends in enumerate(_ends(b, axis, len(steps), source, target, buffers)):
        step, given = steps[k], [*ends, *arguments[2 * k : 2 * k + 2]]
        if step.units < 2:
            b.call("void", step.symbol, [*given, i64(0), i64(step.units)])
            continue
        low.module.declare(step.symbol, "void", [t for t, _ in PARAMS])
        grain = -(-step.units // TASKS)
        low.parallel(low.task_of(step.symbol, 4, step.units, grain), given, -(-step.units // grain))


KERNEL = Kernel(lower, scratch, routines)
