"""ragged_all_to_all with one process: runs of rows of one array are copied into another."""

from __future__ import annotations

from shlo_jit.ir.core import Value
from shlo_jit.ir.types import I64, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter


def copied_rows(rw: Rewriter, x: Value, out: Value, starts: Value, sizes: Value, targets: Value) -> Value:
    """Returns `out` with rows from `targets[k]` on replaced by `sizes[k]` rows of `x` from `starts[k]` on, for each k
    in order. Offsets and sizes are vectors of i64. Rows that `x` does not have are copied as zeros; offsets outside of
    the two arrays are clamped.

    Shifted by starts[k] - targets[k], x has each row at its target; rows around x keep every shift in bounds."""
    rows, rank = out.tensor.extents[0], out.tensor.rank
    around = [rows, *[0] * (rank - 1)]
    wide = mk.pad(rw, x, 0, around, around, [0] * rank)
    place = mk.iota(rw, tensor(out.tensor.extents, I64), 0)
    zero = mk.constant(rw, tensor((), I64), 0)

    def copy_run(k: Value, state: list[Value]) -> list[Value]:
        start, size, target = (mk.reshape(rw, mk.window(rw, v, [k], (1,)), ()) for v in (starts, sizes, targets))
        shift = mk.apply(rw, "add", mk.apply(rw, "subtract", start, target), mk.constant(rw, tensor((), I64), rows))
        shifted = mk.window(rw, wide, [shift, *[zero] * (rank - 1)], out.tensor.extents)
        first, last = (mk.broadcast(rw, v, out.tensor.extents, ()) for v in (target, mk.apply(rw, "add", target, size)))
        inside = mk.apply(rw, "and", mk.compare(rw, "GE", place, first), mk.compare(rw, "LT", place, last))
        return [rw.emit1("stablehlo.select", [inside, shifted, state[0]], out.type)]

    return mk.counted(rw, starts.tensor.size, [out], copy_run)[0]
