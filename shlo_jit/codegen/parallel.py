"""Generating code for the parts of a module in several threads.

llvmlite holds one lock around every call of LLVM. Two of them are nearly all of the time: running the passes and
emitting code. Each part has an LLVM context, a pass builder and a target machine of its own, so LLVM allows these at
the same time, and they are called here past that lock, through a second handle on the same library.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from shlo_jit.codegen import optimize
from shlo_jit.codegen.failure import InternalError
from shlo_jit.codegen.target import target_machine
from shlo_jit.kernels.target import Target


@functools.cache
def _library() -> ctypes.CDLL:
    """llvmlite's library without llvmlite's lock."""
    ffi.lib.LLVMPY_TargetMachineEmitToMemory  # noqa: B018  loads it
    library = ctypes.CDLL(ffi.lib._name)
    pointer = ctypes.c_void_p
    library.LLVMPY_RunNewModulePassManager.argtypes = [pointer, pointer, pointer]
    library.LLVMPY_RunNewModulePassManager.restype = None
    library.LLVMPY_TargetMachineEmitToMemory.argtypes = [
        pointer,
        pointer,
        ctypes.c_int,
        ctypes.POINTER(ctypes.c_char_p),
    ]
    library.LLVMPY_TargetMachineEmitToMemory.restype = pointer
    library.LLVMPY_GetBufferStart.argtypes = library.LLVMPY_GetBufferSize.argtypes = [pointer]
    library.LLVMPY_GetBufferStart.restype = pointer
    library.LLVMPY_GetBufferSize.restype = ctypes.c_size_t
    library.LLVMPY_DisposeMemoryBuffer.argtypes = [pointer]
    library.LLVMPY_DisposeMemoryBuffer.restype = None
    return library


class _Job:
    """One part: made and disposed of under llvmlite's lock, run without."""

    def __init__(self, text: str, target: Target, level: int, verify: bool) -> None:
        self.module = optimize.parse(text, target, verify)
        self.machine = target_machine(target)
        self.builder = optimize.pass_builder(self.machine)
        optimize.simplify(self.module, self.builder, text, level)
        self.passes = optimize.passes(level)

    def run(self) -> bytes:
        library = _library()
        library.LLVMPY_RunNewModulePassManager(_pointer(self.passes), _pointer(self.module), _pointer(self.builder))
        message = ctypes.c_char_p()
        buffer = library.LLVMPY_TargetMachineEmitToMemory(
            _pointer(self.machine), _pointer(self.module), 1, ctypes.byref(message)
        )
        if not buffer:
            raise InternalError(f"LLVM cannot generate code: {(message.value or b'').decode(errors='replace')}")
        try:
            return ctypes.string_at(library.LLVMPY_GetBufferStart(buffer), library.LLVMPY_GetBufferSize(buffer))
        finally:
            library.LLVMPY_DisposeMemoryBuffer(buffer)


def _pointer(reference: llvm.ffi.ObjectRef) -> ctypes.c_void_p:
    assert reference._ptr is not None
    return ctypes.cast(reference._ptr, ctypes.c_void_p)


def emit_objects(texts: Sequence[str], target: Target, level: int, verify: bool = True) -> tuple[bytes, ...]:
    """Optimize the parts and generate code for them, each in a thread of its own. Raises InternalError when LLVM
    refuses one."""
    if len(texts) == 1:
        return (optimize.emit_object(optimize.optimize(texts[0], target, level, verify), target),)
    with ThreadPoolExecutor(len(texts), "shlo_jit codegen") as executor:
        running = [executor.submit(_Job(text, target, level, verify).run) for text in texts]
        return tuple(future.result() for future in running)
