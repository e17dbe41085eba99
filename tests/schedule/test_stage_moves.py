"""Moves of line tiles and of the loops and row blocks within them: replayed, obeyed, refused by their reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import guarded
import numpy as np
import pytest
from image_chains import Program, block, bottleneck, normalized_between, pooled, skipped
from random_row_blocks import random_row_blocks

import shlo_jit
from shlo_jit import tuning
from shlo_jit.autotune.bench import ProgramBench
from shlo_jit.options import OptionError
from shlo_jit.runtime.executable import Executable
from shlo_jit.schedule.moves import from_json, to_json

Moves = list[dict[str, Any]]
SHAPE = (3, 24, 20, 8)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes small images and rows count as large."""
    monkeypatch.setattr(tuning, "LINE_TILE_IMAGE_BYTES", 1)
    monkeypatch.setattr(tuning, "LINE_TILE_LINES", 2)
    monkeypatch.setattr(tuning, "LINE_TILE_KEPT", 0)
    monkeypatch.setattr(tuning, "ROW_BLOCK_BYTES", 1)


def text_of(write: Callable[[Program], None]) -> str:
    program = Program(SHAPE, 1)
    write(program)
    return program.text()


def moves_of(exe: Any) -> dict[str, Moves]:
    return json.loads(exe.text("moves"))


def results(text: str, threads: int = 1, schedule: dict[str, Moves] | None = None) -> list[np.ndarray]:
    exe = guarded.compile(text, threads=threads, cache=False, schedule=schedule)
    found = exe(np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32))
    return [np.array(x) for x in (found if isinstance(found, (tuple, list)) else [found])]


