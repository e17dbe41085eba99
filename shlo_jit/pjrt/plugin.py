"""The plugin of this process: one table, one client."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
from collections.abc import Callable
from typing import Any

from shlo_jit.pjrt import program_functions  # noqa: F401 - its functions are among the handlers
from shlo_jit.pjrt.client import Client
from shlo_jit.pjrt.code.memory import LIMIT, LOCK
from shlo_jit.pjrt.code.plugin_routine import PLUGIN
from shlo_jit.pjrt.code.python import MAIN_THREAD, STOPPED
from shlo_jit.pjrt.code.transfer import VIEW_ALIGNMENT
from shlo_jit.pjrt.table import Table, is_interrupt
from shlo_jit.runtime import build, pool, routines
from shlo_jit.runtime.machine import native

FAIL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
CAPSULE_NAME = b"pjrt_c_api"
LAYOUTS, SHARDINGS = 4, 19
"""Numbers of the extensions for memory layouts and for shardings."""


class Plugin:
    """The plugin that a framework loads, with its table and client."""

    def __init__(self, device_count: Callable[[], int]) -> None:
        target = native()
        store = build.resolve_cache(True)
        routines.prepare([PLUGIN], target, store)
        library = routines.load(PLUGIN.name, target, store)
        assert library is not None
        ctypes.c_int64.from_address(library.addresses[LIMIT.text[1:]]).value = pool.POOL.limit
        self.view_alignment = ctypes.c_int64.from_address(library.addresses[VIEW_ALIGNMENT.text[1:]])
        """Required alignment of memory that others own."""
        self.client = client = Client(library, device_count)
        self.table = table = Table(library, client.handlers())
        table.extend(
            LAYOUTS,
            "Layouts_Extension",
            *("MemoryLayout_Destroy", "MemoryLayout_Serialize", "Client_GetDefaultLayout", "Buffer_MemoryLayout"),
            *("Topology_GetDefaultLayout", "Executable_GetOutputLayouts", "Executable_GetParameterLayouts"),
        )
        table.extend(SHARDINGS, "Shardings_Extension", "Executable_ParameterShardings", "Executable_OutputShardings")

        def fail(answer: int, number: int, status: int) -> None:
            try:
                error = client.programs[number].failure(status)
            except BaseException as raised:
                error = raised
            self.table.answer(answer, error)

        self._fail = FAIL(fail)
        client.fail = ctypes.cast(self._fail, ctypes.c_void_p).value or 0
        client.run_many = self.table.function(self._run_many, "LoadedExecutable_Execute")
        atexit.register(self._shut_down)
        self._fork_between_blocks()

    def _fork_between_blocks(self) -> None:
        """Acquires the memory lock around a fork. The child has only the forking thread, so no other may hold the
        lock."""
        addresses = self.client.library.addresses
        lock = ctypes.CFUNCTYPE(None)(addresses["shlo_pjrt_lock_memory"])
        word = ctypes.c_int32.from_address(addresses[LOCK.text[1:]])

        def unlock() -> None:
            word.value = 0

        os.register_at_fork(before=lock, after_in_parent=unlock, after_in_child=unlock)

    def _shut_down(self) -> None:
        """Shuts down at the end of the interpreter. Programs stay in memory for threads that run them, and call no
        Python."""
        main = ctypes.c_int64.from_address(self.client.library.addresses[MAIN_THREAD.text[1:]])
        main.value = threading.main_thread().ident or 0
        for program in list(self.client.programs.values()):
            program.record.fail = program.record.run_many = self.client.library.addresses["shlo_pjrt_ended"]
        self.table.shut_down()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def _run_many(self, args: Any) -> int | None:
        program = self.client.program(args.executable)
        try:
            program.run(self.client, args)
        except KeyboardInterrupt as error:
            if not is_interrupt(error):
                raise
            program.return_deleted(self.client, args)
            self.table.raise_later(error)
            return STOPPED
        return None

    @property
    def capsule(self) -> object:
        """The table's address, as Python passes it on."""
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(self.table.address, CAPSULE_NAME, None)


@functools.cache
def plugin(device_count: Callable[[], int]) -> Plugin:
    """Returns the process's only plugin: the table remains when Python ends."""
    return Plugin(device_count)
