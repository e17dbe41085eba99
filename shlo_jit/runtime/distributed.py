"""A program that runs in several processes, as one callable object."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from shlo_jit.codegen.program import Port, Reader
from shlo_jit.errors import ExecutionError, at_place
from shlo_jit.runtime import pool
from shlo_jit.runtime.arguments import arranged, check_count, convert
from shlo_jit.runtime.cpus import usable_cpus
from shlo_jit.runtime.front import Signature
from shlo_jit.runtime.host import Channel, Host, Infeed, Outfeed
from shlo_jit.runtime.layout import data_address
from shlo_jit.runtime.measured import ProfileMemory
from shlo_jit.runtime.replacing import check_replaceable, replacing
from shlo_jit.runtime.trace_events import ProcessEvents, Recording, write_trace
from shlo_jit.runtime.transport.layout import RankLayout
from shlo_jit.runtime.transport.mpi import Mpi
from shlo_jit.runtime.transport.processes import Processes
from shlo_jit.runtime.transport.team import Crew, Team
from shlo_jit.runtime.transport.threads import Threads

if TYPE_CHECKING:
    from shlo_jit.lower.planned import PlannedFunction

KEPT_FROM_BYTES = 16 << 10
"""Minimum size of results that stay in shared memory; smaller ones are copied."""
COPIED_TOGETHER_BYTES = 128 << 10
"""Minimum size of arguments that several threads copy."""
TRANSPORTS: dict[str, Callable[[Crew], Team]] = {"processes": Processes, "threads": Threads, "mpi": Mpi}


class Process(NamedTuple):
    """One process of a grid, and the queues between it and this one."""

    rank: int
    replica_id: int
    partition_id: int
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]
    host: Host

    @property
    def infeed(self) -> Infeed:
        """Queue of its infeeds: `exe.processes[0].infeed.put(x)`; see `runtime/host.py`."""
        return self.host.infeed

    @property
    def outfeed(self) -> Outfeed:
        """Queue of its outfeeds."""
        return self.host.outfeed

    def channel(self, handle: int) -> Channel:
        """Returns the channel of its host transfers with that handle."""
        return self.host.channel(handle)


class Remakes(NamedTuple):
    """Functions that compile an executable's programs again: it does not keep them."""

    texts: Callable[[int], Mapping[str, Callable[[], str]]]
    """Returns the texts of a rank: for each name of a stage, a function that returns the program's text there."""
    timed: Callable[[], Crew]
    """Builds the programs that record when their steps run."""
    planned: Callable[[int], list[PlannedFunction]]
    """Returns all decisions on a rank's program before lowering, callees first."""


