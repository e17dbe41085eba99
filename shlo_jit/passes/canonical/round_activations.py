"""Round the activations of products with low-bit weights to 8 bits, so that the products are ones of integers. This
happens only with the option `round_activations`, since it changes results (`docs/accuracy.md`).

Needs: static shapes. Guarantees: nothing. With weights (q - z) * s that are affine in integers of at most 8 bits
(`affine_weights.py`), where G numbers the groups of terms with a scale of their own and I the terms in a group:

    dot_general(x, w)   ->   xs = max over I of |x| / 127;  xq = convert(round(x / xs)) : i8
                             sum over G of (dot_general(xq, q) * xs * s  -  xs * (sum over I of xq) * z * s)

A weight with one scale for each column has a single group: the row of activations. Scales are applied to the exact sums
of a group. Nothing is rounded if both operands are such weights, if a group has few terms, or if sums might exceed 32
bits. Activations that are computed from integers, such as rows of an embedding, are no weights if they have factors of
their own for each term.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shlo_jit import tuning
from shlo_jit.ir.core import Block, Op, Region, Value, walk
from shlo_jit.ir.types import F32, I8, I32, UI8, tensor
from shlo_jit.ops.runs import roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.affine_weights import FLOATS, Affine, Axis, Factor, affine_weights, is_splat, leaves_of
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite

PRODUCT = "stablehlo.dot_general"
STEPS = 127
"""Steps on either side of zero."""
LEAST = 2.0**-100
"""Activations are rounded to zero if all in their group are smaller: the reciprocal of the step would overflow."""


def round_activations(function: Op, context: Context) -> Op:
    """The function with rounded activations, if the program's options ask for that."""
    if context.round_activations is None or not any(op.name == PRODUCT for op in walk(function.block())):
        return function
    return rewrite(function, _visit)


def _visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    if op.name != PRODUCT or not all(map(mk.is_static, (*operands, op.result))):
        return None
    if any(v.tensor.dtype not in FLOATS for v in (*operands, op.result)) or not op.result.tensor.size:
        return None
    found = [_Product.of(rw, op, operands, side) for side in (0, 1)]
    products = [product for product in found if product is not None]
    return [products[0].emit()] if len(products) == 1 else None


