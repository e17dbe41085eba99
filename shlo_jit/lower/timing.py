"""Times of steps, in programs that are compiled to be profiled: a look at the clock before and after each.

The host gives memory by the instance's field `profile`, an array of records as `codegen/abi.py` describes them. A look
takes some 25 ns, and each step has one of its two in its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shlo_jit.codegen.abi import PROFILE_BYTES, PROFILE_SAMPLES
from shlo_jit.codegen.program import TimedStep
from shlo_jit.fuse.plan import ControlStep, PlanBlock, Step, ViewStep, labels_of, lines_of, source_ops
from shlo_jit.ir.core import Op
from shlo_jit.kernels.builder import ModuleText, i32, i64
from shlo_jit.schedule.traffic import step_bytes, step_operations
from shlo_jit.sizes import equal, hint_of

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering

CLOCK, NOTE = "shlo_clock", "shlo_note"
MONOTONIC = 1
"""The number of CLOCK_MONOTONIC."""
SHOWN_OPS = 6
"""Ops of a step that its line names."""


class Timing:
    """Of one program: the steps whose times are noted, in the order of their records."""

    def __init__(self, low: ProgramLowering, wanted: bool) -> None:
        self.low = low
        self.wanted = wanted
        self.steps: list[TimedStep] = []
        self.kernels: list[dict[str, None]] = []
        """Names of the kernels of each of `steps`."""
        self.open: list[int] = []
        """Numbers of the steps around the place being written."""
        self.labels: dict[int, str] = {}
        if wanted:
            _write_functions(low.module)

    def begin_function(self, name: str, plan: PlanBlock, is_entry: bool) -> None:
        """A function is about to be written."""
        if self.wanted:
            prefix = "" if is_entry else f"@{name} "
            self.labels = {key: prefix + label for key, label in labels_of(plan).items()}

    def note_kernel(self, name: str) -> None:
        """The step being written runs a kernel of this name."""
        if self.open:
            self.kernels[self.open[-1]][name] = None

    @contextmanager
    def step(self, step: Step) -> Iterator[None]:
        """Around what runs a step."""
        if not self.wanted or isinstance(step, ViewStep):
            yield
            return
        operations = step_operations(step)
        what = TimedStep(
            label=self.labels[id(step)],
            title=step.title,
            nbytes=hint_of(step_bytes(step)),
            operations=None if operations is None else hint_of(operations),
            ops=_described(source_ops(step)),
            is_control=isinstance(step, ControlStep),
        )
        with self._timed(what):
            for routine in self.low.schedule[step].routines:
                self.note_kernel(routine.name)
            yield

    @contextmanager
    def copies(self, step: Step | None, nbytes: int) -> Iterator[None]:
        """Around copies before a step, or at the end of a block."""
        if not self.wanted or equal(nbytes, 0):
            yield
            return
        label = "end" if step is None else f"before {self.labels[id(step)]}"
        with self._timed(TimedStep(label, "copy", nbytes=2 * hint_of(nbytes))):
            yield

    @contextmanager
    def _timed(self, what: TimedStep) -> Iterator[None]:
        number = len(self.steps)
        self.steps.append(what)
        self.kernels.append({})
        self.open.append(number)
        start = self.low.b.call("i64", CLOCK, [], declare=False)
        yield
        b = self.low.b
        taken = b.sub(b.call("i64", CLOCK, [], declare=False), start)
        record = b.offset(self.low.scope.field("profile"), number * PROFILE_BYTES)
        b.call("void", NOTE, [record, taken], declare=False)
        self.open.pop()

    def result(self) -> tuple[TimedStep, ...]:
        """The steps with the names of their kernels."""
        pairs = zip(self.steps, self.kernels, strict=True)
        return tuple(step._replace(kernels=tuple(names)) for step, names in pairs)


def _described(ops: list[Op]) -> str:
    """Names of the ops, and the lines they are from."""
    names = [op.name.removeprefix("stablehlo.") for op in ops]
    names = list(dict.fromkeys(names))
    shown = " ".join(names[:SHOWN_OPS]) + (f" and {len(names) - SHOWN_OPS} more" if len(names) > SHOWN_OPS else "")
    where = lines_of(ops)
    return f"{shown} ({where})" if where else shown


def _write_functions(module: ModuleText) -> None:
    """`i64 shlo_clock()`, nanoseconds, and `void shlo_note(ptr record, i64 time)`."""
    b = module.function(CLOCK, [], "i64", attributes="nounwind")
    time = b.alloca("i64", 2)
    b.call("i32", "clock_gettime", [i32(MONOTONIC), time])
    seconds, rest = b.load("i64", time), b.load("i64", b.element(time, "i64", 1))
    b.ret(b.add(b.mul(seconds, 1_000_000_000), rest))
    b = module.function(NOTE, [("ptr", "record"), ("i64", "time")], attributes="nounwind")
    record, taken = b.params
    calls, total = b.load("i64", record), b.load("i64", b.offset(record, 8))
    b.store(b.add(calls, i64(1)), record)
    b.store(b.add(total, taken), b.offset(record, 8))
    b.store(taken, b.element(b.offset(record, 16), "i64", b.urem(calls, PROFILE_SAMPLES)))
    b.ret()
