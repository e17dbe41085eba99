"""Compiled graphs as functions of tensors, and what is stored of a graph for other processes.

Nothing here builds or translates a program: a process that finds its graphs in caches imports no more than this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch  # type: ignore[import-not-found]

from shlo_jit.api import compile as compile_program
from shlo_jit.runtime.openmp import use_team
from shlo_jit.sources import content
from shlo_jit.torch.dtypes import to_tensor
from shlo_jit.torch.memory import reader

if TYPE_CHECKING:
    from shlo_jit.ir.core import Module


@dataclass(frozen=True)
class Result:
    """Source of a result of the graph: an argument that the graph returns, a number, or a result of the program."""

    argument: int | None = None
    literal: Any = None
    index: int | None = None
    dtype: torch.dtype | None = None
    order: tuple[int, ...] | None = None
    """Permutation of the program's result, which is stored in another order of dimensions."""


@dataclass(frozen=True)
class Built:
    """A graph as a program, for certain shapes."""

    source: Module | str
    """The program, or its text if another process has built it."""
    tensor_arguments: Sequence[int]
    """Arguments of the graph that are tensors, which are the arguments of the program."""
    is_random: bool
    """Whether the program has a last argument for the state of random numbers."""
    results: Sequence[Result]
    orders: Sequence[tuple[int, ...] | None] = ()
    """For each tensor of the arguments the permutation to the program's argument. None, or no entries: as it is."""

    @property
    def module(self) -> Module:
        """The program. Only of a graph that this process has built."""
        assert not isinstance(self.source, str), "the program is a text"
        return self.source


def new_state() -> np.ndarray:
    """A state of random numbers that follows from PyTorch's generator, which `torch.manual_seed` sets."""
    return torch.randint(-(2**63), 2**63 - 1, (2,), device="cpu").numpy().view(np.uint64)


def caller(exe: Any, built: Built, dtypes: Sequence[torch.dtype]) -> Callable[[Sequence[Any]], list[Any]]:
    """Returns the function that calls an executable with a graph's arguments, and returns the graph's results. From now
    on, PyTorch's threads run the tasks of programs: they would occupy the cores of others."""
    use_team(torch._C.__file__)
    orders = built.orders or [None] * len(dtypes)
    given = zip(built.tensor_arguments, dtypes, orders, strict=True)
    reads = [(i, reader(dtype, order)) for i, dtype, order in given]
    results = [_maker(r) for r in built.results]
    single = sum(r.index is not None for r in built.results) == 1
    is_random = built.is_random

    def call(arguments: Sequence[Any]) -> list[Any]:
        arrays = [read(arguments[i]) for i, read in reads]
        found = exe(*arrays, new_state()) if is_random else exe(*arrays)
        found = (found,) if single else found
        return [make(found, arguments) for make in results]

    only = built.results[0] if len(built.results) == 1 else None
    if is_random or only is None or only.index is None or only.order is not None or only.dtype is None:
        return call
    made = to_tensor(only.dtype)
    return lambda arguments: [made(exe(*[read(arguments[i]) for i, read in reads]))]


def _maker(result: Result) -> Callable[[Sequence[np.ndarray], Sequence[Any]], Any]:
    """Returns the function that takes a result from those of the program and from the graph's arguments."""
    index, order = result.index, result.order
    if index is None:
        literal, argument = result.literal, result.argument
        return lambda found, arguments: literal if argument is None else arguments[argument]
    assert result.dtype is not None
    made = to_tensor(result.dtype)
    if order is None:
        return lambda found, arguments: made(found[index])
    return lambda found, arguments: made(found[index]).permute(order)


@dataclass(frozen=True)
class Storable:
    """What is stored of a compiled graph: its program, and how it is called."""

    built: Built
    options: Mapping[str, Any]
    dtypes: tuple[torch.dtype, ...]
    """Element types of the arguments that are tensors."""

    def __getstate__(self) -> dict[str, Any]:
        source = self.built.source
        built = self.built if isinstance(source, str) else replace(self.built, source=content(source))
        return {"built": built, "options": dict(self.options), "dtypes": self.dtypes}

    def function(self) -> Callable[..., Any]:
        """Compiles the program, which usually is in the object cache, to a function of the graph's arguments."""
        return caller(compile_program(self.built.source, **self.options), self.built, self.dtypes)
