"""Printer of types."""

from __future__ import annotations

import functools

from shlo_jit.ir.dense_text import attribute_float_text
from shlo_jit.ir.types import (
    ElementType,
    FunctionType,
    FutureType,
    OpaqueType,
    QuantizedType,
    ScalarType,
    TensorType,
    TokenType,
    TupleType,
    Type,
)


@functools.lru_cache(maxsize=65536)
def type_text(type: Type) -> str:
    """Returns the text of a type."""
    match type:
        case TensorType():
            return _tensor(type)
        case TokenType():
            return "!stablehlo.token"
        case TupleType():
            return f"tuple<{', '.join(map(type_text, type.types))}>"
        case FutureType():
            return f"!stablehlo.future<{', '.join(map(type_text, type.types))}>"
        case FunctionType():
            return f"({', '.join(map(type_text, type.inputs))}) -> {results_text(type.results)}"
        case ScalarType():
            return type.name
        case OpaqueType():
            return type.text
    raise TypeError(f"no text for {type!r}")


def results_text(types: tuple[Type, ...]) -> str:
    """Returns the text of result types: a single one bare, any other number in parentheses."""
    if len(types) == 1 and not isinstance(types[0], FunctionType):
        return type_text(types[0])
    return f"({', '.join(map(type_text, types))})"


def _tensor(type: TensorType) -> str:
    if type.shape is None:
        return f"tensor<*x{element_type_text(type.dtype)}>"
    extents = "".join("?x" if extent is None else f"{extent}x" for extent in type.shape)
    encoding = f", {type.encoding}" if type.encoding else ""
    if type.bounds is not None:
        encoding = f", #stablehlo.bounds<{', '.join('?' if b is None else str(b) for b in type.bounds)}>"
    return f"tensor<{extents}{element_type_text(type.dtype)}{encoding}>"


def element_type_text(dtype: ElementType) -> str:
    """Returns the text of an element type."""
    if not isinstance(dtype, QuantizedType):
        return dtype.name
    storage = f"{dtype.storage_name}{dtype.limits}"
    parameters = [
        attribute_float_text(scale, "f64") + (f":{zero}" if zero else "")
        for scale, zero in zip(dtype.scales, dtype.zero_points, strict=True)
    ]
    if dtype.axis is None:
        return f"!quant.uniform<{storage}:{dtype.expressed}, {parameters[0]}>"
    return f"!quant.uniform<{storage}:{dtype.expressed}:{dtype.axis}, {{{','.join(parameters)}}}>"
