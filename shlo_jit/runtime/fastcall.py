"""Calls a program without Python in between: `exe(x, y)` enters machine code that checks the arguments itself.

That code is `fastcall_code.py`; this file makes a built-in function of it. Measured with two inputs of four floats: 0.2
us, where the same through ctypes takes 0.7 us and through Python conversions 14 us.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from shlo_jit.codegen.abi import AT_CALL
from shlo_jit.codegen.program import Port
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.pool import THREADS
from shlo_jit.runtime import layout, openmp, placement, pool, routines, signals
from shlo_jit.runtime.fastcall_code import FASTCALL, FASTCALL_SIZED, SIZED, PortRecord, Record
from shlo_jit.runtime.instance import size_count

if TYPE_CHECKING:
    from shlo_jit.codegen.jit import Library
    from shlo_jit.runtime.cache import ObjectCache
    from shlo_jit.runtime.front import Front


class _MethodDef(ctypes.Structure):
    """The structure PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


def fast_call(front: Front, target: Target, cache: ObjectCache | None) -> FastCall | None:
    """Returns a built-in function that calls the program, or None if that is impossible: another interpreter, donated
    arguments whose sizes are known only at the call or that become results of another type, scratch memory that cannot
    be allocated (the call will report this)."""
    instance, program = front.instance, front.program
    symbol, aliases = program.symbol, program.output_aliases
    donated = {*aliases.values(), *program.overwritten}
    if not layout.as_expected() or (donated and symbol is not None):
        return None
    if any(not _are_alike(program.outputs[i], program.inputs[n]) for i, n in aliases.items()):
        return None
    method = _method(target, cache, SIZED if symbol is not None else "shlo_fastcall")
    if method is None:
        return None
    try:
        arena = instance.take_arena(instance.memory_bytes)
    except MemoryError:
        return None
    kept = [arena]
    keep: list[Any] = [front, kept]
    array_type, new_array = _numpy_functions()
    record = Record(
        main=instance.loaded.entry,
        instance=instance.address,
        inputs=len(program.inputs),
        outputs=len(program.outputs),
        arena=ctypes.addressof(arena) if arena is not None else 0,
        needs_arena=arena is not None,
        array_type=array_type,
        new_array=new_array,
        input_ports=_ports(program.inputs, keep, lambda port: None, dict.fromkeys(donated, 1)),
        output_ports=_ports(
            program.outputs,
            keep,
            _maker if symbol is None else _sized_maker,
            {i: 1 + n for i, n in aliases.items()},
        ),
        is_short=program.is_short,
        donates=bool(donated),
        lease=id(pool.Lease),
    )
    if program.callbacks or donated:
        record.fail = id(fail := functools.partial(_fail, front))
        keep.append(fail)
    slow = front.call
    if symbol is not None:
        record.sizes, record.threads = instance.loaded.sizes, instance.threads
        record.low, record.high, record.numbers = symbol.low, symbol.high, size_count(program.outputs)
        record.arena_bytes = len(arena) if arena is not None else 0
        slow = _growing(front, record, kept)
    keep.append(record)
    return FastCall(method, (ctypes.addressof(record).to_bytes(8, sys.byteorder), slow, *keep))


def _fail(front: Front, status: int) -> NoReturn:
    """Raises the error that stopped a call of the program. The call may have had effects and is not repeated."""
    raise front.instance.failure(status)


