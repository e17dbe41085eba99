"""The custom calls of an instance of which some are made by handlers: what its program has as `handle`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from shlo_jit.runtime.ffi import structures as s
from shlo_jit.runtime.ffi.handler_calls import HandlerCall
from shlo_jit.runtime.ffi.library import ffi_library


class FfiTable:
    """It must be alive while the program runs."""

    def __init__(self, calls: Sequence[HandlerCall | None], first: int, handle: int, trampoline: int) -> None:
        """`first`: the number of the first of the calls; `handle` and `trampoline`: of the table of those that Python
        makes."""
        self._calls = calls
        self._addresses = (ctypes.c_void_p * len(calls))(*(call and call.address for call in calls))
        addresses = ctypes.addressof(self._addresses)
        self._table = s.Table(handle=handle, trampoline=trampoline, first=first, calls=addresses)
        self.address = ctypes.addressof(self._table)
        self.function = ffi_library().dispatch
        """What the program has as `callback`."""
