"""A nest's reductions with the code of their reducers."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.fuse.nest import Key
from shlo_jit.ir.core import Op
from shlo_jit.kernels.builder import Builder
from shlo_jit.lower.elements.reducers import Reducer, reducer_of
from shlo_jit.lower.elements.registers import Reg
from shlo_jit.lower.nest.evaluate import Position
from shlo_jit.schedule.passes import Passes


class RowReduction(NamedTuple):
    """A reduce at one place of a nest."""

    op: Op
    reducer: Reducer
    results: list[Key]
    operands: list[Key]
    initial: list[Key]


def row_reductions(passes: Passes, p: int) -> list[RowReduction]:
    """The reductions of pass p."""
    return [RowReduction(r.op, reducer_of(r.op), r.results, r.operands, r.initial) for r in passes.reductions(p)]


def finish(b: Builder, position: Position, r: RowReduction, values: list[Reg]) -> None:
    """Make the accumulators the results of a reduction in the row's position."""
    results = r.reducer.leave(b, values)
    for key in r.results:
        position.memo[key] = results[r.op.results.index(key[0])]
