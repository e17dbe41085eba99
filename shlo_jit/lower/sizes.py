"""The function `@shlo_sizes` of the ABI, which the host calls before a program whose sizes are known only at the
call."""

from __future__ import annotations

from collections.abc import Iterable

from shlo_jit.codegen import abi
from shlo_jit.ir.core import Value
from shlo_jit.ir.types import TensorType
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import i64
from shlo_jit.memory.storage import MemoryPlan
from shlo_jit.schedule.scratch import ALIGN
from shlo_jit.sizes import Size, Symbol


def symbol_of(arguments: Iterable[Value]) -> Symbol | None:
    """The symbol in the extents of a program's arguments, which is known only at the call; None if there is none."""
    types = [a.type for a in arguments]
    extents = [n for t in types if isinstance(t, TensorType) for n in t.extents]
    return next((n.symbol for n in extents if isinstance(n, Size)), None)


def write_sizes(module: ModuleText, memory: MemoryPlan, results: Iterable[Value]) -> None:
    """Writes the function `abi.SIZES` of a program with these results."""
    b = module.function(abi.SIZES, [("ptr", "dims"), ("i64", "threads"), ("ptr", "sizes")], linkage="")
    _, threads, sizes = b.params
    scratch_bytes = i64(0)
    for scratch in memory.shared:
        scratch_bytes = b.max_(scratch_bytes, b.add(i64(scratch.fixed), b.mul(threads, i64(scratch.per_thread))))
    scratch_bytes = b.mul(b.udiv(b.add(scratch_bytes, ALIGN - 1), ALIGN), ALIGN)
    numbers = [b.add(i64(memory.arena_bytes), scratch_bytes)]
    for value in results:
        t = value.tensor
        numbers += map(i64, (t.nbytes, *t.extents))
    for i, number in enumerate(numbers):
        b.store(number, b.element(sizes, "i64", i))
    b.ret()
