"""Moves of matrix products: replayed they give the same code; given ones steer it, or are refused with their reason;
every schedule that is accepted gives the right result, and alternatives have the same bits."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import random_check
from decisions import AMX, main, plan_of, tensor
from random_products import changed_product, more_arguments, random_product
from random_runs import seeds

import shlo_jit
from shlo_jit import pipeline
from shlo_jit.codegen.target import resolve
from shlo_jit.fuse.plan import OpStep, Step, all_steps, labels_of
from shlo_jit.kernels.target import Target
from shlo_jit.options import CompileOptions, OptionError
from shlo_jit.schedule.moves import IllegalMove, Move, Pack, from_json, to_json
from shlo_jit.schedule.product_decisions import changes_bits
from shlo_jit.schedule.product_moves import product_alternatives, product_changes_bits
from shlo_jit.schedule.products import ProductSchedule
from shlo_jit.schedule.schedule import Context, schedule
from shlo_jit.schedule.show import show_moves
from shlo_jit.sources import Text

Moves = dict[str, list[dict[str, Any]]]


def dot(m: int, k: int, n: int, batch: int = 0, dtype: str = "f32", out: str = "", then: str = "", rhs: str = "kn") -> str:
    """A product of m x k and k x n (or n x k) matrices; `then` are ops on %d, of type {t}, which compute %y."""
    lead, at = ((batch,), 1) if batch else ((), 0)
    left, right = tensor(*lead, m, k, dtype=dtype), tensor(*lead, *((k, n) if rhs == "kn" else (n, k)), dtype=dtype)
    result, batching = tensor(*lead, m, n, dtype=out or dtype), "batching_dims = [0] x [0], " if batch else ""
    dims = f"{batching}contracting_dims = [{at + 1}] x [{at + (rhs == 'nk')}]"
    name = "%d" if then else "%y"
    lines = [f"{name} = stablehlo.dot_general %a, %b, {dims} : ({left}, {right}) -> {result}"]
    return main(f"%a: {left}, %b: {right}", result, *lines, *([then.format(t=result)] if then else []))


TANH = "%y = stablehlo.tanh %d : {t}"
LARGE, SKINNY, VECTOR = dot(200, 300, 400, then=TANH), dot(20, 900, 1000, then=TANH), dot(1, 900, 5000, then=TANH)
CONSTANT = """func.func @main(%a: tensor<50x700xf32>) -> tensor<50x96xf32> {
  %i = stablehlo.iota dim = 0 : tensor<700x96xf32>
  %b = stablehlo.constant dense<0.5> : tensor<700x96xf32>
  %y = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<50x700xf32>, tensor<700x96xf32>) -> tensor<50x96xf32>
  return %y : tensor<50x96xf32> }"""
LOOP = """func.func @main(%x: tensor<60x64xf32>, %w: tensor<64x64xf32>) -> tensor<60x64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<60x64xf32>
    cond {
      %n = stablehlo.constant dense<5> : tensor<i32>
      %l = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %l : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %d = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
        : (tensor<60x64xf32>, tensor<64x64xf32>) -> tensor<60x64xf32>
      %t = stablehlo.tanh %d : tensor<60x64xf32>
      stablehlo.return %j, %t : tensor<i32>, tensor<60x64xf32>
    }
  return %r#1 : tensor<60x64xf32> }"""
MOVED = """func.func @main(%a: tensor<40x50xf32>, %b: tensor<50x64xf32>, %c: tensor<40x16xf32>) -> tensor<40x80xf32> {
  %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<40x50xf32>, tensor<50x64xf32>) -> tensor<40x64xf32>
  %y = stablehlo.concatenate %d, %c, dim = 1 : (tensor<40x64xf32>, tensor<40x16xf32>) -> tensor<40x80xf32>
  return %y : tensor<40x80xf32> }"""
