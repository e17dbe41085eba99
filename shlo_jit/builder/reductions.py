"""Reductions of dimensions and of windows; functions that are applied to every element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, overload

import numpy as np

from shlo_jit.builder import binary
from shlo_jit.builder.arguments import (
    TensorLike,
    axes,
    constant_of,
    element,
    listed,
    one_or_all,
    per_dimension,
    same_elements,
    shape_of,
    tensor_of,
    tensors_of,
    unless,
)
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.regions import Computation, map_region, scalar_region
from shlo_jit.builder.scope import emit, emit1
from shlo_jit.builder.shapes import shape_text
from shlo_jit.builder.windows import PaddingLike, padding_of
from shlo_jit.ir.types import I1
from shlo_jit.ops import OPS

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value

Tensors: TypeAlias = "TensorLike | Sequence[TensorLike]"


@overload
def reduce(
    operands: TensorLike, init_values: TensorLike, computation: Computation, dimensions_to_reduce: Sequence[int]
) -> Value: ...
@overload
def reduce(
    operands: Sequence[TensorLike],
    init_values: Sequence[TensorLike],
    computation: Computation,
    dimensions_to_reduce: Sequence[int],
) -> tuple[Value, ...]: ...
def reduce(
    operands: Tensors, init_values: Tensors, computation: Computation, dimensions_to_reduce: Sequence[int]
) -> Value | tuple[Value, ...]:
    """Reduces all elements along some dimensions by a function, starting with a scalar.

    operands: a tensor, or N of one shape. init_values: as many scalars of their element types, which should be neutral.
    computation: maps N accumulated scalars and N elements to N scalars (one scalar if N is 1); the order of its
    application is unspecified. dimensions_to_reduce: the dimensions that are removed. Returns a tensor, or a tuple of N
    (document: Reduce).
    """
    xs, starts = _with_starts(operands, init_values)
    elements = [element(s) for s in starts]
    body = scalar_region("computation", computation, elements * 2, elements)
    where = axes(dimensions_to_reduce, len(shape_of(xs[0])), "dimensions_to_reduce")
    names = {"inputs": "operands", "dimensions": "dimensions_to_reduce"}
    attributes = {"dimensions": list(where)}
    return one_or_all(operands, emit("stablehlo.reduce", [*xs, *starts], attributes, regions=[body], names=names))


@overload
def reduce_window(
    operands: TensorLike,
    init_values: TensorLike,
    computation: Computation,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = ...,
    padding: PaddingLike = ...,
    base_dilations: Sequence[int] | None = ...,
    window_dilations: Sequence[int] | None = ...,
) -> Value: ...
@overload
def reduce_window(
    operands: Sequence[TensorLike],
    init_values: Sequence[TensorLike],
    computation: Computation,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = ...,
    padding: PaddingLike = ...,
    base_dilations: Sequence[int] | None = ...,
    window_dilations: Sequence[int] | None = ...,
) -> tuple[Value, ...]: ...
def reduce_window(
    operands: Tensors,
    init_values: Tensors,
    computation: Computation,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: PaddingLike = "VALID",
    base_dilations: Sequence[int] | None = None,
    window_dilations: Sequence[int] | None = None,
) -> Value | tuple[Value, ...]:
    """Reduces the elements of each window position by a function.

    Operands, init_values and computation are those of `reduce`. The other arguments have a number for each dimension,
    by default 1. `padding`: SAME, VALID or pairs; padding has the init value (document: ReduceWindow).
    """
    xs, starts = _with_starts(operands, init_values)
    rank = len(shape_of(xs[0]))
    window = per_dimension(window_dimensions, rank, "window_dimensions")
    strides = per_dimension(window_strides, rank, "window_strides")
    base = per_dimension(base_dilations, rank, "base_dilations")
    dilations = per_dimension(window_dilations, rank, "window_dilations")
    elements = [element(s) for s in starts]
    attributes = {
        "window_dimensions": list(window),
        "window_strides": unless(strides, 1),
        "base_dilations": unless(base, 1),
        "window_dilations": unless(dilations, 1),
        "padding": unless(padding_of(padding, shape_of(xs[0]), window, strides, base, dilations), (0, 0)),
    }
    body = scalar_region("computation", computation, elements * 2, elements)
    names = {"inputs": "operands"}
    found = emit("stablehlo.reduce_window", [*xs, *starts], attributes, regions=[body], names=names)
    return one_or_all(operands, found)


def select_and_scatter(
    operand: TensorLike,
    select: Computation,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None,
    padding: PaddingLike,
    source: TensorLike,
    init_value: TensorLike,
    scatter: Computation,
) -> Value:
    """Selects one element of every window position over the operand and scatters `source` to these elements.

    `select` chooses (whether the first of two scalars stays). The element of `source` for a position is added by
    `scatter` at the chosen element, to a tensor of the operand's shape that is initialized with `init_value` (document:
    SelectAndScatter).
    """
    x, y, start = same_elements({"operand": operand, "source": source, "init_value": init_value})
    rank = len(shape_of(x))
    window = per_dimension(window_dimensions, rank, "window_dimensions")
    strides = per_dimension(window_strides, rank, "window_strides")
    ones = (1,) * rank
    attributes = {
        "window_dimensions": list(window),
        "window_strides": unless(strides, 1),
        "padding": unless(padding_of(padding, shape_of(x), window, strides, ones, ones), (0, 0)),
    }
    dtype = element(x)
    chooses = scalar_region("select", select, [dtype] * 2, [I1])
    adds = scalar_region("scatter", scatter, [dtype] * 2, [dtype])
    return emit1("stablehlo.select_and_scatter", [x, y, start], attributes, regions=[chooses, adds])


def map(
    operands: Tensors,
    computation: Computation,
    dimensions: Sequence[int] | None = None,
    static_operands: Sequence[Value] = (),
) -> Value:
    """Applies a function of N scalars to the elements of N tensors of one shape.

    `dimensions`: all of them in order, which is the default. `static_operands` are passed to the function unchanged,
    after the scalars (document: Map).
    """
    xs = tensors_of(operands, "operands")
    body = map_region("computation", computation, [element(x) for x in xs], listed(static_operands, "static_operands"))
    rank = len(shape_of(xs[0])) if xs else 0
    where = tuple(range(rank)) if dimensions is None else axes(dimensions, rank, "dimensions")
    names = {"inputs": "operands"}
    return emit1("stablehlo.map", xs, {"dimensions": list(where)}, regions=[body], names=names)


# ---------------------------------------------------------------------------- with a single op
def reduce_sum(operand: TensorLike, dimensions: Sequence[int]) -> Value:
    """The sum along some dimensions, in the element type of the operand; 0 for no elements."""
    return _reduced("add", binary.add, operand, dimensions)


def reduce_prod(operand: TensorLike, dimensions: Sequence[int]) -> Value:
    """The product along some dimensions."""
    return _reduced("multiply", binary.mul, operand, dimensions)


def reduce_max(operand: TensorLike, dimensions: Sequence[int]) -> Value:
    """The greatest element along some dimensions; NaN if one is NaN."""
    return _reduced("maximum", binary.max, operand, dimensions)


def reduce_min(operand: TensorLike, dimensions: Sequence[int]) -> Value:
    """The least element along some dimensions; NaN if one is NaN."""
    return _reduced("minimum", binary.min, operand, dimensions)


def reduce_and(operand: TensorLike, dimensions: Sequence[int]) -> Value:
    """Whether all elements along some dimensions are true; bitwise for integers."""
    return _reduced("and", binary.and_, operand, dimensions)


def reduce_or(operand: TensorLike, dimensions: Sequence[int]) -> Value:
    """Whether any element along some dimensions is true; bitwise for integers."""
    return _reduced("or", binary.or_, operand, dimensions)


def reduce_xor(operand: TensorLike, dimensions: Sequence[int]) -> Value:
    """Whether an odd number of elements along some dimensions is true; bitwise for integers."""
    return _reduced("xor", binary.xor, operand, dimensions)


def _reduced(name: str, computation: Computation, operand: TensorLike, dimensions: Sequence[int]) -> Value:
    """A reduction by an op with a neutral element, which its record defines."""
    x = tensor_of(operand, "operand")
    where = axes(dimensions, len(shape_of(x)), "dimensions")
    neutral = OPS[f"stablehlo.{name}"].neutral_on(x.element_type)
    if name == "add" and 0 in [shape_of(x)[d] for d in where]:  # the neutral element of float addition is -0.0
        neutral = 0
    if neutral is None:
        raise wrong("operand", f"{name} of {x.element_type} has no initial value")
    start = constant_of(np.asarray(neutral).astype(x.element_type.numpy), x.element_type)
    found = reduce(x, start, computation, where)
    assert not isinstance(found, tuple)
    return found


# ---------------------------------------------------------------------------- arguments and results
def _with_starts(operands: Tensors, init_values: Tensors) -> tuple[list[Value], list[Value]]:
    """Returns tensors and their initial scalars. Numbers take the tensors' element types."""
    xs = tensors_of(operands, "operands")
    given = list(init_values) if isinstance(init_values, list | tuple) else [init_values]
    if len(given) != len(xs):
        raise wrong("init_values", f"expected {len(xs)}, one for each operand, got {len(given)}")
    return xs, [_start(s, x, f"init_values[{i}]") for i, (s, x) in enumerate(zip(given, xs, strict=True))]


def _start(given: object, x: Value, argument: str) -> Value:
    start = tensor_of(given, argument, element(x))
    if shape_of(start) != () or element(start) != element(x):
        what = f"expected a scalar of {element(x)}, the element type of the operand {shape_text(x.type)}"
        raise wrong(argument, f"{what}, got {shape_text(start.type)}")
    return start
