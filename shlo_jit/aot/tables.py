"""Static data of a library, in LLVM text: strings, and records that C reads."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.kernels.builder import ModuleText

Field = tuple[str, str]
"""LLVM type of a value, and its text."""


def text_bytes(data: bytes) -> str:
    """Converts bytes to an LLVM literal."""
    plain = bytes(b for b in range(32, 127) if b not in b'"\\')
    return 'c"' + "".join(chr(byte) if byte in plain else f"\\{byte:02X}" for byte in data) + '"'


class Tables:
    """Writes constants into a module, equal ones once."""

    def __init__(self, module: ModuleText, prefix: str) -> None:
        self.module = module
        self.prefix = prefix
        self._known: dict[str, str] = {}

    def _define(self, text: str) -> str:
        if text not in self._known:
            name = f"{self.prefix}.table{len(self._known)}"
            self._known[text] = f"@{name}"
            self.module.define_global(name, text)
        return self._known[text]

    def string(self, text: str) -> Field:
        """Address of a C string."""
        data = text.encode() + b"\0"
        literal = f"[{len(data)} x i8] {text_bytes(data)}"
        return "ptr", self._define(f"private unnamed_addr constant {literal}, align 1")

    def array(self, element: str, values: Sequence[object]) -> Field:
        """Address of an array; null if it is empty."""
        if not values:
            return "ptr", "null"
        body = ", ".join(f"{element} {v}" for v in values)
        return "ptr", self._define(f"private constant [{len(values)} x {element}] [{body}], align 8")

    def record(self, fields: Sequence[Field]) -> Field:
        """Type and value of a structure."""
        return "{" + ", ".join(t for t, _ in fields) + "}", "{" + ", ".join(f"{t} {v}" for t, v in fields) + "}"

    def records(self, rows: Sequence[Sequence[Field]]) -> Field:
        """Address of an array of structures of one type."""
        made = [self.record(row) for row in rows]
        return self.array(made[0][0], [value for _, value in made]) if made else ("ptr", "null")
