"""Schedules of custom calls of LAPACK routines: the workspaces that a call needs besides its matrices.

Workspaces are part of the program's arena. Their sizes are those the routines document, with room for blocks of
LAPACK_BLOCK columns if a routine runs faster with it. All matrices of a batch use the same workspaces, one after the
other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from shlo_jit import tuning
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.externals import LAPACK_MISSING
from shlo_jit.passes.factorizations.lapack_call import Call, read_call
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.scratch import Field, Scratch

INT_BYTES = 4
LARGEST = 2**31 - 1
"""Largest integer that LAPACK takes: its integers have 32 bits."""


@dataclass(frozen=True)
class Workspace:
    """Memory that a routine works in, for one matrix."""

    name: str
    """The name in LAPACK's documentation; for a copy, the name of the copied operand."""
    elements: int
    itemsize: int
    """Bytes per element."""
    takes_length: bool = False
    """Whether the routine takes the workspace's length as an argument."""

    @property
    def length(self) -> int:
        """The length argument: at least 1, as LAPACK requires."""
        return max(1, self.elements)

    @property
    def field(self) -> Field:
        """The workspace's field in the arena: at least one byte, so that no other field has the same address."""
        return Field(self.name, max(1, self.elements * self.itemsize))


@dataclass(frozen=True, kw_only=True)
class LapackSchedule(KernelSchedule):
    """Schedule of a call of LAPACK."""

    call: Call
    workspaces: dict[str, Workspace]
    """The workspaces by name, in the order of scratch memory."""

    @property
    def notes(self) -> list[Note]:
        call = self.call
        sizes = ", ".join(f"{w.name} {w.elements} x {w.itemsize} bytes" for w in self.workspaces.values())
        head = Note("lapack", f"{call.letter}{call.routine}, {'once' if call.count == 1 else f'{call.count} times'}")
        return [head, Note("workspaces", sizes)] if sizes else [head]


def schedule_lapack(step: OpStep, context: Context) -> KernelSchedule:
    """Schedules a custom_call whose target `lapack_target` knows. Raises UnsupportedError if an operand that must be
    constant is not, if LAPACK is missing, or if a number does not fit LAPACK's integers."""
    call = read_call(step.op)
    if not context.has_lapack():
        target = step.op.attributes["call_target_name"]
        raise UnsupportedError(
            diagnose(f"custom_call: @{target} {LAPACK_MISSING}", step.op.span, label="lapack-missing")
        )
    workspaces = {w.name: w for w in WORKSPACES[call.routine](call)}
    _check_numbers(call, workspaces)
    if call.count == 0:
        return NOTHING
    scratch = Scratch(tuple(w.field for w in workspaces.values()))
    return LapackSchedule(call=call, workspaces=workspaces, scratch=scratch)


def _check_numbers(call: Call, workspaces: dict[str, Workspace]) -> None:
    """Raises UnsupportedError if a workspace length or an operand's extent exceeds LAPACK's integers. All other integer
    arguments are at most as large."""
    integers = [w.length for w in workspaces.values() if w.takes_length]
    integers += [extent for name in call.operands for extent in reversed(call.core(name))]
    for number in integers:
        if number > LARGEST:
            target = call.op.attributes["call_target_name"]
            message = f"custom_call: @{target} needs integers up to {number} for these sizes; LAPACK's have 32 bits"
            raise UnsupportedError(diagnose(message, call.op.span, label="too-large"))


# ---------------------------------------------------------------------------- workspaces, routine by routine
def _elements(call: Call, name: str, elements: int) -> Workspace:
    """A workspace of matrix elements whose length is not an argument."""
    return Workspace(name, elements, call.itemsize)


def _reals(call: Call, name: str, elements: int) -> Workspace:
    return Workspace(name, elements, call.part_bytes)


def _ints(name: str, elements: int) -> Workspace:
    return Workspace(name, elements, INT_BYTES)


def _work(call: Call, elements: int) -> Workspace:
    """The workspace of matrix elements that most routines have."""
    return Workspace("work", elements, call.itemsize, takes_length=True)


