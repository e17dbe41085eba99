"""Schedule of a select_and_scatter. Lanes are neighbours along the last dimension if it has no window; tasks split the
dimensions without windows."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from shlo_jit import tuning
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.grouping import is_inline_constant_op
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Op
from shlo_jit.ir.index import strides_of
from shlo_jit.kernels.target import Target
from shlo_jit.ops import is_elementwise
from shlo_jit.schedule.bodies import body_cost, choose_lanes
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.tasks import Tasks, cut
from shlo_jit.schedule.window import Dim, dims_of_window
from shlo_jit.sizes import hint_of

Column = tuple[Dim, int, int]
"""A dimension, with its strides in the operand and in the source."""


@dataclass(frozen=True)
class Selection:
    """The windows: each chooses a place and combines a source element with the element there."""

    plain: tuple[Column, ...]
    """Dimensions without windows, except that of the lanes. Their product is the number of units."""
    windowed: tuple[Column, ...]
    columns: int
    """Extent of the last dimension if it has no window; otherwise 1."""
    width: int
    block: int
    """Columns per unit."""
    blocks: int
    tasks: Tasks


@dataclass(frozen=True, kw_only=True)
class SelectSchedule(KernelSchedule):
    """Schedule of a select_and_scatter: one kernel fills the result, and one iterates over the windows."""

    fill_width: int
    fill: Tasks
    fill_block: int
    """Elements of the result per unit of `fill`."""
    selection: Selection | None
    """None if the source is empty."""

    @property
    def notes(self) -> list[Note]:
        fill = self.fill.note(f"block of {self.fill_block:,}")
        out = [Note("fill", f"{self.fill_width} lanes, {fill.value}", fill.why)]
        s = self.selection
        if s is not None:
            windows = " x ".join(f"{d.out} of {d.size}" for d, _, _ in s.windowed)
            out += [Note("windows", windows or "none"), Note("lanes", f"{s.width}, along {s.columns} columns")]
            out.append(s.tasks.note(f"{s.block} columns"))
        return out


def schedule_select_and_scatter(step: OpStep, context: Context) -> KernelSchedule:
    """Schedules a select_and_scatter. Raises UnsupportedError for regions with ops that are not elementwise."""
    op, target = step.op, context.target
    for region in op.regions:
        for inner in region.block.ops[:-1]:
            if not is_elementwise(inner) and not is_inline_constant_op(inner):
                raise UnsupportedError(
                    diagnose(
                        f"select_and_scatter: {inner.name} in a region is not elementwise",
                        inner.span,
                        label="region-op",
                    )
                )
    size = op.result.tensor.size
    if size == 0:
        return NOTHING
    return SelectSchedule(
        fill_width=choose_lanes(target, [op.result.tensor.storage], size),
        fill=cut(-(-size // tuning.FILL_BLOCK), size),
        fill_block=tuning.FILL_BLOCK,
        selection=_selection(op, target) if op.operands[1].tensor.size else None,
    )


def _selection(op: Op, target: Target) -> Selection:
    dims = dims_of_window(op)
    in_strides = strides_of(tuple(d.extent for d in dims))
    out_strides = strides_of(tuple(d.out for d in dims))
    all_columns = list(zip(dims, in_strides, out_strides, strict=True))
    lanes = all_columns.pop()[0] if dims[-1].is_plain else None
    plain = tuple(c for c in all_columns if c[0].is_plain)
    windowed = tuple(c for c in all_columns if not c[0].is_plain)
    types = [v.tensor.storage for v in (*op.operands, op.result, *op.block(1).arguments)]
    columns = lanes.extent if lanes is not None else 1
    width = choose_lanes(target, types, columns)
    rows = prod(d.extent for d, _, _ in plain)
    block = columns if hint_of(rows) >= tuning.SCATTER_UNITS else width
    blocks = -(-columns // block)
    size = prod(d.size for d, _, _ in windowed)
    work = op.operands[1].tensor.size * (size * (body_cost(op.block()) + 2) + 8)
    return Selection(plain, windowed, columns, width, block, blocks, cut(rows * blocks, work))
