"""Lowers a step that is a nest: its kernel, and the calls of that for all units."""

from __future__ import annotations

from functools import partial

from shlo_jit.fuse.plan import NestStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.nest.nest import NestLowering, check_supported
from shlo_jit.lower.services import Services
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.sizes import equal


def lower_nest(low: Services, step: NestStep, schedule: NestSchedule) -> None:
    """Writes the kernel of a nest, and runs its units. A nest without elements writes nothing."""
    if any(equal(s.target.tensor.size, 0) for s in step.nest.stores) and equal(step.nest.rows, 0):
        return
    if equal(schedule.tasks.units, 0):
        return
    writer, hint = NestLowering(schedule), step.hint
    name, pointers, buffers = nest_kernel(low, step, schedule)
    if schedule.scalar_table is not None:
        scalars = low.new_name(hint)
        writer.write_scalars(low.module, scalars, buffers)
        low.b.call("void", low.share(hint, scalars), [*pointers, i64(0), i64(1)], declare=False)
    low.run_units(name, pointers, schedule.tasks)
    if schedule.split is not None:
        name = low.new_name(hint)
        writer.write_finish(low.module, name, buffers)
        finish = partial(low.b.call, "void", low.share(hint, name), [*pointers, i64(0), i64(1)], declare=False)
        low.after_tasks(finish)


def nest_kernel(
    low: Services, step: NestStep, schedule: NestSchedule
) -> tuple[str, list[V], list[tuple[str, list[Value]]]]:
    """Writes the function of a nest's units. Returns its name, the addresses that it takes, and the values in each."""
    check_supported(step.nest)
    groups: dict[int, list[Value]] = {}
    values = dict.fromkeys([*(k[0] for k in step.nest.loads), *(s.target for s in step.nest.stores)])
    for v in values:
        groups.setdefault(id(low.memory.storage[v]), []).append(v)
    buffers = [(f"p{i}", vs) for i, vs in enumerate(groups.values())]
    pointers = [low.pointer(vs[0]) for _, vs in buffers]
    if low.is_symbolic:
        buffers.append(("dims", []))
        pointers.append(low.scope.dims)
    if schedule.scratch.shared:
        buffers.append(("scratch", []))
        pointers.append(low.scratch(step))
    hint = step.hint
    name = low.new_name(hint)
    NestLowering(schedule).write(low.module, name, buffers)
    return low.share(hint, name), pointers, buffers
