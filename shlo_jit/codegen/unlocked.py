"""Calls LLVM without llvmlite's lock, for the functions that take nearly all of a compilation's time.

llvmlite holds one lock around every call of LLVM. Each of our modules has a separate LLVM context, and each thread has
separate target machines, so LLVM allows running passes and emitting code in several threads simultaneously. These calls
bypass that lock through a second handle on the same library. Like every call through ctypes, they also run without
Python's own lock.
"""

from __future__ import annotations

import ctypes
import functools

import llvmlite.binding as llvm
from llvmlite.binding import ffi

OBJECT_CODE = 1
"""Value, as opposed to assembly, of an argument of LLVMPY_TargetMachineEmitToMemory."""


@functools.cache
def _library() -> ctypes.CDLL:
    ffi.lib.LLVMPY_TargetMachineEmitToMemory  # noqa: B018  loads it
    library = ctypes.CDLL(ffi.lib._name)
    pointer = ctypes.c_void_p
    library.LLVMPY_RunNewModulePassManager.argtypes = [pointer, pointer, pointer]
    library.LLVMPY_RunNewModulePassManager.restype = None
    emit = library.LLVMPY_TargetMachineEmitToMemory
    emit.argtypes = [pointer, pointer, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    emit.restype = pointer
    library.LLVMPY_GetBufferStart.argtypes = library.LLVMPY_GetBufferSize.argtypes = [pointer]
    library.LLVMPY_GetBufferStart.restype = pointer
    library.LLVMPY_GetBufferSize.restype = ctypes.c_size_t
    library.LLVMPY_DisposeMemoryBuffer.argtypes = [pointer]
    library.LLVMPY_DisposeMemoryBuffer.restype = None
    return library


def _pointer(reference: llvm.ffi.ObjectRef) -> ctypes.c_void_p:
    assert reference._ptr is not None
    return ctypes.cast(reference._ptr, ctypes.c_void_p)


def run_passes(passes: llvm.ModulePassManager, module: llvm.ModuleRef, builder: llvm.PassBuilder) -> None:
    """Runs `passes.run(module, builder)` without the lock."""
    _library().LLVMPY_RunNewModulePassManager(_pointer(passes), _pointer(module), _pointer(builder))


def emit_object(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    """Runs `machine.emit_object(module)` without the lock. Raises RuntimeError if LLVM cannot generate the code."""
    library = _library()
    message = ctypes.c_char_p()
    buffer = library.LLVMPY_TargetMachineEmitToMemory(
        _pointer(machine), _pointer(module), OBJECT_CODE, ctypes.byref(message)
    )
    if not buffer:
        raise RuntimeError((message.value or b"").decode(errors="replace"))
    try:
        return ctypes.string_at(library.LLVMPY_GetBufferStart(buffer), library.LLVMPY_GetBufferSize(buffer))
    finally:
        library.LLVMPY_DisposeMemoryBuffer(buffer)
