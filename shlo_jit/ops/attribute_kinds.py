"""Kinds of attributes: notation in which records declare the values of an attribute, and the check of them.

i64, i32, index      an integer; `i64 >= 0` and `i64 > 0` limit its value
float, f32           a number, an f32
bool, string         a boolean (or unit), a string
ints, bools          a list of i64 or i1, `array<i64: 1, 2>` or the older form `dense<[1, 2]> : tensor<2xi64>`
segments             the number of operands or results in each group, `array<i32: 1, 1>`
pairs                a list of pairs of integers, `dense<...> : tensor<Nx2xi64>`
groups               a matrix of process ids, or mesh axes
enum NAME, enums NAME  a value of an enum, or a list of values
struct NAME          a struct, such as `#stablehlo.gather<...>`
conv                 dimension numbers of a convolution
layouts              lists of dimensions, minor to major: `[dense<[1, 0]> : tensor<2xindex>]`
dense, symbol, symbols, list, dict, type, any
"""

from __future__ import annotations

import functools
from collections.abc import Callable
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
    StructAttr,
    SymbolRef,
    TypeAttr,
)
from shlo_jit.ops.record import AttributeSpec, Violation
from shlo_jit.suggest import did_you_mean

ENUMS: dict[str, tuple[str, ...]] = {
    "comparison_direction": ("EQ", "NE", "GE", "GT", "LE", "LT"),
    "comparison_type": ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
    "precision": ("DEFAULT", "HIGH", "HIGHEST", "PACKED_NIBBLE"),
    "fft_type": ("FFT", "IFFT", "RFFT", "IRFFT"),
    "transpose": ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT", "TRANSPOSE_INVALID"),
    "rng_distribution": ("UNIFORM", "NORMAL"),
    "rng_algorithm": ("DEFAULT", "THREE_FRY", "PHILOX"),
    "result_accuracy_mode": ("DEFAULT", "HIGHEST", "TOLERANCE"),
    "custom_call_api_version": (
        "API_VERSION_UNSPECIFIED",
        "API_VERSION_ORIGINAL",
        "API_VERSION_STATUS_RETURNING",
        "API_VERSION_STATUS_RETURNING_UNIFIED",
        "API_VERSION_TYPED_FFI",
    ),
}


def _integer(bits: int) -> Callable[[Any], bool]:
    def check(attr: Any) -> bool:
        if not isinstance(attr, IntegerAttr):
            return False
        return attr.type in (f"i{bits}", f"si{bits}", f"ui{bits}", "index")

    return check


def _is_int_list(attr: Any) -> bool:
    if isinstance(attr, DenseArray):
        return attr.dtype == "i64"
    return isinstance(attr, Dense) and attr.type.storage.name == "i64" and (attr.type.rank == 1 or attr.type.size == 0)


def _is_bool_list(attr: Any) -> bool:
    if isinstance(attr, DenseArray):
        return attr.dtype == "i1"
    return isinstance(attr, Dense) and attr.type.storage.kind == "b" and attr.type.rank == 1


def _is_matrix(attr: Any) -> bool:
    return isinstance(attr, Dense) and attr.type.storage.kind in "iux"


def _is_layout(attr: Any) -> bool:
    return isinstance(attr, Dense) and attr.type.storage.name == "index" and attr.type.rank == 1


def _list_of(*classes: type) -> Callable[[Any], bool]:
    return lambda attr: isinstance(attr, tuple) and all(isinstance(a, classes) for a in attr)


MESH_AXES = "stablehlo.replica_group_mesh_axes"
MAX_LIST_LENGTH = 1 << 20
_LISTS = frozenset({"ints", "bools", "pairs", "groups", "list", "layouts"})

_CHECKS: dict[str, Callable[[Any], bool]] = {
    "i64": _integer(64),
    "i32": _integer(32),
    "int": lambda attr: isinstance(attr, IntegerAttr),
    "float": lambda attr: isinstance(attr, FloatAttr | IntegerAttr),
    "f32": lambda attr: isinstance(attr, FloatAttr) and attr.type == "f32",
    "bool": lambda attr: isinstance(attr, bool) or attr is UNIT,
    "string": lambda attr: isinstance(attr, str),
    "ints": _is_int_list,
    "bools": _is_bool_list,
    "segments": lambda attr: isinstance(attr, DenseArray) and attr.dtype == "i32",
    "pairs": _is_matrix,
    "groups": lambda attr: _is_matrix(attr) or (isinstance(attr, StructAttr) and attr.name == MESH_AXES),
    "layouts": lambda attr: isinstance(attr, tuple) and all(map(_is_layout, attr)),
    "conv": lambda attr: isinstance(attr, ConvDims),
    "dense": lambda attr: isinstance(attr, Dense),
    "symbol": lambda attr: isinstance(attr, SymbolRef | str),
    "symbols": _list_of(SymbolRef, str),
    "list": lambda attr: isinstance(attr, tuple),
    "dict": lambda attr: isinstance(attr, DictAttr),
    "type": lambda attr: isinstance(attr, TypeAttr),
    "any": lambda attr: True,
}


