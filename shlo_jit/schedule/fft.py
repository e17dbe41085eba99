"""Schedules fft as one-dimensional transforms, one axis at a time, by the passes of `kernels/fft/plan.py`.

A tensor is seen as [outer, n, inner]. A unit is a block of `columns` inner elements at one outer index or, if there is
no inner dimension, a block of several outer indices. Tasks are ranges of units, each with private buffers. A single
large block is cut inside its passes instead. Cost: O(n log n) for every n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shlo_jit import tuning
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Op
from shlo_jit.kernels.fft.fft import Step
from shlo_jit.kernels.fft.plan import Transform, in_blocks, plan, scratch_numbers
from shlo_jit.kernels.target import Target
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note, count
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.scratch import Field, Scratch
from shlo_jit.schedule.tasks import Tasks, cut, shared
from shlo_jit.sizes import Size, equal, hint_of

HEADER = 64
"""Bytes before a buffer that passes may use."""


@dataclass(frozen=True)
class Axis:
    """The transforms along one axis."""

    transform: Transform
    passes: tuple[Step, ...]
    """The passes in order; the first reads the source of the axis, the last writes its target."""
    outer: int
    inner: int
    source_rows: int
    target_rows: int
    source_bytes: int
    target_bytes: int
    """Bytes per element of the source and of the target."""

    @property
    def chunks(self) -> int:
        return self.inner // self.transform.columns

    @property
    def units(self) -> int:
        t = self.transform
        return -(-self.outer // t.lanes) if t.block else self.outer * self.chunks

    @property
    def size(self) -> int:
        return self.outer * self.inner * self.transform.n

    @property
    def scratch(self) -> Scratch:
        """Two buffers for each worker."""
        part_bytes = 4 if self.transform.part == "float" else 8
        nbytes = HEADER + scratch_numbers(list(self.passes)) * part_bytes
        return Scratch(worker=(Field("first", nbytes), Field("second", nbytes)))

    @property
    def is_cut_in_passes(self) -> bool:
        """Whether each pass is cut into tasks; otherwise a task takes whole blocks through all passes."""
        return equal(self.units, 1) and self.size >= tuning.FFT_PARALLEL and not self.transform.block

    @property
    def tasks(self) -> Tasks:
        """The tasks over blocks."""
        if isinstance(self.units, Size):
            return cut(self.units, self.size * (tuning.PARALLEL_WORK // tuning.FFT_PARALLEL))
        if self.size < tuning.FFT_PARALLEL:
            return Tasks(
                self.units,
                1,
                Reason("too-little-work", f"{self.size:,} elements; threads pay off from {tuning.FFT_PARALLEL:,} on"),
            )
        return shared(self.units, tuning.MAX_TASKS, Reason("tasks-by-work", f"{self.size:,} elements"))

    @property
    def pass_tasks(self) -> list[Tasks]:
        """The tasks of each pass, if passes are cut."""
        return [shared(step.units, tuning.MAX_TASKS, Reason("one-unit", "there is one block")) for step in self.passes]

    @property
    def notes(self) -> list[Note]:
        t = self.transform
        size = f"{self.outer} x {t.n} x {self.inner}"
        routines = ", ".join(step.routine.name for step in self.passes)
        out = [Note("axis", f"{t.kind} of [outer, n, inner] = {size}"), Note("passes", routines)]
        if self.is_cut_in_passes:
            tasks = ", ".join(str(tasks.tasks) for tasks in self.pass_tasks)
            return [
                *out,
                Note(
                    "tasks",
                    f"{tasks} of the passes",
                    Reason("passes-cut", "there is one large block: each pass over it is cut"),
                ),
            ]
        unit = f"block of {count(t.lanes, 'sequence')}" if t.block else f"block of {count(t.columns, 'column')}"
        return [*out, self.tasks.note(unit)]


@dataclass(frozen=True, kw_only=True)
class FftSchedule(KernelSchedule):
    """Schedule of an fft."""

    axes: tuple[Axis, ...]
    """The axes, in the order in which they are transformed."""
    has_copy: bool
    """Whether scratch memory holds the tensor between the complex axes and the real axis of an inverse transform;
    otherwise the result holds the tensor between axes."""

    @property
    def notes(self) -> list[Note]:
        return [note for axis in self.axes for note in axis.notes]


def schedule_fft(step: OpStep, context: Context) -> KernelSchedule:
    """Schedules an fft. Raises UnsupportedError for an empty operand with a nonempty result."""
    op = step.op
    if op.result.tensor.size == 0:
        return NOTHING
    if 0 in op.operands[0].tensor.extents:
        raise UnsupportedError(
            diagnose("fft: the operand is empty, but the result is not", op.span, label="empty-operand")
        )
    axes = _axes_of(op, context.target)
    needs_copy = op.attributes["fft_type"].value == "IRFFT" and len(axes) > 1
    copy = (Field("copy", op.operands[0].tensor.nbytes),) if needs_copy else ()
    # The axes use the same memory one after the other; each has buffers for all its workers.
    buffers = Field("buffers", max(axis.scratch.per_thread for axis in axes))
    return FftSchedule(
        axes=tuple(axes),
        has_copy=needs_copy,
        scratch=Scratch(copy, (buffers,)),
        routines=tuple(step.routine for axis in axes for step in axis.passes),
    )


def _axes_of(op: Op, target: Target) -> list[Axis]:
    """The axes in the order in which they are transformed: from first to last, except that the real axis of a real
    transform is next to the real tensor. An inverse transform is scaled once: on the first complex axis, or on the real
    one."""
    kind, lengths = op.attributes["fft_type"].value, op.ints("fft_length")
    source, result = op.operands[0].tensor, op.result.tensor
    complex_bytes = max(source.storage.itemsize, result.storage.itemsize)
    part = {8: "float", 16: "double"}[complex_bytes]
    rank, lanes, is_fixed = source.rank, target.lanes(complex_bytes * 4), target.reproducible
    inverse = kind in ("IFFT", "IRFFT")
    complex_shape = source.extents if kind == "IRFFT" else result.extents
    first = rank - len(lengths)
    scale = 1 / math.prod(lengths) if inverse else 1.0

    def complex_axis(d: int) -> Axis:
        n, inner, outer = complex_shape[d], math.prod(complex_shape[d + 1 :]), math.prod(complex_shape[:d])
        columns = _columns(n, inner, lanes, complex_bytes, target.bytes_of(tuning.FFT_BLOCK_BYTES))
        block = inner == 1 and not is_fixed and in_blocks("c2c", n, hint_of(outer), lanes)
        factor = scale if d == first and kind == "IFFT" else 1.0
        t = Transform("c2c", part, n, columns, inner, inverse, lanes, factor, block, is_fixed)
        return Axis(t, tuple(plan(t)), outer, inner, n, n, complex_bytes, complex_bytes)

    if kind in ("FFT", "IFFT"):
        return [complex_axis(d) for d in range(first, rank)]
    n, outer = lengths[-1], math.prod(complex_shape[:-1])
    half = n // 2 + 1
    which = "r2c" if kind == "RFFT" else "c2r"
    block = not is_fixed and in_blocks(which, n, hint_of(outer), lanes)
    t = Transform(which, part, n, 1, 1, inverse, lanes, scale, block, is_fixed)
    passes = tuple(plan(t))
    others = [complex_axis(d) for d in range(first, rank - 1)]
    if kind == "RFFT":
        return [Axis(t, passes, outer, 1, n, half, complex_bytes // 2, complex_bytes), *others]
    return [*others, Axis(t, passes, outer, 1, half, n, complex_bytes, complex_bytes // 2)]


def _columns(n: int, inner: int, lanes: int, itemsize: int, nbytes: int) -> int:
    """Inner elements per block: all of them, or a divisor that fits into `nbytes`."""
    if n * inner * itemsize <= nbytes:
        return inner
    most = max(lanes, nbytes // (n * itemsize))
    fitting = [c for c in range(lanes, min(most, inner) + 1, lanes) if inner % c == 0]
    return max(fitting, default=inner)
