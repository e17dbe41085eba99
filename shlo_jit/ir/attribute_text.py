"""Printer of attributes."""

from __future__ import annotations

import re
from operator import itemgetter
from typing import Any

from shlo_jit.ir.attributes import (
    UNIT,
    ConvDims,
    Dense,
    DenseArray,
    DictAttr,
    EnumAttr,
    FloatAttr,
    IntegerAttr,
    OpaqueAttr,
    StructAttr,
    SymbolRef,
    TypeAttr,
)
from shlo_jit.ir.dense_text import attribute_float_text, dense_text
from shlo_jit.ir.structs import CONV_FIELDS, DIMS, ENUMS_WITH_OWN_NAME, STRUCTS, SUB_AXIS, conv_dims_text, int_list
from shlo_jit.ir.type_text import type_text
from shlo_jit.sizes import Size

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*\Z")
_SYMBOL = re.compile(r"[A-Za-z0-9_$.\-]+\Z")
_SPECIAL = re.compile(r'[\x00-\x1f\x7f"\\\ud800-\udfff]')


def attribute_text(value: Any) -> str:
    """Returns the text of an attribute, with its type if it has one."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return string_text(value)
        case IntegerAttr():
            return f"{value.value} : {value.type}"
        case FloatAttr():
            return f"{attribute_float_text(value.value, value.type)} : {value.type}"
        case tuple():
            return "[" + ", ".join(map(_item_text, value)) + "]"
        case DictAttr():
            return dictionary_text(value.items)
        case DenseArray():
            return _dense_array(value)
        case Dense():
            return f"{dense_text(value)} : {type_text(value.type)}"
        case SymbolRef():
            return "::".join(map(symbol_text, value.path))
        case TypeAttr():
            return type_text(value.type)
        case OpaqueAttr():
            return value.text
    if value is UNIT:
        return "unit"
    return _dialect_attribute(value)


def _item_text(value: Any) -> str:
    """Returns the text of an array element; i64 and f64 numbers omit their type."""
    if isinstance(value, IntegerAttr) and value.type == "i64":
        return str(value.value)
    if isinstance(value, FloatAttr) and value.type == "f64":
        text = attribute_float_text(value.value, "f64")
        return text if not text.startswith("0x") else f"{text} : f64"
    return attribute_text(value)


def dictionary_text(items: Any) -> str:
    """Returns `{name = value, unit_name}`, sorted by name like MLIR's dictionaries."""
    return "{" + ", ".join(_entry(name, value) for name, value in sorted(items, key=itemgetter(0))) + "}"


def _entry(name: str, value: Any) -> str:
    key = name if _BARE.match(name) else string_text(name)
    return key if value is UNIT else f"{key} = {attribute_text(value)}"


def _dense_array(value: DenseArray) -> str:
    if not value.values:
        return f"array<{value.dtype}>"
    if value.dtype == "i1":
        parts = ["true" if v else "false" for v in value.values]
    elif "f" in value.dtype:
        parts = [attribute_float_text(v, value.dtype) for v in value.values]
    else:
        parts = [str(v) for v in value.values]
    return f"array<{value.dtype}: {', '.join(parts)}>"


def _dialect_attribute(value: Any) -> str:
    """Returns the text `#stablehlo...` of an attribute of a dialect, in its various forms."""
    match value:
        case EnumAttr():
            if value.mnemonic in ENUMS_WITH_OWN_NAME:
                return f"#{value.dialect}.{value.mnemonic}<{value.value}>"
            return f"#{value.dialect}<{value.mnemonic} {value.value}>"
        case StructAttr():
            return f"#{value.name}<{struct_fields_text(value)}>"
        case ConvDims():
            return f"#stablehlo.conv<{_conv_text(value)}>"
        case Size():
            return f"#shlo_jit.size<{value}>"
    raise TypeError(f"no text for attribute {value!r}")


def struct_fields_text(value: StructAttr) -> str:
    """Returns the text of the fields that differ from their default, in their order."""
    schema = {field: (kind, default) for field, kind, default in STRUCTS.get(value.name, ())}
    parts: list[str] = []
    for field, content in value.fields:
        kind, default = schema.get(field, ("", None))
        if default is not None and content == default:
            continue
        parts.append(f"{field} = {_field_text(content, kind)}")
    return ", ".join(parts)


def _field_text(content: Any, kind: str) -> str:
    if kind == DIMS:
        return int_list(content)
    if kind == SUB_AXIS and isinstance(content, StructAttr):
        return f"({content.get('pre_size')}){content.get('size')}"
    if isinstance(content, bool):
        return "true" if content else "false"
    if isinstance(content, int):
        return str(content)
    if isinstance(content, float):
        return attribute_float_text(content, "f64")
    return attribute_text(content)


def _conv_text(value: ConvDims) -> str:
    text = conv_dims_text(value)
    if text is not None:
        return text
    fields = [(field, getattr(value, field), kind) for field, kind in CONV_FIELDS]
    return "raw " + ", ".join(f"{field} = {_field_text(content, kind)}" for field, content, kind in fields)


def string_text(text: str) -> str:
    """Returns a string in quotes, with control characters, quotes and backslashes escaped."""
    return '"' + _SPECIAL.sub(_escape, text) + '"'


def _escape(m: re.Match[str]) -> str:
    if m[0] == "\\":
        return "\\\\"
    return "".join(f"\\{byte:02X}" for byte in m[0].encode("utf-8", "surrogateescape"))


def symbol_text(name: str) -> str:
    """Returns `@name` or `@"name"`."""
    return f"@{name}" if _SYMBOL.match(name) else f"@{string_text(name)}"
