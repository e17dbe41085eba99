"""Texts about the sizes that select the program of a sized function, for headers and the text of a status."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.aot.c_names import port_names, unique
from shlo_jit.aot.sized import Sized


def size_names(sized: Sized) -> list[str]:
    """Parameters for the sizes that a sized function takes, such as `x_dim0`."""
    inputs, outputs = port_names(sized.inputs, sized.outputs)
    taken = {"instance", *inputs, *outputs}
    return [unique(f"{inputs[i]}_dim{d}", taken) for i, d in sized.unknown]


def shape_names(sized: Sized) -> list[tuple[str, int]]:
    """Parameters for the unknown shapes of outputs, such as `output_shape`, and their ranks."""
    inputs, outputs = port_names(sized.inputs, sized.outputs)
    taken = {*inputs, *size_names(sized)}
    pairs = zip(outputs, sized.outputs, strict=True)
    return [(unique(f"{name}_shape", taken), len(port.shape)) for name, port in pairs if not port.is_static]


def calls_text(sized: Sized) -> str:
    """Lists the sizes that there is code for: `main: x_dim0 = 1, 8`, or `main: (n, x_dim0) = (2, 1), (4, 8)`."""
    inputs, _ = port_names(sized.inputs, sized.outputs)
    names = [*(inputs[i] for i in sized.by_value), *size_names(sized)]
    rows = [(*_values(sized, call.values), *map(str, call.sizes)) for call in sized.calls]
    return f"{sized.c_name}: {_tuple(names)} = {', '.join(map(_tuple, rows))}"


def _values(sized: Sized, values: Sequence[bytes]) -> list[str]:
    ports = [sized.inputs[i] for i in sized.by_value]
    arrays = [np.frombuffer(data, port.dtype.numpy) for port, data in zip(ports, values, strict=True)]
    return [_shown(array, port.shape) for array, port in zip(arrays, ports, strict=True)]


def _shown(array: np.ndarray, shape: Sequence[int | None]) -> str:
    numbers = [str(int(n)) for n in array]
    return f"[{', '.join(numbers)}]" if shape else numbers[0]


def _tuple(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"({', '.join(words)})"
