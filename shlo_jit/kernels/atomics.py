"""Atomic loads, stores and exchanges of words that threads and processes share."""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V


def atomic_load(b: Builder, type: str, pointer: V, order: str = "seq_cst") -> V:
    return b.emit(type, f"load atomic {type}, ptr {pointer.text} {order}, align {_align(type)}")


def atomic_store(b: Builder, value: V, pointer: V, order: str) -> None:
    b.line(f"store atomic {value.type} {value.text}, ptr {pointer.text} {order}, align {_align(value.type)}")


def atomic(b: Builder, operation: str, pointer: V, value: V, order: str) -> V:
    """Emits a read-modify-write operation. Returns the previous value."""
    return b.emit(value.type, f"atomicrmw {operation} ptr {pointer.text}, {value.type} {value.text} {order}")


def exchange(b: Builder, pointer: V, expected: V, value: V) -> V:
    """Emits a compare-exchange. Returns an i1: whether `expected` was there, and was replaced. Acquires what its last
    writer released."""
    old, new = f"{expected.type} {expected.text}", f"{value.type} {value.text}"
    pair = b.emit(f"{{{value.type}, i1}}", f"cmpxchg ptr {pointer.text}, {old}, {new} acquire monotonic")
    return b.emit("i1", f"extractvalue {pair.type} {pair.text}, 1")


def _align(type: str) -> int:
    return 8 if type in ("i64", "ptr") else 4
