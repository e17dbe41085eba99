"""The table of functions that a framework calls: machine code, Python functions, and one that says there is none."""

from __future__ import annotations

import ctypes
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from shlo_jit.codegen.jit import Library
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.code.routine import MACHINE_CODE
from shlo_jit.pjrt.code.writer import symbol

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_ERROR = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p, ctypes.c_int64)
HEAD_WORDS = 5
"""Of the table: its size, extensions, and the version's size, extensions and numbers."""
MAKING = ("Client_Compile", "Compile", "Executable_DeserializeAndLoad")
"""Functions that make what the host then uses: it has to know that there is none."""

Handler = Callable[[Any], None]
"""Reads and writes the record of arguments, or raises."""


class PluginError(Exception):
    """An error of the interface, with one of its codes."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Table:
    """Lives as long as the process: frameworks keep pointers to it beyond the interpreter's end."""

    def __init__(self, library: Library, handlers: Mapping[str, Handler]) -> None:
        self._library, self._handlers = library, handlers
        self._error = _ERROR(library.addresses["shlo_pjrt_error"])
        self._kept: list[Any] = []
        names = [*interface.FUNCTIONS]
        self._memory = (ctypes.c_uint64 * (HEAD_WORDS + len(names)))()
        version = interface.MINOR_VERSION << 32 | interface.MAJOR_VERSION
        self._memory[:HEAD_WORDS] = [ctypes.sizeof(self._memory), 0, 24, 0, version]
        for i, name in enumerate(names):
            if name in MACHINE_CODE:
                address = library.addresses[symbol(name)]
            else:
                address = self.function(handlers.get(name) or _missing(name), name)
            self._memory[HEAD_WORDS + i] = address
        self.address = ctypes.addressof(self._memory)

    def function(self, handler: Handler, name: str) -> int:
        """Address of a function of the interface that calls a handler."""
        is_known = name in interface.RECORDS or interface.FUNCTIONS.get(name) is not None
        kind = interface.structure(name) if is_known else None

        def call(address: int) -> int | None:
            try:
                handler(kind.from_address(address) if kind is not None else None)
            except BaseException as error:
                return self.error_of(error)
            return None

        made = FUNCTION(call)
        self._kept.append(made)
        return ctypes.cast(made, ctypes.c_void_p).value or 0

    def extend(self, number: int, name: str, *functions: str) -> None:
        """Put an extension into the list: a record of that name, and the functions that are its fields."""
        kind = interface.structure(name)
        handlers, library = self._handlers, self._library.addresses
        addresses = [self.function(handlers[f], f) if f in handlers else library[symbol(f)] for f in functions]
        record = kind(ctypes.sizeof(kind), number, self._memory[1], *addresses)
        self._kept.append(record)
        self._memory[1] = ctypes.addressof(record)

    def error_of(self, error: BaseException) -> int:
        """Address of a new error that says what was raised."""
        code, text = describe(error)
        message = text.encode()
        return self._error(code, message, len(message))

    def retire(self) -> None:
        """At the end of the interpreter: machine code goes on for threads that do, and no Python is called."""
        addresses = self._library.addresses
        for i, name in enumerate(interface.FUNCTIONS):
            if name not in MACHINE_CODE:
                own = "shlo_pjrt_ended" if name in MAKING else "shlo_pjrt_nothing"
                self._memory[HEAD_WORDS + i] = addresses[own]


def describe(error: BaseException) -> tuple[int, str]:
    """Code and text of what was raised."""
    from shlo_jit.errors import StableHLOError, UnsupportedError

    if isinstance(error, PluginError):
        return error.code, str(error)
    if isinstance(error, UnsupportedError):
        return interface.UNIMPLEMENTED, str(error)
    if isinstance(error, StableHLOError):
        return interface.INVALID_ARGUMENT, str(error)
    if isinstance(error, MemoryError):
        return interface.RESOURCE_EXHAUSTED, str(error) or "out of memory"
    text = "".join(traceback.format_exception(error))  # it may be a callback's, and the host shows nothing else
    return interface.INTERNAL, f"{type(error).__name__}: {error}\n\n{text}"


def _missing(name: str) -> Handler:
    def handler(args: Any) -> None:
        raise PluginError(interface.UNIMPLEMENTED, f"shlo_jit has no {name}")

    return handler
