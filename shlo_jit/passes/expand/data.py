"""Expansions of data movement and of deprecated forms: broadcast, torch_index_select, map."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.attributes import Dense, StructAttr
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import TensorType, tensor
from shlo_jit.ops import is_elementwise
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter


def expand_broadcast(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """broadcast(x, sizes) = broadcast_in_dim(x) with new leading dimensions"""
    x = operands[0]
    if not mk.is_static(x):
        return None
    sizes = op.ints("broadcast_sizes")
    where = range(len(sizes), len(sizes) + x.tensor.rank)
    return [mk.broadcast(rw, x, (*sizes, *mk.shape_of(x)), where)]


def expand_torch_index_select(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """gather along `dim`, one index per element; leading `batch_dims` dimensions are batching dimensions of both
    operands"""
    x, index = operands
    if not (mk.is_static(x) and mk.is_static(index)):
        return None
    rank, batch = x.tensor.rank, op.int("batch_dims")
    dim = op.int("dim") % rank
    positions = index.tensor.rank - batch
    numbers = StructAttr(
        "stablehlo.gather",
        (
            ("offset_dims", (*range(batch, dim), *range(dim + positions, rank + positions - 1))),
            ("collapsed_slice_dims", (dim,)),
            ("operand_batching_dims", tuple(range(batch))),
            ("start_indices_batching_dims", tuple(range(batch))),
            ("start_index_map", (dim,)),
            ("index_vector_dim", index.tensor.rank),
        ),
    )
    sizes = [1 if d < batch or d == dim else n for d, n in enumerate(mk.shape_of(x))]
    attributes = {"dimension_numbers": numbers, "slice_sizes": mk.dims(sizes), "indices_are_sorted": False}
    return rw.emit("stablehlo.gather", operands, [op.result.type], attributes)


# ---------------------------------------------------------------------------- map
def expand_map(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """map(f, x, y) = f(x, y), with every op of f on whole tensors instead of scalars"""
    body = op.block()
    plain = all(is_elementwise(o) or o.name in SCALAR_VIEWS or o.name in CONSTANTS for o in body.ops[:-1])
    if not plain or not all(map(mk.is_static, op.results)):
        return None
    shape = op.result.tensor.extents
    lifted = dict(zip(body.arguments, operands, strict=True))

    def get(value: Value) -> Value:
        if value not in lifted:  # from outside the region
            lifted[value] = mk.broadcast(rw, rw.get(value), shape, ())
        return lifted[value]

    for inner in body.ops[:-1]:
        if inner.name in CONSTANTS:
            t = tensor(shape, inner.result.tensor.storage)
            lifted[inner.result] = mk.constant(rw, t, inner.constant.array.reshape(-1)[0])
        elif inner.name in SCALAR_VIEWS:
            lifted[inner.result] = get(inner.operands[0])
        else:
            types = [tensor(shape, r.tensor.dtype) for r in inner.results]
            results = rw.emit(inner.name, [get(o) for o in inner.operands], types, inner.attributes)
            lifted.update(zip(inner.results, results, strict=True))
    return [get(o) for o in body.terminator.operands]


CONSTANTS = {"stablehlo.constant", "chlo.constant"}
SCALAR_VIEWS = {"stablehlo.reshape", "stablehlo.broadcast_in_dim"}
"""Ops that do nothing to scalars."""


def expand_get_dimension_size(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """get_dimension_size(x) = the extent of x, if it is known"""
    t = operands[0].type
    extent = t.shape[op.int("dimension")] if isinstance(t, TensorType) and t.shape is not None else None
    return None if extent is None else [mk.size(rw, extent)]


def expand_constant(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """constant(value) under another name"""
    value = op.attributes["value"]
    assert isinstance(value, Dense)
    return rw.emit("stablehlo.constant", [], [value.type], {"value": value})


RULES = {
    "stablehlo.broadcast": expand_broadcast,
    "stablehlo.torch_index_select": expand_torch_index_select,
    "stablehlo.map": expand_map,
    "stablehlo.get_dimension_size": expand_get_dimension_size,
    "chlo.constant": expand_constant,
}
