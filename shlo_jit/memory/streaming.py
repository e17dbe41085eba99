"""The final decision on streaming stores: memory planning shows which large results are aligned to cache lines."""

from __future__ import annotations

from dataclasses import replace

from shlo_jit.fuse.nest import Nest
from shlo_jit.ir.core import Value
from shlo_jit.memory.storage import MemoryPlan
from shlo_jit.schedule.schedule import Schedule

ALIGNED = ("arena", "result")
"""Kinds of memory that are aligned to a cache line if they are large; see `codegen/abi.py`."""


def with_streams(schedule: Schedule, memory: MemoryPlan) -> Schedule:
    """Returns the schedule with streaming stores only to targets whose memory is aligned, and that the nest does not
    read. Others get the reason."""

    def allowed(nest: Nest, target: Value) -> bool:
        storage = memory.storage.get(target)
        is_read = any(value is target for value, _ in nest.loads)
        return storage is not None and storage.kind in ALIGNED and not is_read

    steps = {key: found.streaming_where(allowed) for key, found in schedule.steps.items()}
    return replace(schedule, steps=steps)
