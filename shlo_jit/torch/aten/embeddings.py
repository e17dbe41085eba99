"""Sums of rows of a matrix, and gradients of rows."""

from __future__ import annotations

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.scatters import _at_rows
from shlo_jit.torch.aten.values import I64, at_least_1d, cast, filled, number, sizes, wide


@aten("embedding_dense_backward")
def embedding_dense_backward(
    call: Call, gradient: Value, index: Value, count: int, padding: int, scale_by_frequency: bool
) -> Value:
    """The gradient of a matrix by those of its rows at indices."""
    width = sizes(gradient)[-1]
    dtype = wide(gradient.element_type)
    places = at_least_1d(b.reshape(index, (-1,)) if index.ndim else index)
    rows = b.reshape(cast(gradient, dtype), (sizes(places)[0], width))
    where = cast(places, I64)
    if scale_by_frequency:
        from shlo_jit.torch.aten.indexing import rows_at

        ones = filled(sizes(places), 1, I64)
        counts = _at_rows(filled((count,), 0, I64), 0, where, ones, b.add)
        rows = rows / b.broadcast_in_dim(cast(rows_at(counts, where, 0), dtype), sizes(rows), (0,))
    if padding >= 0:
        is_real = b.broadcast_in_dim(where != number(padding, I64), sizes(rows), (0,))
        rows = b.select(is_real, rows, filled(sizes(rows), 0, dtype))
    return cast(_at_rows(filled((count, width), 0, dtype), 0, where, rows, b.add), gradient.element_type)
