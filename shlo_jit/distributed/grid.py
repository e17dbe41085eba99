"""How many processes a program is for, found out at little cost: most are for one."""

from __future__ import annotations

from shlo_jit import pipeline
from shlo_jit.ir.core import walk
from shlo_jit.sources import ProgramSource, Text

MARKS = ("sdy.manual_computation", "SPMDFullToShardShape", "SPMDShardToFullShape")
"""What programs on global arrays have somewhere in their texts."""


def wanted_grid(source: ProgramSource, given: tuple[int | None, int | None]) -> tuple[int, int]:
    """Replicas and partitions: those asked for, or of a program on global arrays those that its module says. Raises
    StableHLOError for a module that says nonsense."""
    if given == (None, None) and _may_be_global(source):
        from shlo_jit.distributed.global_arrays import grid_of

        return grid_of(pipeline.parsed(source))
    return given[0] or 1, given[1] or 1


def _may_be_global(source: ProgramSource) -> bool:
    if isinstance(source, Text):
        return any(mark in source.text for mark in MARKS)
    from shlo_jit.distributed.manual import is_manual

    module = pipeline.parsed(source)
    return any(is_manual(op) for f in module.functions() if f.regions for op in walk(f.block()))
