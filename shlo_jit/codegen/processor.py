"""A description of the processor: all inputs that LLVM uses to detect this machine's CPU and its features.

LLVM's answer can be kept, and is needed again only if the description changes. Loading LLVM takes longer than loading a
program from the object cache.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys

from shlo_jit.codegen.jit import make_executable

_CPUID = bytes.fromhex("53 4989d0 89f8 89f1 0fa2 418900 41895804 41894808 4189500c 5b c3")
"""void(u32 leaf, u32 subleaf, u32 words[4]): push rbx; mov r8, rdx; mov eax, edi; mov ecx, esi; cpuid; store eax, ebx,
ecx and edx at r8; pop rbx; ret."""
_XGETBV = bytes.fromhex("31c9 0f01d0 48c1e220 4809d0 c3")
"""u64(): xor ecx, ecx; xgetbv; shl rdx, 32; or rax, rdx; ret."""
_LEAVES = ((0, 0), (1, 0), (7, 0), (7, 1), (7, 2), (0xD, 1), (0x14, 0), (0x19, 0), (0x1E, 1), (0x24, 0))
_EXTENDED = 0x80000000
"""First extended leaf; extended leaves have a separate maximum."""
_EXTENDED_LEAVES = (_EXTENDED, _EXTENDED + 1, _EXTENDED + 8, _EXTENDED + 0x21)
_OSXSAVE = 1 << 27
"""Bit in ecx of leaf 1 that says that XGETBV may be used."""
_OF_THE_CORE = {1: 1, 0xD: 1}
"""Leaf -> a word that differs between cores, or changes: LLVM does not use it."""


def description() -> bytes | None:
    """Describes the processor; None if unknown, that is, on other architectures than x86-64, or if machine code cannot
    run."""
    if sys.platform == "win32" or os.uname().machine != "x86_64" or sys.maxsize < 1 << 32:
        return None
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        code[:] = (_CPUID.ljust(64) + _XGETBV).ljust(mmap.PAGESIZE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(code))
        make_executable(base, mmap.PAGESIZE)
    except (OSError, RuntimeError):
        return None
    ask = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(base)
    words = (ctypes.c_uint32 * 4)()

    def answer(leaf: int, subleaf: int = 0) -> list[int]:
        ask(leaf, subleaf, ctypes.addressof(words))
        return list(words)

    last, last_extended = answer(0)[0], answer(_EXTENDED)[0]
    extended = [(leaf, 0) for leaf in _EXTENDED_LEAVES if leaf <= last_extended]
    found: list[int] = []
    for leaf, subleaf in [*(row for row in _LEAVES if row[0] <= last), *extended]:
        row = answer(leaf, subleaf)
        if leaf in _OF_THE_CORE:
            row[_OF_THE_CORE[leaf]] = 0
        found += row
    state = 0
    if answer(1)[2] & _OSXSAVE:
        state = ctypes.CFUNCTYPE(ctypes.c_uint64)(base + 64)()
    return struct.pack(f"<{len(found)}IQ", *found, state)
