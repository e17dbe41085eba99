"""Moves: a schedule written as moves and replayed is the same schedule; a given one is obeyed, or refused by its move;
every schedule that is accepted gives the right result."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import random_check
from random_moves import changed
from random_programs import random_program
from random_rows import random_rows
from random_runs import seeds

import shlo_jit
from shlo_jit.options import OptionError
from shlo_jit.schedule.moves import MOVES, Move, Split, Unroll, from_json, to_json

SOFTMAX = """
func.func @main(%x: tensor<64x1000xf32>) -> tensor<64x1000xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %e = stablehlo.exponential %x : tensor<64x1000xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x1000xf32>, tensor<f32>) -> tensor<64xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<64xf32>) -> tensor<64x1000xf32>
  %d = stablehlo.divide %e, %b : tensor<64x1000xf32>
  return %d : tensor<64x1000xf32>
}"""
LARGE = "tensor<3000x2000xf32>"
PROGRAMS = {
    "softmax": SOFTMAX,
    "streams": f"""func.func @main(%x: {LARGE}, %y: {LARGE}) -> {LARGE} {{
      %0 = stablehlo.add %x, %y : {LARGE}
      return %0 : {LARGE} }}""",
    "transpose": """func.func @main(%x: tensor<300x500xf32>) -> tensor<500x300xf32> {
      %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<300x500xf32>) -> tensor<500x300xf32>
      return %0 : tensor<500x300xf32> }""",
    "row split": """func.func @main(%x: tensor<5000000xf32>) -> tensor<f32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<5000000xf32>, tensor<f32>) -> tensor<f32>
      return %s : tensor<f32> }""",
    "short rows": """func.func @main(%x: tensor<5000x12xf32>) -> tensor<5000xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<5000x12xf32>, tensor<f32>) -> tensor<5000xf32>
      return %s : tensor<5000xf32> }""",
    "padding": """func.func @main(%x: tensor<400x400xf32>) -> tensor<402x402xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.pad %x, %zero, low = [1, 1], high = [1, 1], interior = [0, 0]
        : (tensor<400x400xf32>, tensor<f32>) -> tensor<402x402xf32>
      return %0 : tensor<402x402xf32> }""",
}


SQUARES = """
func.func @main(%x: tensor<70x50xf32>, %n: tensor<i32>) -> (tensor<70x50xf32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%z = %x, %i = %zero) : tensor<70x50xf32>, tensor<i32> cond {
    %l = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  } do {
    %a = stablehlo.multiply %z, %z : tensor<70x50xf32>
    %b = stablehlo.add %a, %x : tensor<70x50xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %b, %j : tensor<70x50xf32>, tensor<i32>
  }
  return %r#0, %r#1 : tensor<70x50xf32>, tensor<i32>
}"""


def moves_of(text: str, **options: Any) -> dict[str, list[dict[str, Any]]]:
    return json.loads(shlo_jit.compile(text, cache=False, **options).text("moves"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_replaying_the_moves_gives_the_same_code(name: str) -> None:
    text = PROGRAMS[name]
    exe = shlo_jit.compile(text, cache=False)
    again = shlo_jit.compile(text, cache=False, schedule=json.loads(exe.text("moves")))
    assert again.text("lowered") == exe.text("lowered")
    assert from_json(json.loads(again.text("moves"))["0"]) == from_json(json.loads(exe.text("moves"))["0"])


def test_the_moves_of_these_programs_have_all_decisions() -> None:
    found = {move["move"] for text in PROGRAMS.values() for moves in moves_of(text).values() for move in moves}
    assert found >= set("fuse keep parallel reorder split stream transpose unroll vectorize batch_rows peel".split())


def test_a_given_schedule_is_obeyed() -> None:
    moves = moves_of(SOFTMAX)["0"]
    for move in moves:
        if move["move"] == "unroll":
            move["by"] = 2
        if move["move"] == "parallel":
            move["grain"] = 16
    given = {"0": [move for move in moves if move["move"] != "keep"]}
    exe = shlo_jit.compile(SOFTMAX, cache=False, schedule=given)
    assert json.loads(exe.text("moves"))["0"] == [
        {"move": "reorder", "loops": [0, 1]},
        {"move": "vectorize", "loop": 1, "lanes": moves[1]["lanes"], "why": "given by the caller [given]"},
        {"move": "unroll", "loop": 1, "by": 2, "why": "given by the caller [given]"},
        {"move": "parallel", "grain": 16, "why": "given by the caller [given]"},
    ]
    x = np.random.default_rng(0).random((64, 1000), np.float32)
    want = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(exe(x), want, rtol=1e-5)


@pytest.mark.parametrize(
    ("move", "code"),
    [
        ({"move": "reorder", "loops": [1, 0]}, "reduced-loops-in-order"),
        ({"move": "reorder", "loops": [0, 2]}, "other-loops"),
        ({"move": "fuse", "outer": 0, "inner": 1}, "not-adjacent-loops"),
        ({"move": "vectorize", "loop": 5, "lanes": 8}, "no-lanes-there"),
        ({"move": "vectorize", "loop": 1, "lanes": 6}, "lanes-out-of-range"),
        ({"move": "vectorize", "loop": 1, "lanes": 1024}, "lanes-out-of-range"),
        ({"move": "transpose", "across": 0, "side": 8, "tiles": 1}, "no-transposed-tiles"),
        ({"move": "split", "loop": 1, "by": 100}, "row-not-split"),
        ({"move": "parallel", "grain": 0}, "empty-tasks"),
        ({"move": "keep", "value": 99}, "move-without-use"),
        ({"move": "stream", "store": 0}, "move-without-use"),
        ({"move": "peel"}, "move-without-use"),
    ],
)
def test_an_illegal_move_is_named_with_its_reason(move: dict[str, Any], code: str) -> None:
    with pytest.raises(OptionError) as caught:
        shlo_jit.compile(SOFTMAX, schedule={"0": [move]})
    assert f"[{code}]" in str(caught.value) and f"{move['move']}(" in str(caught.value)


def test_small_results_are_not_streamed() -> None:
    """Their memory is aligned to an element only."""
    text = PROGRAMS["streams"].replace("3000x2000", "30x200")
    moves = moves_of(text)["0"]
    with pytest.raises(OptionError, match="stream-too-small"):
        shlo_jit.compile(text, schedule={"0": [*moves, {"move": "stream", "store": 0}]})
    transpose = {"move": "transpose", "across": 0, "side": 8, "tiles": 1}
    (label,) = [k for k, v in moves_of(SQUARES).items() if any(move["move"] == "repeat" for move in v)]
    with pytest.raises(OptionError, match="no-transposed-tiles"):
        shlo_jit.compile(SQUARES, schedule={label: [{"move": "vectorize", "loop": 1, "lanes": 8}, transpose]})


def test_schedules_of_an_interchanged_loop() -> None:
    """Whatever is accepted gives the same bits for any number of iterations."""
    exe = shlo_jit.compile(SQUARES, cache=False)
    moves = json.loads(exe.text("moves"))
    (label,) = [k for k, v in moves.items() if any(move["move"] == "repeat" for move in v)]
    x, legal = np.random.default_rng(0).uniform(-0.7, 0.2, (70, 50)).astype(np.float32), 0
    for seed in range(40):
        try:
            other = shlo_jit.compile(SQUARES, cache=False, schedule=changed({label: moves[label]}, seed))
        except OptionError:
            continue
        legal += 1
        for n in (0, 1, 23, 300):
            assert other(x, np.int32(n))[0].tobytes() == exe(x, np.int32(n))[0].tobytes(), seed
    assert legal >= 5


@pytest.mark.parametrize(
    "given", [3, [1], {0: []}, {"0": 1}, {"0": [1]}, {"0": [{"move": "jump"}]}, {"0": [{"move": "unroll", "loop": 1}]},
              {"0": [{"move": "unroll", "loop": 1, "by": -2}]}, {"0": [{"move": "unroll", "loop": True, "by": 2}]},
              {"0": [{"move": "reorder", "loops": 1}]}, {"7": []}]
)  # fmt: skip
def test_what_is_no_schedule_is_refused(given: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="schedule"):
        shlo_jit.compile(SOFTMAX, schedule=given)


def test_moves_are_the_same_after_json() -> None:
    moves: list[Move] = [Unroll(1, 4), Split(0, 128)]
    assert from_json(json.loads(json.dumps(to_json(moves)))) == tuple(moves)
    assert all(kind.__doc__ for kind in MOVES.values())


def test_the_schedule_is_part_of_the_key() -> None:
    one = shlo_jit.compile(SOFTMAX, schedule={"0": [{"move": "vectorize", "loop": 1, "lanes": 4}]})
    two = shlo_jit.compile(SOFTMAX, schedule={"0": [{"move": "vectorize", "loop": 1, "lanes": 2}]})
    assert one.text("lowered") != two.text("lowered")


def run(numbers: range) -> tuple[int, int]:
    """Numbers of random schedules that are legal, and that are refused."""
    legal = refused = 0
    for seed in numbers:
        text, arguments = (random_program if seed % 2 else random_rows)(seed)
        given = changed(moves_of(text, threads=1), seed)
        try:
            random_check.check(text, arguments, schedule=given)
            legal += 1
        except OptionError:
            refused += 1
        except Exception as error:
            error.add_note(f"program {seed}:\n{text}\n{json.dumps(given)}")
            raise
    return legal, refused


def test_random_schedules() -> None:
    legal, refused = run(range(30))
    assert legal >= 3 and refused >= 3


@pytest.mark.slow
def test_many_random_schedules() -> None:
    numbers = seeds(1000)
    legal, _ = run(numbers)
    assert legal > len(numbers) // 8
