"""Times of steps, in programs that are compiled for profiling: the clock is read before and after each step.

The host provides memory in the instance's field `profile`, with records and optionally room for events, as
`codegen/abi.py` describes them. A clock read takes about 25 ns; one of its two is part of a step's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

from shlo_jit.codegen.abi import (
    EVENT,
    EVENT_BYTES,
    PROFILE,
    PROFILE_BYTES,
    PROFILE_HEAD_BYTES,
    PROFILE_SAMPLES,
    Field,
)
from shlo_jit.codegen.program import TimedStep
from shlo_jit.fuse.plan import ControlStep, OpStep, PlanBlock, Step, ViewStep, labels_of, lines_of, source_ops
from shlo_jit.ir.core import Op
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, const, i32, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.lower.scope import Scope
from shlo_jit.schedule.traffic import step_operations, step_traffic
from shlo_jit.sizes import Size, equal

CLOCK, BEGIN, END, NOTE = "shlo_clock", "shlo_begin", "shlo_end", "shlo_note"
MONOTONIC = 1
"""Value of CLOCK_MONOTONIC."""
SHOWN_OPS = 6
"""Maximum number of ops that a step's line names."""


class Timing:
    """The timed steps of a program, in the order of their records."""

    def __init__(self, module: ModuleText, wanted: bool) -> None:
        self.wanted = wanted
        self.steps: list[TimedStep] = []
        self.kernels: list[dict[str, None]] = []
        """Names of the kernels of each of `steps`."""
        self.open: list[int] = []
        """Numbers of the steps around the current place, innermost last; some may belong to functions around this
        one."""
        self.labels: dict[int, str] = {}
        if wanted:
            _write_functions(module)

    @contextmanager
    def function(self, scope: Scope, name: str, plan: PlanBlock, is_entry: bool) -> Iterator[None]:
        """Times the steps of a function of the program; the entry's time is that of the whole call."""
        if not self.wanted:
            yield
            return
        prefix = "" if is_entry else f"@{name} "
        self.labels = {key: prefix + label for key, label in labels_of(plan).items()}
        with self._timed(scope, TimedStep("", f"@{name}", category="call")) if is_entry else nullcontext():
            yield

    def note_kernel(self, name: str) -> None:
        """Records that the current step runs a kernel of this name."""
        if self.open:
            self.kernels[self.open[-1]][name] = None

    @contextmanager
    def step(self, scope: Scope, step: Step, routines: Iterable[Routine], several: bool = False) -> Iterator[None]:
        """Times the code of a step, which calls these routines; `several`: it runs more than once."""
        if not self.wanted or isinstance(step, ViewStep):
            yield
            return
        is_call = isinstance(step, OpStep) and step.op.name == "func.call"
        operations = None if several else step_operations(step)
        what = TimedStep(
            label=self.labels[id(step)],
            title=step.title,
            nbytes=_known(step_traffic(step).total) or 0,
            operations=None if operations is None else _known(operations.total),
            ops=_described(source_ops(step)),
            category="control" if is_call or isinstance(step, ControlStep) else "step",
        )
        with self._timed(scope, what):
            for routine in routines:
                self.note_kernel(routine.name)
            yield

    @contextmanager
    def copies(self, scope: Scope, step: Step | None, nbytes: int) -> Iterator[None]:
        """Times the copies before a step, or at the end of a block."""
        if not self.wanted or equal(nbytes, 0):
            yield
            return
        label = "end" if step is None else f"before {self.labels[id(step)]}"
        with self._timed(scope, TimedStep(label, "copy", nbytes=2 * (_known(nbytes) or 0), category="copy")):
            yield

    @contextmanager
    def part(self, scope: Scope, title: str) -> Iterator[None]:
        """Times a part of the current step, such as waiting for other ranks."""
        if not self.wanted:
            yield
            return
        around = self.steps[self.open[-1]]
        with self._timed(scope, TimedStep(around.label, title, category="part")):
            yield

    @contextmanager
    def _timed(self, scope: Scope, what: TimedStep) -> Iterator[None]:
        number, b = len(self.steps), scope.b
        self.steps.append(what)
        self.kernels.append({})
        profile = scope.field("profile")
        event = b.call("ptr", BEGIN, [profile, i64(number)], declare=False)
        start = b.call("i64", CLOCK, [], declare=False)
        self.open.append(number)
        # If the function returns early, the event ends, and the run of the step is not recorded.
        scope.before_failing.append(partial(_end, b, event, start))
        yield
        self.open.pop()
        scope.before_failing.pop()
        now = _end(b, event, start)
        record = b.offset(profile, PROFILE_HEAD_BYTES + number * PROFILE_BYTES)
        b.call("void", NOTE, [record, b.sub(now, start)], declare=False)

    def result(self) -> tuple[TimedStep, ...]:
        """The steps with the names of their kernels."""
        pairs = zip(self.steps, self.kernels, strict=True)
        return tuple(step._replace(kernels=tuple(names)) for step, names in pairs)


