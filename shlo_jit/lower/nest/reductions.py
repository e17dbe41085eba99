"""A nest's reductions with the code of their reducers."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.fuse.nest import Key
from shlo_jit.ir.core import Op
from shlo_jit.kernels.builder import Builder
from shlo_jit.lower.elements.reducers import Reducer, Selector, reducer_of
from shlo_jit.lower.elements.registers import Reg, widen
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.position import Position
from shlo_jit.schedule.passes import Passes, Reduction


class RowReduction(NamedTuple):
    """A reduce at one place of a nest."""

    op: Op
    reducer: Reducer | Selector
    results: list[Key]
    operands: list[Key]
    initial: list[Key]


def row_reductions(passes: Passes, p: int) -> list[RowReduction]:
    """The reductions of pass p."""
    return [RowReduction(r.op, _reducer(r), r.results, r.operands, r.initial) for r in passes.reductions(p)]


def _reducer(r: Reduction) -> Reducer | Selector:
    return reducer_of(r.op) if r.selection is None else Selector(r.selection, r.op.results[1].tensor.storage)


def initial_of(b: Builder, ev: Evaluator, position: Position, r: RowReduction, width: int = 1) -> list[Reg]:
    """Accumulators of the initial values."""
    return r.reducer.enter(b, [widen(b, ev.value(position, k), width) for k in r.initial])


def nothing_of(b: Builder, ev: Evaluator, position: Position, r: RowReduction, width: int) -> list[Reg]:
    """Accumulators e without effect: combine(e, x) = x. For selections these are the initial values, which precede all
    elements anyway."""
    if isinstance(r.reducer, Selector):
        return initial_of(b, ev, position, r, width)
    return [widen(b, r.reducer.neutral(), width)]


def finish(b: Builder, position: Position, r: RowReduction, values: list[Reg]) -> None:
    """Makes the accumulators the results of a reduction in the row's position."""
    results = r.reducer.leave(b, values)
    for key in r.results:
        position.memo[key] = results[r.op.results.index(key[0])]
