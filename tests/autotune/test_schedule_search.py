"""The search and its final run, on programs whose times are formulas."""

from __future__ import annotations

import pytest
from fake_bench import Code, FakeBench, moves

from shlo_jit.autotune.bench import Schedules
from shlo_jit.autotune.search import Search
from shlo_jit.autotune.tune import Outcome, begin, confirm, rows, run
from shlo_jit.schedule.moves import Parallel


def fast_at(unroll: int, grain: int, seconds: float = 1e-3):
    """A step that takes `seconds` with this schedule, and a tenth more for each factor of 2 that it is off."""

    def time(u: int, g: int) -> float:
        off = abs(u.bit_length() - unroll.bit_length()) + abs(g.bit_length() - grain.bit_length())
        return seconds * (1 + 0.1 * off)

    return time


def searched(bench: FakeBench, start: Schedules | None = None, seconds: float = 60.0) -> tuple[Search[Code], Outcome]:
    end = bench.now() + seconds
    search = begin(bench, start or {}, seconds, lambda text: None)
    run(search)
    return search, confirm(bench, search, end)


def test_each_step_gets_its_best_schedule() -> None:
    bench = FakeBench({"0": fast_at(8, 4), "1": fast_at(1, 1), "2": fast_at(2, 16)})
    search, outcome = searched(bench)
    assert outcome.schedules == {"0": moves(8, 4), "2": moves(2, 16)}
    assert search.run(), "nothing is left to try"
    found = {row.label: row for row in rows(bench, search, outcome)}
    assert found["0"].ratio == pytest.approx(1.5) and found["0"].before_us == pytest.approx(1500)
    assert found["0"].after_us == pytest.approx(1000) and found["0"].lines == "line 1"
    assert found["1"].ratio == 1.0 and found["1"].tried == 2


def test_noise_does_not_mislead_the_search() -> None:
    steps = {"0": fast_at(8, 4), "1": fast_at(1, 1), "2": lambda u, g: 1e-3}
    for seed in range(10):
        search, outcome = searched(FakeBench(steps, noise=0.05, seed=seed))
        assert outcome.schedules == {"0": moves(8, 4)}, search.notes


def test_several_steps_are_tried_at_once() -> None:
    bench = FakeBench({str(i): fast_at(2, 1) for i in range(20)})
    search, outcome = searched(bench)
    assert len(outcome.schedules) == 20 and search.tried >= 60
    assert len(bench.compiled) < 20


def test_stages_are_tried_one_at_a_time() -> None:
    """A step and its stages share one time, so a gain must come from one of them."""
    bench = FakeBench({"0": fast_at(4, 1), "0/0": fast_at(1, 1), "0/1/0": fast_at(1, 8), "1": fast_at(2, 1)})
    search, outcome = searched(bench)
    assert outcome.schedules == {"0": moves(4, 1), "0/1/0": moves(1, 8), "1": moves(2, 1)}
    assert search.run() and {row.label for row in rows(bench, search, outcome)} == {"0", "0/0", "0/1/0", "1"}
    again = begin(bench, {}, 60.0, lambda text: None)
    trials = [again._next_trial() for _ in range(6)]
    assert all(len([label for label in trial if label != "1"]) <= 1 for trial in trials)
    assert [label for trial in trials for label in trial if label != "1"][:3] == ["0", "0/0", "0/1/0"]


def test_steps_that_take_no_time_are_not_tuned() -> None:
    search, _ = searched(FakeBench({"0": fast_at(1, 1), "1": fast_at(4, 4, 1e-6)}))
    assert list(search.steps) == ["0"]


def test_the_search_stops_when_the_time_is_up() -> None:
    bench = FakeBench({"0": fast_at(16, 16, 0.1)})
    start = bench.now()
    search, outcome = searched(bench, seconds=30)
    assert not search.run() and 2 <= search.tried < 8 and outcome.schedules
    assert bench.now() < start + 31


def test_calls_that_take_too_long_for_a_comparison_are_not_searched() -> None:
    bench = FakeBench({"0": fast_at(2, 1, 10.0)})
    search, outcome = searched(bench)
    assert search.tried == 0 and not outcome.schedules
    assert [row.before_us for row in rows(bench, search, outcome)] == [pytest.approx(11e6)]


