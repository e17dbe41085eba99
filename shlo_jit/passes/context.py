"""What a pass may know beside the function it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from shlo_jit.ir.core import Module, Op

Registered = Callable[[str], bool]
"""Whether the user has an implementation of a custom call's target, or of the composite of a name."""


def nothing_registered(target: str) -> bool:
    """The user has no implementations."""
    return False


class Context(NamedTuple):
    """The program around a function. Every pass takes `(function, context)`; one that needs no context says `_`."""

    module: Module
    """As verified: has the functions that custom calls name."""
    is_registered: Registered = nothing_registered
    as_written: Op | None = None
    """The function before all passes, where it may contradict itself (`refuse_contradictions.py`)."""
