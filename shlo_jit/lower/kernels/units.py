"""Kernels over units of work, `void @name(ptr buffers..., i64 first, i64 last)`, called for all units or as tasks."""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.services import Services
from shlo_jit.schedule.tasks import Tasks

Write = Callable[[Builder, list[V], V, V], None]
"""Emits the body of a kernel: builder, addresses of the buffers, the first unit and the one after the last."""


def run_units(low: Services, hint: str, pointers: list[V], write: Write, tasks: Tasks) -> None:
    """Writes a kernel and calls it over its units, as the tasks say."""
    if tasks.units > 0:
        name, pointers = write_units(low, hint, pointers, write, tasks.units if tasks.is_one else 0)
        low.run_units(name, pointers, tasks)


def write_units(low: Services, hint: str, pointers: list[V], write: Write, all_of: int = 0) -> tuple[str, list[V]]:
    """Writes a kernel. Returns its name, and the addresses that it takes. `all_of` is the number of units if each call
    has all of them; otherwise 0."""
    params = [("ptr", f"p{i}") for i in range(len(pointers))]
    if low.is_symbolic:
        params.append(("ptr", "dims"))
        pointers = [*pointers, low.scope.dims]
    params += [("i64", "first"), ("i64", "last")]
    name = low.new_name(hint)
    b = low.module.function(name, params, noalias=True, attributes="nounwind")
    first, last = (i64(0), i64(all_of)) if all_of else b.params[-2:]
    write(b, [p for p in b.params[:-2] if p is not b.dims], first, last)
    b.ret()
    return low.share(hint, name), pointers