LATE = """func.func @main(%a: tensor<6x50x32xf32>, %b: tensor<6x32x100xf32>) -> tensor<50x100x6xf32> {
  %d = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : (tensor<6x50x32xf32>, tensor<6x32x100xf32>) -> tensor<6x50x100xf32>
  %y = stablehlo.transpose %d, dims = [1, 2, 0] : (tensor<6x50x100xf32>) -> tensor<50x100x6xf32>
  return %y : tensor<50x100x6xf32> }"""
PROGRAMS = {
    "large": LARGE,
    "skinny": SKINNY,
    "vector": VECTOR,
    "constant": CONSTANT,
    "loop": LOOP,
    "moved": MOVED,
    "small": dot(12, 40, 30),
    "batch": dot(16, 16, 16, 2000),
    "passes": dot(1536, 1536, 1536),
    "transposed": dot(300, 200, 500, rhs="nk"),
    "late": LATE,
    "bf16": dot(768, 768, 768, dtype="bf16", out="f32"),
    "i8": dot(768, 768, 768, dtype="i8", out="i32"),
    "f64": dot(600, 600, 600, dtype="f64"),
}


def lowered(text: str, target: Target, given: Moves | None = None) -> tuple[str, Moves]:
    """The LLVM text, and the moves."""
    moves = tuple((label, from_json(moves)) for label, moves in sorted((given or {}).items()))
    found = pipeline.lower(pipeline.parsed(Text(text, "program")), CompileOptions(target, schedule=moves))
    return found.program.text, json.loads(show_moves([(f.name, f.plan, f.schedule) for f in found.functions]))


def product_of(
    text: str, target: Target | None = None, given: dict[str, list[Move]] | None = None
) -> tuple[str, OpStep, ProductSchedule] | None:
    """The label, the step and the schedule of the only product of a program."""
    plan = plan_of(text)
    labels = labels_of(plan)
    steps: dict[str, Step] = {labels[id(step)]: step for step in all_steps(plan)}
    context = Context(target or resolve("native"), lambda name: False)
    moves = {id(steps[label]): moves for label, moves in (given or {}).items()}
    found = schedule(plan, context._replace(given=moves))
    products = [(label, step, found[step]) for label, step in steps.items() if isinstance(found[step], ProductSchedule)]
    return products[0] if len(products) == 1 else None  # type: ignore[return-value]


def the_product(text: str, target: Target | None = None, *given: Move) -> ProductSchedule:
    """The schedule of the only product, with these moves if there are any."""
    found = product_of(text, target)
    assert found is not None
    if given:
        found = product_of(text, target, {found[0]: [*given]})
        assert found is not None
    return found[2]


# ---------------------------------------------------------------------- replay
TARGETS = {"native": resolve("native"), "masks": resolve("x86-64-v4"), "SSE": resolve("x86-64"), "AMX": AMX}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(2)
def test_replaying_the_moves_gives_the_same_code(name: str, target: str) -> None:
    text, moves = lowered(PROGRAMS[name], TARGETS[target])
    assert any(move["move"] == "use_leaf" for found in moves.values() for move in found)
    again, same = lowered(PROGRAMS[name], TARGETS[target], moves)
    assert again == text
    assert {label: from_json(m) for label, m in same.items()} == {label: from_json(m) for label, m in moves.items()}


def test_these_programs_have_all_decisions() -> None:
    found = [move for text in PROGRAMS.values() for target in TARGETS.values() for move in the_product(text, target).moves]
    words = {getattr(move, name) for move in found for name in ("leaf", "where", "at") if hasattr(move, name)}
    assert words == {"tiles", "skinny", "vectors", "in_place", "private", "shared", "loop", "ahead", "tile", "after", "inline"}
    assert all(move.why is not None for move in found), "each move has its reason"


def test_a_product_without_elements_has_no_moves() -> None:
    text = dot(0, 4, 5)
    assert lowered(text, resolve("native"))[1] == {}


