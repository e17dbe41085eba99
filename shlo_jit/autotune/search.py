"""The search: hill climbing for all steps at the same time.

A trial changes the schedule of one step or, as the time of every step is known, of several steps at once. Each
alternative is compared with the best schedule of its step so far, in calls that alternate. One that is faster by more
than the noise becomes the best, and the search continues from there. It ends when no alternative is left, or the time
is up.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic

from shlo_jit.autotune.bench import WHOLE, Bench, Moves, NotCompiled, Schedules, V, clock
from shlo_jit.autotune.comparison import LEAST_PAIRS, Comparison

LEAST_SHARE = 0.01
"""Smallest share in the time of a call for which a step is tuned."""
MOST_STEPS = 64
"""Number of steps that are tuned, those that take the most time."""
MOST_PAIRS = 40
"""Number of pairs of calls after which a trial that has not won has lost."""
MOST_FINAL_PAIRS = 200
"""Maximum number of pairs of calls in the final run."""
TRIAL_SECONDS = 1.0
"""Time after which a trial ends, if it has the pairs that it needs to win."""
FIRST_RUNS = 5
"""Number of runs that find the steps that take the time."""

OnEvent = Callable[[str], None]
"""Called with a line of text on what the search has found or is doing."""


@dataclass
class Tuned:
    """The search of one step."""

    label: str
    seconds: float
    """Time in a call before the search."""
    queue: Iterator[Moves]
    """Alternatives to the best schedule so far."""
    tried: set[frozenset[object]] = field(default_factory=set)
    asked: int = 0
    """Number of alternatives that it was asked for."""

    def next(self) -> Moves | None:
        """Returns the next alternative that has not been tried; None if there is none."""
        self.asked += 1
        for moves in self.queue:
            key = frozenset(moves)
            if key not in self.tried:
                self.tried.add(key)
                return moves
        return None


class Search(Generic[V]):
    """The state of a search: the best schedules so far, and the code for them."""

    def __init__(self, bench: Bench[V], start: Schedules, on_event: OnEvent = lambda text: None) -> None:
        """`start`: schedules that are known to be good. Raises NotCompiled if they are not accepted."""
        self.bench = bench
        self.best = dict(start)
        self.end = math.inf
        """The time, as `bench.now()` gives it, at which to stop."""
        self.notes: list[str] = []
        self._on_event = on_event
        began = bench.now()
        self.code = bench.timed(self.best)
        """The code with the best schedules so far."""
        self.first = self.code if not start else None
        """The code with the schedules that the compiler chooses, if the search has it."""
        self._compile_seconds = bench.now() - began
        self._alone: list[tuple[str, Moves]] = []
        """Alternatives that are tried again, one by one, because a trial of several failed."""
        runs = [bench.run(self.code) for _ in range(FIRST_RUNS)]
        times = {label: statistics.median(run[label] for run in runs) for label in runs[0]}
        self.seconds = times[WHOLE]
        """Time of a call before the search."""
        self.steps = {step.label: step for step in self._expensive_steps(times)}

    @property
    def tried(self) -> int:
        """Number of alternatives that were tried."""
        return sum(len(step.tried) for step in self.steps.values())

    def run(self) -> bool:
        """Searches until there is no time for another trial, or nothing is left to try. Returns whether nothing is
        left."""
        while self.bench.now() + self.trial_seconds < self.end:
            trial = self._next_trial()
            if not trial:
                return True
            self._on_event(f"tried {self.tried:,} schedules")
            self._try(trial)
        return False

    @property
    def trial_seconds(self) -> float:
        """Time of a short trial: to compile a program, and to call it as often as a gain needs."""
        return self._compile_seconds + 2 * LEAST_PAIRS * self.seconds

    # ------------------------------------------------------------------ trials
    def _expensive_steps(self, times: Mapping[str, float]) -> list[Tuned]:
        """The steps to tune: those that take the most time, and those that have a schedule already."""
        known = self.bench.steps()
        least = LEAST_SHARE * times[WHOLE]
        seconds = {label: times[clock(label)] for label in known if clock(label) in times}
        found = [label for label in seconds if seconds[label] >= least or label in self.best]
        found.sort(key=lambda label: (label not in self.best, -seconds[label]))
        return [Tuned(label, seconds[label], self.bench.alternatives(self.best, label)) for label in found[:MOST_STEPS]]

    def _next_trial(self) -> dict[str, Moves]:
        """An alternative for each step that has one left. Only one of a step and its stages is changed, since they
        share one time."""
        if self._alone:
            return dict([self._alone.pop()])
        found: dict[str, tuple[str, Moves]] = {}
        for label in sorted(self.steps, key=lambda label: self.steps[label].asked):
            if clock(label) not in found and (moves := self.steps[label].next()) is not None:
                found[clock(label)] = label, moves
        return dict(found.values())

    def _try(self, trial: dict[str, Moves]) -> None:
        try:
            code = self.bench.timed(self.best | trial)
        except NotCompiled as error:
            self._drop(trial, str(error))
            return
        if not self.bench.has_equal_results(code):
            self._drop(trial, "results have other bits")
            return
        end = min(self.end, self.bench.now() + TRIAL_SECONDS)
        compared = compare(self.bench, self.code, code, trial, end, is_decided=lambda c: c.wins or c.loses)
        winners = {label: moves for label, moves in trial.items() if compared[label].wins}
        if winners:
            self._accept(winners, code if len(winners) == len(trial) else None, compared)

    def _drop(self, trial: dict[str, Moves], why: str) -> None:
        """Drops a trial that cannot be compiled or gives other results. If it has several alternatives, each of them is
        tried alone."""
        if len(trial) > 1:
            self._alone += trial.items()
            return
        ((label, moves),) = trial.items()
        self.notes.append(f"step {label}: {self._changed(label, moves)}: dropped: {why}")

    def _accept(self, winners: dict[str, Moves], code: V | None, compared: dict[str, Comparison]) -> None:
        """Makes alternatives the best, unless with them other steps take more time than is gained."""
        schedules = self.best | winners
        try:
            code = self.bench.timed(schedules) if code is None else code
        except NotCompiled as error:
            self.notes.append(f"steps {', '.join(winners)} cannot be changed together: dropped: {error}")
            return
        end = min(self.end, self.bench.now() + TRIAL_SECONDS)
        whole = compare(self.bench, self.code, code, [WHOLE], end, is_decided=lambda c: c.wins)[WHOLE]
        found = [f"step {n}: {self._changed(n, moves)}: {compared[n].ratio:.2f}x" for n, moves in winners.items()]
        if whole.is_slower:
            self.notes += [f"{text}, but the whole program is slower: dropped" for text in found]
            return
        for text in found:
            self._on_event(text)
        self.best, self.code = schedules, code
        for label in winners:
            self.steps[label].queue = self.bench.alternatives(schedules, label)

    def _changed(self, label: str, moves: Moves) -> str:
        """The moves that the best schedule does not have, and those that only it has."""
        old = self.bench.moves(self.best, label)
        added, dropped = [str(m) for m in moves if m not in old], [f"no {m}" for m in old if m not in moves]
        return ", ".join([*added, *dropped][:4])


def compare(
    bench: Bench[V],
    before: V,
    after: V,
    labels: Iterable[str],
    end: float,
    most: int = MOST_PAIRS,
    is_decided: Callable[[Comparison], bool] = lambda comparison: False,
) -> dict[str, Comparison]:
    """Compares the times of some steps of two variants, in calls that alternate.

    There are enough pairs for a gain to count, and more of them until the time `end`, at most `most`; fewer if every
    step is decided.
    """
    found = {label: Comparison() for label in labels}
    for number in range(most):
        if number % 2:
            first, second = bench.run(before), bench.run(after)
        else:
            second, first = bench.run(after), bench.run(before)
        for label, comparison in found.items():
            comparison.add(first.get(clock(label), 0.0), second.get(clock(label), 0.0))
        is_late = number + 1 >= LEAST_PAIRS and bench.now() >= end
        if is_late or all(map(is_decided, found.values())):
            break
    return found
