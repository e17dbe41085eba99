"""Loads object code into the process.

We use our own linker (`link.py`): LLVM's JIT leaks 9 KB per loaded library, and is guarded by locks that a fork can
leave held. LLVM's JIT registers the code with gdb, though, and `SHLO_JIT_GDB=1` selects it. With `SHLO_JIT_PERF=1`, our
linker writes names for perf.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shlo_jit import environment
from shlo_jit.codegen.elf import read_object
from shlo_jit.codegen.link import Linker
from shlo_jit.errors import ExecutionError, InternalError

UNWIND_TABLE = ".eh_frame"
"""Name of the unwind table among the addresses of a library, if it has one."""


class Library:
    """Machine code in memory. It is unloaded when the last reference to it is dropped, so any holder of an address must
    hold this object."""

    def __init__(
        self, owner: object, addresses: Mapping[str, int], needs: tuple[Library, ...], nbytes: int = 0
    ) -> None:
        self._owner = owner
        """The code lives as long as this object."""
        self.nbytes = nbytes
        """Bytes of code and its tables in memory; 0 if unknown."""
        self._needs = needs
        self.addresses = addresses

    def keep_loaded(self) -> None:
        """Prevents unloading, even at the end of the interpreter: for code that our own threads run."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._owner))


def load(
    objects: Iterable[bytes],
    exports: Iterable[str],
    needs: Iterable[Library] = (),
    symbols: Mapping[str, int] | None = None,
) -> Library:
    """Links objects into one library against `needs`, `symbols` (name -> address) and the process's own symbols (libc,
    libm, pthreads).

    `exports` are the symbols whose addresses are needed. Raises InternalError if a symbol is missing or an object is
    invalid, and MemoryError if there is not enough memory.
    """
    needs, exports, objects = tuple(needs), tuple(exports), tuple(objects)
    known = {name: address for library in needs for name, address in library.addresses.items()}
    known |= symbols or {}
    link = _link
    if environment.flag("SHLO_JIT_GDB"):
        from shlo_jit.codegen.gdb import link
    try:
        owner, addresses = link(objects, exports, known)
    except (LookupError, OverflowError, RuntimeError, ValueError) as error:
        raise InternalError(f"cannot link the generated code: {error}") from None
    nbytes = len(owner) if isinstance(owner, mmap.mmap) else sum(map(len, objects))
    return Library(owner, addresses, needs, nbytes)


def _link(objects: Sequence[bytes], exports: Sequence[str], known: Mapping[str, int]) -> tuple[object, dict[str, int]]:
    """Returns the mapping that holds the code, and the addresses of the exports."""
    linker = Linker([read_object(code) for code in objects])
    offsets = {name: linker.symbol_offset(name) for name in exports}
    try:
        mapping = mmap.mmap(-1, max(1, linker.layout.size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"cannot allocate {linker.layout.size} bytes for code: {error}") from None
    base = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    linker.write(np.frombuffer(mapping, np.uint8), base, lambda name: known.get(name) or _process_symbol(name))
    make_executable(base, linker.layout.fixed_bytes)
    missing = [name for name, offset in offsets.items() if offset is None]
    if missing:
        raise LookupError(f"nothing defines {', '.join(missing)}")
    if environment.flag("SHLO_JIT_PERF"):
        from shlo_jit.codegen.perf import note

        note([(name, base + offset, size) for name, offset, size in linker.functions()])
    addresses = {name: base + offset for name, offset in offsets.items() if offset is not None}
    addresses.update((UNWIND_TABLE, base + at) for at in linker.unwind_tables())
    return mapping, addresses


def make_executable(address: int, size: int) -> None:
    """Makes memory that was written readable and executable."""
    clear = _clear_cache()
    if clear is not None:
        clear(address, address + size)
    if size and _mprotect()(address, size, mmap.PROT_READ | mmap.PROT_EXEC):
        error = ctypes.get_errno()
        raise ExecutionError(f"the system does not allow executable memory: {os.strerror(error)}")


@functools.cache
def _mprotect() -> Any:
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


@functools.cache
def _clear_cache() -> Callable[[int, int], None] | None:
    """The function that makes the instruction cache see written memory; None if the processor does that itself."""
    if os.uname().machine == "x86_64":
        return None
    function = ctypes.CDLL("libgcc_s.so.1")["__clear_cache"]
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p], None
    return function


@functools.cache
def _libraries() -> list[ctypes.CDLL]:
    """Libraries that define external symbols of the code: the process, mathematics, and the compiler's helpers."""
    found = [ctypes.CDLL(None)]
    for name in ("libm.so.6", "libgcc_s.so.1"):
        try:
            found.append(ctypes.CDLL(name))
        except OSError:  # not on this system
            continue
    return found


@functools.cache
def _process_symbol(name: str) -> int | None:
    for library in _libraries():
        try:
            return ctypes.cast(library[name], ctypes.c_void_p).value
        except AttributeError:
            continue
    return None
