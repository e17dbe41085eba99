"""Moves of convolutions: replayed they give the same code; given ones steer it, or are refused with their reason; every
schedule that is accepted gives the right result, and alternatives have the same bits."""

from __future__ import annotations

import json
from typing import Any

import guarded
import numpy as np
import pytest
import random_check
from decisions import main, plan_of, tensor
from random_convolutions import changed_convolution, random_convolution
from random_runs import seeds

import shlo_jit
from shlo_jit import pipeline
from shlo_jit.codegen.target import resolve
from shlo_jit.fuse.plan import OpStep, all_steps, labels_of
from shlo_jit.kernels.convolution.description import SYMBOLS
from shlo_jit.kernels.target import Target
from shlo_jit.options import CompileOptions, OptionError
from shlo_jit.passes.canonical import features_last
from shlo_jit.schedule.alternatives import alternatives, can_be_tuned
from shlo_jit.schedule.convolution import ConvolutionSchedule
from shlo_jit.schedule.convolution_moves import convolution_alternatives, convolution_changes_bits
from shlo_jit.schedule.moves import IllegalMove, Move, from_json, to_json
from shlo_jit.schedule.schedule import Context, schedule
from shlo_jit.schedule.show import show_moves
from shlo_jit.sources import Text

Moves = dict[str, list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def layouts_of_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions keep the program's layout, so that all leaves are here."""
    monkeypatch.setattr(features_last, "has_features_first", lambda _: False)


TARGETS = {name: resolve(name) for name in ("x86-64-v3", "x86-64-v4", "aarch64:generic")}


def convolution(
    image: tuple[int, ...],
    window: tuple[int, ...],
    features: int,
    groups: int = 1,
    pad: int = 0,
    holes: int = 1,
    numbers: str = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]",
    is_constant: bool = False,
    then: str = "",
) -> str:
    """A program with a convolution of an image (batch, height, width, channels), in the order of the dimension numbers
    `numbers`. `then`: an op on %c, of type {t}, which computes %y."""
    b, h, w, c = image
    sizes = [n + 2 * pad - (k - 1) * holes for n, k in zip((h, w), window, strict=True)]
    extents = [
        {"b": b, "0": h, "1": w, "f": c},
        {"0": window[0], "1": window[1], "i": c // groups, "o": features},
        {"b": b, "0": sizes[0], "1": sizes[1], "f": features},
    ]
    orders = [part.strip("[]").split(", ") for part in numbers.replace("->", "x").split("x")]
    x, k, y = (tensor(*(e[d] for d in order)) for e, order in zip(extents, orders, strict=True))
    kernel = [f"%w = stablehlo.constant dense<0.5> : {k}"] if is_constant else []
    line = (
        f"{'%c' if then else '%y'} = stablehlo.convolution(%x, %w) dim_numbers = {numbers},"
        f" window = {{pad = [[{pad}, {pad}], [{pad}, {pad}]], rhs_dilate = [{holes}, {holes}]}}"
        f" {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}} : ({x}, {k}) -> {y}"
    )
    after = [then.format(t=y)] if then else []
    return main(f"%x: {x}" if is_constant else f"%x: {x}, %w: {k}", y, *kernel, line, *after)


FIRST = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
GRADIENT = "[f, 0, 1, b]x[i, 0, 1, o]->[b, 0, 1, f]"
TANH = "%y = stablehlo.tanh %c : {t}"
PROGRAMS = {
    "lines": convolution((1, 30, 30, 32), (3, 3), 48, then=TANH),
    "padded": convolution((2, 17, 17, 32), (3, 3), 48, pad=1),
    "margins": convolution((1, 20, 130, 16), (3, 3), 32, pad=1),
    "gathered": convolution((2, 9, 9, 33), (3, 3), 40, pad=1, then=TANH),
    "constant": convolution((1, 30, 30, 32), (3, 3), 48, pad=1, is_constant=True),
    "dilated": convolution((1, 33, 33, 64), (3, 3), 64, pad=12, holes=12, is_constant=True),
    "sound": convolution((1, 1, 3000, 16), (1, 5), 32),
    "few": convolution((1, 40, 40, 32), (3, 3), 3, pad=1),
    "first": convolution((2, 20, 20, 16), (3, 3), 40, numbers=FIRST),
    "planes": convolution((1, 60, 60, 64), (3, 3), 64, 64, pad=1, numbers=FIRST),
    "depthwise": convolution((1, 60, 60, 64), (3, 3), 64, 64, pad=1),
    "depthwise 4": convolution((1, 40, 40, 48), (4, 4), 48, 48),
    "groups": convolution((1, 40, 40, 64), (3, 3), 64, 16, pad=1),
    "images": convolution((16, 14, 14, 3), (7, 7), 32, numbers=GRADIENT),
    "small": convolution((1, 8, 8, 4), (3, 3), 8),
}


def lowered(text: str, target: Target, given: Moves | None = None) -> str:
    """The LLVM text."""
    pairs = tuple((label, from_json(moves)) for label, moves in (given or {}).items())
    return pipeline.lower(pipeline.parsed(Text(text, "program")), CompileOptions(target, schedule=pairs)).program.text


def convolution_of(
    text: str, target: Target = TARGETS["x86-64-v3"], given: dict[str, list[Move]] | None = None
) -> tuple[str, OpStep, ConvolutionSchedule]:
    """The label, step and schedule of the program's only convolution. `given`: moves by label."""
    plan = plan_of(text)
    labels = labels_of(plan)
    moves = {id(step): found for step in all_steps(plan) if (found := (given or {}).get(labels[id(step)])) is not None}
    steps = schedule(plan, Context(target, lambda name: False, given=moves))
    found = [s for s in all_steps(plan) if isinstance(s, OpStep) and isinstance(steps[s], ConvolutionSchedule)]
    (step,) = found
    scheduled = steps[step]
    assert isinstance(scheduled, ConvolutionSchedule)
    return labels[id(step)], step, scheduled


def arguments_of(exe: Any, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(t.shape).astype(np.float32) for t in exe.inputs]


def codes_of(moves: list[Move]) -> set[str]:
    return {move.why.code for move in moves if move.why is not None}


def test_the_programs_have_all_variants() -> None:
    found = {
        convolution_of(text, target)[2].description.variant for text in PROGRAMS.values() for target in TARGETS.values()
    }
    assert {SYMBOLS[v] for v in found} == set(SYMBOLS.values()) - {"depthwise_5x5"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_moves_that_are_given_back_give_the_same_code(name: str, target: str) -> None:
    """As JSON, as printed by the stage `moves`."""
    text = PROGRAMS[name]
    plan = plan_of(text)
    printed = json.loads(show_moves([("main", plan, schedule(plan, Context(TARGETS[target], lambda name: False)))]))
    label, _, own = convolution_of(text, TARGETS[target])
    assert from_json(printed[label]) == own.moves
    assert all(move.why is not None or move.kind == "unroll" for move in own.moves)
    assert lowered(text, TARGETS[target], printed) == lowered(text, TARGETS[target])


@pytest.mark.parametrize(
    ("program", "moves", "note", "words"),
    [
        ("padded", [{"move": "pack", "operand": "image", "where": "margins"}], "input", "margins"),
        ("margins", [{"move": "pack", "operand": "image", "where": "shared"}], "input", "copied"),
        ("lines", [{"move": "pack", "operand": "pixels", "where": "private"}], "strategy", "gathered"),
        ("gathered", [{"move": "pack", "operand": "pixels", "where": "in_place"}], "strategy", "in place"),
        ("lines", [{"move": "unroll", "loop": "pixels", "by": 5}], "tile", "5 pixels"),
        ("constant", [{"move": "pack", "operand": "kernel", "where": "shared"}], "weights", "packed, "),
        ("lines", [{"move": "split", "loop": "lines", "by": 7}], "tasks", "tasks of 7 lines"),
        ("lines", [{"move": "split", "loop": "features", "by": 16}], "tasks", "x 16 channels"),
        ("sound", [{"move": "split", "loop": "width", "by": 1498}], "tasks", "1,498 pixels"),
        ("depthwise", [{"move": "unroll", "loop": "window", "by": 1}], "strategy", "lanes along channels"),
        ("depthwise", [{"move": "use_leaf", "leaf": "tiles"}], "strategy", "product of pixels and channels"),
        ("planes", [{"move": "use_leaf", "leaf": "tiles"}], "strategy", "product of channels and pixels"),
        ("groups", [{"move": "use_leaf", "leaf": "tiles"}], "strategy", "product of pixels and channels"),
        ("few", [{"move": "use_leaf", "leaf": "tiles"}], "strategy", "product of pixels and channels"),
        ("images", [{"move": "unroll", "loop": "pixels", "by": 6}], "strategy", "product of pixels and channels"),
        ("lines", [{"move": "compute_at", "what": "epilogue", "at": "after"}], "epilogue", "after"),
        ("lines", [], "tasks", "tasks"),
    ],
)  # fmt: skip
def test_given_moves_decide(program: str, moves: list[dict[str, Any]], note: str, words: str) -> None:
    """The note that they concern, and the result; without `parallel` one thread does the work."""
    text = PROGRAMS[program]
    label, _, own = convolution_of(text)
    _, _, found = convolution_of(text, given={label: [*from_json(moves)]})
    assert words in next(n.value for n in found.notes if n.what == note)
    assert {move for move in from_json(moves) if move not in found.moves} == set()
    assert found.decisions.is_alone and not own.decisions.is_alone
    # Moves that are legal for AVX2 need not be for this machine: tiles are wider with AVX-512.
    shlo_exe: Any = shlo_jit.compile(text, cache=False, schedule={label: moves}, target="x86-64-v3")
    arguments = arguments_of(shlo_exe, 3)
    want = shlo_jit.compile(text, cache=False)(*arguments)
    np.testing.assert_allclose(shlo_exe(*arguments), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("program", "move", "code"),
    [
        ("lines", {"move": "use_leaf", "leaf": "vectors"}, "leaf-not-there"),
        ("lines", {"move": "use_leaf", "leaf": "dot"}, "leaf-not-there"),
        ("lines", {"move": "use_leaf", "leaf": "direct"}, "leaf-not-there"),
        ("lines", {"move": "vectorize", "loop": "pixels", "lanes": 8}, "leaf-not-there"),
        ("lines", {"move": "vectorize", "loop": "features", "lanes": 4}, "move-without-use"),
        ("lines", {"move": "vectorize", "loop": 1, "lanes": 8}, "leaf-not-there"),
        ("lines", {"move": "unroll", "loop": "pixels", "by": 33}, "tile-out-of-range"),
        ("lines", {"move": "unroll", "loop": "pixels", "by": 0}, "split-out-of-range"),
        ("lines", {"move": "unroll", "loop": "images", "by": 6}, "leaf-not-there"),
        ("gathered", {"move": "unroll", "loop": "window", "by": 3}, "leaf-not-there"),
        ("depthwise 4", {"move": "unroll", "loop": "window", "by": 3}, "leaf-not-there"),
        ("padded", {"move": "pack", "operand": "image", "where": "in_place"}, "operand-not-packed-there"),
        ("lines", {"move": "pack", "operand": "image", "where": "margins"}, "operand-not-packed-there"),
        ("sound", {"move": "pack", "operand": "image", "where": "margins"}, "operand-not-packed-there"),
        ("depthwise", {"move": "pack", "operand": "image", "where": "shared"}, "operand-not-packed-there"),
        ("lines", {"move": "pack", "operand": "kernel", "where": "ahead"}, "operand-not-packed-there"),
        ("lines", {"move": "pack", "operand": "kernel", "where": "in_place"}, "leaf-not-there"),
        ("lines", {"move": "pack", "operand": "a", "where": "private"}, "move-without-use"),
        ("lines", {"move": "split", "loop": "k", "by": 95}, "split-out-of-range"),
        ("lines", {"move": "split", "loop": "k", "by": 96 * 4}, "split-out-of-range"),
        ("lines", {"move": "split", "loop": "features", "by": 20}, "split-out-of-range"),
        ("lines", {"move": "split", "loop": "features", "by": 64}, "split-out-of-range"),
        ("lines", {"move": "split", "loop": "lines", "by": 1 << 40}, "split-out-of-range"),
        ("gathered", {"move": "split", "loop": "pixels", "by": 7}, "split-out-of-range"),
        ("first", {"move": "split", "loop": "pixels", "by": 7}, "split-out-of-range"),
        ("lines", {"move": "split", "loop": "m", "by": 6}, "move-without-use"),
        ("lines", {"move": "split", "loop": 0, "by": 6}, "move-without-use"),
        ("lines", {"move": "split", "loop": "width", "by": 14}, "line-not-cut"),
        ("depthwise", {"move": "split", "loop": "k", "by": 9}, "move-without-use"),
        ("lines", {"move": "skip_padding"}, "move-without-use"),
        ("padded", {"move": "edge_tiles", "height": 1}, "padding-not-skipped"),
        ("dilated", {"move": "edge_tiles", "height": 50}, "tile-out-of-range"),
        ("lines", {"move": "parallel", "grain": 2}, "move-without-use"),
        ("small", {"move": "parallel", "grain": 1}, "too-little-work"),
        ("small", {"move": "compute_at", "what": "epilogue", "at": "tile"}, "no-epilogue"),
        ("lines", {"move": "compute_at", "what": "epilogue", "at": "inline"}, "epilogue-not-inline"),
        ("lines", {"move": "peel"}, "move-without-use"),
    ],
)  # fmt: skip
def test_an_illegal_move_is_named_with_its_reason(program: str, move: dict[str, Any], code: str) -> None:
    text = PROGRAMS[program]
    label, _, _ = convolution_of(text)
    with pytest.raises(OptionError) as caught:
        lowered(text, TARGETS["x86-64-v3"], {label: [move]})
    line = 1 + text[: text.index("convolution(")].count("\n")
    assert f"[{code}]" in str(caught.value) and f"line {line}: {move['move']}(" in str(caught.value)


def test_words_of_convolutions_are_no_loops_of_other_steps() -> None:
    x = tensor(40, 50)
    nest, product = main(f"%x: {x}", x, f"%y = stablehlo.tanh %x : {x}"), tensor(40, 40)
    dot = f"%y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({x}, {tensor(50, 40)}) -> {product}"
    for text in (nest, main(f"%x: {x}, %w: {tensor(50, 40)}", product, dot)):
        for move in ("vectorize", "unroll", "split"):
            given = {"move": move, "loop": "pixels", ("lanes" if move == "vectorize" else "by"): 4}
            with pytest.raises(OptionError, match="no-lanes-there|move-without-use|there is no such loop"):
                lowered(text, TARGETS["x86-64-v3"], {"0": [given]})


@pytest.mark.parametrize("features", [8, 12, 16, 32])
def test_tiles_read_nothing_beyond_a_kernel_in_place(features: int) -> None:
    """Tiles of f64 are three vectors wide on AVX2. Without masks they read whole tiles, or single vectors."""
    text = convolution((16, 9, 9, 3), (7, 9), features, numbers=GRADIENT).replace("xf32>", "xf64>")
    rng = np.random.default_rng(features)
    x, w = rng.standard_normal((3, 9, 9, 16)), rng.standard_normal((3, 7, 9, features))
    windows = [x[:, i : i + 7] for i in range(3)]
    want = np.stack([np.einsum("chwb,chwf->bf", window, w) for window in windows], 1)[:, :, None]
    for target in ("native", "x86-64-v3"):
        got = guarded.compile(text, cache=False, threads=1, target=target)(x, w)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    is_in_place = convolution_of(text)[2].description.variant.rows == "images"
    assert is_in_place == (features in (12, 16))


# ---------------------------------------------------------------------- alternatives
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(3)
def test_alternatives_are_legal_and_differ(name: str, target: str) -> None:
    label, step, own = convolution_of(PROGRAMS[name], TARGETS[target])
    found = [*convolution_alternatives(step, own, TARGETS[target])]
    assert len({*found, own.moves}) == len(found) + 1 and can_be_tuned(own)
    for moves in found:
        assert convolution_of(PROGRAMS[name], TARGETS[target], {label: [*moves]})[2].moves == moves


def test_alternatives_change_the_leaf_the_layout_and_the_tasks() -> None:
    _, step, own = convolution_of(PROGRAMS["constant"])
    changes = [
        [str(move) for move in moves if move not in own.moves]
        for moves in convolution_alternatives(step, own, TARGETS["x86-64-v3"])
    ]
    flat = {change for changed in changes for change in changed}
    assert {"pack(operand=pixels, where=private)", "pack(operand=kernel, where=shared)"} <= flat
    assert [] in changes, "one thread"
    for kind in ("pack(operand=image", "unroll(loop=pixels", "split(loop=lines", "split(loop=features", "split(loop=k"):
        assert any(change.startswith(kind) for change in flat), kind
    _, step, depthwise = convolution_of(PROGRAMS["depthwise"])
    others = [*convolution_alternatives(step, depthwise, TARGETS["x86-64-v3"])]
    assert {"use_leaf(leaf=tiles)", "unroll(loop=window, by=1)"} <= {str(move) for moves in others for move in moves}


@pytest.mark.parametrize("name", ["lines", "gathered", "padded", "constant", "dilated", "first", "depthwise", "few"])
@pytest.mark.sampled(2)
def test_alternatives_have_the_same_bits(name: str) -> None:
    """Those that a tuner may choose unless other roundings are allowed; there are others as well."""
    text, target = PROGRAMS[name], resolve("native")
    label, step, own = convolution_of(text, target)
    exe: Any = shlo_jit.compile(text, cache=False, threads=2)
    arguments = arguments_of(exe, 5)
    want = exe(*arguments)
    kept = [*alternatives(step, own, target)]
    assert len(kept) >= 2
    for moves in kept:
        got = shlo_jit.compile(text, cache=False, threads=2, schedule={label: to_json(moves)})(*arguments)
        assert got.tobytes() == want.tobytes(), [str(move) for move in moves if move not in own.moves]


# ---------------------------------------------------------------------- random convolutions
def run(numbers: range) -> tuple[int, int, int]:
    """Numbers of random schedules that are legal, that are refused, and that must have the same bits."""
    legal = refused = same = 0
    for seed in numbers:
        text, arguments = random_convolution(seed)
        try:
            label, step, own = convolution_of(text, resolve("native"))
        except ValueError:  # it has become a product, or several convolutions
            continue
        for number in range(3):
            moves = changed_convolution(to_json(own.moves), 3 * seed + number)
            try:
                given = from_json(moves)
                convolution_of(text, resolve("native"), {label: [*given]})
            except (IllegalMove, ValueError):
                refused += 1
                continue
            legal += 1
            try:
                random_check.check(text, arguments, schedule={label: moves})
                if not convolution_changes_bits(step, own, given):
                    same += 1
                    exes = [shlo_jit.compile(text, cache=False, threads=2, schedule=s) for s in (None, {label: moves})]
                    one, two = (exe(*arguments).tobytes() for exe in exes)
                    assert one == two, "other bits"
            except Exception as error:
                error.add_note(f"convolution {seed}, moves {3 * seed + number}:\n{text[-900:]}\n{json.dumps(moves)}")
                raise
    return legal, refused, same


def test_random_schedules_of_convolutions() -> None:
    legal, refused, same = run(range(10))
    assert legal >= 5 and refused >= 3 and same >= 2


@pytest.mark.slow
def test_many_random_schedules_of_convolutions() -> None:
    numbers = seeds(300)
    legal, refused, same = run(numbers)
    print(f"{legal} legal, {refused} refused, {same} with the same bits")
    assert legal > len(numbers) // 3 and refused > len(numbers) // 10