class FastCall(NamedTuple):
    """A built-in function that calls a program, under construction."""

    method: _MethodDef
    items: tuple[Any, ...]
    """Objects that are passed to the machine code."""

    def function(self, slow: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Returns the function. `slow` handles arguments that its machine code rejects, in place of the program's own
        slow path."""
        record, own, *keep = self.items
        return _new_function(ctypes.addressof(self.method), (record, slow or own, *keep), None)


def _growing(front: Front, record: Record, kept: list[Any]) -> Callable[..., Any]:
    """Returns the slow path of a program whose arena depends on the call. The fast path gets the largest arena needed
    so far. `kept` is the lease on the record's arena."""

    def call(*args: Any, **named: Any) -> Any:
        result = front.call(*args, **named)
        needed = front.instance.max_arena_bytes
        if needed > record.arena_bytes:
            # Acquired as by a call: other threads run only at calls, and this line has none.
            taken, record.arena = record.arena, 0
            if taken:  # else a call is using it
                try:
                    with contextlib.suppress(MemoryError):
                        kept[0] = front.instance.take_arena(needed)
                        record.arena_bytes = len(kept[0])
                finally:
                    record.arena = ctypes.addressof(kept[0])
        return result

    return call


def _maker(port: Port) -> Callable[[], np.ndarray] | None:
    """Returns a function that creates a result from the pool; None for a small one."""
    large = port.nbytes >= pool.POOLED_BYTES
    return pool.maker(port.shape, port.dtype.numpy, port.nbytes) if large else None


def _are_alike(result: Port, argument: Port) -> bool:
    """Whether a donated argument's array can be returned as it is."""
    return result.shape == argument.shape and result.dtype == argument.dtype


def _ports(
    ports: Sequence[Port], keep: list[Any], makers: Callable[[Port], object], donated: Mapping[int, int]
) -> int:
    """Returns the address of an array of PortRecord. `makers` returns the callable that creates a result; `donated` is
    that field of each port, 0 by default."""
    rows = (PortRecord * max(1, len(ports)))()
    for i, (row, port) in enumerate(zip(rows, ports, strict=False)):
        dtype, extents = port.dtype.numpy, np.array(port.shape or (0,), np.int64)
        row.dtype, row.rank, row.dimensions = id(dtype), len(port.shape), layout.data_address(extents)
        row.kind, row.donated = layout.kind_of(dtype), donated.get(i, 0)
        if not port.shape and i not in donated:
            row.scalar = layout.scalar_of(dtype)
        row.nbytes = 0 if AT_CALL in port.shape else port.nbytes
        keep += [dtype, extents]
        make = makers(port)
        if make is not None:
            row.allocate = id(make)
            keep.append(make)
    keep.append(rows)
    return ctypes.addressof(rows)


def _sized_maker(port: Port) -> Callable[[int], np.ndarray]:
    """Returns a function that creates a result from the pool, given the address of its extents."""
    dtype = port.dtype.numpy
    extents, size, lease, new = ctypes.c_int64 * len(port.shape), dtype.itemsize, pool.lease, np.ndarray

    def make(address: int) -> np.ndarray:
        shape = tuple(extents.from_address(address))
        return new(shape, dtype, lease(size * math.prod(shape)))  # type: ignore[arg-type]  ctypes arrays are buffers

    return make


_new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


@functools.cache
def _numpy_functions() -> tuple[int, int]:
    """Returns the addresses of numpy's PyArray_Type and PyArray_NewFromDescr, entries 2 and 94 of its C interface."""
    from numpy._core._multiarray_umath import _ARRAY_API  # type: ignore[attr-defined]

    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    table = ctypes.cast(get(_ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    return table[2] or 0, table[94] or 0


@functools.cache
def call_library(target: Target, cache: ObjectCache | None) -> Library:
    """Returns the functions of `fastcall_code.py` and of `runtime/signals.py`; they live as long as the process."""
    library = routines.load(FASTCALL.name, target, cache)
    threads = routines.load(THREADS.name, target, cache)
    assert library is not None and threads is not None  # they are the code generator's own
    placement.pin_workers(threads.addresses)
    openmp.offer(threads.addresses)
    signals.watch_main_thread(library, threads)
    return library


@functools.cache
def _method(target: Target, cache: ObjectCache | None, name: str) -> _MethodDef | None:
    """Returns the definition of the built-in function."""
    if _numpy_functions()[0] != id(np.ndarray):
        return None
    library = routines.load(FASTCALL_SIZED.name, target, cache) if name == SIZED else call_library(target, cache)
    assert library is not None  # it is one of the code generator's own
    address, fastcall, keywords = library.addresses[name], 0x80, 0x02
    return _MethodDef(b"executable", address, fastcall | keywords, b"A program compiled by shlo_jit.")