def _rwork(call: Call, elements: int) -> list[Workspace]:
    """The workspace of real numbers that routines for complex matrices also have."""
    return [_reals(call, "rwork", elements)] if call.is_complex else []


def _nothing(call: Call) -> list[Workspace]:
    return []


def _columns(call: Call) -> list[Workspace]:
    return [_work(call, call.columns("x") * tuning.LAPACK_BLOCK)]


def _geqp3(call: Call) -> list[Workspace]:
    n = call.columns("x")
    return [_work(call, 2 * n + (n + 1) * tuning.LAPACK_BLOCK), *_rwork(call, 2 * n)]


def _ormqr(call: Call) -> list[Workspace]:
    m, n = call.rows("c"), call.columns("c")
    copy = _elements(call, "a", math.prod(call.core("a")))
    return [copy, _work(call, (max(m, n) + tuning.LAPACK_BLOCK + 1) * tuning.LAPACK_BLOCK)]


def _gtsv_perturbed(call: Call) -> list[Workspace]:
    n = call.length("d")
    if n == 0:
        return []
    copies = [_elements(call, "dl", n - 1), _elements(call, "d", n), _elements(call, "du", n - 1)]
    return [*copies, _elements(call, "du2", n - 1), _ints("ipiv", n)]


def _gesdd(call: Call) -> list[Workspace]:
    m, n = call.rows("x"), call.columns("x")
    small, large = min(m, n), max(m, n)
    work = _work(call, 4 * small * small + 7 * small + 3 * large + (m + n) * tuning.LAPACK_BLOCK)
    rwork = _rwork(call, max(5 * small * small + 7 * small, 2 * large * small + 2 * small * small + small))
    return [work, *rwork, _ints("iwork", 8 * small)]


def _gesvd(call: Call) -> list[Workspace]:
    m, n = call.rows("x"), call.columns("x")
    small, large = min(m, n), max(m, n)
    return [
        _work(call, small * small + 5 * small + 3 * large + (m + n) * tuning.LAPACK_BLOCK),
        *_rwork(call, 5 * small),
    ]


def _syevd(call: Call) -> list[Workspace]:
    n = call.columns("x")
    iwork = Workspace("iwork", 3 + 5 * n, INT_BYTES, takes_length=True)
    if not call.is_complex:
        return [_work(call, 1 + 6 * n + 2 * n * n + n * tuning.LAPACK_BLOCK), iwork]
    rwork = Workspace("rwork", 1 + 5 * n + 2 * n * n, call.part_bytes, takes_length=True)
    return [_work(call, 2 * n + n * n + n * tuning.LAPACK_BLOCK), rwork, iwork]


def _gehrd(call: Call) -> list[Workspace]:
    return [_work(call, (call.columns("x") + tuning.LAPACK_BLOCK + 1) * tuning.LAPACK_BLOCK)]


def _gees(call: Call) -> list[Workspace]:
    n = call.columns("x")
    return [_work(call, 3 * n + n * tuning.LAPACK_BLOCK), *_rwork(call, n), _ints("bwork", n)]


def _geev(call: Call) -> list[Workspace]:
    n = call.columns("x")
    both = [_elements(call, "x", n * n), _work(call, 4 * n + 2 * n * tuning.LAPACK_BLOCK)]
    if call.is_complex:
        return [*both, *_rwork(call, 2 * n)]
    return [*both, _reals(call, "vl", n * n), _reals(call, "vr", n * n)]


WORKSPACES: dict[str, Callable[[Call], list[Workspace]]] = {
    "potrf": _nothing,
    "getrf": _nothing,
    "geqrf": _columns,
    "geqp3": _geqp3,
    "orgqr": _columns,
    "ormqr": _ormqr,
    "gtsv": _nothing,
    "gtsv_perturbed": _gtsv_perturbed,
    "trsm": _nothing,
    "gesdd": _gesdd,
    "gesvd": _gesvd,
    "syevd": _syevd,
    "sytrd": _columns,
    "gehrd": _gehrd,
    "gees": _gees,
    "geev": _geev,
}
"""For each routine, the workspaces it needs, in the order of scratch memory."""
