"""How operands of elementwise operations come to one shape: as XLA's documents say.

A scalar goes with every tensor. Dimensions of extent 1 stretch, where ranks are equal. A tensor of a lower rank says by
`broadcast_dimensions` which dimensions of the other its own are; no rank is raised otherwise.
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
    """An elementwise op of one tensor; `name` with its dialect, StableHLO's without."""
    return emit1(_full(name), [tensor_of(operand, argument)], attributes)


def binary(
    name: str,
    lhs: object,
    rhs: object,
    broadcast_dimensions: Sequence[int] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Value:
    """An elementwise op of two tensors, brought to one shape."""
    x, y = same_elements({"lhs": lhs, "rhs": rhs})
    if shape_of(x) != shape_of(y) and None in (*shape_of(x), *shape_of(y)):
        return _at_run_time(name, x, y, broadcast_dimensions, attributes)
    if broadcast_dimensions is not None:
        x, y = _along(x, y, integers(broadcast_dimensions, "broadcast_dimensions"))
    x, y = together({"lhs": x, "rhs": y})
    return emit1(_full(name), [x, y], attributes)


def together(values: Mapping[str, Value]) -> list[Value]:
    """Tensors by the names of arguments, all of one shape: scalars and extents of 1 are stretched."""
    shapes = {name: shape_of(v) for name, v in values.items()}
    if len(set(shapes.values())) == 1:
        return list(values.values())
    rank = max(map(len, shapes.values()))
    largest = next(name for name, shape in shapes.items() if len(shape) == rank)
    found = list(shapes[largest])
    for name, shape in shapes.items():
        both = f"{shape_text(values[name].type)} beside {shape_text(values[largest].type)}"
        if len(shape) not in (0, rank):
            hint = "broadcast_dimensions says which dimensions of the other those of the tensor of the lower rank are"
            raise wrong(name, f"{both}: ranks differ, and neither is a scalar", hint=hint)
        for d, n in enumerate(shape):
            if found[d] == 1:
                found[d] = n
            elif n not in (1, found[d]):
                raise wrong(name, f"{both}: the extents {n} and {found[d]} of dimension {d} do not go together")
    return [spread(v, found, range(rank) if shapes[name] else ()) for name, v in values.items()]


def spread(operand: Handle, shape: Extents, dimensions: Sequence[int]) -> Value:
    """The operand with its dimensions as those of a larger shape, repeated along the others."""
    if shape_of(operand) == tuple(shape) and list(dimensions) == list(range(len(shape))):
        return operand  # type: ignore[return-value]  handles are values
    attributes = {"broadcast_dimensions": list(dimensions)}
    names = {"result": "out_dim_size"}
    types = [tensor(tuple(shape), operand.raw.tensor.dtype)]
    return emit1("stablehlo.broadcast_in_dim", [operand], attributes, results=types, names=names)


def _along(x: Value, y: Value, dimensions: tuple[int, ...]) -> tuple[Value, Value]:
    """Two operands, that of the lower rank with its dimensions where they are said to be, and extents of 1
    elsewhere."""
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
    """Of operands with unknown extents: whether they go together is found out when the program runs."""
    ranks = len(shape_of(x)), len(shape_of(y))
    if dimensions is None and ranks[0] != ranks[1] and 0 not in ranks:
        both = f"{shape_text(y.type)} beside {shape_text(x.type)}"
        hint = "broadcast_dimensions says which dimensions of the other those of the tensor of the lower rank are"
        raise wrong("rhs", f"{both}: ranks differ, and neither is a scalar", hint=hint)
    given = dict(attributes or {})
    if dimensions is not None:
        given["broadcast_dimensions"] = list(integers(dimensions, "broadcast_dimensions"))
    full = f"chlo.broadcast_{name}"
    if full not in OPS:
        raise wrong("lhs", f"the extents of {shape_text(x.type)} have to be known for this")
    return emit1(full, [x, y], given)


def _full(name: str) -> str:
    return name if "." in name else f"stablehlo.{name}"
