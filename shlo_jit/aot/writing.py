"""Helpers to write the functions of a library."""

from __future__ import annotations

from shlo_jit.codegen.library_format import LibraryStatus
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i32

NULL = V("ptr", "null")


def leave_if(b: Builder, condition: V, status: LibraryStatus | V) -> None:
    """Emits a return of the status if the condition holds."""
    leave, stay = b.label("leave"), b.label("stay")
    b.branch_if(condition, leave, stay)
    b.start(leave)
    value = status if isinstance(status, V) else i32(status)
    b.line(f"ret i32 {value.text}")
    b.start(stay)


def is_null(b: Builder, pointer: V) -> V:
    return b.icmp("eq", pointer, NULL)


def field(b: Builder, structure: str, pointer: V, index: int) -> V:
    """Address of a field of a C structure."""
    return b.emit("ptr", f"getelementptr inbounds {structure}, ptr {pointer.text}, i32 0, i32 {index}")
