"""Products of a sparse CSR matrix and a dense one, which JAX writes as a custom call, in core ops.

custom_call @cpu_csr_sparse_dense_ffi(%data, %starts, %columns, %x)
->
%rows = for each stored element, the number of rows that end before it
%y    = scatter-add %data * gather(%x, %columns) at %rows into zeros
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter
from shlo_jit.passes.rows import add_rows, gather_rows, running_sums


def sparse_product(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """Emits the product. `data`, `starts` and `columns` are 1-d; `x` is a matrix or a vector."""
    if len(operands) != 4 or len(op.results) != 1 or not all(map(mk.is_static, (*operands, op.result))):
        return None
    data, starts, columns, x = operands
    count, rows = mk.shape_of(data)[0], op.result.tensor.extents[0]
    wide = mk.shape_of(x)[1:]
    out = op.result.tensor
    zeros = mk.constant(rw, out, 0)
    if 0 in (count, rows, *mk.shape_of(x)):
        return [zeros]
    marks = mk.constant(rw, tensor((count,), starts.tensor.storage), 0)
    if rows > 1:
        ones = mk.constant(rw, tensor((rows - 1,), starts.tensor.storage), 1)
        marks = add_rows(rw, marks, mk.slice_dim(rw, starts, 0, 1, rows), ones)
    places = running_sums(rw, marks, 0)
    taken = gather_rows(rw, x, columns)
    terms = mk.apply(rw, "multiply", mk.broadcast(rw, data, (count, *wide), (0,)), taken)
    return [add_rows(rw, zeros, places, terms)]
