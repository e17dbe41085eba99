"""What the search measures: an interface, so that the search is tested without a clock, and its implementation for a
compiled program."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from shlo_jit.errors import InternalError
from shlo_jit.fuse.plan import Step, lines_of, source_ops
from shlo_jit.kernels.target import Target
from shlo_jit.options import GivenMoves, OptionError
from shlo_jit.runtime.executable import Executable, Tunable
from shlo_jit.runtime.measured import ProfileMemory
from shlo_jit.schedule.alternatives import alternatives, can_be_tuned, moves_of
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.moves import Move
from shlo_jit.schedule.schedule import schedules_with_moves

Moves = tuple[Move, ...]
Schedules = Mapping[str, Moves]
"""Moves by the label of the step; steps without an entry have the schedule that the compiler chooses."""
WHOLE = ""
"""Label of a call as a whole."""
STAGES = re.compile(r"(/\d+)+$")
"""What the label of a stage has after that of its step."""
V = TypeVar("V")


class NotCompiled(Exception):
    """A schedule that cannot be compiled."""


class Known(NamedTuple):
    """A step that can be tuned."""

    title: str
    lines: str
    """Lines of its ops in the text; empty if they are in none."""


class Bench(Protocol, Generic[V]):
    """Code for several schedules of one program, and its times."""

    def steps(self) -> Mapping[str, Known]:
        """Returns the steps that can be tuned, by label."""
        ...

    def moves(self, schedules: Schedules, label: str) -> Moves:
        """Returns the moves of a step's schedule, also if that is the compiler's."""
        ...

    def alternatives(self, schedules: Schedules, label: str) -> Iterator[Moves]:
        """Yields alternatives to the schedule of a step."""
        ...

    def timed(self, schedules: Schedules) -> V:
        """Compiles the program so that the times of its steps are known. Raises NotCompiled."""
        ...

    def plain(self, schedules: Schedules) -> V:
        """Compiles the program as it is used. Raises NotCompiled."""
        ...

    def has_equal_results(self, variant: V) -> bool:
        """Whether the results are, bit for bit, those of the program with no schedule given."""
        ...

    def run(self, variant: V) -> Mapping[str, float]:
        """Calls the program, once or several times. Returns the shortest time in seconds of each step by label, and of
        the whole call; only the latter for a plain variant. Stages have no times of their own; see `clock`."""
        ...

    def now(self) -> float:
        """Returns the time in seconds."""
        ...


class Variant(NamedTuple):
    """A program with some schedule, compiled."""

    executable: Executable
    labels: list[str]
    """Label of each record; `?` for records of anything but a step or the whole call."""
    memory: ProfileMemory | None
    """The records; None for a plain variant."""


RUN_SECONDS, MOST_CALLS = 1e-3, 50
"""Calls of a short program are repeated: up to that time, and that often."""


class ProgramBench:
    """Variants of a compiled program, called with some arrays."""

    def __init__(self, tunable: Tunable, default: Executable, arrays: Sequence[Any], any_rounding: bool) -> None:
        """`default` is the program with no schedule given. It is called here. Raises the errors of a call."""
        self._tunable = tunable
        self._target: Target = tunable.options.target
        self._default = default
        self._arrays = list(arrays)
        self._any_rounding = any_rounding
        self._calls = 1
        self._planned: tuple[Schedules, dict[str, tuple[Step, KernelSchedule]]] | None = None
        self._expected = self._results(default)
        self.is_repeatable = self._results(default) == self._expected
        """Whether two calls give the same bits."""

    # ------------------------------------------------------------------ schedules
    def steps(self) -> dict[str, Known]:
        """See `Bench`."""
        found = self._scheduled({})
        return {label: Known(step.title, lines_of(source_ops(step))) for label, (step, _) in found.items()}

    def moves(self, schedules: Schedules, label: str) -> Moves:
        """See `Bench`."""
        return moves_of(self._scheduled(schedules)[label][1])

    def alternatives(self, schedules: Schedules, label: str) -> Iterator[Moves]:
        """See `Bench`."""
        step, scheduled = self._scheduled(schedules)[label]
        return alternatives(step, scheduled, self._target, any_rounding=self._any_rounding)

    def _scheduled(self, schedules: Schedules) -> dict[str, tuple[Step, KernelSchedule]]:
        """The steps that can be tuned, and how they are scheduled, by label."""
        if self._planned is None or self._planned[0] != schedules:
            *callees, entry = self._tunable.planned(given(schedules))
            found = {}
            for prefix, function in [*((f"@{f.name}:", f) for f in callees), ("", entry)]:
                for label, step, scheduled in schedules_with_moves(function.plan, function.schedule):
                    if can_be_tuned(scheduled):
                        found[prefix + label] = step, scheduled
            self._planned = dict(schedules), found
        return self._planned[1]

    # ------------------------------------------------------------------ code
    def timed(self, schedules: Schedules) -> Variant:
        """See `Bench`."""
        try:
            executable = self._tunable.timed(given(schedules))
        except (OptionError, InternalError) as error:
            raise NotCompiled(str(error)) from error
        instance = executable._front.instance
        steps = instance.loaded.program.timed
        memory = ProfileMemory(len(steps), 0)
        instance.note_times(memory)
        kept = "step", "call"
        return Variant(executable, [_label(s.label) if s.category in kept else "?" for s in steps], memory)

    def plain(self, schedules: Schedules) -> Variant:
        """See `Bench`."""
        try:
            executable = self._tunable.variant(given(schedules)) if schedules else self._default
        except (OptionError, InternalError) as error:
            raise NotCompiled(str(error)) from error
        return Variant(executable, [], None)

    # ------------------------------------------------------------------ calls
    def has_equal_results(self, variant: Variant) -> bool:
        """See `Bench`. Results that differ from call to call, or may be rounded in any way, count as equal."""
        found = self._results(variant.executable)
        return self._any_rounding or not self.is_repeatable or found == self._expected

    def run(self, variant: Variant) -> dict[str, float]:
        """See `Bench`."""
        best: dict[str, float] = {}
        for _ in range(self._calls):
            for label, seconds in self._call(variant).items():
                best[label] = min(seconds, best.get(label, seconds))
        self._calls = max(1, min(MOST_CALLS, int(RUN_SECONDS / max(best[WHOLE], 1e-9))))
        return best

    def _call(self, variant: Variant) -> dict[str, float]:
        arguments = self._arguments(variant.executable)
        if variant.memory is None:
            start = time.perf_counter()
            variant.executable(*arguments)
            return {WHOLE: time.perf_counter() - start}
        totals = variant.memory.records[:, 1]
        before = totals.copy()
        variant.executable(*arguments)
        times = (totals - before) * 1e-9
        return {label: float(seconds) for label, seconds in zip(variant.labels, times, strict=True) if label != "?"}

    def _results(self, executable: Executable) -> list[bytes]:
        found = executable(*self._arguments(executable))
        return [np.asarray(x).tobytes() for x in (found if isinstance(found, tuple) else (found,))]

    def _arguments(self, executable: Executable) -> list[Any]:
        """The arrays; copies of those that the program overwrites."""
        overwritten = executable.overwritten
        return [np.array(x) if i in overwritten else x for i, x in enumerate(self._arrays)]

    def now(self) -> float:
        """See `Bench`."""
        return time.monotonic()


def given(schedules: Schedules) -> GivenMoves:
    """The moves as an option of the compiler."""
    return tuple(sorted(schedules.items()))


def clock(label: str) -> str:
    """The label of the step whose time is measured: a stage of it (`2/0`) has no time of its own."""
    return STAGES.sub("", label)


def _label(timed: str) -> str:
    """The label by which moves are given, from that of a timed step: `@name 2` is `@name:2`."""
    return timed.replace(" ", ":", 1) if timed.startswith("@") else timed
