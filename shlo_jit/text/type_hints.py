"""Corrections for invalid tensor types: `f32[2,3]`, `tensor<2,3,float32>`, `2x3xf32`."""

from __future__ import annotations

import re

from shlo_jit.ir.dtypes import DTYPES
from shlo_jit.suggest import did_you_mean

ELEMENTS = {
    **dict.fromkeys(("float32", "float", "single", "fp32", "f32_t"), "f32"),
    **dict.fromkeys(("float64", "double", "fp64"), "f64"),
    **dict.fromkeys(("float16", "half", "fp16"), "f16"),
    **dict.fromkeys(("bfloat16", "bfloat", "b16"), "bf16"),
    **dict.fromkeys(("bool", "pred", "boolean", "bool_", "u1", "ui1", "s1"), "i1"),
    **{f"{p}{n}": f"i{n}" for n in (4, 8, 16, 32, 64) for p in ("int", "s")},
    **{f"{p}{n}": f"ui{n}" for n in (4, 8, 16, 32, 64) for p in ("uint", "u")},
    **dict.fromkeys(("int", "integer"), "i32"),
    **dict.fromkeys(("long", "longlong"), "i64"),
    **dict.fromkeys(("short",), "i16"),
    **dict.fromkeys(("byte", "char"), "i8"),
    **dict.fromkeys(("complex64", "c64", "complex"), "complex<f32>"),
    **dict.fromkeys(("complex128", "c128"), "complex<f64>"),
    **dict.fromkeys(("float8_e4m3fn", "f8e4m3fn"), "f8E4M3FN"),
    **dict.fromkeys(("float8_e5m2", "f8e5m2"), "f8E5M2"),
}
"""Name of an element type in other systems -> name in MLIR."""
LONGEST = 200
"""Maximum number of characters examined."""
_EXTENT = r"(?:\d+|\?|-1|None|none|N)"
ARRAY_TYPE = re.compile(r"\b([a-zA-Z]\w*)\s*\[([\d,\s?]*)\](?:\{[\d,]*\})?")
"""Types in HLO notation, with or without a layout."""
_WRAPPED = re.compile(r"(?i)(?:tensor|tensr|tenser|array|ndarray|memref|vector)\s*[<\[(](.*?)[>\])]?")
_ELEMENT_LAST = re.compile(rf"((?:{_EXTENT}x)*)({_EXTENT}?)([A-Za-z]\w*(?:<\w+>)?)")
_ELEMENT_FIRST = re.compile(rf"([A-Za-z]+\d+)((?:x{_EXTENT})+)")
_TYPE_WORDS = ("tensor", "tuple", "complex")


def element_of(word: str) -> str:
    """Returns the element type that a word probably means; empty if unknown."""
    if word in DTYPES:
        return word
    return ELEMENTS.get(word.lower()) or next((name for name in DTYPES if name.lower() == word.lower()), "")


def type_hint(text: str) -> str:
    """Suggests a replacement for a text that was probably meant to be a tensor type; empty if none is known."""
    inner = text[:LONGEST].strip().rstrip(",){")
    array, wrapped = ARRAY_TYPE.fullmatch(inner), _WRAPPED.fullmatch(inner)
    if wrapped is not None:
        return _written(wrapped[1])
    if array is not None:
        return _written(f"{array[2]}x{array[1]}" if array[2].strip() else array[1])
    if re.match(rf"{_EXTENT}\s*[x×*,]", inner):
        return _written(inner)
    element = element_of(inner)
    return f"types of values are tensors: write tensor<{element}>" if element else did_you_mean(inner, _TYPE_WORDS)


def _written(inner: str) -> str:
    """Returns the hint for extents and an element type, in either order and with any separators."""
    plain = re.sub(r"\s*[,×*]\s*|\s*x\s*(?=[\d?])", "x", inner.strip()).replace(" ", "")
    last, first = _ELEMENT_LAST.fullmatch(plain), _ELEMENT_FIRST.fullmatch(plain)
    if first is not None:
        extents, word = first[2].split("x")[1:], first[1]
    elif last is not None:
        extents, word = [*last[1].split("x")[:-1], *([last[2]] if last[2] else [])], last[3]
    else:
        return ""
    element = element_of(word)
    shape = "".join(f"{extent if extent.isdigit() else '?'}x" for extent in extents)
    return f"write tensor<{shape}{element}>" if element else did_you_mean(word, DTYPES)
