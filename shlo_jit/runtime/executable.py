"""A loaded program that can be called with arrays."""

from __future__ import annotations

import ctypes
import dataclasses
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from shlo_jit.codegen import abi
from shlo_jit.codegen.jit import Library
from shlo_jit.codegen.objects import Compiled
from shlo_jit.codegen.program import Port
from shlo_jit.kernels.target import Target
from shlo_jit.runtime import pool
from shlo_jit.runtime.arguments import check_count, convert
from shlo_jit.runtime.cache import ObjectCache
from shlo_jit.runtime.callbacks import CallbackTable, trampoline_address
from shlo_jit.runtime.fastcall import fast_call
from shlo_jit.runtime.host import Channel, Host, Infeed, Outfeed
from shlo_jit.runtime.instance import record_type
from shlo_jit.runtime.layout import data_address
from shlo_jit.runtime.signals import CALL

if TYPE_CHECKING:
    import inspect


class Signature(NamedTuple):
    """An argument or result of an executable."""

    name: str
    """Empty when it has none."""
    shape: tuple[int, ...]
    dtype: np.dtype

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


class Memory(NamedTuple):
    """What an executable holds and needs, in bytes."""

    arena: int
    """Scratch memory of one call."""
    constants: int
    outputs: int
    """Of the results of one call."""


