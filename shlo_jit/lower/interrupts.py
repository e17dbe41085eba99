"""Where a running program can be stopped: between steps and at the turns of loops, a look every so much work.

A look is a call of the instance's `pause`; a status other than OK is the program's, too. It is for signals (see
`runtime/signals.py`), and takes some 30 ns when there is nothing to do. Work is counted at compile time in straight
lines; each turn of a loop takes that of its body from a budget in a register.
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
    """Of one function of the program, and its parts."""

    def __init__(self, low: ProgramLowering) -> None:
        self.low = low
        self.since = 0
        """Work on the way to the place being written, since the last look or the head of the loop around it."""

    def spend(self, work: int) -> None:
        """Work was done in a straight line."""
        self.since += work
        if self.since >= tuning.PAUSE_WORK:
            self.since = 0
            self.look()

    def turn(self) -> None:
        """At the end of a turn of a loop, at whose head `since` was 0."""
        scope, work = self.low.scope, self.since + tuning.STEP_WORK
        b = scope.b
        if scope.budget is None:
            scope.budget = b.variable(i64(tuning.PAUSE_WORK))
        left = b.sub(b.load("i64", scope.budget), work)
        b.store(left, scope.budget)
        with b.if_(b.icmp("slt", left, 0), "pause"):
            b.store(i64(tuning.PAUSE_WORK), scope.budget)
            self.look()

    def leave(self) -> None:
        """At the end of a function that others call, maybe in a loop: they know nothing of the turns in it."""
        if self.low.scope.budget is not None:
            self.look()

    def look(self) -> None:
        b = self.low.b
        leave_unless_ok(self.low, b.call_pointer("i32", self.low.scope.field("pause"), []), abi.NO_CALL)
