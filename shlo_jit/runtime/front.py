"""Calls a program with arrays: checks and converts its arguments, and creates its results."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shlo_jit.codegen.abi import AT_CALL, Status
from shlo_jit.codegen.program import Port
from shlo_jit.errors import UsageError
from shlo_jit.runtime import pool
from shlo_jit.runtime.arguments import (
    arranged,
    check_count,
    convert,
    describe,
    describe_array,
    in_order,
    name_of,
    shape_text,
    take,
)
from shlo_jit.runtime.instance import Instance
from shlo_jit.runtime.layout import data_address
from shlo_jit.sizes import Symbol


class Signature(NamedTuple):
    """An argument or result of an executable."""

    name: str
    """Empty if it has no name."""
    shape: tuple[int, ...]
    dtype: np.dtype

    def __str__(self) -> str:
        return f"{self.dtype.name}[{shape_text(self.shape)}]"


class Front:
    """Python path that calls a program with NumPy arrays, and values that can be converted to arrays."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.program = instance.loaded.program
        self._input_pointers = ctypes.c_void_p * max(1, len(self.program.inputs))
        self._output_pointers = ctypes.c_void_p * max(1, len(self.program.outputs))

    def call(self, *args: Any, **named: Any) -> Any:
        """Calls the program with values that can be converted to its arguments."""
        ports, sizes = self.program.inputs, None
        if named:
            args = arranged(args, named, ports)
        check_count(len(args), ports)
        if self.program.symbol is not None:
            size = size_of_call(args, ports, self.program.symbol)
            ports, sizes = [port.at(size) for port in ports], self.instance.sizes_for(size)
        try:
            arrays = [convert(value, i, port) for i, (value, port) in enumerate(zip(args, ports, strict=True))]
        except UsageError as error:
            raise in_order(error, args, ports) from error.__cause__
        shapes = [port.shape for port in self.program.outputs] if sizes is None else sizes.shapes
        results = self._results(args, arrays, shapes)
        outcome = tuple(results)
        inputs = self._input_pointers(*map(data_address, arrays))
        status = self.instance.run(inputs, self._output_pointers(*map(data_address, results)), sizes)
        if status != Status.OK:
            del outcome, results, arrays  # the exception will refer to this frame
            raise self.instance.failure(status)
        return outcome[0] if len(outcome) == 1 else outcome

    def _results(
        self, args: Sequence[Any], arrays: list[np.ndarray], shapes: Sequence[tuple[int, ...]]
    ) -> list[np.ndarray]:
        """Returns new arrays, or arrays in the memory of donated arguments. An entry of `arrays` that may not be
        overwritten is replaced by a copy."""
        results: list[np.ndarray] = []
        aliases = self.program.output_aliases
        for donated in (*aliases.values(), *self.program.overwritten):
            if not _may_take(args[donated], donated, arrays):
                source = arrays[donated]
                arrays[donated] = pool.empty(source.shape, source.dtype, source.nbytes)
                arrays[donated][...] = source
        for index, (port, shape) in enumerate(zip(self.program.outputs, shapes, strict=True)):
            dtype = port.dtype.numpy
            if index in aliases:
                results.append(_in_place(arrays[aliases[index]], shape, dtype))
            else:
                results.append(_result(index, shape, dtype))
        return results


def _in_place(array: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns a result in a donated argument's memory: the same array object if that fits, which may then be donated
    again."""
    if array.shape == shape and array.dtype == dtype:
        return array
    return array.reshape(-1).view(dtype).reshape(shape)


def _result(index: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    nbytes = math.prod(shape) * dtype.itemsize
    try:
        return pool.empty(shape, dtype, nbytes)
    except MemoryError as error:
        raise MemoryError(f"result {index} has {nbytes} bytes: {error}") from None


def size_of_call(args: Sequence[Any], ports: Sequence[Port], symbol: Symbol) -> int:
    """Returns the size that is known only at the call, from the first argument that has it. Raises ValueError for a
    size that the program does not support, and the errors of `take`."""
    i, d = next((i, port.shape.index(AT_CALL)) for i, port in enumerate(ports) if AT_CALL in port.shape)
    array = take(args[i], i, ports[i])
    if array.ndim == len(ports[i].shape) and symbol.low <= array.shape[d] <= symbol.high:
        return array.shape[d]
    expected = f"{describe(ports[i])} with {symbol.low:,} to {symbol.high:,} in dimension {d}"
    raise ValueError(f"{name_of(i, ports[i])}: expected {expected}, got {describe_array(array)}")


def _may_take(given: Any, index: int, arrays: Sequence[np.ndarray]) -> bool:
    """Whether a donated argument's memory may be written to: it is the caller's own contiguous, writable array, and no
    other argument overlaps it."""
    array = arrays[index]
    if given is not array or type(given) is not np.ndarray or not array.flags.writeable:
        return False
    if not (array.flags.owndata or isinstance(array.base, pool.Lease)):
        return False
    return not any(i != index and np.may_share_memory(array, other) for i, other in enumerate(arrays))
