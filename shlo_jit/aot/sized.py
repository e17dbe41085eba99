"""Functions with unknown dimensions.

A library contains a program for each list of shapes that it is exported for, each as a function of its own
(`image.Function`). A sized function selects among them: it takes the sizes that are unknown and runs the program for
these.

Code for any size, which receives it at the call (`dims` of `codegen/abi.py`, and `@shlo_sizes` for the shapes of
results), would be another implementation of a sized function. `read_calls.py` decides that there is a program for each
list of shapes, and `sized_calls.py` where the program is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit.ir.core import Module
from shlo_jit.ir.types import DType

Shapes = Sequence[Sequence[object]]
"""Calls, each with the shapes of all arguments, as `api.refine` takes them."""


class Call(NamedTuple):
    """Key of one specialization of a sized function."""

    sizes: tuple[int, ...]
    """Sizes of all unknown dimensions of the arguments, in order."""
    values: tuple[bytes, ...]
    """Bytes of the arguments that determine sizes, in order."""


class SizedPort(NamedTuple):
    """An argument or result of a sized function."""

    name: str
    shape: tuple[int | None, ...]
    """None: an unknown size."""
    dtype: DType
    bounds: tuple[int | None, ...] | None = None
    """Upper bounds of sizes, if any size has one."""

    @property
    def is_static(self) -> bool:
        return None not in self.shape


class Unknown(NamedTuple):
    """A function of a program with unknown dimensions, and the static programs for the calls it is exported for."""

    inputs: tuple[SizedPort, ...]
    outputs: tuple[SizedPort, ...]
    by_value: tuple[int, ...]
    """Arguments whose values determine sizes: integer tensors of known shapes."""
    calls: tuple[Call, ...]
    modules: tuple[Module, ...]
    """Static program of each call."""


class Sized(NamedTuple):
    """A function that takes sizes and runs the program for these."""

    name: str
    c_name: str
    shapes_name: str
    """Name after the prefix of the C function that returns the shapes of results for given sizes."""
    inputs: tuple[SizedPort, ...]
    outputs: tuple[SizedPort, ...]
    by_value: tuple[int, ...]
    """Arguments whose values select the program, besides the sizes."""
    calls: tuple[Call, ...]
    first: int
    """Number of the function for the first of `calls`; the others follow."""
    aliases: dict[int, int]
    overwritten: tuple[int, ...]
    """Arguments that any of its programs overwrites."""

    @property
    def unknown(self) -> list[tuple[int, int]]:
        """Argument and dimension of every size that the function takes, in order."""
        return [(i, d) for i, port in enumerate(self.inputs) for d, n in enumerate(port.shape) if n is None]
