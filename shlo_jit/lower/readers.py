"""Readers of a program's arguments in a grid, which determine where the arguments must be in memory."""

from __future__ import annotations

from collections.abc import Iterator

from shlo_jit.codegen.program import Reader
from shlo_jit.fuse.plan import OpStep, Step, ViewStep, all_steps
from shlo_jit.ir.core import Value
from shlo_jit.lower.planned import PlannedFunction
from shlo_jit.ops.known_calls import function_of_call
from shlo_jit.schedule.collective import CollectiveSchedule, data_operands


def readers_of(entry: PlannedFunction) -> tuple[Reader, ...]:
    """For each argument of the entry function, its readers."""
    storages = entry.memory.storage
    found = [Reader.NOBODY] * len(entry.arguments)
    for value, reader in _reads(entry):
        storage = storages.get(value)
        if storage is not None and storage.kind == "argument":
            found[storage.number] = min(found[storage.number], reader)
    return tuple(found)


def _reads(entry: PlannedFunction) -> Iterator[tuple[Value, Reader]]:
    for copies in (*entry.memory.before.values(), *entry.memory.block_end.values()):
        yield from ((copy.source, Reader.RANK) for copy in copies)
    for step in all_steps(entry.plan):
        if not isinstance(step, ViewStep):
            yield from ((value, _reader(entry, step, value)) for value in (*step.reads, *step.writes))


def _reader(entry: PlannedFunction, step: Step, value: Value) -> Reader:
    """The readers of a value in a step."""
    if not isinstance(step, OpStep):
        return Reader.RANK
    if function_of_call(step.op) is not None:  # whatever the function does with it
        return Reader.OTHERS
    schedule = entry.schedule[step]
    if not isinstance(schedule, CollectiveSchedule) or value not in data_operands(step.op):
        return Reader.RANK
    if schedule.inline.value or schedule.kind == "send":  # the rank posts a copy
        return Reader.RANK
    return Reader.NOBODY if schedule.fetches else Reader.OTHERS
