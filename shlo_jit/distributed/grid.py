"""Cheap detection of the number of processes that a program is for. Most programs are for one."""

from __future__ import annotations

from shlo_jit import pipeline
from shlo_jit.sources import Artifact, ProgramSource, Text

MARKS = ("sdy.manual_computation", "SPMDFullToShardShape", "SPMDShardToFullShape")
"""Marks in the text of programs on global arrays."""


def wanted_grid(source: ProgramSource, given: tuple[int | None, int | None], partitions: int = 1) -> tuple[int, int]:
    """Returns replicas and partitions: the requested ones, else, for a program on global arrays, those that its module
    names. Otherwise returns 1 replica and `partitions`. Raises StableHLOError if the module's numbers are invalid."""
    if given == (None, None) and _may_be_global(source):
        from shlo_jit.distributed.global_arrays import grid_of

        return grid_of(pipeline.parsed(source))
    return given[0] or 1, given[1] or (partitions if given[0] is None else 1)


def mpi_processes() -> int:
    """Returns the number of processes that mpiexec started. Raises as `runtime.transport.world.world`."""
    from shlo_jit.runtime.transport.world import world

    return world().size


def _may_be_global(source: ProgramSource) -> bool:
    if isinstance(source, Text):
        return any(mark in source.text for mark in MARKS)
    if isinstance(source, Artifact):  # names of ops have no dialect there
        return any(mark.removeprefix("sdy.").encode() in source.rest for mark in MARKS)
    from shlo_jit.distributed.manual import is_manual
    from shlo_jit.ir.core import walk

    module = pipeline.parsed(source)
    return any(is_manual(op) for f in module.functions() if f.regions for op in walk(f.block()))
