"""Points where a running program can be interrupted: between steps and at loop iterations, with a check after a given
amount of work.

A check is a call of the instance's `pause`; a status other than OK becomes the program's status. It is for signals (see
`runtime/signals.py`), and takes about 30 ns if there is nothing to do. Work is counted at compile time in straight-line
code. Each iteration of a loop subtracts the work of its body from a budget in a register.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit import tuning
from shlo_jit.codegen import abi
from shlo_jit.kernels.llvm_values import i64
from shlo_jit.lower.control import leave_unless_ok

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering


class Pauses:
    """The interrupt checks of one function of the program, and of its parts."""

    def __init__(self, low: ProgramLowering) -> None:
        self.low = low
        self.since = 0
        """Work on the path to the current place, since the last check or the head of the loop around it."""

    def spend(self, work: int) -> None:
        """Records work done in straight-line code, and emits a check if there was enough of it."""
        self.since += work
        if self.since >= tuning.PAUSE_WORK:
            self.since = 0
            self.check()

    def end_iteration(self) -> None:
        """Emits the budget update at the end of a loop iteration. At the head of the loop `since` was 0."""
        scope, work = self.low.scope, self.since + tuning.STEP_WORK
        b = scope.b
        if scope.budget is None:
            scope.budget = b.variable(i64(tuning.PAUSE_WORK))
        left = b.sub(b.load("i64", scope.budget), work)
        b.store(left, scope.budget)
        with b.if_(b.icmp("slt", left, 0), "pause"):
            b.store(i64(tuning.PAUSE_WORK), scope.budget)
            self.check()

    def leave(self) -> None:
        """Emits a check at the end of a function that others call, maybe in a loop: callers do not know of the
        iterations in it."""
        if self.low.scope.budget is not None:
            self.check()

    def check(self) -> None:
        b = self.low.b
        leave_unless_ok(self.low, b.call_pointer("i32", self.low.scope.field("pause"), []), abi.NO_CALL)
