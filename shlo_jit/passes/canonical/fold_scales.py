"""Fold factors of channels, such as those of a batch norm, into the constant weights of their product. This happens
only with the option `fold_scales`, since it changes results by roundings (`docs/accuracy.md`).

Needs: static shapes. Guarantees: nothing. With s a constant factor of each output channel, c one of each input channel,
a and b constants of output channels:

    multiply(add(convolution(x, w), b), s)   ->   add(convolution(x, w * s), b * s)
    dot_general(multiply(x, c), w)           ->   dot_general(x, c * w)

After a product with constant weights, `multiply` and `divide` by factors of its output channels are folded. Constants
that are added or subtracted before these are scaled at compile time, and merged with the next constant that is added.
Transposes, and reshapes that keep the channels, may be in between. Before a product, a factor of a contracting
dimension is folded: padding is 0 with and without it. Nothing is folded

- in types other than f32 and f64: in narrower floats the rounded product would differ by more than the result's
  rounding;
- if other ops read the unscaled result, or the weights, which would be in memory twice;
- if a factor is 0, infinite, NaN or subnormal, or if a nonzero weight would become one of these: the weights as given
  decide about overflow and loss of precision.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shlo_jit.ir.aligned import empty
from shlo_jit.ir.attributes import ConvDims, Dense
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.digests import derived
from shlo_jit.ir.types import F32, F64, TensorType, tensor
from shlo_jit.ops.runs import roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.channel_constants import (
    ChannelConstants,
    Places,
    along,
    places_in_operand,
    places_in_result,
)
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.simplify import eliminate, simplify
from shlo_jit.passes.weights import PRODUCTS

FLOATS = (F32, F64)


def fold_scales(function: Op, context: Context) -> Op:
    """The function with the factors of channels folded into constant weights, if the program's options ask for that."""
    if not context.fold_scales:
        return function
    function = simplify(function, context)  # computes prepared weights, which are constants then
    folding = _Folding(function)
    if not folding.weights:
        return function
    return eliminate(rewrite(function, folding.visit))


@dataclass
class _Product:
    """A product with constant weights. Places map to the dimensions of its weights."""

    op: Op
    side: int
    """Index of the operand with the weights."""
    outputs: Places
    """Places of the result's dimensions."""
    inputs: Places
    """Places of the other operand's dimensions."""
    groups: int = 1
    """Groups of input channels: output channels of a group use only its own input channels."""
    factor: np.ndarray = field(default_factory=lambda: np.ones(()))
    """Factor of the weights."""

    @property
    def weights(self) -> Op:
        found = self.op.operands[self.side].op
        assert found is not None
        return found

    @property
    def rank(self) -> int:
        return self.op.operands[self.side].tensor.rank


