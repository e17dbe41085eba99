"""Where the operands of an op are, given where its result is wanted.

`operand_places(op, at, extents)` lists an `At` for every operand a fused op reads, in operand order. Operands that are
read through run-time terms (gather's indices) are listed too, since they have to be computed or loaded as well.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.ir import index as ix
from shlo_jit.ir.attributes import StructAttr
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import ORIGIN, ZERO, At, Condition, Expr, Sym

Places = list[tuple[Value, At]]


def _elementwise(op: Op, at: At, extents: list[int]) -> Places:
    out = []
    for o in op.operands:
        scalar = o.tensor.shape == () and at.index
        out.append((o, At((), at.conditions) if scalar else at))
    return out


def _broadcast_in_dim(op: Op, at: At, extents: list[int]) -> Places:
    (operand,) = op.operands
    dims = op.ints("broadcast_dimensions")
    shape = operand.tensor.extents
    index = tuple(ZERO if shape[i] == 1 else at.index[d] for i, d in enumerate(dims))
    return [(operand, At(index, at.conditions))]


def _transpose(op: Op, at: At, extents: list[int]) -> Places:
    index = [ZERO] * len(at.index)
    for i, p in enumerate(op.ints("permutation")):
        index[p] = at.index[i]
    return [(op.operands[0], At(tuple(index), at.conditions))]


def _slice(op: Op, at: At, extents: list[int]) -> Places:
    starts, strides = op.ints("start_indices"), op.ints("strides", (1,) * len(at.index))
    index = tuple(ix.shift(ix.scale(e, k), s) for e, s, k in zip(at.index, starts, strides, strict=True))
    return [(op.operands[0], At(index, at.conditions))]


def _reverse(op: Op, at: At, extents: list[int]) -> Places:
    shape, dims = op.result.tensor.extents, set(op.ints("dimensions"))
    index = tuple(
        ix.shift(ix.scale(e, -1), shape[d] - 1) if d in dims and shape[d] > 1 else e for d, e in enumerate(at.index)
    )
    return [(op.operands[0], At(index, at.conditions))]


def _reshape(op: Op, at: At, extents: list[int]) -> Places:
    (operand,) = op.operands
    source, target = operand.tensor.extents, op.result.tensor.extents
    kept = [e for e, n in zip(at.index, target, strict=True) if n != 1]
    if [n for n in source if n != 1] == [n for n in target if n != 1]:
        it = iter(kept)
        index = tuple(ZERO if n == 1 else next(it) for n in source)
    else:
        index = ix.delinearize(ix.linearize(at.index, target), source, extents)
    return [(operand, At(index, at.conditions))]


def _pad(op: Op, at: At, extents: list[int]) -> Places:
    operand, value = op.operands
    low, interior = op.ints("edge_padding_low"), op.ints("interior_padding")
    assert not any(interior), "interior padding has a nest of its own"
    index, conditions = [], list(at.conditions)
    source, target = operand.tensor.extents, op.result.tensor.extents
    for d, e in enumerate(at.index):
        moved = ix.shift(e, -low[d])
        if low[d] > 0 or target[d] > source[d] + low[d]:
            conditions.append(Condition(moved, 0, source[d]))
        index.append(moved)
    return [(operand, At(tuple(index), tuple(conditions))), (value, At((), at.conditions))]


def _clamped(value: Value, at: At, limit: int) -> Expr:
    return ZERO if limit <= 0 else Expr(0, (), (Sym(1, value, at, limit),))


def _dynamic_slice(op: Op, at: At, extents: list[int]) -> Places:
    operand, *starts = op.operands
    shape, sizes = operand.tensor.extents, op.ints("slice_sizes")
    scalar = At((), ())
    index = tuple(
        ix.add(e, _clamped(s, scalar, n - k)) for e, s, n, k in zip(at.index, starts, shape, sizes, strict=True)
    )
    return [(operand, At(index, at.conditions)), *((s, scalar) for s in starts)]


def _gather(op: Op, at: At, extents: list[int]) -> Places:
    operand, indices = op.operands[:2]
    d = op.attributes["dimension_numbers"]
    assert isinstance(d, StructAttr)
    offset_dims, collapsed = d.get("offset_dims", ()), d.get("collapsed_slice_dims", ())
    batching, batching_of = d.get("operand_batching_dims", ()), d.get("start_indices_batching_dims", ())
    start_map, vector_dim = d.get("start_index_map", ()), d.get("index_vector_dim", 0)
    sizes, shape = op.ints("slice_sizes"), operand.tensor.extents
    ishape = indices.tensor.extents
    batch = [e for i, e in enumerate(at.index) if i not in offset_dims]
    window = iter([at.index[i] for i in offset_dims])

    def place(component: int) -> At:
        rest = list(batch)
        if vector_dim < len(ishape):
            rest.insert(vector_dim, Expr(component))
        return At(tuple(rest), at.conditions)

    components = {dim: place(k) for k, dim in enumerate(start_map)}
    index: list[Expr] = []
    for dim in range(len(shape)):
        if dim in batching:
            position = batching_of[tuple(batching).index(dim)]
            e = batch[position - (1 if vector_dim < position else 0)]
        elif dim in collapsed:
            e = ZERO
        else:
            e = next(window)
        if dim in components:
            e = ix.add(e, _clamped(indices, components[dim], shape[dim] - sizes[dim]))
        index.append(e)
    reads = [(indices, p) for dim, p in components.items() if shape[dim] > sizes[dim]]
    return [(operand, At(tuple(index), at.conditions)), *reads]


def _leaf(op: Op, at: At, extents: list[int]) -> Places:
    return []


MAPS: dict[str, Callable[[Op, At, list[int]], Places]] = {
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.transpose": _transpose,
    "stablehlo.slice": _slice,
    "stablehlo.reverse": _reverse,
    "stablehlo.reshape": _reshape,
    "stablehlo.pad": _pad,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.gather": _gather,
    "stablehlo.iota": _leaf,
    "stablehlo.constant": _leaf,
}


def operand_places(op: Op, at: At, extents: list[int]) -> Places:
    """Operand places of a fused op whose result is wanted `at`; raises Split or NotAffine (see ir/index.py)."""
    return MAPS.get(op.name, _elementwise)(op, at, extents)


__all__ = ["ORIGIN", "operand_places"]