def _end(b: Builder, event: V, start: V) -> V:
    """Emits the end of an event. Returns the time."""
    now = b.call("i64", CLOCK, [], declare=False)
    b.call("void", END, [event, start, now], declare=False)
    return now


def _known(number: int | None) -> int | None:
    """A number, unless it is known only at the call."""
    return None if isinstance(number, Size) else number


def _described(ops: list[Op]) -> str:
    """Names of the ops, and their source lines."""
    names = [op.name.removeprefix("stablehlo.") for op in ops]
    names = list(dict.fromkeys(names))
    shown = " ".join(names[:SHOWN_OPS]) + (f" and {len(names) - SHOWN_OPS} more" if len(names) > SHOWN_OPS else "")
    where = lines_of(ops)
    return f"{shown} ({where})" if where else shown


def _write_functions(module: ModuleText) -> None:
    """Writes the functions that are called around each step."""
    _write_clock(module)
    _write_begin(module)
    _write_end(module)
    _write_note(module)


def _write_clock(module: ModuleText) -> None:
    """Writes `i64 shlo_clock()`, which returns nanoseconds."""
    b = module.function(CLOCK, [], "i64", attributes="nounwind")
    time = b.alloca("i64", 2)
    b.call("i32", "clock_gettime", [i32(MONOTONIC), time])
    seconds, rest = b.load("i64", time), b.load("i64", b.element(time, "i64", 1))
    b.ret(b.add(b.mul(seconds, 1_000_000_000), rest))


def _write_begin(module: ModuleText) -> None:
    """Writes `ptr shlo_begin(ptr profile, i64 step)`, which returns the address of the step's event, or null."""
    b = module.function(BEGIN, [("ptr", "profile"), ("i64", "step")], "ptr", attributes="nounwind")
    profile, step = b.params
    null = const("ptr", 0)
    events = b.load("ptr", b.offset(profile, PROFILE["events"].offset))
    with b.if_(b.icmp("eq", events, null)):
        b.ret_early(null)
    begun = b.offset(profile, PROFILE["begun"].offset)
    place = b.emit("i64", f"atomicrmw add ptr {begun.text}, i64 1 monotonic")
    with b.if_(b.icmp("sge", place, b.load("i64", b.offset(profile, PROFILE["room"].offset)))):
        b.ret_early(null)
    event = b.offset(events, b.mul(place, EVENT_BYTES))
    _store(b, step, event, EVENT["step"])
    _store(b, b.call("i64", "pthread_self", []), event, EVENT["thread"])
    b.ret(event)


def _write_end(module: ModuleText) -> None:
    """Writes `void shlo_end(ptr event, i64 begin, i64 end)`; the event may be null."""
    b = module.function(END, [("ptr", "event"), ("i64", "begin"), ("i64", "end")], attributes="nounwind")
    event, begin, end = b.params
    with b.if_(b.icmp("ne", event, const("ptr", 0))):
        _store(b, begin, event, EVENT["begin"])
        _store(b, end, event, EVENT["end"])
    b.ret()


def _store(b: Builder, value: V, record: V, field: Field) -> None:
    b.store(value, b.offset(record, field.offset))


def _write_note(module: ModuleText) -> None:
    """Writes `void shlo_note(ptr record, i64 time)`, which adds a time to a record."""
    b = module.function(NOTE, [("ptr", "record"), ("i64", "time")], attributes="nounwind")
    record, taken = b.params
    calls, total = b.load("i64", record), b.load("i64", b.offset(record, 8))
    b.store(b.add(calls, i64(1)), record)
    b.store(b.add(total, taken), b.offset(record, 8))
    b.store(taken, b.element(b.offset(record, 16), "i64", b.urem(calls, PROFILE_SAMPLES)))
    b.ret()
