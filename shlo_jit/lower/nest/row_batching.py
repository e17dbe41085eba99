"""Row batching: short rows of a reduction, as many together as there are lanes, combine their accumulators with each
other.

    x0 x1 x2 x3   row 0        x0+x2 x1+x3 | y0+y2 y1+y3        row 0  row 1  row 2  row 3: a vector of results
    y0 y1 y2 y3   row 1   ->   z0+z2 z1+z3 | u0+u2 u1+u3   ->

Separately, each row takes as many steps to combine its lanes, on ever shorter vectors, and stores one number. Elements
are combined in the same order, so the bits are the same.
"""

from __future__ import annotations

from shlo_jit.kernels.llvm_values import i64
from shlo_jit.lower.elements.reducers import side_by_side
from shlo_jit.lower.elements.registers import Reg
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.position import Position
from shlo_jit.lower.nest.reductions import RowReduction, finish, initial_of, row_reductions
from shlo_jit.lower.nest.rows import RowWriter, Variables


def write_row_batch(row: RowWriter, first: Variables) -> None:
    """Emits as many rows as there are lanes, starting at the row with these variables."""
    schedule, v = row.schedule, row.schedule.row_batching
    assert v is not None
    row.ev.prefetches = schedule.prefetches
    b, width, reductions = row.b, row.space.width, row_reductions(row.passes, 0)
    rows = [Position({**first, v: b.add(first[v], i64(k))}, width) for k in range(width)]
    results = Position(first, width)
    ev = Evaluator(b, row.nest, row.space._replace(vector=v), row.ev.pointers)
    for r, total in zip(reductions, _combined(row, rows, reductions), strict=True):
        finish(b, results, r, r.reducer.combine(b, initial_of(b, ev, results, r, width), total))
    for s in row.nest.stores:
        ev.value(results, (s.value, s.at))
    for s in row.nest.stores:
        ev.store(results, s)


def _combined(row: RowWriter, rows: list[Position], reductions: list[RowReduction]) -> list[list[Reg]]:
    """For each reduction, an accumulator whose lanes belong to consecutive rows. It computes two halves one after the
    other, so that few accumulators are live at any time."""
    if len(rows) == 1:
        row.hoist(rows[0], [k for r in reductions for k in r.operands])
        return row.accumulated([(rows[0], r) for r in reductions], [], rows[0])
    half, space = len(rows) // 2, row.space
    in_order = space.extents[space.inner[0]] <= space.width
    left, right = (_combined(row, part, reductions) for part in (rows[:half], rows[half:]))
    pairs = zip(reductions, left, right, strict=True)
    return [side_by_side(row.b, r.reducer, x, y, half, in_order) for r, x, y in pairs]