def test_a_schedule_that_slows_other_steps_is_dropped() -> None:
    bench = FakeBench({"0": fast_at(2, 1), "1": fast_at(1, 1)})
    bench.besides = lambda schedules: 3e-4 if schedules.get("0") == moves(2, 1) else 0.0
    _, outcome = searched(bench)
    assert not outcome.schedules
    assert any("the whole program is slower" in note for note in outcome.notes)


def test_the_final_run_has_the_last_word() -> None:
    """What seems faster step by step, but not in the code that is used, is dropped."""
    bench = FakeBench({"0": fast_at(2, 1)})
    bench.besides = lambda schedules: 0.0
    search = begin(bench, {}, 60, lambda text: None)
    run(search)
    assert search.best == {"0": moves(2, 1)}
    bench.besides = lambda schedules: 1e-3 if schedules else 0.0
    outcome = confirm(bench, search, bench.now() + 5)
    assert outcome.schedules == {} and "not faster in the final run" in outcome.notes[-1]


def test_a_step_that_is_not_faster_at_the_end_gets_its_schedule_back() -> None:
    steps = {"0": fast_at(2, 1), "1": fast_at(2, 1)}
    bench = FakeBench(steps)
    search = begin(bench, {}, 60, lambda text: None)
    run(search)
    assert set(search.best) == {"0", "1"}
    steps["1"] = fast_at(1, 1)
    assert confirm(bench, search, bench.now() + 5).schedules == {"0": moves(2, 1)}


def test_refused_and_wrong_schedules_are_dropped_with_a_note() -> None:
    bench = FakeBench({"0": fast_at(8, 1), "1": fast_at(1, 8)})
    bench.refused = lambda schedules: "no such code" if schedules.get("1") == moves(1, 2) else ""
    bench.is_wrong = lambda schedules: "0" in schedules and schedules["0"][1] == Parallel(2)
    _, outcome = searched(bench)
    assert outcome.schedules == {"0": moves(8, 1)}
    assert "step 1: parallel(grain=2), no parallel(grain=1): dropped: no such code" in outcome.notes
    assert any("step 0: parallel(grain=2)" in note and "other bits" in note for note in outcome.notes)


def test_a_search_starts_from_a_stored_schedule() -> None:
    bench = FakeBench({"0": fast_at(8, 4), "1": fast_at(1, 1)})
    search, outcome = searched(bench, {"0": moves(8, 2)})
    assert outcome.schedules == {"0": moves(8, 4)} and search.tried <= 9
    assert bench.compiled[0] == {"0": moves(8, 2)}


def test_a_stored_schedule_for_a_step_that_takes_little_time_is_kept() -> None:
    bench = FakeBench({"0": fast_at(1, 1), "1": fast_at(16, 1, 9e-6)})
    assert searched(bench, {"1": moves(16, 1)})[1].schedules == {"1": moves(16, 1)}


@pytest.mark.parametrize("what", ["refused", "wrong"])
def test_a_stored_schedule_that_is_refused_or_wrong_is_not_used(what: str) -> None:
    bench = FakeBench({"0": fast_at(2, 1)})
    bench.refused = lambda schedules: "why" if what == "refused" and schedules.get("0") == moves(4, 4) else ""
    bench.is_wrong = lambda schedules: what == "wrong" and schedules.get("0") == moves(4, 4)
    assert searched(bench, {"0": moves(4, 4)})[1].schedules == {"0": moves(2, 1)}


def test_a_stored_schedule_that_is_slower_is_dropped() -> None:
    bench = FakeBench({"0": fast_at(1, 1)})
    assert searched(bench, {"0": moves(16, 16)}, seconds=1e-3)[1].schedules == {}


def test_an_interrupt_keeps_what_was_won() -> None:
    bench = FakeBench({"0": fast_at(8, 1)})
    search = begin(bench, {}, 60, lambda text: None)

    def interrupt(code: Code) -> None:
        if search.best and code.schedules != search.best:
            raise KeyboardInterrupt

    bench.on_run = interrupt
    assert not run(search)
    bench.on_run = lambda code: None
    outcome = confirm(bench, search, bench.now())
    assert outcome.schedules == {"0": moves(2, 1)} and outcome.notes[0].startswith("interrupted")
