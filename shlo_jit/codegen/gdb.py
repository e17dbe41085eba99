"""Loads code through LLVM's JIT and its RuntimeDyld, which registers the code with gdb (`SHLO_JIT_GDB=1`).

It leaks about 9 KB per loaded library, so it is for debugging only.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Mapping, Sequence

import llvmlite.binding as llvm

from shlo_jit.codegen.target import initialize, resolve, target_machine

_names = itertools.count()


@functools.cache
def _jit() -> llvm.LLJIT:
    """The process's JIT. It is never disposed of: at the end of the process a worker of the thread pool may still be
    spinning in code that it owns."""
    initialize(native=True)
    llvm.load_library_permanently("libm.so.6")
    linker = llvm.create_lljit_compiler(target_machine(resolve()), use_jit_link=False)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(linker))
    return linker


def link(objects: Sequence[bytes], exports: Sequence[str], known: Mapping[str, int]) -> tuple[object, dict[str, int]]:
    """Returns an object that keeps the code loaded, and the addresses of the exports. Raises RuntimeError if a symbol
    is missing."""
    builder = llvm.JITLibraryBuilder()
    for code in objects:
        builder.add_object_img(code)
    for name, address in known.items():
        builder.import_symbol(name, address)
    builder.add_current_process()
    for name in exports:
        builder.export_symbol(name)
    tracker = builder.link(_jit(), f"shlo_jit_{next(_names)}")
    return tracker, {name: tracker[name] for name in exports}
