"""Types and attributes of VHLO, the versioned dialect of StableHLO (its `VhloBytecode.cpp`)."""

from __future__ import annotations

import functools
from typing import Any

from shlo_jit.bytecode.fields import (
    ATTRIBUTE,
    ATTRIBUTES,
    COUNT,
    ELEMENTS,
    EXTENTS,
    F64,
    F64S,
    FLAGGED_ATTRIBUTE,
    NAME,
    NUMBER,
    OPTIONAL_ATTRIBUTE,
    SIGNED,
    SIGNEDS,
    STRING,
    TYPE,
    TYPES,
    of,
    pairs,
)  # fmt: skip
from shlo_jit.bytecode.kinds import Dialect, Kind, constant, itself, one
from shlo_jit.bytecode.payloads import float_of, float_parts, integer_of, integer_parts, tensor_of, tensor_parts
from shlo_jit.bytecode.versions import FIRST, Version
from shlo_jit.ir.attributes import (
    Dense,
    DictAttr,
    EnumAttr,
    FloatAttr,
    IntegerAttr,
    OpaqueAttr,
    StructAttr,
    SymbolRef,
    TypeAttr,
)  # fmt: skip
from shlo_jit.ir.structs import STRUCTS
from shlo_jit.ir.type_text import element_type_text
from shlo_jit.ir.types import (
    DTYPES,
    TOKEN,
    WITNESS,
    DType,
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
    storage_range,
    tensor,
)  # fmt: skip
from shlo_jit.text.types import type_of_text

# ---------------------------------------------------------------------- attributes
WORDS = {
    "comparison_direction": "EQ NE GE GT LE LT",
    "comparison_type": "NOTYPE FLOAT TOTALORDER SIGNED UNSIGNED",
    "custom_call_api_version": "API_VERSION_UNSPECIFIED API_VERSION_ORIGINAL API_VERSION_STATUS_RETURNING "
    "API_VERSION_STATUS_RETURNING_UNIFIED API_VERSION_TYPED_FFI",
    "fft_type": "FFT IFFT RFFT IRFFT",
    "precision": "DEFAULT HIGH HIGHEST",
    "result_accuracy_mode": "DEFAULT HIGHEST TOLERANCE",
    "rng_algorithm": "DEFAULT THREE_FRY PHILOX",
    "rng_distribution": "UNIFORM NORMAL",
    "transpose": "TRANSPOSE_INVALID NO_TRANSPOSE TRANSPOSE ADJOINT",
}
"""Values of the enums, in the order of their numbers."""


def enum(code: int, mnemonic: str, since: Version = FIRST, first: int = 0) -> Kind:
    """Returns the kind of an enum; `first` is the number of its first value."""
    known = {first + i: EnumAttr("stablehlo", mnemonic, word) for i, word in enumerate(WORDS[mnemonic].split())}
    numbers = {value: number for number, value in known.items()}

    def make(number: int) -> EnumAttr:
        if number not in known:
            raise ValueError(f"there is no {mnemonic} {number}")
        return known[number]

    return Kind(code, mnemonic, (COUNT,), make, lambda value: (numbers[value],), since)


def struct(code: int, name: str, fields: tuple[Any, ...], since: Version = FIRST, names: tuple[str, ...] = ()) -> Kind:
    """Returns the kind of a struct whose fields are stored in order."""
    names = names or tuple(field for field, _, _ in STRUCTS[name])

    def make(*values: Any) -> StructAttr:
        return StructAttr(name, tuple(zip(names, values, strict=True)))

    return Kind(code, name.partition(".")[2], fields, make, lambda value: tuple(v for _, v in value.fields), since)


def axis(name: str, sub_axis: Any) -> StructAttr:
    if sub_axis is not None and not isinstance(sub_axis, StructAttr):
        raise ValueError("expected a part of an axis")
    return StructAttr("stablehlo.axis_ref", (("name", name), ("sub_axis_info", sub_axis or ())))


def axis_parts(value: StructAttr) -> tuple[Any, ...]:
    return value.get("name"), value.get("sub_axis_info") or None


def _mesh_axes(mesh: Any, axes: tuple[Any, ...]) -> StructAttr:
    """Returns the axes of a mesh. The mesh is a symbol, which is a string in VHLO, or given inline."""
    if not all(isinstance(axis, StructAttr) for axis in axes):
        raise ValueError("expected axes of a mesh")
    found = SymbolRef((mesh,)) if isinstance(mesh, str) else mesh
    return StructAttr("stablehlo.replica_group_mesh_axes", (("mesh", found), ("axes", axes)))


