"""`shlo_jit.tune`: what it returns is right, is stored, and is used again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from modelled_bench import ModelledBench

import shlo_jit
from shlo_jit.autotune import tune as tune_module
from shlo_jit.runtime import cache, stored_schedules
from shlo_jit.schedule.moves import from_json

ROWS = """
func.func @main(%x: tensor<64x300xf32>) -> tensor<64x300xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %e = stablehlo.exponential %x : tensor<64x300xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x300xf32>, tensor<f32>) -> tensor<64xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<64xf32>) -> tensor<64x300xf32>
  %d = stablehlo.divide %e, %b : tensor<64x300xf32>
  return %d : tensor<64x300xf32>
}"""
SHORT = 0.15
"""Modelled seconds of a search that tries a few schedules; calls take a few milliseconds."""
X = np.random.default_rng(0).normal(size=(64, 300)).astype(np.float32)
LOOP = """
func.func private @half(%x: tensor<400x40xf32>) -> tensor<400x40xf32> {
  %h = stablehlo.constant dense<0.5> : tensor<400x40xf32>
  %y = stablehlo.multiply %x, %h : tensor<400x40xf32>
  return %y : tensor<400x40xf32>
}
func.func @main(%x: tensor<400x40xf32>) -> tensor<400x40xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<3> : tensor<i32>
  %r:2 = stablehlo.while(%z = %x, %i = %zero) : tensor<400x40xf32>, tensor<i32> cond {
    %l = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  } do {
    %s = stablehlo.sine %z : tensor<400x40xf32>
    %f = stablehlo.reverse %s, dims = [0] : tensor<400x40xf32>
    %a = stablehlo.add %f, %z : tensor<400x40xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %a, %j : tensor<400x40xf32>, tensor<i32>
  }
  %t = func.call @half(%r#0) : (tensor<400x40xf32>) -> tensor<400x40xf32>
  return %t : tensor<400x40xf32>
}"""


ATTENTION = """
func.func @main(%q: tensor<4x96x32xf32>, %k: tensor<4x96x32xf32>, %v: tensor<4x96x32xf32>) -> tensor<4x96x32xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2]
    : (tensor<4x96x32xf32>, tensor<4x96x32xf32>) -> tensor<4x96x96xf32>
  %m = stablehlo.reduce(%s init: %low) applies stablehlo.maximum across dimensions = [2]
    : (tensor<4x96x96xf32>, tensor<f32>) -> tensor<4x96xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0, 1] : (tensor<4x96xf32>) -> tensor<4x96x96xf32>
  %d = stablehlo.subtract %s, %mb : tensor<4x96x96xf32>
  %e = stablehlo.exponential %d : tensor<4x96x96xf32>
  %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2]
    : (tensor<4x96x96xf32>, tensor<f32>) -> tensor<4x96xf32>
  %tb = stablehlo.broadcast_in_dim %t, dims = [0, 1] : (tensor<4x96xf32>) -> tensor<4x96x96xf32>
  %p = stablehlo.divide %e, %tb : tensor<4x96x96xf32>
  %y = stablehlo.dot_general %p, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : (tensor<4x96x96xf32>, tensor<4x96x32xf32>) -> tensor<4x96x32xf32>
  return %y : tensor<4x96x32xf32>
}"""
QKV = [np.random.default_rng(i).normal(size=(4, 96, 32)).astype(np.float32) for i in range(3)]


def moves_of(exe: Any) -> dict[str, Any]:
    return {label: from_json(moves) for label, moves in json.loads(exe.text("moves")).items()}


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("schedule-*.shlo"))


def test_the_winner_is_faster_and_gives_the_same_bits(modelled: type[ModelledBench]) -> None:
    default = shlo_jit.compile(ROWS)
    result = shlo_jit.tune(ROWS, X, seconds=30)
    assert result.ratio > 1.05 and result.after_us < result.before_us and result.is_complete and not result.notes
    np.testing.assert_array_equal(result.executable(X), default(X))
    assert not [move for move in result.schedule["0"] if move["move"] == "keep"]
    (step,) = result.steps
    assert step.label == "0" and step.lines == "lines 4-8" and step.tried == result.tried > 5
    assert step.ratio == pytest.approx(step.before_us / step.after_us)
    again = shlo_jit.compile(ROWS, schedule=result.schedule)
    assert moves_of(again) == moves_of(result.executable) != moves_of(default)


def test_loops_within_row_blocks_are_tuned(modelled: type[ModelledBench]) -> None:
    """The softmax between two products has a schedule of its own, under the label of its stage."""
    result = shlo_jit.tune(ATTENTION, *QKV, seconds=30)
    assert [step.label for step in result.steps] == ["0", "0/1"] and all(step.tried > 2 for step in result.steps)
    assert result.ratio > 1.0 and "0/1" in result.schedule
    again = shlo_jit.compile(ATTENTION, schedule=result.schedule)
    np.testing.assert_array_equal(again(*QKV), shlo_jit.compile(ATTENTION)(*QKV))
    assert moves_of(again)["0/1"] == from_json(result.schedule["0/1"])


def test_the_result_prints_a_table(modelled: type[ModelledBench]) -> None:
    result = shlo_jit.tune(ROWS, X, seconds=SHORT)
    heading, _, row, summary = str(result).splitlines()
    assert heading.split() == "step lines before us after us ratio tried".split()
    assert row.split()[:3] == ["0", "row", "4-8"] and row.split()[-1] == str(result.tried)
    assert f"{result.ratio:.2f} times as fast" in summary
    assert json.loads(json.dumps(result.as_dict()))["schedule"] == result.schedule


def test_bits_change_only_if_any_rounding_is_asked_for(modelled: type[ModelledBench]) -> None:
    default = shlo_jit.compile(ROWS)
    result = shlo_jit.tune(ROWS, X, seconds=0.4, any_rounding=True)
    np.testing.assert_allclose(result.executable(X), default(X), rtol=1e-5)
    assert not np.array_equal(result.executable(X), default(X)), "the model rewards other unrolling"
    assert moves_of(shlo_jit.compile(ROWS, schedule="tuned")) == moves_of(default)
    assert moves_of(shlo_jit.compile(ROWS, schedule="tuned-any-rounding")) == moves_of(result.executable)


def test_the_exact_schedule_serves_where_any_rounding_is_allowed(modelled: type[ModelledBench]) -> None:
    result = shlo_jit.tune(ROWS, X, seconds=SHORT)
    found = shlo_jit.compile(ROWS, schedule="tuned-any-rounding")
    assert moves_of(found) == moves_of(result.executable)


def test_a_schedule_is_stored_and_used_again(modelled: type[ModelledBench], own_cache: Path) -> None:
    result = shlo_jit.tune(ROWS, X, seconds=30)
    assert result.is_stored and len(entries(own_cache)) == cache.info().schedules == 1
    assert moves_of(shlo_jit.compile(ROWS, schedule="tuned")) == moves_of(result.executable)
    assert moves_of(shlo_jit.compile(ROWS)) != moves_of(result.executable)
    again = shlo_jit.tune(ROWS, X, seconds=30)
    assert modelled.started[-1] == {label: from_json(moves) for label, moves in result.schedule.items()}
    assert {k: from_json(v) for k, v in again.schedule.items()} == modelled.started[-1]
    assert again.tried < result.tried and again.ratio == pytest.approx(result.ratio)
    cache.clear()
    assert not entries(own_cache)


@pytest.mark.parametrize(
    "options", [{"threads": 7}, {"donate": (0,)}, {"fold_scales": True}, {"entry": "other"}, {"text": "// a comment"}]
)
def test_other_programs_and_options_have_schedules_of_their_own(
    modelled: type[ModelledBench], options: dict[str, Any]
) -> None:
    text = ROWS + ROWS.replace("@main", "@other")
    shlo_jit.tune(text, X, seconds=SHORT, threads=2)
    is_same = "text" in options
    other = shlo_jit.compile(text + options.pop("text", ""), schedule="tuned", **{"threads": 2, **options})
    found = shlo_jit.compile(text, schedule="tuned", threads=2)
    assert (moves_of(other) == moves_of(found)) == is_same


def test_a_damaged_schedule_is_ignored(modelled: type[ModelledBench], own_cache: Path) -> None:
    default = moves_of(shlo_jit.compile(ROWS))
    shlo_jit.tune(ROWS, X, seconds=SHORT)
    (path,) = entries(own_cache)
    whole = path.read_bytes()
    for data in (whole[:-3], whole[:40] + b"?" + whole[41:], b"", whole + b"x"):
        path.write_bytes(data)
        assert moves_of(shlo_jit.compile(ROWS, schedule="tuned")) == default


@pytest.mark.parametrize(
    "header",
    [
        {"kind": "limits", "moves": {}},
        {"kind": "schedule", "moves": {"0": [{"move": "jump"}]}},
        {"kind": "schedule", "moves": [1]},
        {"kind": "schedule", "moves": {"0": [{"move": "vectorize", "loop": 1, "lanes": 6}]}},
        {"kind": "schedule", "moves": {"17": []}},
    ],
)
def test_a_stored_schedule_that_makes_no_sense_is_ignored(
    modelled: type[ModelledBench], header: dict[str, Any]
) -> None:
    exe = shlo_jit.compile(ROWS)
    tunable = exe.tunable()
    key = stored_schedules.key_of(tunable.identity, tunable.options, stored_schedules.EXACT)
    assert cache.default_cache().store(key, header, [])
    assert moves_of(shlo_jit.compile(ROWS, schedule="tuned")) == moves_of(exe)
    assert shlo_jit.tune(ROWS, X, seconds=SHORT).ratio > 1.05


def test_without_the_cache_nothing_is_stored(modelled: type[ModelledBench], own_cache: Path) -> None:
    result = shlo_jit.tune(ROWS, X, seconds=SHORT, cache=False)
    assert result.schedule and not result.is_stored and not entries(own_cache)
    with pytest.raises(ValueError, match="cache=False"):
        shlo_jit.compile(ROWS, schedule="tuned", cache=False)


def test_a_schedule_that_is_no_longer_faster_is_forgotten(
    modelled: type[ModelledBench], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shlo_jit.tune(ROWS, X, seconds=SHORT)
    monkeypatch.setattr("modelled_bench.modelled_seconds", lambda moves: 1e-3 / len(moves))
    result = shlo_jit.tune(ROWS, X, seconds=1e-6)
    assert result.schedule == {} and not result.is_stored and not entries(own_cache)


def test_steps_of_loops_and_called_functions(modelled: type[ModelledBench]) -> None:
    x = np.random.default_rng(1).normal(size=(400, 40)).astype(np.float32)
    exe = shlo_jit.compile(LOOP)
    result = shlo_jit.tune(LOOP, x, seconds=1)
    assert set(result.schedule) <= set(json.loads(exe.text("moves"))) and len(result.schedule) > 1
    np.testing.assert_array_equal(result.executable(x), exe(x))
    np.testing.assert_array_equal(shlo_jit.compile(LOOP, schedule="tuned")(x), exe(x))


def test_every_step_has_a_time() -> None:
    x = np.ones((400, 40), np.float32)
    exe = shlo_jit.compile(LOOP)
    bench = tune_module.ProgramBench(exe.tunable(), exe, [x], False)
    times = bench.run(bench.timed({}))
    ran = {label for label in bench.steps() if times.get(label)}
    assert set(bench.steps()) == set(json.loads(exe.text("moves"))) and len(ran) >= 2
    assert 0 < sum(times[label] for label in ran) <= times[""]
    assert list(bench.run(bench.plain({}))) == [""]


def test_arguments_are_not_overwritten(modelled: type[ModelledBench]) -> None:
    text = """func.func @main(%x: tensor<9000xf32>) -> tensor<9000xf32> {
      %y = stablehlo.add %x, %x : tensor<9000xf32>
      return %y : tensor<9000xf32> }"""
    x = np.arange(9000, dtype=np.float32)
    shlo_jit.tune(text, x, seconds=SHORT, donate=(0,))
    np.testing.assert_array_equal(x, np.arange(9000, dtype=np.float32))


def test_a_program_with_unknown_dimensions_is_tuned_for_these(modelled: type[ModelledBench]) -> None:
    text = ROWS.replace("64x", "?x").replace("tensor<64x", "tensor<?x").replace("64xf32>", "?xf32>")
    text = text.replace(
        "%b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<?xf32>) -> tensor<?x300xf32>",
        """%n = stablehlo.shape_of %x : tensor<?x300xf32> -> tensor<2xindex>
  %b = stablehlo.dynamic_broadcast_in_dim %s, %n, dims = [0] : (tensor<?xf32>, tensor<2xindex>) -> tensor<?x300xf32>""",
    ).replace("stablehlo.shape_of", "shape.shape_of")
    result = shlo_jit.tune(text, X, seconds=SHORT)
    assert result.schedule
    tuned, default = shlo_jit.compile(text, schedule="tuned"), shlo_jit.compile(text)
    for rows, is_tuned in ((64, True), (65, False)):
        x = np.resize(X, (rows, 300))
        np.testing.assert_array_equal(tuned(x), default(x))
        one, other = (json.loads(exe.text("moves", [x])) for exe in (tuned, default))
        assert (one != other) == is_tuned


def test_results_that_differ_from_call_to_call_are_not_compared(modelled: type[ModelledBench]) -> None:
    calls = iter(range(10**6))
    text = """func.func @main(%x: tensor<64x300xf32>) -> tensor<64x300xf32> {
      %y = stablehlo.custom_call @count(%x) : (tensor<64x300xf32>) -> tensor<64x300xf32>
      %z = stablehlo.tanh %y : tensor<64x300xf32>
      return %z : tensor<64x300xf32> }"""
    result = shlo_jit.tune(text, X, seconds=SHORT, custom_calls={"count": lambda x: x * 0 + next(calls)})
    assert any("differ from call to call" in note for note in result.notes)


INFEED = """func.func @main(%t: !stablehlo.token) -> tensor<2xf32> {
  %r:2 = "stablehlo.infeed"(%t) : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
  return %r#0 : tensor<2xf32> }"""


def test_programs_that_cannot_be_tuned_are_refused() -> None:
    infeed = INFEED.replace("%t: !stablehlo.token", "").replace(
        "%r:2", "%t = stablehlo.create_token : !stablehlo.token\n %r:2"
    )
    with pytest.raises(ValueError, match="waits for data of the host"):
        shlo_jit.tune(infeed)
    with pytest.raises(TypeError, match="argument"):
        shlo_jit.tune(ROWS)
    with pytest.raises(ValueError, match="seconds"):
        shlo_jit.tune(ROWS, X, seconds=0)
    with pytest.raises(TypeError, match="any_rounding"):
        shlo_jit.tune(ROWS, X, any_rounding="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["tuning", "Tuned", ""])
def test_other_words_are_no_schedule(word: str) -> None:
    with pytest.raises(ValueError, match="schedule: expected"):
        shlo_jit.compile(ROWS, schedule=word)


def test_a_clock_is_all_that_the_model_replaces() -> None:
    """One search with real times: whatever it finds, it is right."""
    result = shlo_jit.tune(ROWS, X, seconds=0.5, threads=1)
    np.testing.assert_array_equal(result.executable(X), shlo_jit.compile(ROWS, threads=1)(X))
    assert result.before_us > 0 and result.seconds > 0
