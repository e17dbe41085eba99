"""Helpers that all functions of the interface are written with.

    ptr @shlo_pjrt_short(ptr record, i64 needed, ptr name)     an error: the record is too small
    ptr @shlo_pjrt_new(i64 nbytes)                             room for a record, for `free`

If there is no memory for an array, that is an error. If there is none even for a record, the process prints a message
and aborts.
"""

from __future__ import annotations

import zlib

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.pjrt.host_records import RecordFields
from shlo_jit.pjrt.interface import INVALID_ARGUMENT, fields_of, needed_bytes

NULL = V("ptr", "null")
STANDARD_ERROR = 2


class Args:
    """An argument record, or another record of the interface, at an address."""

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
    """Returns an integer in the width of a field."""
    if value.type == type or "ptr" in (value.type, type):
        return value
    wide = {"i1": 1, "i8": 8, "i32": 32, "i64": 64}
    return b.cast("zext" if wide[value.type] < wide[type] else "trunc", value, type)


class Record:
    """One of our own records, at an address."""

    def __init__(self, b: Builder, fields: RecordFields, address: V) -> None:
        self.b, self.address, self._fields = b, address, fields

    def place(self, field: str) -> V:
        return self.b.offset(self.address, self._fields[field])

    def __getitem__(self, field: str) -> V:
        """Loads a field as an i64."""
        return self.b.load("i64", self.place(field))

    def pointer(self, field: str) -> V:
        return self.b.load("ptr", self.place(field))

    def __setitem__(self, field: str, value: V | int) -> None:
        self.b.store(i64(value) if isinstance(value, int) else value, self.place(field))


class Slot(Args):
    """A function of the interface that is being written: `Error *f(Args *)`. It reads its argument record only if that
    is large enough. A larger one comes from a newer host, and its other fields are ignored."""

    def __init__(self, module: ModuleText, name: str, result: str = "ptr") -> None:
        b = module.function(symbol(name), [("ptr", "args")], result, linkage="external", attributes="nounwind")
        super().__init__(b, name, b.params[0])
        check_size(module, b, name, self.address)

    def done(self) -> None:
        """Returns without an error."""
        self.b.ret(NULL)


def symbol(name: str) -> str:
    """Returns the symbol of a function of the interface."""
    return f"pjrt_{name}"


def check_size(module: ModuleText, b: Builder, name: str, record: V) -> None:
    """Returns early, if possible with an error, if a record of the interface is too small."""
    needed = i64(needed_bytes(name))
    with b.if_(b.icmp("ult", b.load("i64", record), needed), "short"):
        if b.return_type == "void":
            b.ret_early()
        else:
            named = text(module, b, name)[0]
            b.ret_early(b.call("ptr", "shlo_pjrt_short", [record, needed, named], declare=False))


def new(b: Builder, nbytes: V | int) -> V:
    """Allocates a record."""
    return b.call("ptr", "shlo_pjrt_new", [i64(nbytes) if isinstance(nbytes, int) else nbytes], declare=False)


def write_records(module: ModuleText) -> None:
    _write_new(module)
    _write_short(module)


def _write_new(module: ModuleText) -> None:
    b = module.function("shlo_pjrt_new", [("i64", "nbytes")], "ptr", attributes="nounwind")
    made = b.call("ptr", "malloc", [b.params[0]])
    with b.if_(b.icmp("eq", made, NULL), "none"):
        b.call("i64", "write", [i32(STANDARD_ERROR), *text(module, b, "shlo_jit: there is no memory left\n")])
        b.call("void", "abort", [])
    b.ret(made)


def _write_short(module: ModuleText) -> None:
    params = [("ptr", "record"), ("i64", "needed"), ("ptr", "name")]
    b = module.function("shlo_pjrt_short", params, "ptr", attributes="nounwind noinline cold")
    record, needed, name = b.params
    message = "%s: expected a record of %ld bytes or more, got %ld"
    b.ret(error(module, b, INVALID_ARGUMENT, message, name, needed, b.load("i64", record)))


def text(module: ModuleText, b: Builder, message: str) -> tuple[V, V]:
    """Returns the address and size of a constant text that is followed by a zero."""
    name = f"text.{len(message)}.{zlib.crc32(message.encode()):x}"
    escaped = "".join(c if c.isalnum() or c in " ,.:'()-_" else f"\\{ord(c):02X}" for c in message)
    module.define_global(name, f'internal constant [{len(message) + 1} x i8] c"{escaped}\\00"')
    return V("ptr", f"@{name}"), i64(len(message))


MESSAGE_BYTES = 512
"""Size of a message that contains values; longer ones are truncated."""


def error(module: ModuleText, b: Builder, code: int, message: str, *values: V) -> V:
    """Creates an error. Values, i64 and texts, replace %ld and %s in the message."""
    words = text(module, b, message)
    if values:
        place = b.alloca("i8", MESSAGE_BYTES, 16)
        size = print_to(b, place, i64(MESSAGE_BYTES), words[0], *values)
        words = place, size
    return b.call("ptr", "shlo_pjrt_error", [i32(code), *words], declare=False)


def print_to(b: Builder, place: V, room: V, form: V, *values: V) -> V:
    """Calls snprintf. Returns the number of bytes written, without the terminating zero."""
    b.module.declarations["snprintf"] = "declare i32 @snprintf(ptr, i64, ptr, ...)"
    given = ", ".join(f"{v.type} {v.text}" for v in (place, room, form, *values))
    size = b.emit("i32", f"call i32 (ptr, i64, ptr, ...) @snprintf({given})")
    return b.min_(b.max_(b.cast("sext", size, "i64"), 0), b.sub(room, 1))
