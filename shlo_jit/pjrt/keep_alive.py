"""Keeps memory alive that a framework has pointers to; reads named values that it passes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from shlo_jit.pjrt import interface
from shlo_jit.pjrt.table import record_at


class Kept:
    """Texts, arrays and named values that live as long as this object. Equal requests return the same address."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._places: dict[Any, int] = {}

    def keep(self, thing: Any) -> int:
        """Keeps a ctypes object. Returns its address."""
        self._objects.append(thing)
        return ctypes.addressof(thing)

    def text(self, text: str | bytes) -> tuple[int, int]:
        """Returns address and size of a text."""
        data = text.encode() if isinstance(text, str) else text
        if data not in self._places:
            self._places[data] = self.keep(ctypes.create_string_buffer(data))
        return self._places[data], len(data)

    def numbers(self, values: Sequence[int], kind: type = ctypes.c_int64) -> int:
        """Returns the address of an array."""
        key = (kind, *values)
        if key not in self._places:
            self._places[key] = self.keep((kind * max(1, len(values)))(*values))  # type: ignore[operator]  a ctypes type
        return self._places[key]

    def texts(self, texts: Sequence[str | bytes]) -> tuple[int, int]:
        """Returns the addresses of an array of texts, and of their sizes."""
        pairs = [self.text(text) for text in texts]
        return self.numbers([at for at, _ in pairs]), self.numbers([size for _, size in pairs])

    def named_values(self, values: Mapping[str, int | float | Sequence[int]]) -> int:
        """Returns the address of an array of NamedValue."""
        key = ("values", repr(values))
        if key not in self._places:
            self._places[key] = self.keep(self._named_values(values))
        return self._places[key]

    def _named_values(self, values: Mapping[str, int | float | Sequence[int]]) -> Any:
        kind = interface.structure("NamedValue")
        rows = (kind * max(1, len(values)))()
        for row, (name, value) in zip(rows, values.items(), strict=False):
            row.struct_size = ctypes.sizeof(kind)
            row.name, row.name_size = self.text(name)
            row.value_size = 1
            if isinstance(value, float):
                row.type = interface.FLOAT
                row.value = int.from_bytes(bytes(ctypes.c_float(value)), "little")
            elif isinstance(value, int):
                row.type, row.value = interface.INT64, value
            else:
                row.type, row.value, row.value_size = interface.INT64_LIST, self.numbers(value), len(value)
        return rows


def named_value(address: int | None, count: int, name: str) -> int | None:
    """Returns the integer of that name in a framework's array of NamedValue; None if it has none. The element size is
    that of the framework, which may have another version. Raises PluginError for elements that are too small."""
    for _ in range(count):
        row = record_at("NamedValue", address)
        assert address is not None
        if row.type == interface.INT64 and row.name_size and ctypes.string_at(row.name, row.name_size) == name.encode():
            return row.value
        address += row.struct_size
    return None
