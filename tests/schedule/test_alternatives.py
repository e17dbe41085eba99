"""Alternatives of nests: legal, different, and of known effect on the bits of results."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import guarded
import numpy as np
import pytest
import random_check
from decisions import AVX2, AVX512, context_of, main, plan_of, tensor
from random_programs import random_program
from random_rows import random_rows
from random_runs import seeds
from random_stencils import random_stencil

import shlo_jit
from shlo_jit import tuning
from shlo_jit.codegen.target import resolve
from shlo_jit.fuse.plan import NestStep, PlanBlock, Step, all_steps, labels_of
from shlo_jit.kernels.target import Target
from shlo_jit.runtime.executable import Executable
from shlo_jit.schedule.alternatives import alternatives, can_be_tuned
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.moves import MOVES, Move, Unroll, of_kind, to_json
from shlo_jit.schedule.nest import NestSchedule, schedule_nest
from shlo_jit.schedule.schedule import schedule

ONE_SUM = "stablehlo.reduce(%x init: %zero) applies stablehlo.{op} across dimensions = [{dim}]"


def reduction(shape: tuple[int, int], dim: int, dtype: str = "f32", op: str = "add") -> str:
    x, y = tensor(*shape, dtype=dtype), tensor(shape[1 - dim], dtype=dtype)
    zero = f"%zero = stablehlo.constant dense<0{'.0' if dtype[0] in 'fb' else ''}> : tensor<{dtype}>"
    return main(f"%x: {x}", y, zero, f"%y = {ONE_SUM.format(op=op, dim=dim)} : ({x}, tensor<{dtype}>) -> {y}")


SOFTMAX = main(
    f"%x: {tensor(64, 200)}",
    tensor(64, 200),
    "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
    f"%e = stablehlo.exponential %x : {tensor(64, 200)}",
    f"%s = {ONE_SUM.format(op='add', dim=1).replace('%x', '%e')} : ({tensor(64, 200)}, tensor<f32>) -> {tensor(64)}",
    f"%b = stablehlo.broadcast_in_dim %s, dims = [0] : ({tensor(64)}) -> {tensor(64, 200)}",
    f"%y = stablehlo.divide %e, %b : {tensor(64, 200)}",
)
TRANSPOSE = main(
    f"%x: {tensor(60, 90)}",
    tensor(90, 60),
    f"%y = stablehlo.transpose %x, dims = [1, 0] : ({tensor(60, 90)}) -> {tensor(90, 60)}",
)
LARGE = tensor(3000, 2000)
LARGE_SUM = main(f"%x: {LARGE}, %z: {LARGE}", LARGE, f"%y = stablehlo.add %x, %z : {LARGE}")
PADDED = main(
    f"%x: {tensor(70, 90)}",
    tensor(72, 92),
    "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
    f"%y = stablehlo.pad %x, %zero, low = [1, 1], high = [1, 1], interior = [0, 0] : ({tensor(70, 90)}, tensor<f32>) "
    f"-> {tensor(72, 92)}",
)
TRIPLES = main(
    f"%x: {tensor(3, 500)}",
    tensor(500, 3),
    f"%y = stablehlo.transpose %x, dims = [1, 0] : ({tensor(3, 500)}) -> {tensor(500, 3)}",
)
SQUARES = """
func.func @main(%x: tensor<70x50xf32>) -> tensor<70x50xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<30> : tensor<i32>
  %r:2 = stablehlo.while(%z = %x, %i = %zero) : tensor<70x50xf32>, tensor<i32> cond {
    %l = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  } do {
    %a = stablehlo.multiply %z, %z : tensor<70x50xf32>
    %b = stablehlo.add %a, %x : tensor<70x50xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %b, %j : tensor<70x50xf32>, tensor<i32>
  }
  return %r#0 : tensor<70x50xf32>
}"""
PROGRAMS = {
    "softmax": SOFTMAX,
    "transpose": TRANSPOSE,
    "large sum": LARGE_SUM,
    "padded": PADDED,
    "triples": TRIPLES,
    "squares": SQUARES,
    "rows": reduction((40, 300), 1),
    "short rows": reduction((5000, 12), 1),
    "columns": reduction((300, 40), 0),
    "one row": reduction((1, 2000000), 1),
    "integers": reduction((40, 300), 1, "i32"),
    "largest": reduction((40, 300), 1, op="maximum"),
    "brain floats": reduction((40, 300), 1, "bf16"),
}


def nests(plan: PlanBlock, target: Target) -> Iterator[tuple[Step, NestSchedule]]:
    found = schedule(plan, context_of(target))
    for step in all_steps(plan):
        scheduled = found[step]
        if isinstance(scheduled, NestSchedule):
            yield step, scheduled


@pytest.mark.parametrize("target", [AVX512, AVX2], ids=["avx512", "avx2"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_alternatives_are_legal_and_differ(name: str, target: Target) -> None:
    for step, scheduled in nests(plan_of(PROGRAMS[name]), target):
        assert isinstance(step, NestStep) and can_be_tuned(scheduled)
        found = list(alternatives(step, scheduled, target, any_rounding=True))
        assert len(found) >= 3 or scheduled.nest.rows == 1
        assert len({frozenset(moves) for moves in [scheduled.moves, *found]}) == len(found) + 1
        for moves in found:
            assert schedule_nest(step.nest, target, moves=moves).moves == moves


def test_alternatives_change_every_kind_of_move() -> None:
    changed: set[str] = set()
    for text in PROGRAMS.values():
        for step, scheduled in nests(plan_of(text), AVX2):
            for moves in alternatives(step, scheduled, AVX2, any_rounding=True):
                changed |= {move.kind for move in set(moves).symmetric_difference(scheduled.moves)}
    others = {"use_leaf", "pack", "compute_at", "skip_padding", "edge_tiles"}
    assert changed == set(MOVES) - others, "the others are of products and convolutions"


def test_only_inexact_sums_have_an_order() -> None:
    """Which of the alternatives change bits follows from what is added, and along which loop."""
    rounding = {}
    for name, text in PROGRAMS.items():
        every, exact = (
            sum(len(list(alternatives(step, s, AVX2, any_rounding=r))) for step, s in nests(plan_of(text), AVX2))
            for r in (True, False)
        )
        rounding[name] = every - exact
    assert {name for name, number in rounding.items() if number} == {
        *("softmax", "rows", "short rows", "columns", "one row", "brain floats")
    }


def test_long_reductions_are_not_unrolled() -> None:
    """Compiling them would take minutes."""
    for text in PROGRAMS.values():
        for step, scheduled in nests(plan_of(text), AVX2):
            for moves in alternatives(step, scheduled, AVX2, any_rounding=True):
                unrolled = {move.loop: move.by for move in of_kind(moves, Unroll)}
                assert max([by for loop, by in unrolled.items() if loop in scheduled.space.inner], default=0) <= 64


def test_steps_without_moves_have_no_alternatives() -> None:
    (step,) = all_steps(
        plan_of(main(f"%x: {tensor(8, 8)}", tensor(8, 8), f"%y = stablehlo.cholesky %x : {tensor(8, 8)}"))
    )
    assert list(alternatives(step, KernelSchedule(), AVX2, any_rounding=True)) == []


# ---------------------------------------------------------------------- machine code
HERE = resolve()


def steps_of(exe: Executable) -> dict[str, tuple[Step, KernelSchedule]]:
    ((_, (*callees, entry)),) = exe.planned()
    found = {}
    for prefix, function in [*((f"@{f.name}:", f) for f in callees), ("", entry)]:
        labels = labels_of(function.plan)
        for step in all_steps(function.plan):
            if can_be_tuned(function.schedule[step]):
                found[prefix + labels[id(step)]] = step, function.schedule[step]
    return found


def results(exe: Executable, arguments: list[np.ndarray]) -> list[bytes]:
    found = exe(*arguments)
    return [np.asarray(x).tobytes() for x in (found if isinstance(found, tuple) else (found,))]


def with_moves(text: str, label: str, moves: tuple[Move, ...], **options: Any) -> Executable:
    made = shlo_jit.compile(text, cache=False, schedule={label: to_json(moves)}, **options)
    assert isinstance(made, Executable)
    return made


@pytest.mark.parametrize("name", ["softmax", "rows", "columns", "padded", "squares"])
def test_bits_change_as_alternatives_say(name: str) -> None:
    text = PROGRAMS[name]
    exe = shlo_jit.compile(text, cache=False, threads=2)
    assert isinstance(exe, Executable)
    rng = np.random.default_rng(0)
    arguments = [rng.uniform(-0.7, 0.2, port.shape).astype(port.dtype) for port in exe.inputs]
    want, others = results(exe, arguments), 0
    for label, (step, scheduled) in steps_of(exe).items():
        exact = list(alternatives(step, scheduled, HERE))
        every = list(alternatives(step, scheduled, HERE, any_rounding=True))
        for moves in [*exact[::3], *(moves for moves in every[::3] if moves not in exact)]:
            is_equal = results(with_moves(text, label, moves, threads=2), arguments) == want
            assert is_equal or moves not in exact, [str(move) for move in moves]
            others += not is_equal
    assert (others > 0) == (name in ("softmax", "rows", "columns"))


SHIFTED = """
func.func @main(%x: tensor<97x4x7xf32>) -> tensor<97x4x7xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<20> : tensor<i32>
  %r:2 = stablehlo.while(%z = %x, %i = %zero) : tensor<97x4x7xf32>, tensor<i32> cond {
    %l = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  } do {
    %f = stablehlo.constant dense<0.5> : tensor<f32>
    %p = stablehlo.pad %z, %f, low = [1, 0, 0], high = [-1, 0, 0], interior = [0, 0, 0]
      : (tensor<97x4x7xf32>, tensor<f32>) -> tensor<97x4x7xf32>
    %a = stablehlo.subtract %p, %z : tensor<97x4x7xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %a, %j : tensor<97x4x7xf32>, tensor<i32>
  }
  return %r#0 : tensor<97x4x7xf32>
}"""


@pytest.mark.parametrize(
    ("order", "loop", "is_tiled"), [((0, 1, 2), 2, True), ((0, 1, 2), 0, False), ((1, 0, 2), 2, False)]
)
def test_only_loops_over_whole_lines_are_tiled(order: tuple[int, ...], loop: int, is_tiled: bool) -> None:
    """Lines are contiguous parts of the arrays. With lanes along the outermost dimension, or another order of the
    loops, they would not be."""
    x = np.random.default_rng(0).normal(size=(97, 4, 7)).astype(np.float32)
    default = shlo_jit.compile(SHIFTED, cache=False)
    assert isinstance(default, Executable)
    want = results(default, [x])
    (label,) = (label for label, (_, s) in steps_of(default).items() if len(s.space.order) == 3)
    moves = {label: [{"move": "reorder", "loops": [*order]}, {"move": "vectorize", "loop": loop, "lanes": 2}]}
    with small_tiles():
        exe = guarded.plain_compile(SHIFTED, cache=False, threads=1, schedule=moves)
        assert ("iterations at a time" in exe.text("schedule")) == is_tiled
        assert ("not-over-lines" in exe.text("plan") + exe.text("schedule")) != is_tiled
        for at_end in (True, False):
            (got,) = guarded.call(exe, [x], at_end)
            assert np.asarray(got).tobytes() == want[0]


def random_loop(seed: int) -> tuple[str, list[np.ndarray]]:
    """A stencil loop with a number of iterations."""
    text, arrays = random_stencil(seed)
    return text, [np.array(seed % 6, np.int32), *arrays]


@contextmanager
def small_tiles() -> Iterator[None]:
    """Compiles loops as if their arrays were large, so that several iterations run on a tile."""
    with pytest.MonkeyPatch.context() as patch:
        for threshold, value in {"TEMPORAL_TILE_LOOP_BYTES": 1, "PING_PONG_BYTES": 1, "TASK_WORK": 1 << 10}.items():
            patch.setattr(tuning, threshold, value)
        yield


def check(seed: int) -> list[bool]:
    """Checks an alternative of one nest of a random program that must keep the bits, and then one near it that need
    not. Returns for each that was found whether it must keep them."""
    text, arguments = (random_program, random_rows, random_loop)[seed % 3](seed)
    rng, checked = random.Random(seed), []
    given: dict[str, Any] = {}
    with small_tiles() if seed % 3 == 2 else nullcontext():
        exe = shlo_jit.compile(text, cache=False, threads=1)
        assert isinstance(exe, Executable)
        steps = steps_of(exe)
        label = rng.choice([*steps]) if steps else ""
        for is_exact in (True, False) if steps else ():
            step, scheduled = steps[label]
            found = list(alternatives(step, scheduled, HERE, any_rounding=not is_exact))
            if not found:
                continue
            moves = rng.choice(found)
            given = {label: to_json(moves)}
            try:
                random_check.check(text, arguments, schedule=given)
                other = with_moves(text, label, moves)
                assert not is_exact or results(other, arguments) == results(exe, arguments), "other bits"
            except Exception as error:
                error.add_note(f"program {seed}:\n{text}\n{json.dumps(given)}")
                raise
            checked.append(is_exact)
            steps = steps_of(other)
    return checked


def run(numbers: range) -> tuple[int, int]:
    """Numbers of alternatives that must keep the bits, and of the others."""
    checked = [is_exact for seed in numbers for is_exact in check(seed)]
    return sum(checked), len(checked) - sum(checked)


def test_random_alternatives() -> None:
    exact, rounded = run(range(6))
    assert exact >= 3 and rounded >= 3


@pytest.mark.slow
def test_many_random_alternatives() -> None:
    numbers = seeds(600)
    exact, rounded = run(numbers)
    print(f"{exact} alternatives with the same bits, {rounded} with any rounding")
    assert exact > len(numbers) // 2
