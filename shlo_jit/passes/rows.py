"""Builders of ops that read or add whole rows of a matrix, which a vector of indices names, and of running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from shlo_jit.ir.attributes import Dense, StructAttr
from shlo_jit.ir.core import Block, Op, Region, Value
from shlo_jit.ir.types import I64, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter


def gather_rows(rw: Rewriter, x: Value, indices: Value) -> Value:
    """Returns the rows (the elements, if `x` is a vector) of `x` that a vector of indices names, in order. Indices are
    limited to those there are."""
    (count,), wide = mk.shape_of(indices), mk.shape_of(x)[1:]
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
    places = mk.reshape(rw, indices, (count, 1))
    return rw.emit1("stablehlo.gather", [x, places], tensor((count, *wide), x.tensor.storage), attributes)


def add_rows(rw: Rewriter, into: Value, indices: Value, updates: Value) -> Value:
    """Adds rows (elements of a vector) of `updates` to those of `into` that a vector of indices names, in order. Rows
    whose index names none are left out."""
    numbers = StructAttr(
        "stablehlo.scatter",
        (
            ("update_window_dims", tuple(range(1, updates.tensor.rank))),
            ("inserted_window_dims", (0,)),
            ("scatter_dims_to_operand_dims", (0,)),
            ("index_vector_dim", 1),
        ),
    )
    places = mk.reshape(rw, indices, (mk.shape_of(indices)[0], 1))
    attributes = {"scatter_dimension_numbers": numbers}
    return rw.emit("stablehlo.scatter", [into, places, updates], [into.type], attributes, [adder(rw, into)])[0]


def running_sums(rw: Rewriter, x: Value, dimension: int) -> Value:
    """Returns the running sums along a dimension: each element plus all before it."""
    n, rank = mk.shape_of(x)[dimension], x.tensor.rank
    ones = mk.dims([1] * rank)
    padding = np.zeros((rank, 2), np.int64)
    padding[dimension, 0] = n - 1
    attributes: dict[str, Any] = {
        "window_dimensions": mk.dims([n if d == dimension else 1 for d in range(rank)]),
        "window_strides": ones,
        "base_dilations": ones,
        "window_dilations": ones,
        "padding": Dense(tensor((rank, 2), I64), padding),
    }
    zero = mk.constant(rw, tensor((), x.tensor.storage), 0)
    return rw.emit("stablehlo.reduce_window", [x, zero], [x.type], attributes, [adder(rw, x)])[0]


def adder(rw: Rewriter, value: Value) -> Region:
    """Returns a reducer that adds two elements of a value's type."""
    scalar, place = tensor((), value.tensor.storage), rw.place()
    arguments = [Value(scalar), Value(scalar)]
    add = Op("stablehlo.add", list(arguments), [scalar], None, None, *place)
    done = Op("stablehlo.return", list(add.results), [], None, None, *place)
    return Region([Block(arguments, [add, done])])