def _mesh_axes_parts(value: StructAttr) -> tuple[Any, ...]:
    mesh = value.get("mesh")
    return mesh.name if isinstance(mesh, SymbolRef) else mesh, value.get("axes")


def _mesh(axes: tuple[Any, ...], ids: Any) -> StructAttr:
    return StructAttr("stablehlo.mesh", (("axes", axes), ("device_ids", () if ids is None else ids)))


def _mesh_parts(value: StructAttr) -> tuple[Any, ...]:
    return value.get("axes"), value.get("device_ids") or None


def bounds(bounds: tuple[int | None, ...]) -> OpaqueAttr:
    return OpaqueAttr(f"{BOUNDS}<{', '.join('?' if b is None else str(b) for b in bounds)}>")


def bounds_parts(value: OpaqueAttr) -> tuple[tuple[int | None, ...]]:
    texts = value.text.removeprefix(f"{BOUNDS}<").removesuffix(">").split(",")
    return (tuple(None if "?" in text else int(text) for text in texts if text.strip()),)


BOUNDS = "#stablehlo.bounds"
"""Prefix of bounds as a standalone attribute, which is text; tensor types contain the numbers."""


def type_attribute(type: Any) -> TypeAttr:
    return TypeAttr(values((type,))[0])


ATTRIBUTES_OF_VHLO = (
    Kind(1, "array", (ATTRIBUTES,), itself, one),
    Kind(2, "bool", (COUNT,), bool, one),
    enum(3, "comparison_direction"),
    enum(4, "comparison_type"),
    enum(5, "custom_call_api_version"),
    Kind(6, "dictionary", (pairs(NAME, ATTRIBUTE),), DictAttr, lambda value: (value.items,)),
    enum(7, "fft_type"),
    Kind(8, "float", (NUMBER,), float_of, float_parts),
    Kind(9, "integer", (NUMBER,), integer_of, integer_parts),
    struct(10, "stablehlo.output_operand_alias", (SIGNEDS, SIGNED, SIGNEDS)),
    enum(11, "precision"),
    enum(12, "rng_algorithm"),
    enum(13, "rng_distribution", first=1),
    Kind(14, "string", (STRING,), itself, one),
    Kind(15, "tensor", (TYPE, ELEMENTS), tensor_of, tensor_parts),
    enum(16, "transpose"),
    Kind(17, "type", (TYPE,), type_attribute, lambda value: (value.type,)),
    Kind(18, "bounds", (EXTENTS,), bounds, bounds_parts),
    enum(19, "result_accuracy_mode", Version(1, 9)),
    struct(20, "stablehlo.result_accuracy", (F64, F64, SIGNED, of(EnumAttr)), Version(1, 9)),
    struct(21, "stablehlo.sub_axis_info", (SIGNED, SIGNED), Version(1, 16)),
    Kind(22, "axis_ref", (NAME, FLAGGED_ATTRIBUTE), axis, axis_parts, Version(1, 16)),
    Kind(23, "replica_group_mesh_axes", (of(str, StructAttr), of(tuple)), _mesh_axes, _mesh_axes_parts, Version(1, 16)),
    struct(24, "stablehlo.mesh_axis", (NAME, SIGNED), Version(1, 17), ("name", "size")),
    Kind(25, "mesh", (of(tuple), OPTIONAL_ATTRIBUTE), _mesh, _mesh_parts, Version(1, 17)),
)


# ---------------------------------------------------------------------- types
SCALARS = {
    0: "i1", 2: "bf16", 3: "f16", 4: "f32", 5: "f64", 6: "f8E4M3FN", 7: "f8E5M2", 9: "index",
    10: "i4", 11: "i8", 12: "i16", 13: "i32", 14: "i64", 15: "ui4", 16: "ui8", 17: "ui16", 18: "ui32", 19: "ui64",
    27: "f8E4M3FNUZ", 28: "f8E5M2FNUZ", 29: "f8E4M3B11FNUZ", 31: "i2", 32: "ui2", 33: "none", 34: "tf32",
    35: "f8E4M3", 36: "f8E3M4", 37: "f4E2M1FN", 38: "f6E2M3FN", 39: "f6E3M2FN", 40: "f8E8M0FNU",
}  # fmt: skip
"""Scalar types and `none`, by number. VHLO's signed integers correspond to signless ones elsewhere."""
SINCE = {
    "f8E4M3FNUZ": Version(0, 10), "f8E5M2FNUZ": Version(0, 10), "f8E4M3B11FNUZ": Version(0, 11),
    "i2": Version(1, 2), "ui2": Version(1, 2), "none": Version(1, 6), "tf32": Version(1, 6),
    "f8E4M3": Version(1, 7), "f8E3M4": Version(1, 7), "f4E2M1FN": Version(1, 8), "f6E2M3FN": Version(1, 8),
    "f6E3M2FN": Version(1, 8), "f8E8M0FNU": Version(1, 8),
}  # fmt: skip
"""Versions that introduced scalar types; others exist since the first version."""


