"""Broadcasting of operands of elementwise operations to a common shape, as XLA's documents define it.

A scalar is compatible with every tensor. At equal ranks, dimensions of extent 1 stretch. For a tensor of lower rank,
`broadcast_dimensions` maps its dimensions to those of the other; ranks are not raised otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shlo_jit.builder.arguments import integers, same_elements, shape_of, tensor_of
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.scope import Handle, emit1
from shlo_jit.builder.shapes import shape_text
from shlo_jit.ir.types import tensor
from shlo_jit.ops import OPS

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value

Extents = Sequence[int | None]


def unary(name: str, operand: object, argument: str = "operand", attributes: Mapping[str, Any] | None = None) -> Value:
    """Emits an elementwise op of one tensor. `name`: with its dialect, except for StableHLO."""
    return emit1(_full(name), [tensor_of(operand, argument)], attributes)


def binary(
    name: str,
    lhs: object,
    rhs: object,
    broadcast_dimensions: Sequence[int] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Value:
    """Emits an elementwise op of two tensors, broadcast to a common shape."""
    x, y = same_elements({"lhs": lhs, "rhs": rhs})
    if shape_of(x) != shape_of(y) and None in (*shape_of(x), *shape_of(y)):
        return _at_run_time(name, x, y, broadcast_dimensions, attributes)
    if broadcast_dimensions is not None:
        x, y = _along(x, y, integers(broadcast_dimensions, "broadcast_dimensions"))
    x, y = together({"lhs": x, "rhs": y})
    return emit1(_full(name), [x, y], attributes)


def together(values: Mapping[str, Value]) -> list[Value]:
    """Broadcasts tensors, given by argument name, to one shape: scalars and extents of 1 are stretched."""
    shapes = {name: shape_of(v) for name, v in values.items()}
    if len(set(shapes.values())) == 1:
        return list(values.values())
    rank = max(map(len, shapes.values()))
    largest = next(name for name, shape in shapes.items() if len(shape) == rank)
    found = list(shapes[largest])
    for name, shape in shapes.items():
        both = f"{shape_text(values[name].type)} and {shape_text(values[largest].type)}"
        if len(shape) not in (0, rank):
            hint = "broadcast_dimensions maps the dimensions of the tensor of lower rank to those of the other"
            raise wrong(name, f"{both}: ranks differ, and neither is a scalar", hint=hint)
        for d, n in enumerate(shape):
            if found[d] == 1:
                found[d] = n
            elif n not in (1, found[d]):
                raise wrong(name, f"{both}: the extents {n} and {found[d]} of dimension {d} are incompatible")
    return [spread(v, found, range(rank) if shapes[name] else ()) for name, v in values.items()]


def spread(operand: Handle, shape: Extents, dimensions: Sequence[int]) -> Value:
    """Broadcasts the operand to a larger shape. `dimensions`: the dimensions of that shape that are the operand's."""
    if shape_of(operand) == tuple(shape) and list(dimensions) == list(range(len(shape))):
        return operand  # type: ignore[return-value]  handles are values
    attributes = {"broadcast_dimensions": list(dimensions)}
    names = {"result": "out_dim_size"}
    types = [tensor(tuple(shape), operand.raw.tensor.dtype)]
    return emit1("stablehlo.broadcast_in_dim", [operand], attributes, results=types, names=names)


def _along(x: Value, y: Value, dimensions: tuple[int, ...]) -> tuple[Value, Value]:
    """Returns two operands of one rank: the lower-rank one gets extents of 1 in the dimensions that it does not
    have."""
    low, high = (x, y) if len(shape_of(x)) <= len(shape_of(y)) else (y, x)
    rank = len(shape_of(high))
    if len(dimensions) != len(shape_of(low)):
        raise wrong(
            "broadcast_dimensions", f"expected {len(shape_of(low))} dimensions, those of {shape_text(low.type)}"
        )
    if any(not 0 <= d < rank for d in dimensions) or list(dimensions) != sorted(set(dimensions)):
        what = f"expected ascending dimensions of {shape_text(high.type)}, got {list(dimensions)}"
        raise wrong("broadcast_dimensions", what)
    shape: list[int | None] = [1] * rank
    for d, n in zip(dimensions, shape_of(low), strict=True):
        shape[d] = n
    raised = spread(low, shape, dimensions)
    return (raised, high) if low is x else (high, raised)


def _at_run_time(
    name: str, x: Value, y: Value, dimensions: Sequence[int] | None, attributes: Mapping[str, Any] | None
) -> Value:
    """Emits the op for operands with unknown extents, whose compatibility is checked when the program runs."""
    ranks = len(shape_of(x)), len(shape_of(y))
    if dimensions is None and ranks[0] != ranks[1] and 0 not in ranks:
        both = f"{shape_text(y.type)} and {shape_text(x.type)}"
        hint = "broadcast_dimensions maps the dimensions of the tensor of lower rank to those of the other"
        raise wrong("rhs", f"{both}: ranks differ, and neither is a scalar", hint=hint)
    given = dict(attributes or {})
    if dimensions is not None:
        given["broadcast_dimensions"] = list(integers(dimensions, "broadcast_dimensions"))
    full = f"chlo.broadcast_{name}"
    if full not in OPS:
        raise wrong("lhs", f"expected known extents, got {shape_text(x.type)}")
    return emit1(full, [x, y], given)


def _full(name: str) -> str:
    return name if "." in name else f"stablehlo.{name}"
