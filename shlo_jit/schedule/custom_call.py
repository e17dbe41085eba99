"""Scheduling of custom_call: selects the kernel that runs a call."""

from __future__ import annotations

from dataclasses import dataclass

from shlo_jit.errors import Diagnostic, UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import TensorType
from shlo_jit.ops.grouped import GROUPED
from shlo_jit.ops.in_place import updates
from shlo_jit.ops.known_calls import AMONG_PROCESSES, CODE, DRAW, JAX_CALLBACK, SHAPE_ASSERTION, SIZE, SORT, START
from shlo_jit.ops.lapack_records import lapack_target
from shlo_jit.ops.machine_code import MachineCode
from shlo_jit.ops.type_algebra import constant_value
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.tasks import Tasks, cut
from shlo_jit.sizes import NotSymbolic


@dataclass(frozen=True, kw_only=True)
class CallbackSchedule(KernelSchedule):
    """Schedule of a call of an implementation that the user or the runtime has registered."""

    target: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    """The results that are tensors."""
    aliases: dict[int, int]
    """Maps a result to the operand whose memory it shares."""

    @property
    def notes(self) -> list[Note]:
        out = [
            Note(
                "call",
                f"the implementation of @{self.target}",
                Reason("registered", "a function is registered for this target"),
            )
        ]
        pairs = ", ".join(
            f"result {result} in the memory of operand {operand}" for result, operand in self.aliases.items()
        )
        return [*out, Note("aliases", pairs)] if pairs else out


@dataclass(frozen=True, kw_only=True)
class CodeSchedule(KernelSchedule):
    """Schedule of a call of machine code that is compiled with the program."""

    code: MachineCode
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    tasks: Tasks

    @property
    def notes(self) -> list[Note]:
        out = [Note("call", f"machine code of {self.code.name}", self.code.why)]
        return [*out, self.tasks.note("element")] if self.code.by_elements else out


@dataclass(frozen=True, kw_only=True)
class DrawSchedule(KernelSchedule):
    """Schedule of a fresh key, unused by any rng of this program: see `passes/expand/rng.py`."""

    @property
    def notes(self) -> list[Note]:
        return [Note("call", "the program's own counter")]


@dataclass(frozen=True, kw_only=True)
class SizeSchedule(KernelSchedule):
    """Schedule of a size as data; the size is known only at the call."""

    size: int


@dataclass(frozen=True, kw_only=True)
class StartSchedule(KernelSchedule):
    """Schedule of the start of a collective op that finishes later."""

    number: int
    """The number that identifies the pair: the collective op has the same."""


def schedule_custom_call(step: OpStep, context: Context) -> KernelSchedule:
    """Selects the kernel of a custom_call. Registered implementations take precedence over built-in ones. Raises
    UnsupportedError for a target without an implementation, and the errors of `schedule_lapack`."""
    op = step.op
    target = op.attributes["call_target_name"]
    if target == DRAW:
        return DrawSchedule()
    if target == SIZE:
        return SizeSchedule(size=op.attributes["size"])
    if target == CODE:
        return _code(op)
    if target == SORT:
        from shlo_jit.schedule.sort import schedule_sort_by_function

        return schedule_sort_by_function(step, context)
    if target == GROUPED:
        from shlo_jit.schedule.grouped import schedule_grouped

        return schedule_grouped(step, context)
    if target in AMONG_PROCESSES:
        from shlo_jit.schedule.collective import schedule_collective

        return schedule_collective(step, context)
    if target == START:
        return StartSchedule(number=op.int("started"))
    if not context.is_known_call(target):
        if lapack_target(target) is None:
            raise UnsupportedError(_unknown(op, target))
        from shlo_jit.schedule.lapack import schedule_lapack

        return schedule_lapack(step, context)
    if target == SHAPE_ASSERTION and _holds(op.operands[0]):
        return NOTHING
    operands, results = _tensors(op.operands), _tensors(op.results)
    if not all(v.tensor.is_fixed for v in (*operands, *results)):
        raise NotSymbolic("fixed-shapes-only", f"the implementation of @{target} takes arrays of fixed shapes only")
    return CallbackSchedule(
        target=target,
        operands=operands,
        results=results,
        aliases={list(op.results).index(r): list(op.operands).index(o) for o, r in updates(op)},
    )


def _unknown(op: Op, target: str) -> Diagnostic:
    """The diagnostic for a target without an implementation. For callbacks of JAX into Python, it says how to run the
    program."""
    what = f"custom_call: no callable is registered for target @{target}"
    if JAX_CALLBACK.fullmatch(target):
        what += ": it is a Python function that exists only in the process in which JAX traced it"
        hint = "call shlo_jit.jax.jit(f), or run JAX with JAX_PLATFORMS=shlo (docs/jax.md)"
        return diagnose(
            what, op.span, op=op.name, label="jax-callback", hint=hint, found=target, code="unsupported.jax_callback"
        )
    hint = f"pass one: shlo_jit.compile(..., custom_calls={{{target!r}: f}})"
    return diagnose(
        what, op.span, op=op.name, label="unregistered-call", hint=hint, found=target, code="unsupported.custom_call"
    )


def _code(op: Op) -> CodeSchedule:
    code = op.attributes["code"]
    assert isinstance(code, MachineCode)
    units = op.result.tensor.size if code.by_elements else 1
    tasks = cut(units, units * code.cost) if code.by_elements else Tasks(1, 1)
    operands, results = tuple(op.operands), tuple(op.results)
    return CodeSchedule(code=code, operands=operands, results=results, tasks=tasks, routines=(code.routine,))


def _tensors(values: list[Value]) -> tuple[Value, ...]:
    return tuple(v for v in values if isinstance(v.type, TensorType))


def _holds(condition: Value) -> bool:
    """Whether a condition is known at compile time to be true."""
    known = constant_value(condition)
    return known is not None and bool(known)
