"""The table of functions that a framework calls. They are machine code, some of which calls Python."""

from __future__ import annotations

import ctypes
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from shlo_jit.codegen.jit import Library
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.code.function_writer import symbol
from shlo_jit.pjrt.code.python import DONE, FUNCTIONS, INSIDE, INTERRUPTED, MAKING, PYTHON, RAISED

FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_ERROR = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p, ctypes.c_int64)
HEAD_WORDS = 5
"""Words before the functions in the table: its size, extensions, and the version's size, extensions and numbers."""
ENDING_SECONDS = 30.0
"""Time for which the end of the interpreter waits for LLVM in other threads."""
TELLING_SECONDS = 0.3
LAST_CALLS_SECONDS = 0.05
"""Time that threads which wait for the interpreter's lock have to block themselves, before the interpreter ends
them."""

Handler = Callable[[Any], int | None]
"""Reads and writes the argument record, or raises. Returns its answer, or None for DONE."""


class InterpreterEnds(BaseException):
    """Raised in compiling threads when the interpreter ends: it would end them, but hosts wait for their threads."""


class PluginError(Exception):
    """An error of the interface, with one of its codes."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def record_at(name: str, address: int | None) -> Any:
    """Returns a record of the interface that arguments point to. Raises PluginError if it is missing or too small."""
    if not address:
        raise PluginError(interface.INVALID_ARGUMENT, f"{name} is null")
    record, needed = interface.structure(name).from_address(address), interface.needed_bytes(name)
    if record.struct_size < needed:
        what = f"{name}: expected a record of {needed} bytes or more, got {record.struct_size}"
        raise PluginError(interface.INVALID_ARGUMENT, what)
    return record


class Table:
    """The table. It lives as long as the process: frameworks keep pointers to it beyond the interpreter's end."""

    def __init__(self, library: Library, handlers: Mapping[str, Handler]) -> None:
        self._library = library
        self._error = _ERROR(library.addresses["shlo_pjrt_error"])
        self._raised = ctypes.c_int64.from_address(library.addresses[RAISED.text[1:]])
        self._kept: list[Any] = []
        self._inside: list[int] = []
        """Threads that are in a handler, or were when an exception hit them."""
        self._calls = ctypes.c_int64.from_address(library.addresses[INSIDE.text[1:]])
        self._ends = False
        names = [*interface.FUNCTIONS]
        self._memory = (ctypes.c_uint64 * (HEAD_WORDS + len(names)))()
        version = interface.MINOR_VERSION << 32 | interface.MAJOR_VERSION
        self._memory[:HEAD_WORDS] = [ctypes.sizeof(self._memory), 0, 24, 0, version]
        self._memory[HEAD_WORDS:] = [library.addresses[symbol(name)] for name in names]
        self._functions = (ctypes.c_uint64 * len(PYTHON)).from_address(library.addresses[FUNCTIONS.text[1:]])
        self._functions[:] = [self.function(handlers[name], name) for name in PYTHON]
        self.address = ctypes.addressof(self._memory)

    def function(self, handler: Handler, name: str) -> int:
        """Returns the address of a function that calls the handler of a function of the interface."""
        kind = interface.structure(name)

        def call(answer: int, address: int) -> None:
            this = threading.get_ident()
            try:
                self._inside.append(this)
                answered = handler(kind.from_address(address))
                if self._ends and name in MAKING:
                    raise InterpreterEnds
                ctypes.c_int64.from_address(answer).value = answered or DONE
            except BaseException as error:
                self.answer(answer, error)
            finally:
                self._inside.remove(this)

        made = FUNCTION(call)
        self._kept.append(made)
        return ctypes.cast(made, ctypes.c_void_p).value or 0

    def extend(self, number: int, name: str, *functions: str) -> None:
        """Adds an extension to the list: a record of that name, with the functions as its fields."""
        kind = interface.structure(name)
        addresses = [self._library.addresses[symbol(f)] for f in functions]
        record = kind(ctypes.sizeof(kind), number, self._memory[1], *addresses)
        self._kept.append(record)
        self._memory[1] = ctypes.addressof(record)

    def answer(self, place: int, error: BaseException) -> None:
        """Answers a call with an error that describes the exception. An interrupt of the main thread is not an
        error."""
        if is_interrupt(error):
            self.raise_later(error)
            ctypes.c_int64.from_address(place).value = INTERRUPTED
            return
        code, text = describe(error)
        message = text.encode(errors="backslashreplace")
        made = self._error(code, message, len(message))
        ctypes.c_int64.from_address(place).value = made

    def raise_later(self, error: BaseException) -> None:
        """Makes the main thread raise the exception as soon as the host is back in Python."""
        if not self._raised.value:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(error))
            self._raised.value = id(error)

    def shut_down(self) -> None:
        """Shuts down at the end of the interpreter. Threads in machine code continue, and no Python is called. Threads
        that are in Python leave it first: hosts wait for them, and the interpreter would just end them."""
        self._ends = True
        self._replace_functions({name: "shlo_pjrt_ended" for name in MAKING})
        ctypes.pythonapi.PyThreadState_SetAsyncExc.argtypes = [ctypes.c_ulong, ctypes.py_object]
        this, deadline = threading.get_ident(), time.monotonic() + ENDING_SECONDS
        others = self._calls.value
        while self._calls.value and time.monotonic() < deadline:
            for thread in {*self._inside} - {this}:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, InterpreterEnds)
            pause = time.monotonic() + TELLING_SECONDS  # some code ignores an exception
            while self._calls.value and time.monotonic() < pause:
                time.sleep(0.002)
        if others or threading.active_count() > 1:
            time.sleep(LAST_CALLS_SECONDS)
        self._replace_functions({name: "shlo_pjrt_nothing" for name in PYTHON if name not in MAKING})

    def _replace_functions(self, functions: Mapping[str, str]) -> None:
        """Replaces Python functions by machine code."""
        for name, own in functions.items():
            self._functions[PYTHON.index(name)] = self._library.addresses[own]


def is_interrupt(error: BaseException) -> bool:
    """Whether the error is Ctrl-C, which the main thread has to raise."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def describe(error: BaseException) -> tuple[int, str]:
    """Returns code and text of an exception."""
    from shlo_jit.errors import StableHLOError, UnsupportedError

    if isinstance(error, PluginError):
        return error.code, str(error)
    if isinstance(error, UnsupportedError):
        return interface.UNIMPLEMENTED, str(error)
    if isinstance(error, StableHLOError):
        return interface.INVALID_ARGUMENT, str(error)
    if isinstance(error, InterpreterEnds):
        return interface.CANCELLED, "the interpreter has ended"
    if isinstance(error, KeyboardInterrupt):
        return interface.CANCELLED, "interrupted (KeyboardInterrupt)"
    if isinstance(error, MemoryError):
        return interface.RESOURCE_EXHAUSTED, str(error) or "out of memory"
    text = "".join(traceback.format_exception(error))  # it may be a callback's, and the host shows nothing else
    return interface.INTERNAL, f"{type(error).__name__}: {error}\n\n{text}"