@dataclass
class _Product:
    """A product of activations with affine weights. Axes of dimensions of extent 1 are left out everywhere."""

    rw: Rewriter
    op: Op
    activations: Value
    side: int
    """Index of the operand with the weights."""
    weights: Affine
    batch: list[Axis]
    groups: list[Axis]
    inner: list[Axis]
    """Axes of the terms in a group."""
    free: list[Axis]
    """Axes of the weights' rows or columns, in the order of the matrix."""

    @classmethod
    def of(cls, rw: Rewriter, op: Op, operands: list[Value], side: int) -> _Product | None:
        """Returns the product if the operand on that side is a matrix of weights whose activations may be rounded."""
        weights = affine_weights(operands[side])
        if weights is None:
            return None
        r = roles_of(op)
        roles = (r.rhs_batch, r.rhs_contracting) if side else (r.lhs_batch, r.lhs_contracting)
        batch, terms = (leaves_of([weights.dims[d] for d in dims]) for dims in roles)
        others = [d for d in range(len(weights.dims)) if d not in (*roles[0], *roles[1])]
        free = leaves_of([weights.dims[d] for d in others])
        varying = {axis for factor in weights.factors for axis in factor.by.leaves}
        inner = [axis for axis in terms if axis not in varying]
        groups = [axis for axis in terms if axis in varying]
        count = math.prod(axis.extent for axis in inner)
        largest = max(-weights.low, weights.high)
        if count < tuning.ROUNDED_GROUP or count * STEPS * largest >= 1 << 31:
            return None
        return cls(rw, op, operands[1 - side], side, weights, batch, groups, inner, free)

    def emit(self) -> Value:
        rw = self.rw
        x, x_axes = self._split_activations()
        over = [d for d, axis in enumerate(x_axes) if axis in self.inner]
        rounded, step = _rounded(rw, x, over)
        q, q_axes = self._split_integers()
        product, axes = self._dot(rounded, x_axes, q, q_axes)
        rows = [axis for axis in x_axes if axis not in self.inner]
        y = mk.convert(rw, product, F32)
        y = mk.apply(rw, "multiply", y, _along(rw, step, rows, axes))
        scale, offset = self._factors()
        if scale is not None:
            y = mk.apply(rw, "multiply", y, _along(rw, *scale, axes))
        if offset is not None:
            sums = mk.reduce_sum(rw, mk.convert(rw, rounded, I32), over)
            sums = mk.apply(rw, "multiply", mk.convert(rw, sums, F32), step)
            sums = mk.apply(rw, "multiply", _along(rw, sums, rows, axes), _along(rw, *offset, axes))
            y = mk.apply(rw, "add", y, sums)
        total = mk.reduce_sum(rw, y, [d for d, axis in enumerate(axes) if axis in self.groups])
        axes = [axis for axis in axes if axis not in self.groups]
        wanted = [*self.batch, *self.free, *rows] if self.side == 0 else [*self.batch, *rows, *self.free]
        wanted = list(dict.fromkeys(axis for axis in wanted if axis in axes))
        total = mk.transpose(rw, total, [axes.index(axis) for axis in wanted])
        return mk.convert(rw, mk.reshape(rw, total, self.op.result.tensor.extents), self.op.result.tensor.storage)

    def _split_activations(self) -> tuple[Value, list[Axis]]:
        """The activations as f32, with a dimension for each axis, and these axes."""
        r = roles_of(self.op)
        own, other = (r.lhs_batch, r.lhs_contracting), (r.rhs_batch, r.rhs_contracting)
        if self.side == 0:
            own, other = other, own
        pairs = {d: w for mine, theirs in zip(own, other, strict=True) for d, w in zip(mine, theirs, strict=True)}
        axes: list[Axis] = []
        for d, extent in enumerate(mk.shape_of(self.activations)):
            axes += leaves_of([self.weights.dims[pairs[d]]]) if d in pairs else leaves_of([[Axis(extent)]])
        x = mk.convert(self.rw, self.activations, F32)
        return mk.reshape(self.rw, x, [axis.extent for axis in axes]), axes

    def _split_integers(self) -> tuple[Value, list[Axis]]:
        """The integers as bytes, with a dimension for each axis, and these axes."""
        w = self.weights
        narrow = I8 if w.low >= -128 and w.high <= 127 else UI8
        value, axes = self._arranged(w.integers.value, w.integers.leaves)
        return mk.convert(self.rw, value, narrow), axes

    def _arranged(self, value: Value, axes: list[Axis]) -> tuple[Value, list[Axis]]:
        """A value with a dimension for each axis. The terms of an output are adjacent in a constant: several of them
        are multiplied in a lane, and long runs are read from memory."""
        extents = [axis.extent for axis in axes]
        wanted = [axis for axis in (*self.batch, *self.free, *self.groups, *self.inner) if axis in axes]
        if value.op is None or value.op.name != "stablehlo.constant" or wanted == axes:
            return mk.reshape(self.rw, value, extents), axes
        order = [axes.index(axis) for axis in wanted]
        t = value.tensor
        if t.storage.is_packable or value.op.constant.is_splat:  # the transpose is folded, and the original released
            return mk.transpose(self.rw, mk.reshape(self.rw, value, extents), order), wanted
        array = np.ascontiguousarray(value.op.constant.array.reshape(extents).transpose(order))
        return mk.constant(self.rw, tensor(array.shape, t.dtype), array), wanted

    def _dot(self, x: Value, x_axes: list[Axis], w: Value, w_axes: list[Axis]) -> tuple[Value, list[Axis]]:
        """The product over the axes of a group, and the axes of its result."""
        sides, axes = ((w, x), (w_axes, x_axes)) if self.side == 0 else ((x, w), (x_axes, w_axes))
        common = [axis for axis in w_axes if axis in x_axes]
        summed = [axis for axis in common if axis in self.inner]
        batch = [axis for axis in common if axis not in summed]
        roles = [[own.index(axis) for axis in some] for some in (batch, summed) for own in axes]
        left = [axis for own in axes for axis in own if axis not in common]
        return mk.dot(self.rw, sides, roles, I32), [*batch, *left]

    def _factors(self) -> tuple[tuple[Value, list[Axis]] | None, tuple[Value, list[Axis]] | None]:
        """What the integers are multiplied by, and what is added then, each with its axes; None for 1 and 0."""
        scale: tuple[Value, list[Axis]] | None = None
        offset: tuple[Value, list[Axis]] | None = None
        for factor in self.weights.factors:
            by = self._value_of(factor)
            if factor.name in ("multiply", "divide"):
                if scale is None:
                    scale = mk.splat_like(self.rw, by[0], 1.0), by[1]
                scale = self._combined(factor.name, scale, by)
                offset = None if offset is None else self._combined(factor.name, offset, by)
            else:
                if offset is None:
                    offset = mk.splat_like(self.rw, by[0], 0.0), by[1]
                offset = self._combined(factor.name, offset, by)
        return scale, offset

    def _value_of(self, factor: Factor) -> tuple[Value, list[Axis]]:
        """A factor as f32, with a dimension for each of its axes."""
        by = factor.by
        value = by.value
        if is_splat(value):
            assert value.op is not None
            number = float(value.op.constant.array.reshape(-1)[0])
            value = mk.constant(self.rw, tensor((), value.tensor.storage), number)
        value, axes = self._arranged(value, by.leaves)
        for dtype in (*by.types, F32):
            value = mk.convert(self.rw, value, dtype)
        return value, axes

    def _combined(
        self, name: str, x: tuple[Value, list[Axis]], y: tuple[Value, list[Axis]]
    ) -> tuple[Value, list[Axis]]:
        axes = list(dict.fromkeys([*x[1], *y[1]]))
        t = tensor(tuple(axis.extent for axis in axes), F32)
        both = [mk.broadcast(self.rw, v, t.extents, [axes.index(a) for a in own]) for v, own in (x, y)]
        return mk.apply(self.rw, name, *both), axes


