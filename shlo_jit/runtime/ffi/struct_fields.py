"""Accesses fields of structures in machine code."""

from __future__ import annotations

import ctypes

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V

NULL = V("ptr", "null")


def place(b: Builder, pointer: V, struct: type[ctypes.Structure], *path: str) -> V:
    """Returns the address of a field, or of a field of a field."""
    offset = 0
    for name in path:
        offset += getattr(struct, name).offset
        struct = next(f[1] for f in struct._fields_ if f[0] == name)  # pyright: ignore[reportAssignmentType]
    return b.offset(pointer, offset)


def get(b: Builder, type: str, pointer: V, struct: type[ctypes.Structure], *path: str) -> V:
    return b.load(type, place(b, pointer, struct, *path))


def put(b: Builder, value: V, pointer: V, struct: type[ctypes.Structure], *path: str) -> None:
    b.store(value, place(b, pointer, struct, *path))
