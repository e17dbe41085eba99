"""Update rows of stacked tensors where they are: the caches of a model's layers, in a `scan` over the layers.

Needs: static shapes; bodies on scalars. Guarantees: nothing. Such a loop reads a row of a stacked input, changes a part
of it, and writes the row to a stacked result. The result takes the place of the input (`stacked_results.py`), and the
changes are applied to the whole tensor (`row_updates.py`), so that memory planning finds updates in place. Loops in
loops are rewritten from the inside out.

    y = 0; for i in 0 .. n-1 { s = dynamic_slice(x, i)                 y = x; for i in 0 .. n-1 {
                               t = dynamic_update_slice(s, u, j)   ->      y = dynamic_update_slice(y, u, i, j)
                               y = dynamic_update_slice(y, t, i) }     }
"""

from __future__ import annotations

from shlo_jit.ir.core import Op, walk
from shlo_jit.passes.context import Context
from shlo_jit.passes.states.row_updates import update_rows
from shlo_jit.passes.states.stacked_results import stacked_results
from shlo_jit.passes.states.updates import UPDATE

DEPTH = 8
"""Maximum loops in loops that are rewritten."""


def stacked_rows(function: Op, _: Context) -> Op:
    """The function with such rows updated where they are."""
    for _level in range(DEPTH):
        if not any(op.name == UPDATE for op in walk(function.block())):
            return function
        before = function
        function = update_rows(stacked_results(function))
        if function is before:
            return function
    return function
