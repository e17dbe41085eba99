"""The custom calls of an instance, some of which are made by handlers: the `handle` of its program."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from shlo_jit.runtime.ffi import structures as s
from shlo_jit.runtime.ffi.handler_calls import HandlerCall
from shlo_jit.runtime.ffi.library import ffi_library


class FfiTable:
    """The table. It must be alive while the program runs."""

    def __init__(self, calls: Sequence[HandlerCall | None], first: int, handle: int, trampoline: int) -> None:
        """`first` is the number of the first of the calls; `handle` and `trampoline` are those of the table of Python's
        calls."""
        self._calls = calls
        self._addresses = (ctypes.c_void_p * len(calls))(*(call and call.address for call in calls))
        addresses = ctypes.addressof(self._addresses)
        self._table = s.Table(handle=handle, trampoline=trampoline, first=first, calls=addresses)
        self.address = ctypes.addressof(self._table)
        self.function = ffi_library().dispatch
        """Function that the program has as `callback`."""
