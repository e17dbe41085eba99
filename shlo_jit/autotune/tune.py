"""Implementation of `shlo_jit.tune`: a search, and a final run in which the old and the new program alternate."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from shlo_jit.autotune.bench import WHOLE, Bench, NotCompiled, ProgramBench, Schedules, V, Variant, given
from shlo_jit.autotune.comparison import Comparison
from shlo_jit.autotune.result import TunedStep, TuneResult
from shlo_jit.autotune.search import MOST_FINAL_PAIRS, Search, compare
from shlo_jit.errors import UsageValueError
from shlo_jit.options import StoredSchedule
from shlo_jit.runtime import build, stored_schedules
from shlo_jit.runtime.distributed import DistributedExecutable
from shlo_jit.runtime.dynamic import DynamicExecutable
from shlo_jit.runtime.executable import Executable, Tunable
from shlo_jit.runtime.host import TAKES
from shlo_jit.runtime.stored_schedules import ANY_ROUNDING, EXACT
from shlo_jit.schedule.moves import to_json

FINAL = 0.15
"""Part of the time that is for the final run. It is more if calls take long."""

Progress = Callable[[str, float, float], None]
"""Called with the current activity, the seconds that have passed, and the total."""


class Outcome(NamedTuple):
    """What a search has won, confirmed by the final run."""

    schedules: Schedules
    steps: Mapping[str, Comparison]
    """Times of the steps, before and after; empty without a final run."""
    before: float
    """Time of a call in seconds."""
    ratio: float
    """Time of a call before, divided by that after; 1.0 if nothing was won."""
    notes: tuple[str, ...]


def tune_executable(
    made: object, arrays: Sequence[Any], seconds: float, any_rounding: bool, progress: Progress
) -> TuneResult:
    """Tunes a program that was compiled with the compiler's schedule, for calls with these arrays.

    Raises UsageValueError for programs that cannot be tuned, and the errors of a call.
    """
    executable = _tunable_code(made, arrays)
    tunable = executable.tunable()
    bench = ProgramBench(tunable, executable, arrays, any_rounding)
    kind = ANY_ROUNDING if any_rounding else EXACT
    start = bench.now()

    def on_event(text: str) -> None:
        progress(text, bench.now() - start, seconds)

    search = begin(bench, _stored(tunable, kind), seconds, on_event)
    if not bench.is_repeatable:
        search.notes.append("results differ from call to call: they were not compared")
    is_complete = run(search)
    on_event("comparing with the program before")
    outcome = confirm(bench, search, start + seconds)
    moves = given(outcome.schedules)
    return TuneResult(
        executable=bench.plain(outcome.schedules).executable,
        schedule={label: to_json(found) for label, found in moves},
        steps=rows(bench, search, outcome),
        before_us=1e6 * outcome.before,
        after_us=1e6 * outcome.before / outcome.ratio,
        ratio=outcome.ratio,
        tried=search.tried,
        seconds=bench.now() - start,
        is_complete=is_complete,
        is_stored=_store(tunable, kind, outcome.schedules),
        notes=outcome.notes,
    )


def _tunable_code(made: object, arrays: Sequence[Any]) -> Executable:
    """The code for calls with these arrays. Raises UsageValueError if it cannot be tuned."""
    code = made.executable(arrays) if isinstance(made, DynamicExecutable) else made
    if not isinstance(code, Executable):
        what = "several processes" if isinstance(made, DistributedExecutable) else "sizes that depend on data"
        raise UsageValueError(f"tune: programs with {what} cannot be tuned", code="argument.program")
    callbacks = code._front.instance.loaded.program.callbacks
    waiting = [call.target for call in callbacks if call.target in TAKES]
    if waiting:
        message = f"tune: the program waits for data of the host ({waiting[0]}), so it cannot be called many times"
        raise UsageValueError(message, code="argument.program")
    return code


# ---------------------------------------------------------------------- the search
def begin(bench: Bench[V], start: Schedules, seconds: float, on_event: Callable[[str], None]) -> Search[V]:
    """Prepares a search from a stored schedule, which with its final run takes `seconds`. If that schedule is refused,
    or gives other results, the search starts from scratch."""
    now, search = bench.now(), None
    if start:
        with contextlib.suppress(NotCompiled):
            if bench.has_equal_results(bench.plain(start)):
                search = Search(bench, start, on_event)
    search = Search(bench, {}, on_event) if search is None else search
    # The final run consists of two comparisons, with code that has to be compiled.
    search.end = now + seconds - max(FINAL * seconds, 2 * search.trial_seconds)
    return search


def run(search: Search[V]) -> bool:
    """Searches until the time is up or the user interrupts. Returns whether nothing is left to try."""
    try:
        return search.run()
    except KeyboardInterrupt:
        search.notes.append("interrupted: this is what was won until then")
        search.end = search.bench.now()
        return False


def confirm(bench: Bench[V], search: Search[V], end: float) -> Outcome:
    """Compares the program with the compiler's schedule and with what was won, in calls that alternate.

    Steps that are not faster any more get the compiler's schedule back; all of them do if the program is not faster.
    """
    notes = [*search.notes]
    if not search.best:
        return Outcome({}, {}, search.seconds, 1.0, tuple(notes))
    middle = bench.now() + max(0.0, end - bench.now()) / 2
    first = bench.timed({}) if search.first is None else search.first
    steps = compare(bench, first, search.code, search.steps, middle, MOST_FINAL_PAIRS)
    won = {label: moves for label, moves in search.best.items() if label in steps and steps[label].is_faster}
    notes += [f"step {label}: not faster in the final run: dropped" for label in search.best if label not in won]
    after = bench.plain(won)
    has_equal_results = bench.has_equal_results(after)
    whole = compare(bench, bench.plain({}), after, [WHOLE], end, MOST_FINAL_PAIRS)[WHOLE]
    if won and not (has_equal_results and whole.is_faster):
        why = "was not faster" if has_equal_results else "gave other bits"
        notes.append(f"the whole program {why} in the final run: everything was dropped")
        won = {}
    return Outcome(won, steps, statistics.median(whole.before), whole.ratio if won else 1.0, tuple(notes))


def rows(bench: Bench[V], search: Search[V], outcome: Outcome) -> tuple[TunedStep, ...]:
    """The rows of the result's table."""
    known, found = bench.steps(), []
    for label, step in search.steps.items():
        compared, before, ratio = outcome.steps.get(label), step.seconds, 1.0
        if compared is not None:
            before = statistics.median(compared.before)
            ratio = compared.ratio if label in outcome.schedules else 1.0
        times = 1e6 * before, 1e6 * before / ratio
        found.append(TunedStep(label, *known[label], *times, ratio, len(step.tried)))
    return tuple(found)


# ---------------------------------------------------------------------- stored schedules
def _stored(tunable: Tunable, kind: StoredSchedule) -> Schedules:
    cache = build.resolve_cache(tunable.options.cache)
    found = None if cache is None else stored_schedules.find(tunable.identity, tunable.options, kind, cache)
    return dict(found or ())


def _store(tunable: Tunable, kind: StoredSchedule, schedules: Schedules) -> bool:
    """Stores what was won; deletes a stored schedule that is no longer faster. Returns whether there is one now."""
    cache = build.resolve_cache(tunable.options.cache)
    if cache is None:
        return False
    key = stored_schedules.key_of(tunable.identity, tunable.options, kind)
    if not schedules:
        cache.forget(key)
        return False
    return stored_schedules.store(key, given(schedules), cache)


__all__ = ["Progress", "Variant", "tune_executable"]