# ---------------------------------------------------------------------- given moves
def test_given_moves_steer_the_code() -> None:
    own = the_product(LARGE)
    changed = from_json([{"move": "pack", "operand": "a", "where": "shared"}, {"move": "split", "loop": "n", "by": 64}])
    found = the_product(LARGE, None, *changed)
    notes = {note.what: note for note in found.notes}
    assert "shared by all tasks" in notes["A"].value and "x 64" in notes["tasks"].value
    assert found.symbol == f"{own.symbol}_given" and found.routines != own.routines
    assert found.scratch.bytes != own.scratch.bytes
    text, _ = lowered(LARGE, resolve("native"), {"0": to_json(found.moves)})
    assert f"@{found.symbol}(" in text


def test_moves_may_be_given_in_part() -> None:
    """Without `parallel` one thread does the work; the rest is decided as always."""
    own = the_product(LARGE)
    found = the_product(LARGE, None, Pack("a", "private"))
    kept = [move for move in own.moves if move != Pack("a", "in_place") and move.kind != "parallel"]
    assert [move for move in found.moves if move != Pack("a", "private")] == kept
    assert "threads" in {note.what for note in found.notes}
    assert own.moves[-1].kind == "compute_at" and "parallel" in {move.kind for move in own.moves}


def test_the_routine_decides_if_the_moves_are_its_own() -> None:
    own = the_product(LARGE)
    assert the_product(LARGE, None, *own.moves).symbol == own.symbol


@pytest.mark.parametrize(
    ("program", "move", "code"),
    [
        ("large", {"move": "use_leaf", "leaf": "vectors"}, "leaf-not-there"),
        ("large", {"move": "use_leaf", "leaf": "any"}, "leaf-not-there"),
        ("large", {"move": "pack", "operand": "b", "where": "ahead"}, "operand-not-packed-there"),
        ("large", {"move": "pack", "operand": "b", "where": "loop"}, "operand-not-packed-there"),
        ("constant", {"move": "pack", "operand": "a", "where": "ahead"}, "operand-not-packed-there"),
        ("transposed", {"move": "pack", "operand": "b", "where": "in_place"}, "rows-not-contiguous"),
        ("i8", {"move": "pack", "operand": "b", "where": "in_place"}, "elements-converted"),
        ("large", {"move": "split", "loop": "m", "by": 7}, "split-out-of-range"),
        ("large", {"move": "split", "loop": "n", "by": 0}, "split-out-of-range"),
        ("large", {"move": "split", "loop": "k", "by": 302}, "split-out-of-range"),
        ("passes", {"move": "split", "loop": "k", "by": 1536}, "split-out-of-range"),
        ("loop", {"move": "split", "loop": "k", "by": 32}, "passes-of-loop"),
        ("large", {"move": "split", "loop": 0, "by": 8}, "move-without-use"),
        ("large", {"move": "parallel", "grain": 2}, "group-out-of-range"),
        ("small", {"move": "parallel", "grain": 0}, "group-out-of-range"),
        ("small", {"move": "parallel", "grain": 1}, "move-without-use"),
        ("vector", {"move": "split", "loop": "n", "by": 64}, "leaf-packs-nothing"),
        ("vector", {"move": "pack", "operand": "b", "where": "private"}, "leaf-packs-nothing"),
        ("vector", {"move": "parallel", "grain": 7}, "group-out-of-range"),
        ("small", {"move": "compute_at", "what": "epilogue", "at": "tile"}, "no-epilogue"),
        ("large", {"move": "compute_at", "what": "epilogue", "at": "inline"}, "epilogue-not-inline"),
        ("late", {"move": "compute_at", "what": "epilogue", "at": "tile"}, "writes-across-columns"),
        ("large", {"move": "vectorize", "loop": 0, "lanes": 8}, "move-without-use"),
        ("large", {"move": "peel"}, "move-without-use"),
    ],
)  # fmt: skip
def test_an_illegal_move_is_named_with_its_reason(program: str, move: dict[str, Any], code: str) -> None:
    text, target = PROGRAMS[program], resolve("x86-64-v3")
    found = product_of(text, target)
    assert found is not None
    with pytest.raises(OptionError) as caught:
        lowered(text, target, {found[0]: [move]})
    line = 1 + text[: text.index("dot_general")].count("\n")
    assert f"[{code}]" in str(caught.value) and f"line {line}: {move['move']}(" in str(caught.value)


