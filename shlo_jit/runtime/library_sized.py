"""Functions of exported libraries that take sizes: a call selects one of the library's programs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shlo_jit.ir.dtypes import DTYPES
from shlo_jit.runtime.arguments import shape_text
from shlo_jit.runtime.dynamic import DynamicExecutable, Shape
from shlo_jit.runtime.executable import Executable
from shlo_jit.runtime.host import Host
from shlo_jit.runtime.ports import DynamicPort


def sized_executable(
    row: Mapping[str, Any], executable: Callable[[int], Executable], threads: int, host: Host
) -> DynamicExecutable:
    """Returns the function of a row of the metadata's `sized`. `executable` returns that of a function by number, with
    these threads and queues; its errors for the first function that has code are raised immediately."""
    inputs = [_port(p) for p in row["inputs"]]
    by_value = tuple(row["by_value"])
    numbers = {
        (tuple(call["sizes"]), tuple(map(bytes.fromhex, call["values"]))): row["first"] + n
        for n, call in enumerate(row["calls"])
    }
    made = functools.cache(executable)
    made(row["first"])

    def find(shapes: Sequence[Shape], values: Mapping[int, np.ndarray]) -> Executable:
        selecting = tuple(values[i].tobytes() for i in by_value)
        number = numbers.get((_sizes(inputs, shapes), selecting))
        if number is None:
            raise ValueError(_unknown(inputs, by_value, list(numbers), shapes, values))
        return made(number)

    return DynamicExecutable(inputs, [_port(p) for p in row["outputs"]], frozenset(by_value), find, threads, host)


def _port(row: Sequence[Any]) -> DynamicPort:
    name, shape, dtype, bounds = row
    return DynamicPort(name, tuple(shape), DTYPES[dtype], None if bounds is None else tuple(bounds))


def _sizes(inputs: Sequence[DynamicPort], shapes: Sequence[Shape]) -> tuple[int, ...]:
    """Returns the sizes of the dimensions that are unknown in `inputs`."""
    pairs = (
        pair for port, shape in zip(inputs, shapes, strict=True) for pair in zip(port.shape or (), shape, strict=True)
    )
    return tuple(n for known, n in pairs if known is None)


def _unknown(
    inputs: Sequence[DynamicPort],
    by_value: Sequence[int],
    calls: Sequence[tuple[tuple[int, ...], tuple[bytes, ...]]],
    shapes: Sequence[Shape],
    values: Mapping[int, np.ndarray],
) -> str:
    """Returns a message with the requested sizes, and those that have code, of the arguments that select it."""
    selecting = [i for i, port in enumerate(inputs) if i in by_value or not port.is_static]
    known = []
    for sizes, data in calls:
        left = iter(sizes)
        of_call = [tuple(next(left) if n is None else n for n in port.shape or ()) for port in inputs]
        arrays = {i: np.frombuffer(d, inputs[i].dtype.numpy) for i, d in zip(by_value, data, strict=True)}
        known.append(_described(inputs, selecting, of_call, arrays))
    names = ", ".join(inputs[i].name or f"argument {i}" for i in selecting)
    got = _described(inputs, selecting, shapes, values)
    names = names if len(selecting) == 1 else f"({names})"
    return f"the library has code for {names} = {', '.join(known)}; got {got}"


def _described(
    inputs: Sequence[DynamicPort], selecting: Sequence[int], shapes: Sequence[Shape], values: Mapping[int, np.ndarray]
) -> str:
    """Returns `float32[8,16]`, or `(float32[8,16], 3)`: types of arguments, or their values if these select the
    code."""
    words = []
    for i in selecting:
        if i in values:
            numbers = [str(int(n)) for n in values[i].reshape(-1)]
            words.append(f"[{', '.join(numbers)}]" if inputs[i].shape else numbers[0])
        else:
            words.append(f"{inputs[i].dtype.numpy.name}[{shape_text(shapes[i])}]")
    return words[0] if len(words) == 1 else f"({', '.join(words)})"