def check_attribute(name: str, spec: AttributeSpec, attr: Any) -> None:
    """Raises Violation unless the attribute is of the record's kind. A missing attribute is None."""
    if attr is None:
        if spec.required:
            raise Violation("attribute", f"requires attribute '{name}'", found="no attribute", expected=name)
        return
    word, rest, limit = _parsed(spec.kind)
    check = _CHECKS.get(word)
    if check is not None:
        if word in _LISTS and type(attr) is not DenseArray:
            _check_length(name, attr)
        if not check(attr):
            raise _refused("attribute", name, attr, describe(spec.kind))
        if limit is not None and isinstance(attr, IntegerAttr) and attr.value < limit:
            raise _refused(spec.limit_label, name, attr, describe(spec.kind))
    elif word == "enum":
        _check_enum(name, rest, (attr,))
    elif word == "enums":
        _check_enum(name, rest, attr)
    elif not isinstance(attr, StructAttr) or attr.name.partition(".")[2] != rest:
        raise _refused("attribute", name, attr, f"{rest} expected")


def _refused(label: str, name: str, attr: Any, expected: str) -> Violation:
    message = f"attribute '{name}' failed to satisfy constraint: {expected}"
    return Violation(
        label, message, found=f"{name} = {short_text(attr)}", expected=expected, hint=_form(name, attr, expected)
    )


def _form(name: str, attr: Any, expected: str) -> str:
    """Suggests the right form if a list of integers or a number was probably meant; otherwise empty."""
    numbers = attr if isinstance(attr, tuple) else (attr,)
    if not all(isinstance(n, IntegerAttr) for n in numbers):
        return ""
    values = ", ".join(str(n.value) for n in numbers)
    if expected == describe("ints"):
        return f"write {name} = array<i64: {values}>"
    if len(numbers) == 1 and expected in (describe("i64"), describe("i32")):
        return f"write {name} = {values} : {'i64' if expected == describe('i64') else 'i32'}"
    return ""


def short_text(attr: Any, limit: int = 200) -> str:
    """Returns the text of an attribute, or of a field, shortened to one line."""
    from shlo_jit.ir.attribute_text import attribute_text
    from shlo_jit.ir.type_text import type_text

    if isinstance(attr, Dense) and (attr.type.shape is None or attr.type.size > limit):
        return f"dense<...> : {type_text(attr.type)}"
    if isinstance(attr, DenseArray | tuple) and len(attr.values if isinstance(attr, DenseArray) else attr) > limit:
        return "[...]"
    if isinstance(attr, tuple):
        return f"[{', '.join(short_text(part, limit) for part in attr)}]"[:limit]
    text = str(attr) if isinstance(attr, int | float) and not isinstance(attr, bool) else attribute_text(attr)
    return text if len(text) <= limit else f"{text[:limit]}..."


@functools.cache
def _parsed(kind: str) -> tuple[str, str, int | None]:
    """Returns the word of a kind, the rest of it, and the minimum value that it allows."""
    word, _, rest = kind.partition(" ")
    limit = None
    if rest.startswith(("> ", ">= ")):
        sign, number = rest.split()
        limit = int(number) + (sign == ">")
    return word, rest, limit


def _check_length(name: str, attr: Any) -> None:
    """Checks that literals which are read as lists fit in memory: a splat may represent any number of elements."""
    for part in attr if isinstance(attr, tuple) else (attr,):
        if isinstance(part, Dense) and (part.type.shape is None or part.type.size > MAX_LIST_LENGTH):
            raise Violation("attribute", f"attribute '{name}' has more than {MAX_LIST_LENGTH} elements")


def _check_enum(name: str, enum: str, attrs: Any) -> None:
    words = ENUMS[enum]
    if type(attrs) is not tuple or [a for a in attrs if type(a) is not EnumAttr or a.mnemonic != enum]:
        raise _refused("attribute", name, attrs[0] if isinstance(attrs, tuple) and len(attrs) == 1 else attrs,
                       f"{enum} expected")  # fmt: skip
    for a in attrs:
        if a.value not in words:
            raise Violation(
                "attribute", f"attribute '{name}': no such {enum}: {a.value}, one of {', '.join(words)}",
                hint=did_you_mean(a.value, words), found=a.value, expected=f"one of {', '.join(words)}",
            )  # fmt: skip


def describe(kind: str) -> str:
    """Describes a kind for messages."""
    word, _, rest = kind.partition(" ")
    text = {
        "i64": "64-bit signless integer attribute",
        "i32": "32-bit signless integer attribute",
        "ints": "list of integers",
        "bools": "list of booleans",
        "pairs": "matrix of integers",
        "conv": "dimension numbers of a convolution",
        "layouts": "Array of layout (1D tensor of index type) attributes",
    }.get(word, f"{word} attribute")
    if rest.startswith(">= 0"):
        return f"{text} whose value is non-negative"
    if rest.startswith("> 0"):
        return f"{text} whose value is positive"
    return text