def element(type: Type | QuantizedType) -> ElementType:
    """Converts a type to the element type of a tensor. Raises ValueError."""
    if isinstance(type, QuantizedType):
        return type
    found = DTYPES.get(type.name) if isinstance(type, ScalarType) else None
    if found is None:
        raise ValueError("expected an element type")
    return found


def scalar(dtype: ElementType) -> Type | QuantizedType:
    """Returns the type of a single element."""
    return dtype if isinstance(dtype, QuantizedType) else ScalarType(dtype.name)


def make_complex(part: Type) -> ScalarType:
    name = f"complex<{part.name if isinstance(part, ScalarType) else '?'}>"
    if name not in DTYPES:
        raise ValueError("expected f32 or f64 as the part of a complex number")
    return ScalarType(name)


def complex_part(type: ScalarType) -> tuple[Type]:
    return (ScalarType(DTYPES[type.name].part.name),)


def make_tensor(shape: tuple[int | None, ...], type: Type) -> TensorType:
    dtype = element(type)
    return _tensor(shape, dtype.name) if isinstance(dtype, DType) else tensor(shape, dtype)


@functools.lru_cache(maxsize=4096)
def _tensor(shape: tuple[int | None, ...], name: str) -> TensorType:
    """Returns the interned type, looked up by name because that is faster than by dtype."""
    return tensor(shape, DTYPES[name])


def _encoded(encoding: Any, shape: tuple[int | None, ...], type: Type) -> TensorType:
    if not isinstance(encoding, OpaqueAttr) or not encoding.text.startswith(BOUNDS):
        raise ValueError("unknown encoding of a tensor type")
    (bounds,) = bounds_parts(encoding)
    if len(bounds) != len(shape) or any(n is not None and b is not None for n, b in zip(shape, bounds, strict=True)):
        raise ValueError("expected a bound per dimension, and only for unknown extents")
    return TensorType(shape, element(type), bounds)


def _encoded_parts(type: TensorType) -> tuple[Any, ...]:
    return bounds(type.bounds or ()), type.shape, scalar(type.dtype)


SIGNED_STORAGE = 1


def _storage(flags: int, type: Type) -> DType:
    found = element(type)
    if not isinstance(found, DType) or not found.is_integer:
        raise ValueError("expected an integer storage type of a quantized type")
    return DTYPES[("" if flags & SIGNED_STORAGE else "u") + found.name.removeprefix("u")]


def _quantized(
    flags: int, storage: Type, expressed: Type, scales: tuple[float, ...], zeros: tuple[int, ...], low: int, high: int,
    axis: int | None = None,
) -> QuantizedType:  # fmt: skip
    stored, shown = _storage(flags, storage), element(expressed)
    if not isinstance(shown, DType) or not shown.is_float:
        raise ValueError("expected a float as the expressed type of a quantized type")
    least, most = storage_range(stored)
    if not least <= low < high <= most or len(scales) != len(zeros) or not scales:
        raise ValueError("invalid range or parameters of a quantized type")
    signless = isinstance(storage, ScalarType) and not storage.name.startswith("u")
    return QuantizedType(stored, shown, low, high, scales, zeros, axis, signless)


def _per_tensor(flags: int, storage: Type, expressed: Type, scale: float, zero: int, low: int, high: int) -> Any:
    return _quantized(flags, storage, expressed, (scale,), (zero,), low, high)


def _per_axis(
    flags: int, storage: Type, expressed: Type, axis: int, low: int, high: int,
    scales: tuple[float, ...], zeros: tuple[int, ...],
) -> Any:  # fmt: skip
    return _quantized(flags, storage, expressed, scales, zeros, low, high, axis)


def _head(type: QuantizedType) -> tuple[Any, ...]:
    name = type.storage.name.removeprefix("u") if type.signless else type.storage.name
    return int(type.storage.kind == "i"), ScalarType(name), ScalarType(type.expressed.name)


def _per_tensor_parts(type: QuantizedType) -> tuple[Any, ...]:
    return *_head(type), type.scales[0], type.zero_points[0], type.storage_min, type.storage_max


