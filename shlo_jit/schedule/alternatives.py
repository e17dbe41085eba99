"""Alternatives to the schedule of a step, by kind of step: the search space of `autotune/`.

A kind of step is searched if it has an entry in KINDS. Everything else about the search is independent of the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from shlo_jit.fuse.plan import Step
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.convolution import ConvolutionSchedule
from shlo_jit.schedule.convolution_moves import convolution_alternatives, convolution_changes_bits
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.line_tiles import LineTilesSchedule, line_tile_alternatives, line_tiles_change_bits
from shlo_jit.schedule.moves import Move
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.nest_alternatives import nest_alternatives, nest_changes_bits
from shlo_jit.schedule.product_moves import product_alternatives, product_changes_bits
from shlo_jit.schedule.products import ProductSchedule
from shlo_jit.schedule.row_blocks import RowBlocksSchedule, row_block_alternatives, row_block_changes_bits


class Kind(NamedTuple):
    """The functions that a kind of schedule has for the search."""

    alternatives: Callable[[Step, KernelSchedule, Target], Iterable[tuple[Move, ...]]]
    """Yields schedules near the given one, each as all of its moves, the most promising first."""
    changes_bits: Callable[[Step, KernelSchedule, Sequence[Move], Target], bool]
    """Whether results with these moves may have other bits than with the given schedule."""


KINDS: dict[type[KernelSchedule], Kind] = {
    NestSchedule: Kind(nest_alternatives, nest_changes_bits),
    ProductSchedule: Kind(partial(product_alternatives, any_rounding=True), product_changes_bits),
    ConvolutionSchedule: Kind(convolution_alternatives, convolution_changes_bits),
    RowBlocksSchedule: Kind(row_block_alternatives, row_block_changes_bits),
    LineTilesSchedule: Kind(line_tile_alternatives, line_tiles_change_bits),
}
"""Class of a step's schedule -> its kind. Such a schedule has `moves`."""


def alternatives(
    step: Step, scheduled: KernelSchedule, target: Target, *, any_rounding: bool = False
) -> Iterator[tuple[Move, ...]]:
    """Yields alternatives to the schedule of a step, each as all of its moves; none for a kind that is not searched.

    Those that may change the bits of results are left out, unless `any_rounding` is set.
    """
    kind = KINDS.get(type(scheduled))
    if kind is None:
        return
    for moves in kind.alternatives(step, scheduled, target):
        if any_rounding or not kind.changes_bits(step, scheduled, moves, target):
            yield moves


def moves_of(scheduled: KernelSchedule) -> tuple[Move, ...]:
    """The moves of a schedule; none for a kind that is not searched."""
    return getattr(scheduled, "moves", ()) if can_be_tuned(scheduled) else ()


def can_be_tuned(scheduled: KernelSchedule) -> bool:
    """Whether schedules of this kind have alternatives."""
    return type(scheduled) in KINDS
