"""The printed schedule of a convolution: strategy, register tile, operands, and tasks with their work."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from shlo_jit import tuning
from shlo_jit.kernels.convolution.convolution import BOUND_BY_MEMORY
from shlo_jit.kernels.convolution.narrow import PIXELS
from shlo_jit.kernels.convolution.shape import (
    DEPTHWISE,
    DEPTHWISE_3X3,
    DEPTHWISE_5X5,
    FIRST,
    GROUPED,
    IMAGES,
    LAST_GATHER,
    LAST_IN_PLACE,
    NARROW,
    PLANES,
    STRATEGIES,
    ConvShape,
)
from shlo_jit.kernels.gemm.policy import PREPACKED, WORDS, register_tile
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note, count
from shlo_jit.sizes import Size, equal, hint_of

Table = Mapping[str, int]
"""The routine's parameters by name."""
BY_CHANNELS = (DEPTHWISE, DEPTHWISE_3X3, DEPTHWISE_5X5, GROUPED)
"""Strategies whose tasks are lines x channels, with lanes along channels."""


def convolution_notes(shape: ConvShape, plan: GemmPlan, symbol: str, table: Table, *, tests_kernel: bool) -> list[Note]:
    """Notes on all decisions except tasks. `tests_kernel`: each call tests whether the kernel is finite."""
    window = " x ".join(map(str, shape.window)) or "1"
    size = " x ".join(map(str, shape.output)) or "1"
    images = f"{count(shape.batch, 'image')} of {size} pixels"
    return [
        Note("convolution", f"window {window}, {_channels(shape)}, {images} by {symbol}"),
        Note("strategy", *STRATEGIES[table["kind"]]),
        Note("tile", _tile(shape, plan, table), _why_tile(plan, table["kind"])),
        *_operands(table),
        *([_TESTED] if tests_kernel else []),
    ]


_TESTED = Note(
    "window",
    "positions in the padding are left out, and corrected if the kernel is not finite",
    Reason("kernel-may-be-non-finite", "the kernel may hold NaN or infinities, and 0 * NaN is NaN"),
)


def tasks_note(shape: ConvShape, table: Table) -> Note:
    """Note on the number of tasks, their extent, and their work."""
    return Note("tasks", f"{count(table['main_tasks'], 'task')} of {_task(shape, table)}", _work(shape, table))


def _channels(shape: ConvShape) -> str:
    if shape.groups == 1:
        return f"{shape.ci} to {shape.co} channels"
    if shape.ci == 1:
        each = "" if shape.co == 1 else f" to {shape.co}"
        return f"each of {count(shape.groups, 'channel')}{each}"
    return f"{count(shape.groups, 'group')} of {shape.ci} to {shape.co} channels"


def _tile(shape: ConvShape, plan: GemmPlan, table: Table) -> str:
    """Register tile: the results that are computed simultaneously in vector registers."""
    kind = table["kind"]
    if kind in BY_CHANNELS:
        return f"{plan.lanes} channels per vector"
    if kind == PLANES:
        return f"{plan.lanes} pixels per vector"
    if kind == NARROW:
        pixels = PIXELS[shape.co][0]
        return f"{count(pixels, 'pixel')} x {count(shape.co, 'channel')}, {plan.lanes} lanes along the window"
    if kind == FIRST:
        return f"{plan.mr} channels x {plan.nr} pixels in registers"
    if kind == IMAGES:
        return f"{plan.mr} images x {plan.nr} channels in registers"
    return f"{table['stripe'] if kind == LAST_IN_PLACE else plan.mr} pixels x {plan.nr} channels in registers"


def _why_tile(plan: GemmPlan, kind: int) -> Reason | None:
    """Reason for the register tile of a product."""
    return register_tile(plan) if kind in (LAST_IN_PLACE, LAST_GATHER, FIRST, IMAGES) else None


def _operands(table: Table) -> list[Note]:
    """Notes on how input and weights are read, and which parts of the window are skipped."""
    out: list[Note] = []
    if not equal(table["copy_tasks"], 0):
        why = Reason("padded-copy", "no pixel needs a bounds check then")
        out.append(Note("input", f"copied with its padding, {count(table['copy_tasks'], 'task')}", why))
    if table["margin_line"]:
        why = Reason("few-margins", "most windows lie inside the image")
        out.append(Note("input", "read in place, copied at the image's margins", why))
    finite = Reason(
        "constant-finite-kernel", "the kernel is constant and finite, so its products with padding are zero"
    )
    if table["leaves_padding"]:
        out.append(Note("window", "lines that read only padding are left out", finite))
    if table["ends"]:
        out.append(Note("window", "columns that read only padding are left out in edge tiles", finite))
    if table["w_prepacked"]:
        out.append(Note("weights", WORDS[PREPACKED], Reason("constant-operand", "they are constant")))
    if not equal(table["weight_tasks"], 0):
        out.append(Note("weights", f"packed, {count(table['weight_tasks'], 'task')}"))
    return out


def _task(shape: ConvShape, table: Table) -> str:
    """Extent of one task."""
    kind, chunk = table["kind"], table["row_chunk"]
    lines = table["batch"] * table["od"] * table["oh"]
    if kind in BY_CHANNELS:
        return f"{count(_at_most(chunk, lines), 'line')} x {count(_at_most(table['nc'], _results(shape)), 'channel')}"
    if kind == PLANES:
        return f"{count(_at_most(chunk, lines * _results(shape)), 'line')} of single channels"
    if kind == IMAGES:
        return f"{count(chunk, 'pixel')} of all images and channels"
    if kind == FIRST:
        return f"{count(_at_most(table['nc'], table['rows']), 'pixel')} x {count(shape.co, 'channel')}"
    channels = count(_at_most(table["nc"], shape.co), "channel")
    if kind == LAST_GATHER:
        return f"{count(_at_most(chunk, table['rows']), 'pixel')} x {channels}"
    return f"{count(_at_most(chunk, lines), 'line')} of {count(table['ow'], 'pixel')} x {channels}"


def _results(shape: ConvShape) -> int:
    return shape.groups * shape.co


def _at_most(number: int, limit: int) -> int:
    """A chunk size, clipped to `limit`. Values known only at the call are not clipped."""
    return number if isinstance(number, Size) or isinstance(limit, Size) else min(number, limit)


def _work(shape: ConvShape, table: Table) -> Reason:
    """Reason for the number of tasks: the total work and the work per task."""
    kind = table["kind"]
    work = shape.batch * prod(shape.output) * shape.groups * shape.co * shape.ci * prod(shape.window)
    serial = tuning.PARALLEL_WORK if kind in BOUND_BY_MEMORY else tuning.GEMM_SERIAL
    if not isinstance(work, Size) and work <= serial:
        return Reason("too-little-work", f"{work:,} multiply-adds; the caller does up to {serial:,} alone")
    each = hint_of(work) // max(1, hint_of(table["main_tasks"]))
    if kind == IMAGES:
        why = "several pixels, so that operands are not re-read for each"
        return Reason("tasks-by-pixels", f"{work:,} multiply-adds, {each:,} per task; {why}")
    aim = tuning.DEPTHWISE_TASK if kind in BY_CHANNELS else tuning.CONV_TASK // (32 if kind == PLANES else 1)
    cut = f"whole lines of about {aim:,} at most, and equal tasks if they are few"
    return Reason("tasks-by-work", f"{work:,} multiply-adds, {each:,} per task; {cut}")
