"""What a pass may know beside the function it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from shlo_jit.ir.core import Module, Op, Value
from shlo_jit.passes.rewriter import Rewriter

Registered = Callable[[str], bool]
"""Whether the user has an implementation of a custom call's target, or of the composite of a name."""


def nothing_registered(target: str) -> bool:
    """The user has no implementations."""
    return False


Channels = Mapping[int, tuple[tuple[int, int], ...]]
"""Handle of a channel -> the process numbers of (sender, receiver), of sends and receives that do not say it: where
processes run different programs, the caller knows who is at the other end."""
NO_CHANNELS: Channels = MappingProxyType({})


Code = Mapping[str, Callable[[Rewriter, Op, list[Value]], Sequence[Value]]]
"""Target of a custom call, or name of a composite -> what writes the values that stand for its results: of the targets
whose implementations are code that is compiled with the program."""
NO_CODE: Code = MappingProxyType({})


class Outlined:
    """Functions that are made of regions of one function, in order, and not yet gone through the passes."""

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.functions: list[Op] = []

    def new_name(self, what: str) -> str:
        """A name that no function has yet: a program's own names have no colon before a space and a number."""
        return f"{self.caller}: {what} {len(self.functions)}"


class Context(NamedTuple):
    """The program around a function. Every pass takes `(function, context)`; one that needs no context says `_`."""

    module: Module
    """As verified: has the functions that custom calls name."""
    is_registered: Registered = nothing_registered
    as_written: Op | None = None
    """The function before all passes, where it may contradict itself (`refuse_contradictions.py`)."""
    num_replicas: int = 1
    num_partitions: int = 1
    """The grid of processes that run the program."""
    channels: Channels = NO_CHANNELS
    same_program: bool = True
    """All processes run this program."""
    code: Code = NO_CODE
    fold_scales: bool = False
    """Whether factors may go into weights (`canonical/fold_scales.py`)."""
    functions: Outlined | None = None
    """Functions that passes have made of regions (`regions/outline.py`); None where a pass runs by itself."""
