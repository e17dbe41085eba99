"""Corrections for invalid elements of constants: `nan`, `.5`, `True`, `1` for a float."""

from __future__ import annotations

import re

from shlo_jit.ir.dtypes import DTYPES, DType
from shlo_jit.text.type_hints import element_of

_SPECIAL = {"nan": float("nan"), "inf": float("inf"), "infinity": float("inf")}


def constant_hint(text: str) -> str:
    """Suggests a `dense` literal for the value of a constant that is written otherwise: `1.0 : f32`, `[1, 2]`."""
    value, _, type = (part.strip() for part in text.rpartition(":"))
    value = value or text.strip()
    body = value.removeprefix("dense<").removesuffix(">")
    element = element_of(type) or ("f32" if "." in body else "i32")
    count = body.count(",") + 1
    shape = "" if body[:1] != "[" else f"{count}x" if body.count("[") == 1 else "...x"
    return f"write dense<{body}> : tensor<{shape}{element}>"


def element_hint(part: str, dtype: DType) -> str:
    """Suggests a replacement for an element that does not fit its type; empty if none is known."""
    word = part.strip().strip("\"'")
    if dtype.is_float:
        return _float_hint(word, dtype)
    if dtype.name == "i1" and word.lower() in ("true", "false"):
        return f"write {word.lower()}"
    try:
        value = float(word)
    except ValueError:
        return ""
    if value.is_integer() and abs(value) < 1 << 53 and not word.isdigit():
        return f"write {int(value)}, or a tensor of f32"
    return "write an integer, or a tensor of f32" if not value.is_integer() else ""


def _float_hint(word: str, dtype: DType) -> str:
    sign, plain = ("-", word[1:]) if word[:1] == "-" else ("", word.lstrip("+"))
    if plain.lower() in _SPECIAL:
        return f"write its bits: {bits_of(-_SPECIAL[plain.lower()] if sign else _SPECIAL[plain.lower()], dtype)}"
    m = re.fullmatch(r"(\d*)(\.\d*)?([eE][-+]?\d+)?[fFlL]?", plain)
    if m is None or not (m[1] or (m[2] or "").strip(".")):
        return ""
    return f"write {sign}{m[1] or '0'}{m[2] or '.0'}{m[3] or ''}"


def bits_of(value: float, dtype: DType) -> str:
    """Returns the bit pattern of a number, written as in a literal."""
    import numpy as np

    with np.errstate(all="ignore"):
        raw = np.asarray(value).astype(DTYPES[dtype.name].numpy)
    return f"0x{int(raw.view(f'u{raw.dtype.itemsize}')):0{2 * raw.dtype.itemsize}X}"
