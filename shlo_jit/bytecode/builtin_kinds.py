"""Builtin types and attributes of MLIR (`BuiltinDialectBytecode.td`), as far as StableHLO files contain them.

Locations are read as texts that refer to each other, like `#loc3` in a program's text.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shlo_jit.bytecode.fields import (
    ATTRIBUTE,
    ATTRIBUTES,
    BLOB,
    COUNT,
    COUNTS,
    ELEMENTS,
    EXTENTS,
    LOCATION,
    LOCATIONS,
    NAME,
    NUMBER,
    STRING,
    TYPE,
    TYPES,
    WIDEST_NUMBER,
    Field,
    listed,
    of,
    pairs,
)  # fmt: skip
from shlo_jit.bytecode.kinds import Dialect, Kind, constant, itself, one
from shlo_jit.bytecode.locations import Location
from shlo_jit.bytecode.payloads import float_of, float_parts, integer_of, integer_parts, tensor_of, tensor_parts
from shlo_jit.bytecode.vhlo_kinds import (
    complex_part,
    element,
    function_parts,
    make_complex,
    make_function,
    make_tensor,
    tensor_type_parts,
    type_attribute,
    values,
)  # fmt: skip
from shlo_jit.ir.attributes import (
    UNIT,
    Dense,
    DenseArray,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    SymbolRef,
    TypeAttr,
)  # fmt: skip
from shlo_jit.ir.dense_text import to_bytes
from shlo_jit.ir.types import DTYPES, DType, FunctionType, ScalarType, TensorType, TupleType, Type, tensor
from shlo_jit.text.dense import from_bytes


def _symbol(root: str, nested: tuple[SymbolRef, ...] = ()) -> SymbolRef:
    return SymbolRef((root, *(part.name for part in nested)))


def _dense_array(type: Type, count: int, blob: memoryview) -> DenseArray:
    dtype = element(type)
    if not isinstance(dtype, DType) or count * dtype.itemsize != len(blob):
        raise ValueError("the size of an array does not match its elements")
    array = from_bytes(blob, tensor((count,), dtype)) if count else np.empty(0, dtype.numpy)
    return DenseArray(dtype.name, tuple(array.tolist()))


def _dense_array_parts(value: DenseArray) -> tuple[Any, ...]:
    dtype = DTYPES[value.dtype]
    array = np.array(value.values, dtype.numpy)
    return ScalarType(dtype.name), len(array), to_bytes(array, dtype)


def _integer(code: int) -> ScalarType:
    """Decodes the width and signedness (none, signed, unsigned) of an integer type."""
    width, sign = code >> 2, code & 3
    if not 0 < width <= WIDEST_NUMBER or sign == 3:
        raise ValueError("invalid integer type")
    return ScalarType(f"{('i', 'si', 'ui')[sign]}{width}")


def _integer_parts(type: ScalarType) -> tuple[int]:
    sign = ("i", "si", "ui").index(type.name.rstrip("0123456789"))
    return (int(type.name.lstrip("sui")) << 2 | sign,)


def _encoded(encoding: Any, shape: tuple[int | None, ...], type: Type) -> TensorType:
    from shlo_jit.ir.attribute_text import attribute_text  # few programs need it

    return TensorType(shape, element(type), None, attribute_text(encoding))


def _location(code: int, kind: str, *fields: Field) -> Kind:
    return Kind(code, kind, fields, lambda *parts: Location(kind, parts), lambda value: value.parts)


ATTRIBUTES_OF_BUILTIN = (
    Kind(0, "array", (ATTRIBUTES,), itself, one),
    Kind(1, "dictionary", (pairs(NAME, ATTRIBUTE),), DictAttr, lambda value: (value.items,)),
    Kind(2, "string", (STRING,), itself, one),
    Kind(3, "typed_string", (STRING, TYPE), lambda text, type: text),
    Kind(4, "symbol", (NAME,), _symbol, lambda value: (value.path[0],)),
    Kind(
        5, "nested_symbol", (NAME, listed(of(SymbolRef))), _symbol,
        lambda value: (value.path[0], tuple(SymbolRef((name,)) for name in value.path[1:])),
    ),
    Kind(6, "type", (TYPE,), type_attribute, lambda value: (value.type,)),
    Kind(7, "unit", (), *constant(UNIT)),
    Kind(8, "integer", (NUMBER,), integer_of, integer_parts),
    Kind(9, "float", (NUMBER,), float_of, float_parts),
    _location(10, "callsite", LOCATION, LOCATION),
    _location(11, "file", NAME, COUNT, COUNT),
    _location(12, "fused", LOCATIONS),
    _location(13, "tagged", LOCATIONS, ATTRIBUTE),
    _location(14, "name", NAME, LOCATION),
    _location(15, "unknown"),
    Kind(17, "dense_array", (TYPE, COUNT, BLOB), _dense_array, _dense_array_parts),
    Kind(18, "dense", (TYPE, ELEMENTS), tensor_of, tensor_parts),
    _location(22, "range", NAME, COUNTS),
)  # fmt: skip

SCALARS = {1: "index", 3: "bf16", 4: "f16", 5: "f32", 6: "f64", 12: "none"}
TYPES_OF_BUILTIN = (
    Kind(0, "integer", (COUNT,), _integer, _integer_parts),
    *(Kind(code, name, (), *constant(ScalarType(name))) for code, name in SCALARS.items()),
    Kind(2, "function", (TYPES, TYPES), make_function, function_parts),
    Kind(9, "complex", (TYPE,), make_complex, complex_part),
    Kind(13, "tensor", (EXTENTS, TYPE), make_tensor, tensor_type_parts),
    Kind(14, "encoded_tensor", (ATTRIBUTE, EXTENTS, TYPE), _encoded),
    Kind(15, "tuple", (TYPES,), lambda types: TupleType(values(types)), lambda type: (type.types,)),
)

BUILTIN = Dialect("builtin", ATTRIBUTES_OF_BUILTIN, TYPES_OF_BUILTIN)


_BY_CLASS = {
    tuple: "array", DictAttr: "dictionary", str: "string", TypeAttr: "type", IntegerAttr: "integer", bool: "integer",
    FloatAttr: "float", DenseArray: "dense_array", Dense: "dense", FunctionType: "function", TupleType: "tuple",
}  # fmt: skip


def name_of_kind(value: Any) -> str:
    """Returns the kind name of a type or attribute in MLIR's builtin dialect. Raises ValueError."""
    if value is UNIT:
        return "unit"
    match value:
        case Location():
            return value.kind
        case SymbolRef():
            return "symbol" if len(value.path) == 1 else "nested_symbol"
        case ScalarType():
            if value.name in SCALARS.values():
                return value.name
            return "complex" if value.name.startswith("complex") else "integer"
        case TensorType():
            if value.shape is None or value.bounds is not None or value.encoding:
                raise ValueError("this tensor type cannot be written in attributes")
            return "tensor"
    found = _BY_CLASS.get(type(value))
    if found is None:
        raise ValueError(f"{type(value).__name__} cannot be written here")
    return found
