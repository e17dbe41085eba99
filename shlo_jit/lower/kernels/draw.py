"""The custom call `shlo_jit.draw` of `passes/expand/rng.py`: a key no rng of this program has had yet.

The program's module has a counter of its own, which calls in several threads share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.builder import i64

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering

COUNTER = "shlo_draws"


def lower(low: ProgramLowering, step: OpStep) -> None:
    b = low.b
    low.module.define_global(COUNTER, "internal global i64 0, align 8")
    key = b.emit("i64", f"atomicrmw add ptr @{COUNTER}, i64 1 monotonic")
    state = low.pointer(step.op.result)
    b.store(key, state)
    b.store(i64(0), b.element(state, "i64", 1))
