"""State that a loaded program needs to run: its record, scratch memory, and its custom calls."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shlo_jit.codegen import abi
from shlo_jit.codegen.jit import Library
from shlo_jit.codegen.program import Port
from shlo_jit.errors import ExecutionError
from shlo_jit.runtime import pool
from shlo_jit.runtime.callbacks import CallbackTable
from shlo_jit.runtime.host import Host
from shlo_jit.runtime.loaded import Loaded
from shlo_jit.runtime.signals import CALL

if TYPE_CHECKING:
    from shlo_jit.runtime.measured import ProfileMemory

_TYPES = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "ptr": ctypes.c_void_p}


@functools.cache
def record_type(constants: int) -> type[ctypes.Structure]:
    """Returns the record type of a program with `constants` constants: the fields of `abi.INSTANCE`, and the array
    `constants`."""
    fields = [*((name, _TYPES[field.type]) for name, field in abi.INSTANCE.items())]
    return type(
        "InstanceRecord", (ctypes.Structure,), {"_fields_": [*fields, ("constants", ctypes.c_void_p * constants)]}
    )


class Sizes(NamedTuple):
    """Sizes of one call of a program that has sizes which are known only at the call."""

    dims: ctypes.Array[Any]
    """Argument of the program."""
    arena_bytes: int
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of the results."""


_SIZES = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
"""Type of `abi.SIZES`."""


def size_count(outputs: Sequence[Port]) -> int:
    """Returns the count of numbers that `abi.SIZES` writes."""
    return 1 + sum(1 + len(port.shape) for port in outputs)


class Instance:
    """A program that can be run with pointers. Several may share one `Loaded`. Threads may run one at the same time,
    each in a separate arena."""

    def __init__(
        self,
        loaded: Loaded,
        functions: Library,
        threads: int = 1,
        custom_calls: Mapping[str, Any] | None = None,
        *,
        rank: int = 0,
        communicator: int = 0,
        host: Host | None = None,
    ) -> None:
        """`functions` are those of `runtime/signals.py`; `threads` is the maximum number of threads of a call; `host`
        has queues that it shares with others. Raises ExecutionError if a custom call of the program is not registered.
        """
        self.loaded = loaded
        self.threads = threads
        self.arena_bytes = loaded.arena_bytes(threads)
        self.host = host or Host()
        callbacks, first = loaded.program.callbacks, loaded.first_callback
        self._callbacks = CallbackTable(callbacks, custom_calls, self.host, first, rank, threads) if callbacks else None
        self._call = CALL(functions.addresses["shlo_call"])
        self._functions = functions
        self._arenas: list[Any] = []
        """Leases on blocks that no call is using."""
        self.max_arena_bytes = 0
        """Largest arena that a call has needed."""
        self.address = self._make_record(rank, communicator)
        """Address of the record."""

    def _make_record(self, rank: int, communicator: int) -> int:
        """Creates the record that the program is called with as its instance. Returns its address."""
        self.record: Any = record_type(len(self.loaded.constants))(
            threads=self.threads,
            callback=self._callbacks.function if self._callbacks else 0,
            handle=self._callbacks.handle if self._callbacks else 0,
            pause=self._functions.addresses["shlo_pause"],
            rank=rank,
            communicator=communicator,
            error_call=abi.NO_CALL,
            constants=tuple(constant.address for constant in self.loaded.constants),
        )
        return ctypes.addressof(self.record)

    def note_times(self, memory: ProfileMemory) -> None:
        """Makes the program, which must be compiled for profiling, write the times of its steps to the memory."""
        self._profile = memory  # calls that are still running when the measurement ends write there
        self.record.profile = memory.address

    @property
    def memory_bytes(self) -> int:
        """Scratch memory of one call. If a size is known only at the call, it is that of the example size."""
        symbol = self.loaded.program.symbol
        return self.arena_bytes if symbol is None else self.sizes_for(symbol.hint).arena_bytes

    def run(self, arguments: ctypes.Array[Any], results: ctypes.Array[Any], sizes: Sizes | None = None) -> int:
        """Runs the program on arrays of pointers, without the GIL. Returns its status. `sizes` is given if some are
        known only at the call. Raises MemoryError without memory for an arena, and the exception of a signal handler.
        """
        arena = self.take_arena(self.arena_bytes if sizes is None else sizes.arena_bytes)
        try:
            return self.run_in(arena, arguments, results, self.address, sizes)
        finally:
            if arena is not None:
                self._arenas.append(arena)

    def run_in(
        self,
        arena: Any,
        arguments: ctypes.Array[Any],
        results: ctypes.Array[Any],
        record: int,
        sizes: Sizes | None = None,
    ) -> int:
        """Runs the program as `run`, in an arena and with a record (its address) of the caller."""
        dims = None if sizes is None else sizes.dims
        return self._call(self.loaded.entry, arguments, results, dims, arena, record)

    def take_arena(self, nbytes: int) -> Any:
        """Returns a lease on memory for one call; None if it needs none."""
        if not nbytes:
            return None
        self.max_arena_bytes = max(self.max_arena_bytes, nbytes)
        with contextlib.suppress(IndexError):
            arena = self._arenas.pop()
            if len(arena) >= nbytes:
                return arena
        try:
            return pool.lease(nbytes)
        except MemoryError as error:
            raise MemoryError(f"the program needs {nbytes} bytes of scratch memory: {error}") from None

    def sizes_for(self, size: int) -> Sizes:
        """Returns the sizes that depend on the size that is known only at the call."""
        program = self.loaded.program
        dims = (ctypes.c_int64 * 1)(size)
        numbers = (ctypes.c_int64 * size_count(program.outputs))()
        _SIZES(self.loaded.sizes)(dims, self.threads, numbers)
        left = iter(numbers)
        arena_bytes, shapes = next(left), []
        for port in program.outputs:
            next(left)
            shapes.append(tuple(next(left) for _ in port.shape))
        return Sizes(dims, arena_bytes, tuple(shapes))

    def failure(self, status: int) -> BaseException:
        """Returns the reason why this thread's last call stopped: the exception of its custom call, else an
        ExecutionError."""
        raised = self._callbacks.take_exception() if self._callbacks else None
        if raised is not None:
            return raised
        calls, number = self.loaded.program.callbacks, self.failed_call()
        codes, code = self.loaded.program.codes, abi.FIRST_CODE - number
        if status == abi.Status.CODE_FAILED and 0 <= code < len(codes):
            return ExecutionError(codes[code].failure(self.record.error_status))
        if status == abi.Status.CALL_FAILED and 0 <= number < len(calls):
            return ExecutionError(f"custom call {calls[number].target!r} failed")
        return ExecutionError(self._status_text(status))

    def failed_call(self) -> int:
        """Returns the index, among the program's custom calls, of the one that stopped it."""
        return self.record.error_call

    def _status_text(self, status: int) -> str:
        return abi.status_text(status)
