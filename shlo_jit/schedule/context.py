"""What schedulers know besides the op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from shlo_jit.fuse.plan import ControlStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.moves import Move


class Context(NamedTuple):
    """The inputs of schedulers besides the op."""

    target: Target
    is_known_call: Callable[[str], bool]
    """Whether the user or the runtime has an implementation of a custom call of that name."""
    read: Mapping[Value, int] = MappingProxyType({})
    """Values that the plan's steps read and its blocks return, with the number of readers."""
    matrices: int = 0
    """Total bytes of the second operands of the plan's products, as far as known: the working set of a run."""
    loops: Mapping[int, ControlStep] = MappingProxyType({})
    """Maps a product's step, by id(), to the loop before which its second operand can be packed."""
    has_lapack: Callable[[], bool] = lambda: True
    """Whether LAPACK is available."""
    processes: int = 1
    """Number of processes in the grid."""
    reaches: bool = True
    """Whether processes can write to each other's memory, and all of them intend to because they run the same
    program."""
    on_routine: Callable[[Routine], None] = lambda routine: None
    """Called with each routine of a step as soon as the step is scheduled, so that it can be compiled in the
    meantime."""
    given: Mapping[int, Sequence[Move]] = MappingProxyType({})
    """Maps the id() of a step to the moves that a caller gave for its loop nest or product."""
