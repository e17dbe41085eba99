"""Programs that run in several processes, callable with arrays like other programs.

A program on global arrays takes and returns global arrays. For any other program, each input and result has an
additional first dimension, along the processes in the order of their numbers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from shlo_jit.runtime.distributed import DistributedExecutable
    from shlo_jit.runtime.front import Signature

MPI = "mpi"


class Grid(NamedTuple):
    """The options about processes."""

    processes: int | None = None
    transport: str | None = None

    @property
    def is_mpi(self) -> bool:
        return self.transport == MPI

    @property
    def prints(self) -> bool:
        """Whether this process prints: under mpiexec only the first does."""
        from shlo_jit.runtime.transport.world import world

        return not self.is_mpi or world().rank == 0


def grid_of(processes: int | None, transport: str | None) -> Grid:
    """Returns the grid. Without options, a command that mpiexec has started uses MPI."""
    if transport is None:
        from shlo_jit.runtime.transport.world import started_by_mpi

        said = os.environ.get("SHLO_JIT_TRANSPORT", "").strip()
        transport = MPI if said == MPI or (not said and started_by_mpi()) else None
    return Grid(processes, transport)


@contextlib.contextmanager
def quiet_unless(prints: bool) -> Iterator[None]:
    """Suppresses output of this process."""
    if prints:
        yield
        return
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


class Several:
    """A program in several processes."""

    def __init__(self, executable: DistributedExecutable) -> None:
        self.executable = executable
        self.is_global = executable.is_global
        self.processes = len(executable.processes)
        self.threads = executable.threads

    @property
    def inputs(self) -> tuple[Signature, ...]:
        found = self.executable.inputs
        return found if self.is_global else tuple(s._replace(shape=(self.processes, *s.shape)) for s in found)

    def trace(self, path: Path) -> Any:
        return self.executable.trace(path)

    def __call__(self, *arguments: Any) -> Any:
        import numpy as np

        if self.is_global:
            return self.executable(*arguments)
        results = self.executable([tuple(array[rank] for array in arguments) for rank in range(self.processes)])
        rows = [made if isinstance(made, tuple) else (made,) for made in results]
        return tuple(map(np.stack, zip(*rows, strict=True)))

    def __str__(self) -> str:
        exe = self.executable
        return f"{self.processes}: {exe.num_replicas} replica(s) x {exe.num_partitions} partition(s), {exe.transport}"
