"""Arguments of custom calls: attributes as Python values, and the API version."""

from __future__ import annotations

from typing import Any

from shlo_jit.ir.attributes import (
    UNIT,
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
from shlo_jit.ir.core import Op
from shlo_jit.ops.attribute_kinds import short_text
from shlo_jit.ops.type_algebra import type_text


def python_value(attr: Any) -> Any:
    """Converts an attribute to the Python value that a callable gets."""
    if isinstance(attr, (IntegerAttr, FloatAttr)):
        return attr.value
    if isinstance(attr, DenseArray):
        return tuple(attr.values)
    if isinstance(attr, Dense):
        return attr.array
    if isinstance(attr, DictAttr):
        return {k: python_value(v) for k, v in attr.items}
    if isinstance(attr, tuple):
        return tuple(python_value(v) for v in attr)
    if isinstance(attr, OpaqueAttr):
        return attr.text
    if isinstance(attr, SymbolRef):
        return attr.name
    if isinstance(attr, EnumAttr):
        return attr.value
    if isinstance(attr, StructAttr):
        return {k: python_value(v) for k, v in attr.fields}
    if isinstance(attr, TypeAttr):
        return type_text(attr.type)
    return True if attr is UNIT else attr


def attributes_of(op: Op) -> dict[str, Any]:
    """Returns the keyword arguments of a call.

    They are the entries of a dictionary backend_config, or `backend_config` itself if it is a string, and the names of
    `called_computations` if there are any.
    """
    config = _configuration(op)
    if isinstance(config, DictAttr):
        found = {k: python_value(v) for k, v in config.items}
    else:
        found = {} if config is None else {"backend_config": python_value(config)}
    called = op.attributes.get("called_computations", ())
    return found | {"called_computations": tuple(python_value(c) for c in called)} if called else found


def types_of(op: Op) -> dict[str, Any]:
    """Returns `Callback.attribute_types` of a call."""
    config = _configuration(op)
    return _type_of(config) if isinstance(config, DictAttr) else {}


def api_version(op: Op) -> int:
    """Returns the API version of a call. JAX writes version 4 as version 1 with a dictionary `mhlo.backend_config`."""
    if isinstance(op.attributes.get("mhlo.backend_config"), DictAttr):
        return 4
    return op.int("api_version", 1)


def _configuration(op: Op) -> Any:
    return op.attributes.get("mhlo.backend_config", op.attributes.get("backend_config"))


def _type_of(attr: Any) -> Any:
    if isinstance(attr, bool):
        return "i1"
    if isinstance(attr, str):
        return "string"
    if isinstance(attr, (IntegerAttr, FloatAttr)):
        return attr.type
    if isinstance(attr, DenseArray):
        return f"array<{attr.dtype}>"
    if isinstance(attr, Dense):
        return f"array<{attr.type.dtype}>"
    if isinstance(attr, DictAttr):
        return {k: _type_of(v) for k, v in attr.items}
    return f"= {short_text(attr)}"
