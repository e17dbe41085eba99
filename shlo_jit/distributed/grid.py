"""How many processes a program is for, found out at little cost: most are for one."""

from __future__ import annotations

from shlo_jit import pipeline
from shlo_jit.sources import Artifact, ProgramSource, Text

MARKS = ("sdy.manual_computation", "SPMDFullToShardShape", "SPMDShardToFullShape")
"""What programs on global arrays have somewhere in their texts."""


def wanted_grid(source: ProgramSource, given: tuple[int | None, int | None], partitions: int = 1) -> tuple[int, int]:
    """Replicas and partitions: those asked for, or of a program on global arrays those that its module says, or so many
    partitions. Raises StableHLOError for a module that says nonsense."""
    if given == (None, None) and _may_be_global(source):
        from shlo_jit.distributed.global_arrays import grid_of

        return grid_of(pipeline.parsed(source))
    return given[0] or 1, given[1] or (partitions if given[0] is None else 1)


def mpi_processes() -> int:
    """How many mpiexec has started. Raises as `runtime.transport.world.world`."""
    from shlo_jit.runtime.transport.world import world

    return world().size


def _may_be_global(source: ProgramSource) -> bool:
    if isinstance(source, Text):
        return any(mark in source.text for mark in MARKS)
    if isinstance(source, Artifact):  # where an op's name stands without its dialect
        return any(mark.removeprefix("sdy.").encode() in source.rest for mark in MARKS)
    from shlo_jit.distributed.manual import is_manual
    from shlo_jit.ir.core import walk

    module = pipeline.parsed(source)
    return any(is_manual(op) for f in module.functions() if f.regions for op in walk(f.block()))
