"""A rank: one program of a grid, loaded, with the state it needs to run and to communicate."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from shlo_jit.codegen import abi, jit
from shlo_jit.codegen.jit import Library
from shlo_jit.codegen.objects import Compiled, CompiledRoutine
from shlo_jit.kernels.collective import board
from shlo_jit.kernels.collective.grid_calls import THIS_RANK, WORKER
from shlo_jit.kernels.collective.waiting import HOST_PAUSE
from shlo_jit.kernels.target import Target
from shlo_jit.runtime import lapack, routines
from shlo_jit.runtime.host import Host
from shlo_jit.runtime.instance import Instance
from shlo_jit.runtime.layout import data_address
from shlo_jit.runtime.loaded import Loaded
from shlo_jit.runtime.measured import ProfileMemory
from shlo_jit.runtime.transport.layout import RankLayout

Record = ctypes.c_uint64


class Place(NamedTuple):
    """Place of a rank in its grid. Addresses are of this process."""

    rank: int
    ranks: int
    board: int
    base: int
    """Base address of the memory that the ranks share; 0 if they share all memory."""
    lanes: tuple[int, ...]
    """The lane of each of its program's channels, in order."""
    lane_count: int
    threads: int
    patience: tuple[int, int]
    """Number of polls before it sleeps, and the interval of those at which it yields: see
    `kernels/collective/waiting.py`."""
    time_out: float
    """Seconds without progress after which a rank that is waited for counts as lost."""
    reach: int = -1
    """Bytes from the base on that the rank can access, if others can post more: see
    `kernels/collective/fetching.py`."""
    caller: tuple[int, int] = (0, 0)
    """Calling process and its base address, if `reach` is given."""


class Rank:
    """A rank. It is created in the process, or the thread, that runs it."""

    def __init__(
        self,
        compiled: Compiled,
        target: Target,
        code: CompiledRoutine,
        place: Place,
        layout: RankLayout,
        custom_calls: Mapping[str, Any] | None = None,
        host: Host | None = None,
        memory: object = None,
        own: Library | None = None,
        messages: Mapping[str, int] | None = None,
    ) -> None:
        """`code` is that of `kernels/collective/routine.py`; `memory` must live as long as the rank; `own` has the
        functions of `runtime/signals.py`, if a user's thread runs it; `messages` replaces functions of
        `kernels/collective/messages.py`. Raises ExecutionError if a custom call is not registered."""
        self._memory = memory
        self._library = load_code(code, target)
        functions = self._library.addresses
        self.communicator = _Communicator(place, {**functions, **(messages or {})}, len(compiled.sites))
        ctypes.c_void_p.from_address(functions[THIS_RANK.text[1:]]).value = self.communicator.address
        calls = {"shlo_pause": functions["shlo_get_on"], "shlo_call": 0}
        if own is not None:
            calls["shlo_call"] = own.addresses["shlo_call"]
            pause = ctypes.c_void_p.from_address(functions[HOST_PAUSE.text[1:]])
            pause.value = own.addresses["shlo_pause"]
        self._instance = _instance(compiled, target, place, calls, self.communicator, custom_calls, host)
        self._arena = place.base + layout.arena.offset
        if layout.profile.steps:
            at, steps, room = layout.profile
            noted = np.ctypeslib.as_array((ctypes.c_uint8 * at.nbytes).from_address(place.base + at.offset))
            self._instance.note_times(ProfileMemory(steps, room, noted))
        self._begin = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(functions["shlo_begin"])
        self._stop_all = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(functions["shlo_stop_all"])
        self._read_caller = functions["shlo_read_caller"]
        self._serve = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(functions["shlo_serve"])
        self._end_call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(functions["shlo_end_call"])
        self._record = self._make_record(compiled, place, layout)

    def _make_record(self, compiled: Compiled, place: Place, layout: RankLayout) -> ctypes.Array[Any]:
        self._tables = [(ctypes.c_void_p * max(1, len(ports)))() for ports in (compiled.inputs, compiled.outputs)]
        base, communicator = place.base, self.communicator
        fields = {
            "main": self._instance.loaded.entry,
            "instance": self._instance.address,
            "arena": self._arena,
            "communicator": communicator.address,
            "inputs": len(compiled.inputs),
            "outputs": len(compiled.outputs),
            "input_offsets": base + layout.input_table.offset,
            "output_offsets": base + layout.output_table.offset,
            "arguments": ctypes.addressof(self._tables[0]),
            "results": ctypes.addressof(self._tables[1]),
            "seen": ctypes.c_uint32.from_address(place.board + board.CALL).value,
            "per_call": communicator.per_call_address,
            "per_call_bytes": communicator.per_call_bytes,
        }
        return (Record * len(WORKER))(*(fields[name] for name in WORKER))

    def can_fetch(self, address: int, expected: int) -> bool:
        """Whether the rank can read the memory of the calling process: an i64 at an address, whose value is known."""
        found = ctypes.c_int64()
        read = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3, ctypes.c_int64)(self._read_caller)
        return bool(read(self.communicator.address, ctypes.addressof(found), address, 8)) and found.value == expected

    def serve(self) -> int:
        """Runs the program at every call. Returns 0 when the host ends the rank, or the status of a failed call. After
        a failure, `failure` returns the reason and `end_call` must be called. Runs without the GIL."""
        return self._serve(ctypes.addressof(self._record))

    def run(self) -> int:
        """Runs the program once, for a call that has begun. Returns the status. `end_call` must be called afterwards.
        Runs without the GIL; raises the exception of a signal handler."""
        self.begin()
        arguments, results = self._tables
        return self._instance.run_in(self._arena, arguments, results, self._instance.address)

    def begin(self) -> None:
        """Joins a call that the host has begun."""
        self._begin(ctypes.addressof(self._record))

    def stop_all(self, status: int) -> None:
        """Asks all ranks to stop."""
        self._stop_all(self.communicator.address, status)

    def failure(self, status: int) -> BaseException:
        """Returns the reason why this thread's last call stopped."""
        return self._instance.failure(status)

    @property
    def failed_call(self) -> int:
        """The number of the custom call that stopped it."""
        return self._instance.failed_call()

    def end_call(self, status: int) -> None:
        """Ends the call that failed."""
        self._end_call(ctypes.addressof(self._record), status)