class _Folding:
    """The factors to be folded; `visit` folds them."""

    def __init__(self, function: Op) -> None:
        self.constants = ChannelConstants()
        self.readers: defaultdict[Value, list[Op]] = defaultdict(list)
        for op in walk(function.block()):
            for operand in op.operands:
                self.readers[operand].append(op)
        self.weights: dict[Op, _Product] = {}
        self.dropped: dict[Op, Value] = {}
        """Folded ops -> the operand that replaces the result."""
        self.offsets: dict[Op, tuple[np.ndarray, Places]] = {}
        """Ops after which a constant is added, and the places of its dimensions."""
        products = [p for op in walk(function.block()) if (p := self._product(op)) is not None]
        for product in products:
            self._fold_after(product)
        for product in products:
            self._fold_before(product)

    # ------------------------------------------------------------------ what there is
    def _product(self, op: Op) -> _Product | None:
        if op.name not in PRODUCTS or any(not isinstance(o.type, TensorType) for o in op.operands):
            return None
        dtype = op.result.tensor.dtype
        if dtype not in FLOATS or any(o.tensor.dtype != dtype for o in op.operands):
            return None
        sides = [1] if op.name == "stablehlo.convolution" else [1, 0]
        side = next((s for s in sides if self._is_own_constant(op.operands[s])), None)
        if side is None:
            return None
        return _of_convolution(op) if op.name == "stablehlo.convolution" else _of_dot(op, side)

    def _is_own_constant(self, value: Value) -> bool:
        """Whether a value is a constant with a single reader."""
        op = value.op
        return op is not None and op.name == "stablehlo.constant" and len(self.readers[value]) == 1

    # ------------------------------------------------------------------ what is folded
    def _fold_after(self, product: _Product) -> None:
        """Collects the ops after a product: walks along single readers that multiply by or add constants of
        channels."""
        value, places = product.op.result, product.outputs
        scale, offset = np.ones(()), np.zeros(())
        passed: list[tuple[Op, Value]] = []
        done: tuple[int, np.ndarray, np.ndarray, Places] | None = None
        """Number of folded ops among these, their total scale and offset, and the places after them."""
        while len(self.readers[value]) == 1:
            (op,) = self.readers[value]
            moved = places_in_result(op, places)
            if moved is not None:
                places = moved
            else:
                known = self._operand(op, value, places, product.rank)
                if known is None:
                    break
                if op.name in FACTORS:
                    if not _is_factor(known, product.op):
                        break
                    by = known if op.name == "stablehlo.multiply" else 1 / known
                    scale, offset = scale * by, offset * by
                else:
                    offset = offset + known if op.name == "stablehlo.add" else offset - known
                passed.append((op, value))
                if scale.ndim:
                    done = len(passed), scale, offset, places
            value = op.result
        if done is None:
            return
        count, scale, offset, places = done
        with np.errstate(all="ignore"):
            rounded = offset.astype(product.op.result.tensor.storage.numpy)
        if not np.isfinite(rounded).all() or not self._fold(product, scale):
            return
        self.dropped.update(passed[:count])
        if any(op.name not in FACTORS for op, _ in passed[:count]):
            self.offsets[passed[count - 1][0]] = rounded, places

    def _fold_before(self, product: _Product) -> None:
        """Collects the factors before a product: walks along the other operand's producers, as long as each has a
        single reader and multiplies by constants."""
        value, places = product.op.operands[1 - product.side], product.inputs
        while value.op is not None and len(self.readers[value]) == 1 and value.op not in self.dropped:
            op = value.op
            moved = places_in_operand(op, places)
            if moved is not None:
                places, value = moved, op.operands[0]
                continue
            source = self._source(op)
            if op.name not in FACTORS or source is None:
                return
            known = self._operand(op, source, places, product.rank)
            if known is None or not _is_factor(known, product.op):
                return
            factor = _by_group(product, known if op.name == "stablehlo.multiply" else 1 / known)
            if not self._fold(product, factor):
                return
            self.dropped[op] = value = source

    def _source(self, op: Op) -> Value | None:
        """Returns the only operand that is not constant, or None."""
        unknown = [o for o in op.operands if self.constants.of(o) is None]
        return unknown[0] if len(unknown) == 1 else None

    def _operand(self, op: Op, value: Value, places: Places, rank: int) -> np.ndarray | None:
        """Returns the constant that an op multiplies a value by, or adds to it, along the dimensions of the weights."""
        if op.name not in FACTORS | OFFSETS:
            return None
        first, second = op.operands
        if second is value and op.name not in COMMUTATIVE:
            return None
        known = self.constants.of(first if second is value else second)
        found = None if known is None else along(known, places, rank)
        return None if found is None else found.astype(np.float64)

    def _fold(self, product: _Product, factor: np.ndarray) -> bool:
        """Multiplies the weights by one more factor, unless they would leave the range of normal numbers."""
        factor = product.factor * factor
        if not _is_factor(factor, product.op) or not _stays_normal(product.weights.constant, factor):
            return False
        product.factor = factor
        self.weights[product.op] = product
        return True

    # ------------------------------------------------------------------ the visitor
    def visit(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        product = self.weights.get(op)
        if product is not None:
            folded = _folded(product.weights.constant, product.factor)
            operands[product.side] = rw.emit1("stablehlo.constant", [], folded.type, {"value": folded})
            return rw.keep(op, operands)
        if op not in self.dropped:
            return None
        value = rw.get(self.dropped[op])
        if op not in self.offsets:
            return [value]
        offset, places = self.offsets[op]
        where = sorted(places)
        extents = [offset.shape[places[d]] for d in where]
        order = [places[d] for d in where]
        others = [i for i in range(offset.ndim) if i not in order]
        vector = offset.transpose([*others, *order]).reshape(extents)
        constant = mk.constant(rw, tensor(tuple(extents), value.tensor.storage), vector)
        return [mk.apply(rw, "add", value, mk.broadcast(rw, constant, value.tensor.extents, where))]


FACTORS = frozenset(("stablehlo.multiply", "stablehlo.divide"))
OFFSETS = frozenset(("stablehlo.add", "stablehlo.subtract"))
COMMUTATIVE = frozenset(("stablehlo.multiply", "stablehlo.add"))


def _of_convolution(op: Op) -> _Product:
    d = op.attributes["dimension_numbers"]
    assert isinstance(d, ConvDims)
    outputs = {d.output_feature_dimension: d.kernel_output_feature_dimension}
    inputs = {d.input_feature_dimension: d.kernel_input_feature_dimension}
    return _Product(op, 1, outputs, inputs, op.int("feature_group_count", 1))


def _of_dot(op: Op, side: int) -> _Product:
    roles = roles_of(op)
    lhs = roles.lhs_batch, roles.lhs_contracting, roles.lhs_free
    rhs = roles.rhs_batch, roles.rhs_contracting, roles.rhs_free
    (batch, summed, free), (other_batch, other_summed, other_free) = (rhs, lhs) if side else (lhs, rhs)
    first = len(batch) + (len(other_free) if side else 0)
    outputs = {**dict(enumerate(batch)), **dict(enumerate(free, first))}
    inputs = dict(zip((*other_batch, *other_summed), (*batch, *summed), strict=True))
    return _Product(op, side, outputs, inputs)


def _by_group(product: _Product, factor: np.ndarray) -> np.ndarray:
    """Converts a factor of all input channels to one of the weights: an output channel has only the inputs of its
    group."""
    if product.groups == 1 or factor.size == 1:
        return factor
    d = product.op.attributes["dimension_numbers"]
    i, o = d.kernel_input_feature_dimension, d.kernel_output_feature_dimension
    outputs = product.op.operands[1].tensor.extents[o] // product.groups
    by_output = np.repeat(factor.reshape(product.groups, -1), outputs, axis=0)
    shape = [1] * product.rank
    shape[i], shape[o] = by_output.shape[1], by_output.shape[0]
    return (by_output.T if i < o else by_output).reshape(shape)


def _is_factor(numbers: np.ndarray, op: Op) -> bool:
    """Whether all numbers are normal in the product's element type."""
    with np.errstate(all="ignore"):
        found = np.abs(numbers).astype(op.result.tensor.storage.numpy)
    return bool((np.isfinite(found) & (found >= np.finfo(found.dtype).tiny)).all())


def _stays_normal(given: Dense, factor: np.ndarray) -> bool:
    """Whether nonzero weights stay normal after scaling. Releases the memory of the given weights."""
    made = _multiplied(given, factor)
    tiny = np.finfo(made.dtype).tiny
    parts = zip(np.array_split(given.array, 64), np.array_split(made, 64), strict=True)  # limits memory
    found = all(np.isfinite(new).all() and ((np.abs(new) >= tiny) | (old == 0)).all() for old, new in parts)
    given.release()
    return found


def _folded(given: Dense, factor: np.ndarray) -> Dense:
    """Returns the folded weights. They are not kept after packing: they are computed again on demand."""

    def made() -> np.ndarray:
        found = _multiplied(given, factor)
        given.release()
        return found

    return Dense(given.type, None, made, given.release)


def _multiplied(given: Dense, factor: np.ndarray) -> np.ndarray:
    """Returns the weights times their factors, rounded once."""
    array = given.array

    def made() -> np.ndarray:
        found = empty(array.nbytes)
        with np.errstate(all="ignore"):
            np.multiply(array, factor, out=found.view(array.dtype).reshape(array.shape), casting="same_kind")
        return found

    how = hashlib.sha256(np.ascontiguousarray(factor).tobytes()).hexdigest()
    found = derived(array, f"fold_scales {array.dtype} {array.shape} {factor.shape} {how}", made)
    return found.view(array.dtype).reshape(array.shape)
