"""Lowers fft to the passes of `kernels/fft/plan.py`, as `schedule/fft.py` has decided."""

from __future__ import annotations

import itertools

import numpy as np

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.fft.fft import PARAMS
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.scratch import Fields, shared_fields, worker_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.fft import HEADER, Axis, FftSchedule


def lower(low: Services, step: OpStep, schedule: FftSchedule) -> None:
    op = step.op
    work = low.scratch(step)
    shared = shared_fields(low.b, schedule.scratch, work)
    source, result = low.pointer(op.operands[0]), low.pointer(op.result)
    buffers = low.b.offset(work, schedule.scratch.fixed)
    for k, axis in enumerate(schedule.axes):
        last = k == len(schedule.axes) - 1
        target = shared["copy"] if schedule.has_copy and not last else result
        _run_axis(low, axis, source, target, buffers)
        source = target


def _run_axis(low: Services, axis: Axis, source: V, target: V, buffers: V) -> None:
    arguments = []
    for step in axis.passes:
        arguments += [low.constant_array(step.table), low.constant_array(np.array(step.sizes, np.int64))]
    if axis.is_cut_in_passes:
        _run_passes(low, axis, arguments, [source, target, buffers])
    else:
        _run_blocks(low, axis, [source, target, buffers, *arguments])


def _ends(b: Builder, axis: Axis, source: V, target: V, fields: Fields) -> list[tuple[V, V]]:
    """Source and target of every pass: the tensors at both ends, and two alternating buffers in between."""
    spare = [b.offset(fields.base, fields.offsets[name] + HEADER) for name in ("first", "second")]
    places = [source, *(spare[k % 2] for k in range(len(axis.passes) - 1)), target]
    return list(itertools.pairwise(places))


def _run_blocks(low: Services, axis: Axis, pointers: list[V]) -> None:
    """Runs tasks of whole blocks: `void task(ptr frame, i64 index, i64 worker)`."""
    tasks, steps = axis.tasks, axis.passes
    name = low.new_name("fft")
    b = low.task(name, len(pointers))
    frame, index, worker = b.params
    source, target, buffers, *arguments = (b.load("ptr", b.element(frame, "ptr", i)) for i in range(len(pointers)))
    fields = worker_fields(b, axis.scratch, buffers, worker)
    first = b.mul(index, tasks.grain)
    t, chunks = axis.transform, axis.chunks
    with b.loop(first, b.min_(b.add(first, tasks.grain), axis.units), 1, "block") as unit:
        if t.block:
            outer, chunk = b.mul(unit, t.lanes), i64(0)
        else:
            outer, chunk = b.udiv(unit, chunks), b.mul(b.urem(unit, chunks), t.columns)
        rows = b.add(b.mul(outer, axis.source_rows * axis.inner), chunk)
        here = b.offset(source, b.mul(rows, axis.source_bytes))
        rows = b.add(b.mul(outer, axis.target_rows * axis.inner), chunk)
        there = b.offset(target, b.mul(rows, axis.target_bytes))
        for k, ends in enumerate(_ends(b, axis, here, there, fields)):
            units = i64(steps[k].units)
            if steps[k].sequences:
                units = b.min_(b.sub(i64(axis.outer), outer), t.lanes)
            b.call("void", steps[k].symbol, [*ends, *arguments[2 * k : 2 * k + 2], i64(0), units])
    b.ret()
    low.run_tasks(low.share("fft", name), pointers, tasks)


def _run_passes(low: Services, axis: Axis, arguments: list[V], pointers: list[V]) -> None:
    """Runs a single block: every pass is cut into tasks separately."""
    b = low.b
    source, target, buffers = pointers
    ends = _ends(b, axis, source, target, Fields(b, buffers, axis.scratch.worker_offsets))
    for k, (step, tasks) in enumerate(zip(axis.passes, axis.pass_tasks, strict=True)):
        given = [*ends[k], *arguments[2 * k : 2 * k + 2]]
        if tasks.tasks == 1:
            b.call("void", step.symbol, [*given, i64(0), i64(step.units)])
            continue
        low.module.declare(step.symbol, "void", [t for t, _ in PARAMS])
        low.parallel(low.task_of(step.symbol, 4, step.units, tasks.grain), given, tasks.tasks)
