"""after_all and create_token: tokens order ops while a program is planned; at run time they are nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.fuse.plan import OpStep
from shlo_jit.lower.kernels import Kernel

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering


def lower(low: ProgramLowering, step: OpStep) -> None:
    """Nothing runs."""


KERNEL = Kernel(lower)
