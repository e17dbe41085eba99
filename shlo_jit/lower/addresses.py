"""Tables of addresses, for functions that take any number of operands."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V


def address_table(b: Builder, pointers: Sequence[V]) -> V:
    """Returns the address of a stack array with the given pointers."""
    table = b.alloca("ptr", max(1, len(pointers)), align=8)
    for i, pointer in enumerate(pointers):
        b.store(pointer, b.element(table, "ptr", i))
    return table
