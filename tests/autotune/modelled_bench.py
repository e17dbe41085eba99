"""A compiled program whose times follow from its schedule, not from a clock."""

from __future__ import annotations

from typing import Any, ClassVar

from shlo_jit.autotune.bench import WHOLE, Moves, ProgramBench, Schedules, Variant, clock
from shlo_jit.schedule.moves import Keep, Parallel, Unroll, Vectorize, of_kind


def modelled_seconds(moves: Moves) -> float:
    """A step takes the less time, the smaller its tasks are, and the less it keeps; and most with 4 vectors or lanes."""
    seconds = 1e-3 + 1e-4 * len(of_kind(moves, Keep))
    seconds += sum(1e-4 * move.grain.bit_length() for move in of_kind(moves, Parallel))
    return seconds + sum(2e-4 for m in moves if isinstance(m, Unroll | Vectorize) and 4 in m.arguments.values())


class ModelledBench(ProgramBench):
    """Compiles and calls the program like any bench, to see whether results are right."""

    started: ClassVar[list[Schedules]] = []
    """The schedules of the first timed variant of each search."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._time = 0.0
        self._has_started = False
        self._times: dict[int, dict[str, float]] = {}
        self._alive: list[Variant] = []

    def timed(self, schedules: Schedules) -> Variant:
        if not self._has_started:
            self.started.append(dict(schedules))
        self._has_started = True
        return self._noted(super().timed(schedules), schedules)

    def plain(self, schedules: Schedules) -> Variant:
        return self._noted(super().plain(schedules), schedules)

    def _noted(self, variant: Variant, schedules: Schedules) -> Variant:
        self._alive.append(variant)
        times: dict[str, float] = {}
        for label in self.steps():
            seconds = modelled_seconds(self.moves(schedules, label))
            times[clock(label)] = times.get(clock(label), 0.0) + seconds
        self._times[id(variant)] = {**times, WHOLE: sum(times.values())}
        return variant

    def run(self, variant: Variant) -> dict[str, float]:
        times = self._times[id(variant)]
        self._time += times[WHOLE]
        return times

    def now(self) -> float:
        return self._time
