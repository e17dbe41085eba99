"""Constants that are the same along most dimensions, as arrays with extent 1 there: a bias broadcast over an image, the
factors of its channels, and values computed from several of these."""

from __future__ import annotations

import math

import numpy as np

from shlo_jit import tuning
from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import TensorType
from shlo_jit.ops import OPS
from shlo_jit.sizes import equal

Places = dict[int, int]
"""A dimension of a value -> the corresponding dimension of another value."""


class ChannelConstants:
    """Known constants among the values of a function, each evaluated once."""

    def __init__(self) -> None:
        self._known: dict[Value, np.ndarray | None] = {}

    def of(self, value: Value) -> np.ndarray | None:
        """Returns an array of the value's rank that broadcasts to it, or None if the value is not constant or too
        expensive to evaluate."""
        if value not in self._known:
            self._known[value] = self._of(value)
        return self._known[value]

    def _of(self, value: Value) -> np.ndarray | None:
        op = value.op
        if op is None or op.regions or len(op.results) != 1 or not isinstance(value.type, TensorType):
            return None
        if op.name == "stablehlo.constant":
            return _reduced(op.constant)
        operands = [self.of(o) for o in op.operands]
        known = [o for o in operands if o is not None]
        if not known or len(known) < len(operands):
            return None
        if op.name in _MOVES:
            return _MOVES[op.name](op, known[0])
        return _computed(op, known)


def _reduced(constant: Dense) -> np.ndarray:
    array = constant.array
    if constant.is_splat:
        return array.reshape(-1)[:1].reshape((1,) * array.ndim)
    if array.size > tuning.FOLD_ELEMENTS:
        return array
    # A small constant that was broadcast has been folded already.
    for d in range(array.ndim):
        first = array.take([0], d)
        if np.array_equal(np.broadcast_to(first, array.shape), array):
            array = first
    return array


def _computed(op: Op, operands: list[np.ndarray]) -> np.ndarray | None:
    """Evaluates an op by its reference implementation, which rounds like run time or differs in the last place."""
    record = OPS.get(op.name)
    if record is None or record.reference is None or not record.has("elementwise"):
        return None
    if math.prod(np.broadcast_shapes(*(o.shape for o in operands))) > tuning.FOLD_ELEMENTS:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(record.reference(op, *operands)).astype(op.result.tensor.storage.numpy)


def _spread(op: Op, operand: np.ndarray) -> np.ndarray:
    shape = [1] * op.result.tensor.rank
    for extent, dimension in zip(operand.shape, op.ints("broadcast_dimensions"), strict=True):
        shape[dimension] = extent
    # Dimensions may be in any order.
    order = sorted(range(operand.ndim), key=op.ints("broadcast_dimensions").__getitem__)
    return operand.transpose(order).reshape(shape)


def _transposed(op: Op, operand: np.ndarray) -> np.ndarray:
    return operand.transpose(op.ints("permutation"))


def _reshaped(op: Op, operand: np.ndarray) -> np.ndarray | None:
    t = op.result.tensor
    if operand.size == 1:
        return operand.reshape((1,) * t.rank)
    if t.is_fixed and operand.size == t.size:
        return operand.reshape(t.extents)
    return None


_MOVES = {
    "stablehlo.broadcast_in_dim": _spread,
    "stablehlo.transpose": _transposed,
    "stablehlo.reshape": _reshaped,
}


def along(array: np.ndarray, places: Places, rank: int) -> np.ndarray | None:
    """Converts an array that broadcasts to a value into one of the given rank that broadcasts to another value, by the
    corresponding dimensions. Returns None if the array varies along a dimension without a corresponding one."""
    if any(extent > 1 and d not in places for d, extent in enumerate(array.shape)):
        return None
    kept = sorted(places, key=places.__getitem__)
    shape = [1] * rank
    for d in kept:
        shape[places[d]] = array.shape[d]
    others = [d for d in range(array.ndim) if d not in places]
    return array.transpose([*others, *kept]).reshape(shape)


def places_in_result(op: Op, places: Places) -> Places | None:
    """Maps dimensions of an op's operand to its result, if the op is a transpose, or a reshape that keeps them."""
    if op.name == "stablehlo.transpose":
        return {i: places[d] for i, d in enumerate(op.ints("permutation")) if d in places}
    if op.name == "stablehlo.reshape":
        return _same_run(op.operands[0].tensor, op.result.tensor, places)
    return None


def places_in_operand(op: Op, places: Places) -> Places | None:
    """Maps dimensions of an op's result to its operand, as in `places_in_result`."""
    if op.name == "stablehlo.transpose":
        return {d: places[i] for i, d in enumerate(op.ints("permutation")) if i in places}
    if op.name == "stablehlo.reshape":
        return _same_run(op.result.tensor, op.operands[0].tensor, places)
    return None


def _same_run(source: TensorType, target: TensorType, places: Places) -> Places | None:
    """Maps dimensions through a reshape: a dimension stays the same one if its extent and the number of elements inside
    it do."""
    found: Places = {}
    for d, place in places.items():
        extent, inner = source.extents[d], math.prod(source.extents[d + 1 :])
        where = [
            i
            for i, n in enumerate(target.extents)
            if i not in found and equal(n, extent) and equal(math.prod(target.extents[i + 1 :]), inner)
        ]
        if not where:
            return None
        found[where[0]] = place
    return found
