"""Maps each dimension of an op's operands to a dimension of its results: if one is split, so is the other.

    transpose %x, permutation = [1, 0]        %x: (1, 0)
    dot_general %x: 8x4, %y: 4x2              %x: (0, None), %y: (None, 1)
    reshape %x: 2x3x4 to 6x4                  %x: (0, None, 1)

All results of an op have the same map. Nothing is known about an op that is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import TensorType
from shlo_jit.ops import OPS
from shlo_jit.ops.contract import dims_of

DimensionMap = tuple[int | None, ...]
"""Result dimension of each dimension of an operand, or None."""
Rule = Callable[[Op], Sequence[DimensionMap]]
"""Returns a map for each of the first operands, those that matter."""


def dimension_maps(op: Op) -> Sequence[DimensionMap]:
    """Returns the maps of an op on tensors of known ranks. An operand without a map shares no dimension with the
    results."""
    record = OPS.get(op.name)
    if record is not None and record.has("elementwise"):
        return [_same(v) if _rank(v) == _rank(op.result) else (None,) * _rank(v) for v in op.operands]
    rule = _RULES.get(op.name)
    return () if rule is None else rule(op)


def _rank(value: Value) -> int:
    return len(_shape(value))


def _shape(value: Value) -> tuple:
    return (value.type.shape or ()) if isinstance(value.type, TensorType) else ()


def _same(value: Value) -> DimensionMap:
    return tuple(range(_rank(value)))


def _first(op: Op) -> Sequence[DimensionMap]:
    """Returns the map of the first operand. A dimension whose extent changes is not split."""
    return [_same(op.operands[0])]


def _all(op: Op) -> Sequence[DimensionMap]:
    return [_same(v) for v in op.operands]


def _solve(op: Op) -> Sequence[DimensionMap]:
    """Returns the map of the right-hand sides."""
    a, b = op.operands
    return [(None,) * _rank(a), _same(b)]


def _updated(op: Op) -> Sequence[DimensionMap]:
    """Returns the maps of the operand and of the update. Only dimensions that the update covers are split."""
    return [_same(v) for v in op.operands[:2]]


def _but(rank: int, gone: Sequence[int]) -> DimensionMap:
    """Returns the map of dimensions in order, except those in `gone`."""
    left = [d for d in range(rank) if d not in gone]
    return tuple(None if d in gone else left.index(d) for d in range(rank))


def _concatenate(op: Op) -> Sequence[DimensionMap]:
    gone = op.int("dimension")
    return [tuple(None if d == gone else d for d in range(_rank(v))) for v in op.operands]


def _broadcast(op: Op) -> Sequence[DimensionMap]:
    return [op.ints("broadcast_dimensions")]


def _transpose(op: Op) -> Sequence[DimensionMap]:
    permutation = op.ints("permutation")
    return [tuple(permutation.index(d) for d in range(len(permutation)))]


def _reshape(op: Op) -> Sequence[DimensionMap]:
    """Returns the map of a reshape. If equally many elements precede two dimensions, parts along one are parts along
    the other."""
    before, after = _shape(op.operands[0]), _shape(op.result)
    starts: dict[int, int] = {}
    count = 1
    for d, extent in enumerate(after):
        if extent != 1:
            starts.setdefault(count, d)
        count *= extent
    found, count = [], 1
    for extent in before:
        found.append(starts.get(count) if extent != 1 else None)
        count *= extent
    return [tuple(found)]


def _reduce(op: Op) -> Sequence[DimensionMap]:
    gone = op.ints("dimensions")
    return [_but(_rank(v), gone) for v in op.operands[: len(op.results)]]


def _dot_general(op: Op) -> Sequence[DimensionMap]:
    numbers = op.attributes["dot_dimension_numbers"]
    maps, at = [], len(dims_of(numbers, "lhs_batching_dimensions"))
    for side, value in zip(("lhs", "rhs"), op.operands, strict=True):
        batch = dims_of(numbers, f"{side}_batching_dimensions")
        summed = dims_of(numbers, f"{side}_contracting_dimensions")
        free = [d for d in range(_rank(value)) if d not in batch and d not in summed]
        to = {d: i for i, d in enumerate(batch)} | {d: at + i for i, d in enumerate(free)}
        at += len(free)
        maps.append(tuple(to.get(d) for d in range(_rank(value))))
    return maps


def _convolution(op: Op) -> Sequence[DimensionMap]:
    numbers = op.attributes["dimension_numbers"]
    lhs: list[int | None] = [None] * _rank(op.operands[0])
    rhs = list(lhs)
    lhs[numbers.input_batch_dimension] = numbers.output_batch_dimension
    rhs[numbers.kernel_output_feature_dimension] = numbers.output_feature_dimension
    return [tuple(lhs), tuple(rhs)]


def _gather(op: Op) -> Sequence[DimensionMap]:
    """Returns the maps of the operand's whole dimensions and of the batch dimensions of the indices."""
    numbers = op.attributes["dimension_numbers"]
    offsets = dims_of(numbers, "offset_dims")
    gone = (*dims_of(numbers, "collapsed_slice_dims"), *dims_of(numbers, "operand_batching_dims"))
    kept = [d for d in range(_rank(op.operands[0])) if d not in gone]
    to = dict(zip(kept, offsets, strict=True))
    vector = int(numbers.get("index_vector_dim", 0))
    batches = iter(d for d in range(_rank(op.result)) if d not in offsets)
    indices = tuple(None if d == vector else next(batches) for d in range(_rank(op.operands[1])))
    return [tuple(to.get(d) for d in range(_rank(op.operands[0]))), indices]


_RULES: dict[str, Rule] = {
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.convolution": _convolution,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dynamic_update_slice": _updated,
    "stablehlo.gather": _gather,
    "stablehlo.reduce": _reduce,
    "stablehlo.reshape": _reshape,
    "stablehlo.select_and_scatter": _first,
    "stablehlo.transpose": _transpose,
    "stablehlo.triangular_solve": _solve,
    **dict.fromkeys(("chlo.top_k", "stablehlo.cholesky", "stablehlo.fft"), _first),
    **dict.fromkeys(("stablehlo.all_reduce", "stablehlo.map", "stablehlo.sort"), _all),
    **{
        f"stablehlo.{name}": _first for name in ("dynamic_slice", "pad", "reduce_window", "reverse", "scatter", "slice")
    },
}