class _Communicator:
    """The record that the program's instance refers to, and the memory that the record refers to."""

    def __init__(self, place: Place, functions: Mapping[str, int], sites: int) -> None:
        counters = 8 * place.lane_count * place.ranks
        ring = place.lane_count * board.RING * board.entry_bytes(place.ranks)
        parts = {"sent": counters, "received": counters, "posted": 8 * place.lane_count, "ring": ring}
        parts |= {"tickets": 8 * max(1, sites), "unread": 8}
        self.per_call_bytes = sum(parts.values())
        self._memory = np.zeros(self.per_call_bytes + 64, np.uint8)
        self.per_call_address = start = -(-data_address(self._memory) // 64) * 64
        self._lanes = (ctypes.c_int64 * (1 + len(place.lanes)))(0, *place.lanes)
        starts = accumulate(parts.values(), initial=start)
        mail = place.board + board.mail_offset(place.ranks, place.lane_count)
        fields = {
            **{name: functions[f"shlo_{name}"] for name in ("post", "meet", "leave", "fetch")},
            "board": place.board,
            "rings": place.board + board.rings_offset(place.ranks),
            "mail": mail,
            "read": mail + board.mail_bytes(place.ranks, place.lane_count),
            "base": place.base,
            "rank": place.rank,
            "ranks": place.ranks,
            "lanes": ctypes.addressof(self._lanes),
            "reach": place.reach % (1 << 64),
            "caller": place.caller[0],
            "caller_base": place.caller[1],
            "tag": 0,
            "time_out": int(place.time_out * 1e9),
            "spins": place.patience[0],
            "yields": place.patience[1],
            **dict(zip(parts, starts, strict=False)),
        }
        self.record = (Record * len(board.COMMUNICATOR))(*(fields[name] for name in board.COMMUNICATOR))
        self.address = ctypes.addressof(self.record)


def _instance(
    compiled: Compiled,
    target: Target,
    place: Place,
    calls: Mapping[str, int],
    communicator: _Communicator,
    custom_calls: Mapping[str, Any] | None,
    host: Host | None,
) -> Instance:
    libraries = []
    for name in compiled.routines:
        library = routines.load(name, target, None)
        assert library is not None, name  # the host sends the routines that it has compiled
        libraries.append(library)
    library = jit.load(compiled.objects, [abi.ENTRY], libraries, lapack.addresses(compiled.externals))
    functions: Any = SimpleNamespace(addresses=calls)
    return Instance(
        Loaded(compiled, library),
        functions,
        place.threads,
        custom_calls,
        rank=place.rank,
        communicator=communicator.address,
        host=host,
    )


def load_code(code: CompiledRoutine, target: Target) -> Library:
    """Loads a copy of the object of `kernels/collective/routine.py`, with separate variables."""
    needs = [routines.load(name, target, None) for name in code.needs]
    return jit.load(code.objects, code.symbols, [library for library in needs if library is not None])


def needed_routines(names: Sequence[str], target: Target) -> list[CompiledRoutine]:
    """Returns the routines of those names that this process has compiled, and those that they need."""
    found: dict[str, CompiledRoutine] = {}
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            routine = routines.find(name, target, None)
            assert routine is not None, name
            found[name] = routine
            left += routine.needs
    return list(found.values())
