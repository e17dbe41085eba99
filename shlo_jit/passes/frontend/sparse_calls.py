"""Products of a sparse CSR matrix and a dense one, which JAX writes as a custom call, in core ops.

custom_call @cpu_csr_sparse_dense_ffi(%data, %starts, %columns, %x)
->
%rows = for each stored element, the number of rows that end before it
%y    = scatter-add %data * gather(%x, %columns) at %rows into zeros
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import Dense, StructAttr
from shlo_jit.ir.core import Block, Op, Region, Value
from shlo_jit.ir.types import I64, DType, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter


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
        ends = mk.reshape(rw, mk.slice_dim(rw, starts, 0, 1, rows), (rows - 1, 1))
        marks = _scatter_add(rw, marks, ends, ones)
    places = _running_sum(rw, marks)
    numbers = StructAttr(
        "stablehlo.gather",
        (
            ("offset_dims", (1,) if wide else ()),
            ("collapsed_slice_dims", (0,)),
            ("start_index_map", (0,)),
            ("index_vector_dim", 1),
        ),
    )
    attributes = {"dimension_numbers": numbers, "slice_sizes": mk.dims((1, *wide)), "indices_are_sorted": False}
    indices = mk.reshape(rw, columns, (count, 1))
    taken = rw.emit1("stablehlo.gather", [x, indices], tensor((count, *wide), out.storage), attributes)
    terms = mk.apply(rw, "multiply", mk.broadcast(rw, data, (count, *wide), (0,)), taken)
    return [_scatter_add(rw, zeros, mk.reshape(rw, places, (count, 1)), terms)]


def _scatter_add(rw: Rewriter, into: Value, indices: Value, updates: Value) -> Value:
    """Adds rows of `updates` to the rows of `into` that `indices` name, in order."""
    rest = tuple(range(1, updates.tensor.rank))
    numbers = StructAttr(
        "stablehlo.scatter",
        (
            ("update_window_dims", rest),
            ("inserted_window_dims", (0,)),
            ("scatter_dims_to_operand_dims", (0,)),
            ("index_vector_dim", 1),
        ),
    )
    attributes: dict[str, Any] = {"scatter_dimension_numbers": numbers}
    return rw.emit("stablehlo.scatter", [into, indices, updates], [into.type], attributes, _sum_of(rw, into))[0]


def _running_sum(rw: Rewriter, x: Value) -> Value:
    """Returns the running sums of a vector: each element plus all before it."""
    (n,) = mk.shape_of(x)
    ones = mk.dims((1,))
    attributes: dict[str, Any] = {
        "window_dimensions": mk.dims((n,)),
        "window_strides": ones,
        "base_dilations": ones,
        "window_dilations": ones,
        "padding": Dense(tensor((1, 2), I64), np.array([[n - 1, 0]])),
    }
    zero = mk.constant(rw, tensor((), x.tensor.storage), 0)
    return rw.emit("stablehlo.reduce_window", [x, zero], [x.type], attributes, _sum_of(rw, x))[0]


def _sum_of(rw: Rewriter, value: Value) -> list[Region]:
    """Returns a reducer that adds."""
    dtype: DType = value.tensor.storage
    source, start, end = rw.place()
    arguments = [Value(tensor((), dtype)) for _ in range(2)]
    add = Op("stablehlo.add", list(arguments), [arguments[0].type], None, None, source, start, end)
    done = Op("stablehlo.return", list(add.results), [], None, None, source, start, end)
    return [Region([Block(arguments, [add, done])])]