class Core:
    """A loaded program: its code, constants and memory, and the way through Python to call it."""

    def __init__(
        self,
        compiled: Compiled,
        library: Library,
        calls: Library,
        threads: int,
        custom_calls: Mapping[str, Any] | None,
    ) -> None:
        """`calls`: the functions of `runtime/signals.py`."""
        constants = tuple(_aligned(c) for c in compiled.constants)
        self.compiled = dataclasses.replace(compiled, constants=constants, objects=())
        self.threads = threads
        self.arena_bytes = abi.arena_bytes(compiled.arena_bytes, compiled.scratch, threads)
        self._library = library
        """Keeps the code loaded."""
        self.main_address = library.addresses[abi.ENTRY]
        self._call = CALL(calls.addresses["shlo_call"])
        self.host = Host()
        self._callbacks = CallbackTable(compiled.callbacks, custom_calls, self.host) if compiled.callbacks else None
        self._instance = self._make_instance(calls.addresses["shlo_pause"])
        self.instance_address = ctypes.addressof(self._instance)
        self._arenas: list[Any] = []
        """Leases on blocks that no call is using."""
        self._input_pointers = ctypes.c_void_p * max(1, len(compiled.inputs))
        self._output_pointers = ctypes.c_void_p * max(1, len(compiled.outputs))

    def _make_instance(self, pause: int) -> ctypes.Structure:
        constants = self.compiled.constants
        return record_type(len(constants))(
            threads=self.threads,
            callback=trampoline_address,
            handle=self._callbacks.handle if self._callbacks else 0,
            pause=pause,
            error_call=abi.NO_CALL,
            constants=tuple(map(data_address, constants)),
        )

    def call(self, *args: Any, **named: Any) -> Any:
        """Call the program with anything that can be converted to its arguments."""
        ports = self.compiled.inputs
        if named:
            takes = ", ".join(port_names(ports))
            raise TypeError(f"arguments are given by position: exe({takes}); got {', '.join(f'{n}=' for n in named)}")
        check_count(len(args), ports)
        arrays = [convert(value, i, port) for i, (value, port) in enumerate(zip(args, ports, strict=True))]
        results = self._results(args, arrays)
        outcome = tuple(results)
        status = self._run(arrays, results)
        if status:
            del outcome, results, arrays
            raise self._failure(status)
        return outcome[0] if len(outcome) == 1 else outcome

    def _results(self, args: Sequence[Any], arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Fresh arrays, or donated arguments' where the program wants that; `arrays` may get copies of those."""
        results: list[np.ndarray] = []
        aliases = self.compiled.output_aliases
        for donated in (*aliases.values(), *self.compiled.overwritten):
            if not _may_take(args[donated], donated, arrays):
                source = arrays[donated]
                arrays[donated] = pool.empty(source.shape, source.dtype, source.nbytes)
                arrays[donated][...] = source
        for index, port in enumerate(self.compiled.outputs):
            dtype = port.dtype.numpy
            if index in aliases:
                results.append(arrays[aliases[index]].reshape(-1).view(dtype).reshape(port.shape))
            else:
                results.append(_result(index, port))
        return results

    def _run(self, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> int:
        inputs = self._input_pointers(*map(data_address, arrays))
        outputs = self._output_pointers(*map(data_address, results))
        arena = self.take_arena()
        try:
            return self._call(self.main_address, inputs, outputs, None, arena, self.instance_address)
        finally:
            if arena is not None:
                self._arenas.append(arena)

    def take_arena(self) -> Any:
        """A lease on memory for one call; None when the program needs none."""
        if not self.arena_bytes:
            return None
        try:
            return self._arenas.pop()
        except IndexError:
            pass
        try:
            return pool.lease(self.arena_bytes)
        except MemoryError as error:
            what = f"the program needs {self.arena_bytes} bytes of scratch memory"
            raise MemoryError(f"{what}: {error}") from None

    def _failure(self, status: int) -> BaseException:
        if self._callbacks is None:
            from shlo_jit.errors import ExecutionError

            return ExecutionError(f"the program ended with status {status}")
        return self._callbacks.take_exception(status)


def _result(index: int, port: Port) -> np.ndarray:
    try:
        return pool.empty(port.shape, port.dtype.numpy, port.nbytes)
    except MemoryError as error:
        raise MemoryError(f"result {index} has {port.nbytes} bytes: {error}") from None


def _may_take(given: Any, index: int, arrays: Sequence[np.ndarray]) -> bool:
    """Whether a donated argument's memory may be written to: it is the caller's own, contiguous, writable array and
    no other argument lies in it."""
    array = arrays[index]
    if given is not array or type(given) is not np.ndarray or not array.flags.writeable:
        return False
    if not (array.flags.owndata or isinstance(array.base, pool.Lease)):
        return False
    return not any(i != index and np.may_share_memory(array, other) for i, other in enumerate(arrays))


def _aligned(constant: np.ndarray) -> np.ndarray:
    """The constant, C-contiguous at an address that is a multiple of 64; a copy if need be."""
    if constant.flags.c_contiguous and data_address(constant) % pool.ALIGNMENT == 0:
        return constant
    if constant.nbytes >= pool.POOLED_BYTES:
        copy = pool.empty(constant.shape, constant.dtype, constant.nbytes)
    else:
        raw = np.empty(constant.nbytes + pool.ALIGNMENT, np.uint8)
        start = -data_address(raw) % pool.ALIGNMENT
        copy = raw[start : start + constant.nbytes].view(constant.dtype).reshape(constant.shape)
    copy[...] = constant
    return copy


def port_names(ports: Sequence[Port | Signature]) -> list[str]:
    """Names for arguments, as Python takes them: the program's own where it has such for all."""
    names = [port.name for port in ports]
    usable = all(n.isidentifier() and not keyword.iskeyword(n) for n in names) and len(set(names)) == len(names)
    return names if usable else [f"arg{i}" for i in range(len(ports))]


class _CallSignature:
    """`__signature__` of an executable, for `inspect.signature` and editors; the class has none."""

    def __get__(self, exe: Executable | None, owner: type) -> inspect.Signature:
        import inspect

        if exe is None:
            raise AttributeError("__signature__")
        kind = inspect.Parameter.POSITIONAL_ONLY
        parameters = [
            inspect.Parameter(name, kind, annotation=str(port))
            for name, port in zip(port_names(exe.inputs), exe.inputs, strict=True)
        ]
        results = ", ".join(map(str, exe.outputs))
        return inspect.Signature(parameters, return_annotation=results if len(exe.outputs) == 1 else f"({results})")


class Executable:
    """A compiled program. Call it with arrays, in the order of `inputs`: `exe(x, y)`. One result is an array, several
    are a tuple. Threads may share it; copies are the executable itself, and other processes compile their own."""

    __signature__ = _CallSignature()

    __slots__ = ("__call__", "__weakref__", "_core", "_stages", "inputs", "outputs")

    def __init__(
        self,
        core: Core,
        target: Target,
        cache: ObjectCache | None = None,
        stages: Mapping[str, Callable[[], str]] | None = None,
    ) -> None:
        self._core = core
        self._stages = dict(stages or {})
        self.inputs = tuple(_signature(p) for p in core.compiled.inputs)
        self.outputs = tuple(_signature(p) for p in core.compiled.outputs)
        self.__call__ = fast_call(core, target, cache) or core.call

    @property
    def memory(self) -> Memory:
        compiled = self._core.compiled
        outputs = sum(p.nbytes for p in compiled.outputs)
        return Memory(self._core.arena_bytes, sum(c.nbytes for c in compiled.constants), outputs)

    @property
    def threads(self) -> int:
        """How many threads a call may use."""
        return self._core.threads

    @property
    def infeed(self) -> Infeed:
        """What the program's infeeds take: `exe.infeed.put(x)`; see `runtime/host.py`."""
        return self._core.host.infeed

    @property
    def outfeed(self) -> Outfeed:
        """What the program's outfeeds leave: `exe.outfeed.get(time_out=5)`."""
        return self._core.host.outfeed

    def channel(self, handle: int) -> Channel:
        """The channel of host transfers with that handle: `put` for the program's recv, `get` from its send."""
        return self._core.host.channel(handle)

    def text(self, stage: str) -> str:
        """The program at a stage of its compilation: `module`, `plan`, `llvm` or `asm`. Raises ValueError for another
        name."""
        if not isinstance(stage, str) or stage not in self._stages:
            known = ", ".join(self._stages) or "none"
            raise ValueError(f"unknown stage {stage!r}: expected one of {known}")
        return self._stages[stage]()

    def __copy__(self) -> Executable:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Executable:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an Executable is machine code in this process and cannot be pickled: send the program's text and compile "
            "it there, which the object cache makes quick"
        )

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, ports)) for ports in (self.inputs, self.outputs))
        return f"<Executable ({inputs}) -> ({outputs})>"


def _signature(port: Port) -> Signature:
    return Signature(port.name, port.shape, port.dtype.numpy)
