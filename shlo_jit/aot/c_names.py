"""Names and types for C."""

from __future__ import annotations

import re

from shlo_jit.ir.types import DType

KEYWORDS = frozenset(
    "alignas alignof and asm auto bool break case catch char class const constexpr continue decltype default delete do "
    "double else enum explicit export extern false float for friend goto if inline int long mutable namespace new "
    "noexcept not nullptr operator or private protected public register restrict return short signed sizeof static "
    "struct switch template this throw true try typedef typeid typename union unsigned using virtual void volatile "
    "while xor".split()
)
"""Of C and C++."""

_C_TYPES = {
    "i1": "bool",
    "f32": "float",
    "f64": "double",
    "f16": "shlo_f16",
    "bf16": "shlo_bf16",
    "complex<f32>": "shlo_complex64",
    "complex<f64>": "shlo_complex128",
}


def c_word(text: str) -> str:
    """The text as what may follow in an identifier of C and C++: other characters are underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text) or "_"


def c_identifier(text: str) -> str:
    """The text as an identifier of C and C++."""
    name = c_word(text)
    if name[0].isdigit():
        name = "_" + name
    return name + "_" if name in KEYWORDS else name


def unique(name: str, taken: set[str]) -> str:
    """The name, with underscores behind it until nobody has it; it is then taken."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def c_type(dtype: DType) -> str:
    """Of an element."""
    if dtype.name in _C_TYPES:
        return _C_TYPES[dtype.name]
    if dtype.is_float:
        return "uint8_t"
    unsigned = "u" if dtype.kind == "u" else ""
    return f"{unsigned}int{max(8, dtype.bits)}_t"