@pytest.mark.parametrize(
    ("moves", "code"),
    [
        ([{"move": "pack", "operand": "a", "where": "private"}], "leaf-packs-nothing"),
        ([{"move": "split", "loop": "m", "by": 14}], "split-out-of-range"),
        ([{"move": "parallel", "grain": 2}], "group-out-of-range"),
    ],
)
def test_what_skinny_tiles_do_in_one_way_only(moves: list[dict[str, Any]], code: str) -> None:
    with pytest.raises(OptionError, match=f"\\[{code}\\]"):
        lowered(SKINNY, TARGETS["masks"], {"0": moves})


def test_tiles_that_share_a_packed_operand_belong_to_one_product() -> None:
    moves = [{"move": "pack", "operand": "b", "where": "shared"}, {"move": "parallel", "grain": 2}]
    with pytest.raises(OptionError, match="one-product-per-phase"):
        lowered(PROGRAMS["batch"], resolve("native"), {"0": moves})


@pytest.mark.parametrize("move", [{"move": "use_leaf", "leaf": "moon"}, {"move": "pack", "operand": "c", "where": "private"},
                                  {"move": "split", "loop": "z", "by": 4}, {"move": "compute_at", "what": "epilogue"}])  # fmt: skip
def test_what_is_no_move_is_refused(move: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"schedule: step 0: {move['move']}"):
        shlo_jit.compile(LARGE, schedule={"0": [move]})


# ---------------------------------------------------------------------- sizes that are known at the call
ANY_ROWS = LARGE.replace("200x", "?x")


def test_sizes_that_are_known_at_the_call() -> None:
    """The call decides on packing and parts; leaf and epilogue can be given."""
    shapes = [(30, 300), (300, 400)]
    exe: Any = shlo_jit.compile(ANY_ROWS, dynamic="symbolic", cache=False)
    moves = json.loads(exe.text("moves", shapes))
    ((label, found),) = moves.items()
    assert [move["move"] for move in found] == ["use_leaf", "parallel", "compute_at"] and found[0]["leaf"] == "any"
    again: Any = shlo_jit.compile(ANY_ROWS, dynamic="symbolic", cache=False, schedule=moves)
    assert again.text("lowered", shapes) == exe.text("lowered", shapes)
    arguments = [np.random.default_rng(1).standard_normal(shape).astype(np.float32) for shape in shapes]
    tiles = shlo_jit.compile(
        ANY_ROWS, dynamic="symbolic", cache=False,
        schedule={label: [{"move": "use_leaf", "leaf": "tiles"}, {"move": "compute_at", "what": "epilogue", "at": "after"}]},
    )  # fmt: skip
    assert tiles(*arguments).tobytes() == exe(*arguments).tobytes()
    for move in ({"move": "split", "loop": "m", "by": 6}, {"move": "pack", "operand": "b", "where": "shared"}):
        with pytest.raises(OptionError, match="sizes-at-call"):
            shlo_jit.compile(ANY_ROWS, dynamic="symbolic", cache=False, schedule={label: [move]})