def _along(rw: Rewriter, value: Value, own: list[Axis], axes: list[Axis]) -> Value:
    """Returns a value with dimensions for more axes, along which it is repeated."""
    return mk.broadcast(rw, value, [axis.extent for axis in axes], [axes.index(axis) for axis in own])


def _rounded(rw: Rewriter, x: Value, over: Sequence[int]) -> tuple[Value, Value]:
    """Returns numbers as multiples of a step that they share along some dimensions, and the steps."""
    largest = _largest(rw, mk.apply(rw, "abs", x), over)
    steps = mk.splat_like(rw, largest, STEPS)
    is_normal = mk.compare(rw, "GE", largest, mk.splat_like(rw, largest, LEAST))
    inverse = mk.apply(rw, "divide", steps, largest)
    inverse = rw.emit1("stablehlo.select", [is_normal, inverse, mk.splat_like(rw, largest, 0)], largest.type)
    kept = [d for d in range(x.tensor.rank) if d not in over]
    scaled = mk.apply(rw, "multiply", x, mk.broadcast(rw, inverse, mk.shape_of(x), kept))
    numbers = mk.convert(rw, mk.apply(rw, "round_nearest_even", scaled), I8)
    return numbers, mk.apply(rw, "multiply", largest, mk.splat_like(rw, largest, 1 / STEPS))


def _largest(rw: Rewriter, value: Value, over: Sequence[int]) -> Value:
    """Returns the largest of some numbers along some dimensions, and at least 0."""
    scalar = tensor((), F32)
    source, start, end = rw.place()
    arguments = [Value(scalar), Value(scalar)]
    larger = Op("stablehlo.maximum", list(arguments), [scalar], None, None, source, start, end)
    done = Op("stablehlo.return", list(larger.results), [], None, None, source, start, end)
    kept = tuple(n for d, n in enumerate(mk.shape_of(value)) if d not in over)
    zero = mk.constant(rw, scalar, 0)
    region = Region([Block(arguments, [larger, done])])
    t = tensor(kept, F32)
    return rw.emit("stablehlo.reduce", [value, zero], [t], {"dimensions": mk.dims(over)}, [region])[0]
