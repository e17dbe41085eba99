"""The calls of LLVM that are nearly all of a compilation's time, without llvmlite's lock around them.

llvmlite holds one lock around every call of LLVM. Each of our modules has an LLVM context of its own, and each thread
its own target machines, so LLVM allows running passes and emitting code in several threads at the same time. They are
called here past that lock, through a second handle on the same library; like every call through ctypes, without
Python's own lock as well.
"""

from __future__ import annotations

import ctypes
import functools

import llvmlite.binding as llvm
from llvmlite.binding import ffi

OBJECT_CODE = 1
"""As against assembly: an argument of LLVMPY_TargetMachineEmitToMemory."""


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
    """`passes.run(module, builder)`."""
    _library().LLVMPY_RunNewModulePassManager(_pointer(passes), _pointer(module), _pointer(builder))


def emit_object(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    """`machine.emit_object(module)`. Raises RuntimeError when LLVM cannot generate the code."""
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
