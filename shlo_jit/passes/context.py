"""The context of a pass: what it may know besides the function it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from shlo_jit.caches import PLAIN, Caches
from shlo_jit.ir.core import Module, Op, Value
from shlo_jit.passes.rewriter import Rewriter

Registered = Callable[[str], bool]
"""Whether the user has an implementation of a custom call's target, or of the composite with a given name."""


def nothing_registered(target: str) -> bool:
    """Returns False: the user has no implementations."""
    return False


Channels = Mapping[int, tuple[tuple[int, int], ...]]
"""Channel handle -> the process numbers of (sender, receiver), for sends and receives that do not name them: if
processes run different programs, only the caller knows both ends."""
NO_CHANNELS: Channels = MappingProxyType({})


Code = Mapping[str, Callable[[Rewriter, Op, list[Value]], Sequence[Value]]]
"""Target of a custom call, or name of a composite -> a function that emits the replacements of its results. These are
the targets whose implementations are code that is compiled with the program."""
NO_CODE: Code = MappingProxyType({})


class Outlined:
    """Functions outlined from regions of one function, in order; they have not run through the passes yet."""

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.functions: list[Op] = []

    def new_name(self, what: str) -> str:
        """Returns a name that no function has yet: a program's own names have no colon before a space and a number."""
        return f"{self.caller}: {what} {len(self.functions)}"


class Context(NamedTuple):
    """The program around a function. Every pass takes `(function, context)`; a pass that needs no context names it
    `_`."""

    module: Module
    """The verified module; it has the functions that custom calls name."""
    is_registered: Registered = nothing_registered
    as_written: Op | None = None
    """The function before all passes, if it may contradict itself (`refuse_contradictions.py`)."""
    num_replicas: int = 1
    num_partitions: int = 1
    """The grid of processes that run the program."""
    channels: Channels = NO_CHANNELS
    same_program: bool = True
    """Whether all processes run this program."""
    code: Code = NO_CODE
    fold_scales: bool = False
    """Whether scale factors may be folded into weights (`canonical/fold_scales.py`)."""
    round_activations: str | None = None
    """The type to which activations of products with low-bit weights are rounded: `int8`, or None."""
    assume_finite: bool = False
    """Whether numbers that a mask leaves out may be taken as finite (`canonical/masked_products.py`)."""
    reproducible: bool = False
    """Whether the sums of a product must not depend on the number of rows or on the target (docs/accuracy.md)."""
    caches: Caches = PLAIN
    """The caches of the target, for what pays only if they hold it."""
    has_lapack: Callable[[], bool] = lambda: True
    """Whether the program can call LAPACK; otherwise its factorizations are loops of core ops."""
    functions: Outlined | None = None
    """Functions that passes have outlined from regions (`regions/outline.py`); None if a pass runs standalone."""