def _per_axis_parts(type: QuantizedType) -> tuple[Any, ...]:
    return *_head(type), type.axis, type.storage_min, type.storage_max, type.scales, type.zero_points


def values(types: tuple[Any, ...]) -> tuple[Type, ...]:
    """Checks that these are types of values and returns them. Raises ValueError."""
    for type in types:
        if not isinstance(type, Type):
            raise ValueError("expected the type of a value, found a quantized element type")
    return types


def make_function(inputs: tuple[Any, ...], results: tuple[Any, ...]) -> FunctionType:
    return FunctionType(values(inputs), values(results))


def _buffer(shape: tuple[int | None, ...], type: Type) -> OpaqueType:
    extents = "".join("?x" if n is None else f"{n}x" for n in shape)
    return OpaqueType(f"memref<{extents}{element_type_text(element(type))}>")


def _buffer_parts(type: OpaqueType) -> tuple[Any, ...]:
    """Returns extents and element type of a memref, which has the syntax of a tensor type."""
    found = type_of_text("tensor" + type.text.removeprefix("memref"))
    assert isinstance(found, TensorType)
    return found.shape, scalar(found.dtype)


def function_parts(type: FunctionType) -> tuple[Any, ...]:
    return type.inputs, type.results


def tensor_type_parts(type: TensorType) -> tuple[Any, ...]:
    return type.shape, scalar(type.dtype)


TYPES_OF_VHLO = (
    *(Kind(code, name, (), *constant(ScalarType(name)), SINCE.get(name, FIRST)) for code, name in SCALARS.items()),
    Kind(1, "complex", (TYPE,), make_complex, complex_part),
    Kind(8, "function", (TYPES, TYPES), make_function, function_parts),
    Kind(20, "tensor", (EXTENTS, TYPE), make_tensor, tensor_type_parts),
    Kind(21, "encoded_tensor", (ATTRIBUTE, EXTENTS, TYPE), _encoded, _encoded_parts),
    Kind(22, "token", (), *constant(TOKEN)),
    Kind(23, "tuple", (TYPES,), lambda types: TupleType(values(types)), lambda type: (type.types,)),
    Kind(24, "quantized", (COUNT, TYPE, TYPE, F64, SIGNED, SIGNED, SIGNED), _per_tensor, _per_tensor_parts),
    Kind(25, "unranked_tensor", (TYPE,), lambda t: tensor(None, element(t)), lambda t: (scalar(t.dtype),)),
    Kind(26, "witness", (), *constant(WITNESS)),
    Kind(
        30,
        "quantized_per_axis",
        (COUNT, TYPE, TYPE, COUNT, SIGNED, SIGNED, F64S, SIGNEDS),
        _per_axis,
        _per_axis_parts,
        Version(0, 18),
    ),
    Kind(41, "buffer", (EXTENTS, TYPE), _buffer, _buffer_parts, Version(1, 13)),
    Kind(42, "future", (TYPES,), lambda types: FutureType(values(types)), lambda type: (type.types,), Version(1, 15)),
)

VHLO = Dialect("vhlo", ATTRIBUTES_OF_VHLO, TYPES_OF_VHLO)


# ---------------------------------------------------------------------- kinds of values
_BY_CLASS = {
    tuple: "array", bool: "bool", DictAttr: "dictionary", FloatAttr: "float", IntegerAttr: "integer", str: "string",
    Dense: "tensor", TypeAttr: "type", FunctionType: "function", TokenType: "token", TupleType: "tuple",
    FutureType: "future",
}  # fmt: skip


def name_of_kind_in_vhlo(value: Any) -> str:
    """Returns the kind name of a type or attribute in VHLO. Raises ValueError."""
    match value:
        case ScalarType():
            return "complex" if value.name.startswith("complex") else value.name
        case EnumAttr():
            return value.mnemonic
        case OpaqueAttr():
            return "bounds"
        case StructAttr():
            return value.name.partition(".")[2]
        case TensorType():
            if value.encoding:
                raise ValueError(f"VHLO has no tensor types with the encoding {value.encoding[:80]}")
            return "unranked_tensor" if value.shape is None else "tensor" if value.bounds is None else "encoded_tensor"
        case QuantizedType():
            return "quantized" if value.axis is None else "quantized_per_axis"
        case OpaqueType():
            return "witness" if value == WITNESS else "buffer" if value.text.startswith("memref") else value.text[:80]
    found = _BY_CLASS.get(type(value))
    if found is None:
        raise ValueError(f"VHLO has no {type(value).__name__}")
    return found