class DistributedExecutable:
    """A compiled program for a grid of processes. Call it with a sequence that has the arguments of each process, in
    the order of their numbers (replica_id * num_partitions + partition_id). It returns a list with the results of each
    process. A program on global arrays is called with those arrays, like any other executable.

    Use it in a `with`, or `close` it to end its processes; otherwise, they end with the last reference to it. Calls run
    one at a time. After a WorkerError there are no processes any more, and every call says so; compile the program
    again.
    """

    def __init__(
        self,
        crew: Crew,
        transport: str,
        grid: tuple[int, int],
        arrays: GlobalArrays | None = None,
        remakes: Remakes | None = None,
    ) -> None:
        """Raises as the transport's class."""
        self.transport = transport
        self.num_replicas, self.num_partitions = grid
        self._crew, self._arrays = crew, arrays
        self._remakes = remakes
        self._use(team := TRANSPORTS[transport](crew))
        self.processes = tuple(
            Process(r, *divmod(r, grid[1]), tuple(map(signature, p.inputs)), tuple(map(signature, p.outputs)), host)
            for r, (p, host) in enumerate(zip(crew.programs, crew.hosts, strict=True))
        )
        self._finalizer = weakref.finalize(self, team.close)

    def _use(self, team: Team) -> None:
        """Makes a team run the calls from now on."""
        self._team = team
        self._ranks = [
            _RankFront(team, rank, program.inputs, program.outputs, program.output_aliases)
            for rank, program in enumerate(team.crew.programs)
        ]

    def trace(self, path: str | os.PathLike[str]) -> DistributedTrace:
        """Traces when each step ran in each process, to a file for trace viewers: `with exe.trace("t.json"):` and
        calls. They run a variant of the programs, in separate processes. See `runtime/trace.py`. With `mpi`, each
        process writes a file of its own steps."""
        return DistributedTrace(self, path)

    def text(self, stage: str, rank: int = 0) -> str:
        """Returns the program of a process at a stage of its compilation: one of `shlo_jit.stages.STAGES`. Raises
        ValueError for another name or rank."""
        texts = self._remakes_of(rank).texts(rank)
        if not isinstance(stage, str) or stage not in texts:
            raise ValueError(f"unknown stage {stage!r}: expected one of {', '.join(texts)}")
        return texts[stage]()

    def planned(self, rank: int = 0) -> list[PlannedFunction]:
        """Returns all decisions on a process's program, callees first. Raises ValueError for another rank."""
        return self._remakes_of(rank).planned(rank)

    def cost_analysis(self, rank: int = 0, *, per_step: bool = False) -> Any:
        """Returns the computations and memory traffic of a process in a call, without communication; see
        `Executable.cost_analysis`."""
        from shlo_jit.lower.costs import cost_analysis, step_analysis

        return (step_analysis if per_step else cost_analysis)(self.planned(rank))

    def _remakes_of(self, rank: int) -> Remakes:
        if self._remakes is None:
            raise ValueError("only programs that were compiled from StableHLO here have texts")
        if not isinstance(rank, int) or not 0 <= rank < len(self.processes):
            raise ValueError(f"rank: expected 0 to {len(self.processes) - 1}, got {rank!r}")
        return self._remakes

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers; empty for a transport without workers."""
        return self._team.pids if isinstance(self._team, Processes) else ()

    @property
    def is_global(self) -> bool:
        """Whether it is called with global arrays."""
        return self._arrays is not None

    @property
    def inputs(self) -> tuple[Signature, ...]:
        """Arguments of each process, or of a program on global arrays. If programs differ, these are the first
        one's."""
        return self.processes[0].inputs if self._arrays is None else self._arrays.inputs

    @property
    def outputs(self) -> tuple[Signature, ...]:
        """Results of each process, or of a program on global arrays. If programs differ, these are the first one's."""
        return self.processes[0].outputs if self._arrays is None else self._arrays.outputs

    @property
    def threads(self) -> int:
        """Maximum number of threads of each process."""
        return self._crew.threads

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Runs the program. Raises TypeError or ValueError for arguments that do not fit, WorkerError if a process
        fails (its subclass WorkerTimeoutError if one makes no progress), and ExecutionError if one has failed before.
        """
        if self._arrays is not None:
            return self._arrays.joined(self._run(self._arrays.split(arguments, named)))
        if named or len(arguments) != 1 or not isinstance(arguments[0], Sequence):
            n = len(self.processes)
            how = "exe([(x0,), (x1,), ...])"
            raise TypeError(f"expected one sequence with the arguments of each of {n} processes: {how}")
        if len(arguments[0]) != len(self.processes):
            raise TypeError(
                f"expected the arguments of each of {len(self.processes)} processes, got {len(arguments[0])}"
            )
        return self._run([front.converted(given) for front, given in zip(self._ranks, arguments[0], strict=True)])

    def local(self, *arguments: Any, **named: Any) -> Any:
        """Runs a call with the arguments of this process and returns its results, while all others do the same. Only
        for the transport `mpi`. No data are exchanged beyond those that the program exchanges. Raises ExecutionError
        with other transports, and else as a call."""
        team = self._team
        if not isinstance(team, Mpi):
            how = "every process of mpi has arguments of its own; here, call the executable with those of all"
            raise ExecutionError(f"local: the transport is {self.transport}: {how}")
        front = self._ranks[team.number]
        given = front.converted(arranged(arguments, named, front.inputs) if named else arguments)
        return self._run({team.number: given}, team.run_alone)[0]

    def _run(
        self, arrays: Sequence[list[np.ndarray]] | dict[int, list[np.ndarray]], alone: Callable[..., None] | None = None
    ) -> list[Any]:
        """Runs a call with valid arrays, by rank. `alone` runs it for the ranks of this process only."""
        team, ranks = self._team, [self._ranks[rank] for rank in self._team.here]
        if not team.lock.acquire(blocking=False):
            raise ExecutionError("another thread is in a call; calls of several processes run one at a time")
        try:
            team.check()
            copies: list[Copy] = []
            results = [front.prepare(arrays[front.rank], copies) for front in ranks]
            if copies:
                team.board.copy(copies, usable_cpus())
            (alone or team.run)((arrays, results))
            made = [front.finish(result) for front, result in zip(ranks, results, strict=True)]
            made = made if alone else team.gathered(made)
            return [out[0] if len(out) == 1 else tuple(out) for out in made]
        finally:
            team.lock.release()

    def close(self) -> None:
        """Ends the processes. May be called again; a call that another thread is in raises ExecutionError."""
        self._finalizer()

    def __enter__(self) -> DistributedExecutable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """Returns the representation in notebooks, drawn by a package above this one."""
        return import_module("shlo_jit.pictures.summary").distributed_html(self)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, ports)) for ports in (self.inputs, self.outputs))
        grid = f"{self.num_replicas} x {self.num_partitions} {self.transport}"
        return f"<DistributedExecutable of {grid} ({inputs}) -> ({outputs})>"


class DistributedTrace:
    """A context in which calls of an executable are traced; the file is written at the end. Entering it raises OSError
    if the file cannot be written, leaving it raises ValueError if no call was made."""

    def __init__(self, exe: DistributedExecutable, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._exe = exe

    def __enter__(self) -> DistributedTrace:
        check_replaceable(self.path)
        exe = self._exe
        if exe._remakes is None:
            raise ValueError("only programs that were compiled from StableHLO here can be traced")
        self._ordinary_team = exe._team
        team = TRANSPORTS[exe.transport](exe._remakes.timed())
        self._close = weakref.finalize(exe, team.close)
        exe._use(team)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        team = self._exe._team
        processes = [_events_of(team, rank) for rank in team.here]
        self._exe._use(self._ordinary_team)
        self._close()
        if any(process.noted for process in processes):
            with replacing(self.path) as made:
                write_trace(made, processes)
        elif kind is None:
            raise ValueError(f"nothing to write to {self.path}: no call of the program ended inside the `with`")


def _events_of(team: Team, rank: int) -> ProcessEvents:
    """Returns the events that a rank has recorded."""
    at, steps, room = team.layout.ranks[rank].profile
    noted = ProfileMemory(steps, room, team.memory.view(*at), is_own=False)
    recording = Recording("", team.crew.programs[rank].timed, noted.events, noted.missed)
    return ProcessEvents(rank, f"rank {rank}", [recording])


class GlobalArrays(Protocol):
    """Partition of the arguments and results of a program on global arrays over its processes."""

    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]

    def split(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[list[np.ndarray]]:
        """Returns the arrays of each process, with any strides. Raises TypeError and ValueError for arguments that do
        not fit."""
        ...

    def joined(self, results: list[Any]) -> Any:
        """Returns the global results."""
        ...


Copy = tuple[int, int, int]
"""Destination address, source address and size in bytes."""


class _Result(NamedTuple):
    """Memory of a result."""

    array: np.ndarray
    is_borrowed: bool
    """Whether the memory is the rank's own, and valid for this call only."""