def same_bits(text: str, schedule: dict[str, Moves]) -> None:
    """Checks that results in guarded memory have the bits of the compiler's schedule."""
    usual = results(text)
    for threads in (1, 3):
        for a, b in zip(results(text, threads, schedule), usual, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("least", [1, 1 << 60])
@pytest.mark.parametrize("write", [block, bottleneck, pooled, normalized_between])
def test_replaying_the_moves_gives_the_same_code(
    write: Callable[[Program], None], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "ROW_BLOCK_BYTES", least)
    text = text_of(write)
    exe = shlo_jit.compile(text, cache=False)
    moves = moves_of(exe)
    again = shlo_jit.compile(text, cache=False, schedule=moves)
    assert again.text("lowered") == exe.text("lowered")
    assert {k: from_json(v) for k, v in moves_of(again).items()} == {k: from_json(v) for k, v in moves.items()}


def test_each_stage_has_its_label() -> None:
    """Loops and row blocks have moves; convolutions and products within line tiles have none."""
    found = moves_of(shlo_jit.compile(text_of(block), cache=False))
    assert list(found) == ["0", "0/1", "0/1/0", "0/1/2", "0/1/4"]
    assert [move["move"] for move in found["0"]] == ["split", "parallel"]
    assert [move["move"] for move in found["0/1"]] == ["split"]
    assert found["0/1/0"][0]["move"] == "reorder" and [m["move"] for m in found["0/1/2"]] == ["vectorize"]


@pytest.mark.parametrize(
    ("lines", "grain", "tasks"),
    [
        (1, 6, "up to 4 per image"),
        (7, 23, "up to 1 per image"),
        (24, 24, "up to 1 per image"),
        (3, 48, "2 tasks of 2 images"),
        (24, 72, "1 task"),
        (5, None, "1 task"),
        (None, 12, "up to 2 per image"),
    ],
)
@pytest.mark.parametrize("write", [block, pooled, skipped, normalized_between])
@pytest.mark.sampled(7)
def test_lines_and_images_of_a_task(
    write: Callable[[Program], None], lines: int | None, grain: int | None, tasks: str
) -> None:
    text = text_of(write)
    usual = moves_of(shlo_jit.compile(text, cache=False))
    (label,) = [label for label, moves in usual.items() if any(move.get("loop") == "lines" for move in moves)]
    height = 12 if write in (pooled, skipped, normalized_between) else 24
    scale = 24 // height
    moves: Moves = [] if lines is None else [{"move": "split", "loop": "lines", "by": max(1, lines // scale)}]
    moves += [] if grain is None else [{"move": "parallel", "grain": max(1, grain // scale)}]
    exe = shlo_jit.compile(text, cache=False, schedule={label: moves})
    _, _, lines_of_step = exe.text("schedule").partition(f"\n{label:>3} line_tiles")
    tiles, cut = lines_of_step.splitlines()[1:3]
    assert f"{height if lines is None else max(1, lines // scale)} line" in tiles and tasks in cut
    assert [m["by"] for m in moves_of(exe)[label] if m["move"] == "split"] == [int(tiles.split()[2])]
    same_bits(text, {label: moves})


@pytest.mark.parametrize(
    ("label", "move", "code"),
    [
        ("0", {"move": "split", "loop": "lines", "by": 0}, "split-out-of-range"),
        ("0", {"move": "split", "loop": "lines", "by": 25}, "split-out-of-range"),
        ("0", {"move": "split", "loop": "m", "by": 8}, "move-without-use"),
        ("0", {"move": "vectorize", "loop": 3, "lanes": 8}, "move-without-use"),
        ("0", {"move": "parallel", "grain": 0}, "group-out-of-range"),
        ("0", {"move": "parallel", "grain": 25}, "group-out-of-range"),
        ("0", {"move": "parallel", "grain": 96}, "group-out-of-range"),
        ("0/1", {"move": "split", "loop": "m", "by": 1 << 20}, "split-out-of-range"),
        ("0/1", {"move": "split", "loop": "lines", "by": 8}, "move-without-use"),
        ("0/1", {"move": "parallel", "grain": 8}, "move-without-use"),
        ("0/1/0", {"move": "reorder", "loops": [2, 1, 0, 3]}, "rows-in-order"),
        ("0/1/0", {"move": "vectorize", "loop": 2, "lanes": 4}, "no-lanes-there"),
        ("0/1/0", {"move": "vectorize", "loop": 3, "lanes": 3}, "lanes-out-of-range"),
        ("0/1/0", {"move": "parallel", "grain": 4}, "move-without-use"),
        ("0/1/0", {"move": "split", "loop": 2, "by": 4}, "move-without-use"),
        ("0/1/0", {"move": "batch_rows", "loop": 2}, "move-without-use"),
        ("0/1/0", {"move": "stream", "store": 0}, "move-without-use"),
        ("0/1/2", {"move": "vectorize", "loop": 2, "lanes": 4}, "no-lanes-there"),
        ("0/1/2", {"move": "vectorize", "loop": 3, "lanes": 64}, "lanes-out-of-range"),
        ("0/1/2", {"move": "unroll", "loop": 3, "by": 2}, "move-without-use"),
        ("0/1/2", {"move": "parallel", "grain": 2}, "move-without-use"),
    ],
)
def test_an_illegal_move_is_named_with_its_reason(label: str, move: dict[str, Any], code: str) -> None:
    with pytest.raises(OptionError) as caught:
        shlo_jit.compile(text_of(block), cache=False, schedule={label: [move]})
    assert f"[{code}]" in str(caught.value) and f"{move['move']}(" in str(caught.value)


def test_a_decision_is_given_once() -> None:
    twice: Moves = [{"move": "split", "loop": "lines", "by": n} for n in (4, 6)]
    with pytest.raises(OptionError, match="move-without-use"):
        shlo_jit.compile(text_of(block), cache=False, schedule={"0": twice})


def test_other_stages_have_no_moves() -> None:
    for label in ("0/0", "0/1/1", "0/7"):
        with pytest.raises(OptionError, match="0/1/0"):
            shlo_jit.compile(text_of(block), cache=False, schedule={label: []})


@pytest.mark.parametrize("least", [1, 1 << 60])
def test_loops_of_stages(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes are those that are given; without any, elements are computed one by one."""
    monkeypatch.setattr(tuning, "ROW_BLOCK_BYTES", least)
    text = text_of(block)
    found = moves_of(shlo_jit.compile(text, cache=False))
    loops = {label: moves for label, moves in found.items() if any(m["move"] == "vectorize" for m in moves)}
    assert loops
    for label, moves in loops.items():
        fewer = [move | ({"lanes": 2} if move["move"] == "vectorize" else {}) for move in moves]
        for given in (fewer, [move for move in moves if move["move"] != "vectorize"]):
            exe = shlo_jit.compile(text, cache=False, schedule={label: given})
            assert from_json(moves_of(exe)[label]) == from_json(given)
            for a, b in zip(results(text, 3, {label: given}), results(text), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_alternatives_are_accepted() -> None:
    """What a search tries compiles as it is, differs from what there is, and keeps the bits."""
    text = text_of(block)
    exe = shlo_jit.compile(text, cache=False)
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    assert isinstance(exe, Executable)
    bench = ProgramBench(exe.tunable(), exe, [x], False)
    for label, least in (("0", 5), ("0/1", 1), ("0/1/0", 1), ("0/1/2", 1)):
        found = list(bench.alternatives({}, label))
        assert len(found) >= least and bench.moves({}, label) not in found
        for moves in found[:5]:
            variant = bench.plain({label: moves})
            assert bench.has_equal_results(variant), moves
            assert from_json(moves_of(variant.executable)[label]) == tuple(moves)


def test_alternatives_within_random_row_blocks() -> None:
    """Every alternative of a loop within row blocks compiles as it is."""
    tried = 0
    for seed in range(12):
        text, arguments = random_row_blocks(seed)
        exe = shlo_jit.compile(text, cache=False)
        assert isinstance(exe, Executable)
        bench = ProgramBench(exe.tunable(), exe, arguments, True)
        for label in [label for label in bench.steps() if "/" in label]:
            for moves in list(bench.alternatives({}, label))[:2]:
                again = shlo_jit.compile(text, cache=False, schedule={label: to_json(moves)})
                assert from_json(moves_of(again)[label]) == tuple(moves)
                tried += 1
    assert tried > 10
