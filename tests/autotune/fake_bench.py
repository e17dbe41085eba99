"""A program whose steps have times by a formula, and a clock that only calls of it move: searches without measuring."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from shlo_jit.autotune.bench import WHOLE, Known, Moves, NotCompiled, Schedules, clock
from shlo_jit.schedule.moves import Parallel, Unroll, of_kind

Seconds = Callable[[int, int], float]
"""Time of a step by its unrolling and the grain of its tasks."""


class Code(NamedTuple):
    """A variant of the program."""

    schedules: Schedules
    is_timed: bool


def moves(unroll: int, grain: int) -> Moves:
    return Unroll(0, unroll), Parallel(grain)


class FakeBench:
    """A bench of steps, and of stages within them (`2/0`), that are unrolled 1, 2, 4, ... times, with tasks of 1, 2, 4, ... units."""

    is_repeatable = True

    def __init__(self, steps: Mapping[str, Seconds], noise: float = 0.0, seed: int = 0) -> None:
        """`noise`: the largest relative error of a time; times are only ever too long, and sometimes by far."""
        self._steps = steps
        self._noise = noise
        self._random = random.Random(seed)
        self._now = 100.0
        self.refused: Callable[[Schedules], str] = lambda schedules: ""
        """Says why schedules cannot be compiled."""
        self.is_wrong: Callable[[Schedules], bool] = lambda schedules: False
        """Says whether results have other bits."""
        self.besides: Callable[[Schedules], float] = lambda schedules: 0.0
        """Time of a call that belongs to no step that can be tuned."""
        self.on_run: Callable[[Code], None] = lambda code: None
        self.compiled: list[Schedules] = []

    def steps(self) -> dict[str, Known]:
        return {label: Known("loop", f"line {i + 1}") for i, label in enumerate(self._steps)}

    def moves(self, schedules: Schedules, label: str) -> Moves:
        return schedules.get(label, moves(1, 1))

    def alternatives(self, schedules: Schedules, label: str) -> Iterator[Moves]:
        unroll, grain = _numbers(self.moves(schedules, label))
        for factor in (2.0, 0.5):
            if 1 <= unroll * factor <= 16:
                yield moves(int(unroll * factor), grain)
            if 1 <= grain * factor <= 16:
                yield moves(unroll, int(grain * factor))

    def timed(self, schedules: Schedules) -> Code:
        return self._compiled(schedules, True)

    def plain(self, schedules: Schedules) -> Code:
        return self._compiled(schedules, False)

    def _compiled(self, schedules: Schedules, is_timed: bool) -> Code:
        self._now += 0.01
        self.compiled.append(schedules)
        if why := self.refused(schedules):
            raise NotCompiled(why)
        return Code(schedules, is_timed)

    def has_equal_results(self, variant: Code) -> bool:
        return not self.is_wrong(variant.schedules)

    def run(self, variant: Code) -> dict[str, float]:
        self.on_run(variant)
        times: dict[str, float] = {}
        for label, seconds in self._steps.items():
            own = self._noisy(seconds(*_numbers(self.moves(variant.schedules, label))))
            times[clock(label)] = times.get(clock(label), 0.0) + own
        whole = sum(times.values()) + self._noisy(self.besides(variant.schedules))
        self._now += whole
        return {**(times if variant.is_timed else {}), WHOLE: whole}

    def _noisy(self, seconds: float) -> float:
        late = 3.0 if self._noise and self._random.random() < 0.1 else 0.0
        return seconds * (1 + self._noise * self._random.random() + late)

    def now(self) -> float:
        return self._now


def _numbers(found: Moves) -> tuple[int, int]:
    ((unroll,), (grain,)) = of_kind(found, Unroll), of_kind(found, Parallel)
    return unroll.by, grain.grain
