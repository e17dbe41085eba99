"""Recognize matrices that are affine in an array of narrow integers: `(q - zero) * scale`, where scales and zero points
are shared by groups of elements.

    w = reshape(convert(q : 32x128x4096xi4) * broadcast(s : 32x4096xf32)) : 4096x4096xf32

The search goes from the matrix to the integers, through multiplications, divisions, additions, subtractions,
conversions, and data movement. Reshapes split and merge dimensions, so dimensions are lists of *axes*, which all values
of one search share. An axis is split where one of them has a boundary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import BF16, F16, F32, DType
from shlo_jit.ops.integer_ranges import range_of

FLOATS = (F32, BF16, F16)
"""Types in which weights may be computed: conversions to narrower ones change them by more than a rounding, and what is
computed in f64 may not fit f32."""


@dataclass(eq=False)
class Axis:
    """A dimension, or a part of one."""

    extent: int
    parts: tuple[Axis, ...] = ()
    """Outer and inner part, if it has been split."""

    @property
    def leaves(self) -> Iterator[Axis]:
        """The axes that it has been split into, outermost first."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves


Dim = list[Axis]
"""The axes of a dimension, outermost first."""


def leaves_of(dims: Sequence[Dim]) -> list[Axis]:
    """Returns the axes of some dimensions after all splits. Axes of extent 1 are left out."""
    return [leaf for dim in dims for axis in dim for leaf in axis.leaves if leaf.extent != 1]


class Placed(NamedTuple):
    """A value and the axes of its dimensions."""

    value: Value
    dims: list[Dim]
    types: tuple[DType, ...] = ()
    """Types that it is converted to, one after the other."""

    @property
    def leaves(self) -> list[Axis]:
        return leaves_of(self.dims)


class Factor(NamedTuple):
    """A value that another is multiplied or divided by, or that is added or subtracted."""

    name: str
    """The elementwise op without its dialect."""
    by: Placed


@dataclass
class Affine:
    """A matrix that is affine in integers."""

    integers: Placed
    low: int
    high: int
    """Range of the integers."""
    dims: list[Dim]
    """The axes of the matrix's dimensions."""
    factors: list[Factor] = field(default_factory=list)
    """What is done to the integers, in order."""


def affine_weights(matrix: Value) -> Affine | None:
    """Returns a matrix of floats as one that is affine in integers of at most 8 bits, or None if it is not known to be
    that."""
    if not matrix.tensor.is_fixed or not matrix.tensor.storage.is_float:
        return None
    dims = [[Axis(n)] for n in matrix.tensor.extents]
    found = _affine(matrix, dims, tuning.BYTE_SEARCH)
    if found is None or sorted(map(id, found.integers.leaves)) != sorted(map(id, leaves_of(dims))):
        return None  # integers that are repeated have fewer axes
    found.dims = dims
    return found


def _affine(value: Value, dims: list[Dim], left: int) -> Affine | None:
    op = value.op
    if op is None or not left or value.tensor.storage not in FLOATS:
        return None
    if op.name == "stablehlo.convert":
        source = op.operands[0]
        if source.tensor.storage.is_float:
            return _affine(source, dims, left - 1)
        ends = range_of(source, tuning.BYTE_SEARCH) if source.tensor.storage.is_integer else None
        return None if ends is None or not _is_narrow(*ends) else Affine(Placed(source, dims), *ends, dims)
    moved = axes_before(op, dims)
    if moved is not None:
        return _affine(op.operands[0], moved, left - 1)
    name = op.name.partition(".")[2]
    if name not in ("multiply", "divide", "add", "subtract"):
        return None
    for side in (0, 1) if name in ("multiply", "add") else (0,):
        found = _affine(op.operands[side], dims, left - 1)
        if found is not None:
            found.factors.append(Factor(name, _placed(op.operands[1 - side], dims)))
            return found
    return None


def _placed(value: Value, dims: list[Dim], types: tuple[DType, ...] = ()) -> Placed:
    """Returns the value before data movement and conversions, with its axes."""
    while (op := value.op) is not None:
        if op.name == "stablehlo.convert" and op.operands[0].tensor.storage.is_float:
            types = (value.tensor.storage, *types)
        elif (moved := axes_before(op, dims)) is not None:
            dims = moved
        else:
            break
        value = op.operands[0]
    return Placed(value, [[] for _ in dims] if is_splat(value) else dims, types)


def is_splat(value: Value) -> bool:
    """Whether a value is a constant with the same number everywhere, which has no axes."""
    return value.op is not None and value.op.name == "stablehlo.constant" and value.op.constant.is_splat


def axes_before(op: Op, dims: list[Dim]) -> list[Dim] | None:
    """Returns the axes of the operand's dimensions, if an op only moves elements. `dims`: those of the result."""
    if op.name == "stablehlo.transpose":
        found: list[Dim] = [[] for _ in dims]
        for d, source in enumerate(op.ints("permutation")):
            found[source] = dims[d]
        return found
    if op.name == "stablehlo.reshape":
        return regrouped(dims, op.operands[0].tensor.extents)
    if op.name == "stablehlo.broadcast_in_dim":
        extents = op.operands[0].tensor.extents
        return [dims[d] if n != 1 else [] for d, n in zip(op.ints("broadcast_dimensions"), extents, strict=True)]
    return None


def regrouped(dims: Sequence[Dim], extents: Sequence[int]) -> list[Dim] | None:
    """Returns the axes in the order in which they are as dimensions of other extents; splits axes at the boundaries of
    these. None if a boundary is within an axis that it does not divide."""
    todo = leaves_of(dims)[::-1]
    found: list[Dim] = []
    for extent in extents:
        dim: Dim = []
        while (room := extent // math.prod(axis.extent for axis in dim)) > 1:
            if not todo:
                return None
            axis = todo.pop()
            if axis.extent > room:
                if axis.extent % room:
                    return None
                axis.parts = Axis(room), Axis(axis.extent // room)
                todo.append(axis.parts[1])
                axis = axis.parts[0]
            if extent % (axis.extent * math.prod(a.extent for a in dim)):
                return None
            dim.append(axis)
        found.append(dim)
    return found


def _is_narrow(low: int, high: int) -> bool:
    return any(least <= low and high <= most for least, most in ((-128, 127), (0, 255)))
