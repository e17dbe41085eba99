"""The machine code of `api.py` and `dispatch.py` in this process, and the table by which handlers find it."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable
from typing import Any

from shlo_jit.codegen.jit import UNWIND_TABLE
from shlo_jit.runtime import routines
from shlo_jit.runtime.cache import default_cache
from shlo_jit.runtime.ffi import state_types
from shlo_jit.runtime.ffi import structures as s
from shlo_jit.runtime.ffi.dispatch import FFI
from shlo_jit.runtime.machine import native

HANDLER_ERROR = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class FfiLibrary:
    """The library. It lives as long as the process."""

    def __init__(self) -> None:
        target, cache = native(), default_cache()
        with contextlib.suppress(
            OSError
        ):  # if missing, nothing can throw; global, so that our code finds its functions
            ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
        routines.prepare([FFI], target, cache)
        library = routines.load(FFI.name, target, cache)
        assert library is not None  # it has just been prepared
        self.addresses = library.addresses
        self._catch_exceptions()
        self.run = self._function("run", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
        """Runs a handler with a frame and a stage. Returns the error, or None. Does not hold Python's lock."""
        self.end = self._function("end", None, ctypes.c_void_p)
        self.drop = self._function("drop", None, ctypes.c_void_p)
        self._error = self._function("error", ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p)
        self._destroy = self._function("Error_Destroy", None, ctypes.c_void_p)
        self.dispatch = self.addresses["shlo_ffi_dispatch"]
        self._type_register = HANDLER_ERROR(self._register_type)
        self.api = s.Api(api_version=self._version(), **self._table())
        state_types.publish_by(self._publish)

    def _function(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        return ctypes.CFUNCTYPE(result, *arguments)(self.addresses[f"shlo_ffi_{name}"])

    def _catch_exceptions(self) -> None:
        """Registers the unwind tables, so that exceptions are caught."""
        table = self.addresses.get(UNWIND_TABLE)
        if table is None:  # the linker that notifies gdb does it
            return
        with contextlib.suppress(OSError, AttributeError):
            register = ctypes.CDLL("libgcc_s.so.1")["__register_frame"]
            register.argtypes, register.restype = [ctypes.c_void_p], None
            register(table)

    @staticmethod
    def _version() -> s.Version:
        major, minor = s.VERSION
        return s.Version(major_version=major, minor_version=minor)

    def _table(self) -> dict[str, int | None]:
        own = {"Type_Register": ctypes.cast(self._type_register, ctypes.c_void_p).value}
        return {name: own.get(name) or self.addresses[f"shlo_ffi_{name}"] for name in s.FUNCTIONS}

    def _publish(self, address: int) -> None:
        ctypes.c_void_p.from_address(self.addresses["shlo_ffi_types"]).value = address

    def _register_type(self, address: int) -> int | None:
        """Implements XLA_FFI_Type_Register."""
        args = s.ARGUMENTS["Type_Register"].from_address(address)
        try:
            if args.struct_size < s.least_bytes("Type_Register"):
                raise ValueError("the arguments of XLA_FFI_Type_Register are of another version")
            name = ctypes.string_at(args.name.ptr, args.name.len).decode()
            deleter = s.TypeInfo.from_address(args.type_info).deleter if args.type_info else None
            state_types.register(name, ctypes.c_int64.from_address(args.type_id), deleter or 0)
        except ValueError as error:
            return self._error(s.CODES.index("INVALID_ARGUMENT"), str(error).encode())
        return None

    def take_error(self, error: int) -> str:
        """Returns code and message of an error, and frees it."""
        code = s.Error.from_address(error).code
        message = ctypes.string_at(error + ctypes.sizeof(s.Error)).decode("utf-8", "replace")
        self._destroy(ctypes.byref(s.ARGUMENTS["Error_Destroy"](error=error)))
        return f"{s.CODES[code] if 0 <= code < len(s.CODES) else f'code {code}'}: {message}"


_lock = threading.Lock()
_made: list[FfiLibrary] = []


def ffi_library() -> FfiLibrary:
    """Returns the only instance of this process."""
    with _lock:
        if not _made:
            _made.append(FfiLibrary())
        return _made[0]
