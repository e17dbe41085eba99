"""Kernels as functions over units of work: `void @name(ptr buffers..., i64 first, i64 last)`, called whole or as tasks.

The cut into tasks depends on shapes alone, so results are the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shlo_jit.fuse.costs import cost
from shlo_jit.ir.core import Block
from shlo_jit.kernels.builder import Builder, V, i64
from shlo_jit.schedule.nest import MAX_TASKS, PARALLEL_WORK, TASK_WORK

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering

Write = Callable[[Builder, list[V], V, V], None]
"""Writes the body of a kernel: the builder, the buffers' addresses, the first unit and the one after the last."""


def run_units(low: ProgramLowering, hint: str, pointers: list[V], write: Write, units: int, work: int) -> None:
    """Write a kernel and call it over `units`, as tasks where `work` (element operations in all) pays for them."""
    if units <= 0:
        return
    params = [("ptr", f"p{i}") for i in range(len(pointers))] + [("i64", "first"), ("i64", "last")]
    name = low.new_name(hint)
    b = low.module.function(name, params, noalias=True, attributes="nounwind")
    tasks = 1 if work < PARALLEL_WORK else min(MAX_TASKS, units, work // TASK_WORK)
    first, last = b.params[-2:] if tasks > 1 else (i64(0), i64(units))
    write(b, b.params[:-2], first, last)
    b.ret()
    name = low.share(hint, name)
    if tasks == 1:
        low.b.call("void", name, [*pointers, i64(0), i64(units)], declare=False)
        return
    grain = -(-units // tasks)
    low.parallel(low.task_of(name, len(pointers), units, grain), pointers, -(-units // grain))


def body_cost(block: Block) -> int:
    """Rough element operations of a region."""
    return sum(cost(op) for op in block.ops if not op.name.endswith(".return")) + 1
