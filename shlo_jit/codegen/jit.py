"""Loading object code into the process: one ORC JIT for all programs.

Objects are linked by JITLink, which gives all memory back when a library is unloaded; RuntimeDyld keeps some 9 KB of
symbols for each program of 100 kernels. RuntimeDyld in turn tells gdb about the code: `SHLO_JIT_GDB=1` selects it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Iterable, Mapping

import llvmlite.binding as llvm

from shlo_jit.codegen.failure import InternalError
from shlo_jit.codegen.target import initialize, resolve, target_machine

_lock = threading.Lock()
_names = itertools.count()
_linker: llvm.LLJIT | None = None


def _after_fork() -> None:
    """Another thread may have held the lock, and it does not exist in the child."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _jit() -> llvm.LLJIT:
    """The process's JIT, made at first use and never disposed of: at the end of the process a worker of the thread
    pool may still be spinning in code that it owns."""
    global _linker  # noqa: PLW0603
    with _lock:
        if _linker is None:
            initialize()
            llvm.load_library_permanently("libm.so.6")
            gdb = os.environ.get("SHLO_JIT_GDB", "") not in ("", "0")
            _linker = llvm.create_lljit_compiler(target_machine(resolve()), use_jit_link=not gdb)
            _immortalize(_linker)
        return _linker


def _immortalize(thing: object) -> None:
    """Take a reference that is never given back, so that the end of the interpreter does not dispose of it either."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class Library:
    """Machine code in memory. Unloaded when the last reference to it goes, so whoever holds an address holds this."""

    def __init__(self, tracker: llvm.ResourceTracker, addresses: Mapping[str, int], needs: tuple[Library, ...]) -> None:
        self._tracker = tracker
        self._needs = needs
        self.addresses = addresses

    def keep_for_ever(self) -> None:
        """Never unload: for code that threads of our own run."""
        _immortalize(self._tracker)


def load(
    objects: Iterable[bytes],
    exports: Iterable[str],
    needs: Iterable[Library] = (),
    symbols: Mapping[str, int] | None = None,
) -> Library:
    """Link objects into one library against `needs`, `symbols` (name -> address) and the process's own symbols (libc,
    libm, pthreads).

    `exports` are the symbols whose addresses are wanted. Raises InternalError when a symbol is missing or the object is
    not one.
    """
    jit = _jit()
    needs, exports = tuple(needs), tuple(exports)
    builder = llvm.JITLibraryBuilder()
    for code in objects:
        builder.add_object_img(code)
    for library in needs:
        for name, address in library.addresses.items():
            builder.import_symbol(name, address)
    for name, address in (symbols or {}).items():
        builder.import_symbol(name, address)
    builder.add_current_process()
    for name in exports:
        builder.export_symbol(name)
    try:
        tracker = builder.link(jit, f"shlo_jit_{next(_names)}")
    except RuntimeError as error:
        raise InternalError(f"cannot link the generated code: {error}") from None
    return Library(tracker, {name: tracker[name] for name in exports}, needs)