class _RankFront:
    """Moves arrays to and from the memory of one rank."""

    def __init__(self, team: Team, rank: int, inputs: Sequence[Port], outputs: Sequence[Port], aliases: Any) -> None:
        self.rank, self.inputs, self.outputs = rank, inputs, outputs
        self._aliases: dict[int, int] = dict(aliases)
        self._layout: RankLayout = team.layout.ranks[rank]
        self._memory = team.memory
        self._base = team.memory.address
        self._kept = team.kept
        self._donated = {*aliases.values(), *team.crew.programs[rank].overwritten}
        self._not_shared = _not_shared(team, rank)
        self._input_buffers = [self._view(b.offset, p) for b, p in zip(self._layout.inputs, inputs, strict=True)]
        self._borrowed = [self._view(b.offset, p) for b, p in zip(self._layout.outputs, outputs, strict=True)]
        """Arrays over the rank's own memory for arguments and results."""
        self._tables = [
            (ctypes.c_int64 * len(ports)).from_address(self._base + table.offset)
            for ports, table in ((inputs, self._layout.input_table), (outputs, self._layout.output_table))
        ]

    def converted(self, given: Any) -> list[np.ndarray]:
        """Returns the arrays of a call, checked."""
        if not isinstance(given, Sequence):
            raise TypeError(f"rank {self.rank}: expected a sequence of arguments, got {type(given).__name__}")
        try:
            check_count(len(given), self.inputs)
            return [convert(value, i, port) for i, (value, port) in enumerate(zip(given, self.inputs, strict=True))]
        except (TypeError, ValueError) as error:
            raise at_place(error, f"rank {self.rank}") from None

    def prepare(self, arrays: list[np.ndarray], copies: list[Copy]) -> list[_Result]:
        """Puts arguments into the rank's memory, or appends the copies that do so to `copies`, and creates arrays for
        its results. `arrays` must live until the call has ended."""
        inputs, outputs = self._tables
        for i, array in enumerate(arrays):
            inputs[i] = self._place(i, array, copies)
        made = []
        for i, port in enumerate(self.outputs):
            result = self._result(i, port)
            outputs[i] = data_address(result.array) - self._base
            made.append(result)
        return made

    def finish(self, made: list[_Result]) -> list[np.ndarray]:
        """Returns the results of a successful call."""
        return [r.array.copy() if r.is_borrowed else r.array for r in made]

    def _place(self, i: int, array: np.ndarray, copies: list[Copy]) -> int:
        """Returns the offset at which the rank finds an argument."""
        if array.flags.c_contiguous:
            address = data_address(array)
            if i not in self._donated and (self._kept is None or i in self._not_shared or address in self._memory):
                return address - self._base
            if array.nbytes >= COPIED_TOGETHER_BYTES:
                copies.append((data_address(self._input_buffers[i]), address, array.nbytes))
                return self._layout.inputs[i].offset
        self._input_buffers[i][...] = array
        return self._layout.inputs[i].offset

    def _result(self, i: int, port: Port) -> _Result:
        dtype = port.dtype.numpy
        if i in self._aliases:
            return _Result(self._view(self._layout.inputs[self._aliases[i]].offset, port), True)
        if self._kept is None:
            return _Result(pool.empty(port.shape, dtype, port.nbytes), False)
        lease = self._kept.lease(port.nbytes) if port.nbytes >= KEPT_FROM_BYTES else None
        if lease is None:
            return _Result(self._borrowed[i], True)
        return _Result(np.ndarray(port.shape, dtype, lease), False)  # type: ignore[arg-type]  ctypes arrays are buffers

    def _view(self, offset: int, port: Port) -> np.ndarray:
        """Returns memory of the rank as an array, for this call."""
        memory = (ctypes.c_char * max(1, port.nbytes)).from_address(self._base + offset)
        return np.ndarray(port.shape, port.dtype.numpy, memory)  # type: ignore[arg-type]


def _not_shared(team: Team, rank: int) -> set[int]:
    """Returns the arguments of a rank that need not be in shared memory, since their readers fetch them."""
    if not team.can_fetch:
        return set()
    enough = Reader.RANK if rank == team.number else Reader.NOBODY
    return {i for i, reader in enumerate(team.crew.programs[rank].readers) if reader >= enough}


def signature(port: Port) -> Signature:
    """Returns the signature of a port, as users see it."""
    return Signature(port.name, port.shape, port.dtype.numpy)
