"""The custom calls of an instance of which some are made by handlers: what its program has as `handle`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from shlo_jit.runtime.ffi import structures as s
from shlo_jit.runtime.ffi.library import ffi_library
from shlo_jit.runtime.ffi.sites import FfiSite


class FfiTable:
    """It must be alive while the program runs."""

    def __init__(self, sites: Sequence[FfiSite | None], first: int, handle: int, trampoline: int) -> None:
        """`first`: the number of the first of the calls; `handle` and `trampoline`: of the table of those that Python
        makes."""
        self._sites = sites
        self._addresses = (ctypes.c_void_p * len(sites))(*(site and site.address for site in sites))
        addresses = ctypes.addressof(self._addresses)
        self._table = s.Table(handle=handle, trampoline=trampoline, first=first, sites=addresses)
        self.address = ctypes.addressof(self._table)
        self.function = ffi_library().dispatch
        """What the program has as `callback`."""
