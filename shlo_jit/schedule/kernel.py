"""What is decided about a step before any code is written for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.routine import Routine
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.scratch import Scratch


@dataclass(frozen=True, kw_only=True)
class KernelSchedule:
    """How a step runs. A kernel's own subclass has all that its writer in `lower/kernels` needs to know."""

    scratch: Scratch = field(default_factory=Scratch)
    """Memory in the arena that the step works in."""
    lasting: bool = False
    """Whether that is the step's alone until the program ends."""
    routines: tuple[Routine, ...] = ()
    """Shared objects that it calls."""

    @property
    def notes(self) -> list[Note]:
        """What was decided, for people."""
        return []


NOTHING = KernelSchedule()
"""Of a step that runs nothing."""


def schedule_call(step: OpStep, context: object) -> KernelSchedule:
    """Of a call of one of the program's functions: there is nothing to decide. Its scratch memory, the callee's arena,
    is known once the callee's memory has been planned."""
    return KernelSchedule()


def schedule_token(step: OpStep, context: object) -> KernelSchedule:
    """Of after_all and create_token: tokens order ops while a program is planned; at run time they are nothing."""
    return NOTHING
