"""Points where a running program can be interrupted: between steps and at loop iterations, with a check after a given
amount of work.

A check is a call of the instance's `pause`; a status other than OK becomes the program's status. It is for signals (see
`runtime/signals.py`), and takes about 30 ns if there is nothing to do. Work is counted at compile time in straight-line
code (`Scope.work`). Each iteration of a loop subtracts the work of its body from a budget in a register.
"""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.codegen import abi
from shlo_jit.kernels.llvm_values import i64
from shlo_jit.lower.scope import Scope


def spend(scope: Scope, work: int) -> None:
    """Records work done in straight-line code, and emits a check if there was enough of it."""
    scope.work += work
    if scope.work >= tuning.PAUSE_WORK:
        scope.work = 0
        check(scope)


def end_iteration(scope: Scope) -> None:
    """Emits the budget update at the end of a loop iteration. At the head of the loop, `work` was 0."""
    b, work = scope.b, scope.work + tuning.STEP_WORK
    if scope.budget is None:
        scope.budget = b.variable(i64(tuning.PAUSE_WORK))
    left = b.sub(b.load("i64", scope.budget), work)
    b.store(left, scope.budget)
    with b.if_(b.icmp("slt", left, 0), "pause"):
        b.store(i64(tuning.PAUSE_WORK), scope.budget)
        check(scope)


def end_function(scope: Scope) -> None:
    """Emits a check at the end of a function that others call, maybe in a loop: callers do not know of the iterations
    in it."""
    if scope.budget is not None:
        check(scope)


def check(scope: Scope) -> None:
    scope.leave_unless_ok(scope.b.call_pointer("i32", scope.field("pause"), []), abi.NO_CALL)