# ---------------------------------------------------------------------- alternatives
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(3)
def test_alternatives_are_legal_and_differ(name: str, target: str) -> None:
    found = product_of(PROGRAMS[name], TARGETS[target])
    assert found is not None
    label, step, own = found
    alternatives = [*product_alternatives(step, own, own.product.target, any_rounding=True)]
    kept = [*product_alternatives(step, own)]
    assert len({*alternatives, own.moves}) == len(alternatives) + 1
    assert {*kept} <= {*alternatives}
    for moves in alternatives:
        again = product_of(PROGRAMS[name], TARGETS[target], {label: [*moves]})
        assert again is not None
        assert again[2].moves == moves
        changed = product_changes_bits(step, own, moves)
        assert changed == changes_bits(own.product, own.decisions, again[2].decisions) == (moves not in kept)


def test_alternatives_of_a_large_product() -> None:
    """Other packing, tasks of half and twice the size, the epilogue after the product, one thread."""
    found = product_of(LARGE)
    assert found is not None
    _, step, own = found
    changes = [[move for move in moves if move not in own.moves] for moves in product_alternatives(step, own)]
    kinds = [tuple(move.kind for move in changed) for changed in changes]
    assert ("pack",) in kinds and ("split",) in kinds and ("compute_at",) in kinds and () in kinds
    assert not any(getattr(move, "loop", "") == "k" for changed in changes for move in changed)
    more = product_alternatives(step, own, any_rounding=True)
    assert any(getattr(move, "loop", "") == "k" and move not in own.moves for moves in more for move in moves)


@pytest.mark.parametrize("name", ["large", "vector", "constant", "loop", "moved", "late"])
def test_alternatives_have_the_same_bits(name: str) -> None:
    text = PROGRAMS[name]
    found = product_of(text)
    assert found is not None
    label, step, own = found
    exe: Any = shlo_jit.compile(text, cache=False, threads=2)
    rng = np.random.default_rng(3)
    arguments = [rng.standard_normal(t.shape).astype(np.float32) for t in exe.inputs]
    want = exe(*arguments)
    for moves in product_alternatives(step, own):
        got = shlo_jit.compile(text, cache=False, threads=2, schedule={label: to_json(moves)})(*arguments)
        assert got.tobytes() == want.tobytes(), [str(move) for move in moves if move not in own.moves]


# ---------------------------------------------------------------------- random products
def run(numbers: range) -> tuple[int, int]:
    """Numbers of random schedules that are legal, and that are refused."""
    legal = refused = 0
    for seed in numbers:
        text, arguments = random_product(seed)
        arguments += more_arguments(text, seed)
        found = product_of(text)
        if found is None:  # no product is left of it
            continue
        label, _, own = found
        compiled: Any = shlo_jit.compile(text, cache=False)
        if label not in json.loads(compiled.text("moves")):  # its operand is computed in registers
            continue
        plan = own.product.plan
        moves = changed_product(to_json(own.moves), {"m": plan.mr, "n": plan.nr, "k": plan.k_unit}, seed)
        try:
            other = product_of(text, None, {label: [*from_json(moves)]})
        except IllegalMove:
            refused += 1
            continue
        legal += 1
        try:
            _check(text, arguments, {label: moves}, own, other)
        except Exception as error:
            error.add_note(f"product {seed}:\n{text[:2000]}\n{json.dumps(moves)}")
            raise
    return legal, refused


def _check(text: str, arguments: list[np.ndarray], given: Moves, own: ProductSchedule, other: Any) -> None:
    random_check.check(text, arguments, schedule=given)
    if not changes_bits(own.product, own.decisions, other[2].decisions):
        exes = [shlo_jit.compile(text, cache=False, threads=2, schedule=moves) for moves in (None, given)]
        one, two = (exe(*arguments).tobytes() for exe in exes)
        assert one == two, "other bits"


def test_random_schedules_of_products() -> None:
    legal, refused = run(range(20))
    assert legal >= 5 and refused >= 3


@pytest.mark.slow
def test_many_random_schedules_of_products() -> None:
    numbers = seeds(1000)
    legal, _ = run(numbers)
    assert legal > len(numbers) // 8
