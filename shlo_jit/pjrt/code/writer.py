"""What all the functions of the interface are written with."""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText, V, i32, i64
from shlo_jit.pjrt.interface import fields_of
from shlo_jit.pjrt.records import RecordFields

NULL = V("ptr", "null")


class Args:
    """A record of arguments, or another one of the interface, at an address."""

    def __init__(self, b: Builder, name: str, address: V) -> None:
        self.b, self.address, self._fields = b, address, fields_of(name)

    def __getitem__(self, field: str) -> V:
        offset, type = self._fields[field]
        return self.b.load(type, self.b.offset(self.address, offset))

    def __setitem__(self, field: str, value: V | int) -> None:
        offset, type = self._fields[field]
        value = V(type, str(value)) if isinstance(value, int) else _as(self.b, value, type)
        self.b.store(value, self.b.offset(self.address, offset))


def _as(b: Builder, value: V, type: str) -> V:
    """An integer in the width of a field."""
    if value.type == type or "ptr" in (value.type, type):
        return value
    wide = {"i1": 1, "i8": 8, "i32": 32, "i64": 64}
    return b.cast("zext" if wide[value.type] < wide[type] else "trunc", value, type)


class Record:
    """A record of ours at an address."""

    def __init__(self, b: Builder, fields: RecordFields, address: V) -> None:
        self.b, self.address, self._fields = b, address, fields

    def place(self, field: str) -> V:
        return self.b.offset(self.address, self._fields[field])

    def __getitem__(self, field: str) -> V:
        """An i64."""
        return self.b.load("i64", self.place(field))

    def pointer(self, field: str) -> V:
        return self.b.load("ptr", self.place(field))

    def __setitem__(self, field: str, value: V | int) -> None:
        self.b.store(i64(value) if isinstance(value, int) else value, self.place(field))


class Slot(Args):
    """A function of the interface that is being written: `Error *f(Args *)`."""

    def __init__(self, module: ModuleText, name: str, result: str = "ptr") -> None:
        b = module.function(symbol(name), [("ptr", "args")], result, linkage="external", attributes="nounwind")
        super().__init__(b, name, b.params[0])

    def done(self) -> None:
        """Return without an error."""
        self.b.ret(NULL)


def symbol(name: str) -> str:
    """Of a function of the interface."""
    return f"pjrt_{name}"


def text(module: ModuleText, b: Builder, message: str) -> tuple[V, V]:
    """Address and size of a constant text."""
    name = f"text.{len(message)}.{hash_of(message):x}"
    escaped = "".join(c if c.isalnum() or c in " ,.:'()-_" else f"\\{ord(c):02X}" for c in message)
    module.define_global(name, f'internal constant [{len(message)} x i8] c"{escaped}"')
    return V("ptr", f"@{name}"), i64(len(message))


def hash_of(message: str) -> int:
    """The same in every process."""
    number = 0
    for c in message.encode():
        number = (number * 31 + c) % (1 << 32)
    return number


def error(module: ModuleText, b: Builder, code: int, message: str) -> V:
    """A new error."""
    return b.call("ptr", "shlo_pjrt_error", [i32(code), *text(module, b, message)], declare=False)
