"""The decisions about a step, made before any code is written for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable

from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.routine import Routine
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.moves import Move
from shlo_jit.schedule.scratch import Scratch


@dataclass(frozen=True, kw_only=True)
class KernelSchedule:
    """How a step runs. The subclass of a kernel has all that its writer in `lower/kernels` needs to know."""

    scratch: Scratch = field(default_factory=Scratch)
    """Memory in the arena that the step works in."""
    lasting: bool = False
    """Whether that memory is reserved for the step until the program ends."""
    routines: tuple[Routine, ...] = ()
    """Shared objects that the step calls."""

    @property
    def notes(self) -> list[Note]:
        """The decisions, in printable form."""
        return []

    @property
    def is_tasks(self) -> bool:
        """Whether the step is one set of tasks, with nothing but short work of the caller before and after. Only such a
        step can run in a parallel region with others (see `regions.py`)."""
        return False

    @property
    def stage_schedules(self) -> Sequence[KernelSchedule | None]:
        """For each stage of the step, its schedule if that is moves which a caller may give."""
        return ()

    def streaming_where(self, allowed: Allowed) -> Self:
        """The schedule without streaming stores to targets that are not allowed; `self` if it has none."""
        return self


@runtime_checkable
class HasMoves(Protocol):
    """A schedule that is moves, which a caller may give."""

    @property
    def moves(self) -> tuple[Move, ...]:
        """The decisions as moves."""
        ...


Allowed = Callable[[Nest, Value], bool]
"""Whether memory allows a nest to write a target with streaming stores."""
NOTHING = KernelSchedule()
"""Schedule of a step that runs nothing."""


def schedule_call(step: OpStep, context: object) -> KernelSchedule:
    """Schedule of a call of one of the program's functions: there is nothing to decide. Its scratch memory is the
    callee's arena, which is known once the callee's memory has been planned."""
    return KernelSchedule()


def schedule_token(step: OpStep, context: object) -> KernelSchedule:
    """Schedule of after_all and create_token: tokens order ops while a program is planned, and have no effect at run
    time."""
    return NOTHING
