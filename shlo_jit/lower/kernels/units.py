"""Kernels over units of work: `void @name(ptr buffers..., i64 first, i64 last)`, called whole or as tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shlo_jit.kernels.builder import Builder, V, i64
from shlo_jit.schedule.tasks import Tasks

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering

Write = Callable[[Builder, list[V], V, V], None]
"""Writes the body of a kernel: the builder, the buffers' addresses, the first unit and the one after the last."""


def run_units(low: ProgramLowering, hint: str, pointers: list[V], write: Write, tasks: Tasks) -> None:
    """Write a kernel and call it over its units, as the tasks say."""
    units = tasks.units
    if units <= 0:
        return
    params = [("ptr", f"p{i}") for i in range(len(pointers))]
    if low.is_symbolic:
        params.append(("ptr", "dims"))
        pointers = [*pointers, low.scope.dims]
    params += [("i64", "first"), ("i64", "last")]
    name = low.new_name(hint)
    b = low.module.function(name, params, noalias=True, attributes="nounwind")
    first, last = b.params[-2:] if not tasks.is_one else (i64(0), i64(units))
    write(b, [p for p in b.params[:-2] if p is not b.dims], first, last)
    b.ret()
    name = low.share(hint, name)
    low.run_units(name, pointers, tasks)
