"""Calls of LAPACK's functions for batches of matrices, from machine code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.builder import Value
from shlo_jit.builder.scope import emit
from shlo_jit.ir.attributes import Dense, DictAttr, IntegerAttr
from shlo_jit.ir.dtypes import DTYPES
from shlo_jit.ir.types import TensorType, tensor
from shlo_jit.torch.aten.registry import Unsupported
from shlo_jit.torch.aten.values import filled, sizes

_LETTERS = {"f32": "s", "f64": "d", "complex<f32>": "c", "complex<f64>": "z"}


def lapack(
    x: Value, routine: str, shapes: Sequence[TensorType], vectors: Sequence[int], **config: int
) -> tuple[Value, ...]:
    """Calls a routine for the matrices of the last two dimensions. `vectors`: the results that are no matrices.
    `config`: its options, as characters."""
    if 0 in sizes(x):
        return tuple(filled(t.shape or (), 0, t.dtype) for t in shapes)  # type: ignore[arg-type]  known extents
    if x.element_type.name not in _LETTERS:
        raise Unsupported(f"factorizations of {x.element_type} are not supported")
    attributes = {
        "call_target_name": f"lapack_{_LETTERS[x.element_type.name]}{routine}_ffi",
        "has_side_effect": False,
        "backend_config": DictAttr(tuple((name, IntegerAttr(value, "ui8")) for name, value in config.items())),
        "api_version": 4,
        "operand_layouts": (_by_columns(x.ndim),),
        "result_layouts": tuple(_by_columns(len(t.extents), matrix=i not in vectors) for i, t in enumerate(shapes)),
    }
    return emit("stablehlo.custom_call", [x], attributes, results=list(shapes))


def _by_columns(rank: int, matrix: bool = True) -> Dense:
    """The order of dimensions in memory that LAPACK expects, the fastest one first."""
    order = [*range(rank - 1, -1, -1)]
    if matrix:
        order = [rank - 2, rank - 1, *range(rank - 3, -1, -1)]
    return Dense(tensor((rank,), DTYPES["index"]), np.array(order, np.int64))
