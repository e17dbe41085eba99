"""Products and loops by blocks of rows: random programs against the reference in guarded memory, with the same bits for
any number of threads, and the combinations that people write.

    RANDOM_PROGRAMS=10000 pytest -m slow tests/lower/test_row_blocks.py
"""

from __future__ import annotations

import json
import random

import guarded
import numpy as np
import pytest
import random_check
from printed_codes import in_memory
from random_row_blocks import random_row_blocks
from random_runs import seeds

import shlo_jit
from shlo_jit import tuning
from shlo_jit.codegen.target import resolve
from shlo_jit.fuse.plan import all_steps, labels_of
from shlo_jit.options import CompileOptions, OptionError
from shlo_jit.pipeline import lower
from shlo_jit.schedule.alternatives import alternatives
from shlo_jit.schedule.moves import to_json
from shlo_jit.schedule.row_blocks import RowBlocksSchedule


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes blocks of a few rows pay off for values of any size, in several tasks."""
    monkeypatch.setattr(tuning, "ROW_BLOCK_BYTES", 1)
    monkeypatch.setattr(tuning, "ATTENTION_TASK_ROWS", 16)
    monkeypatch.setattr(tuning, "ATTENTION_BLOCK_BYTES", 2 << 10)
    monkeypatch.setattr(tuning, "ATTENTION_LEAST_COLUMNS", 2)
    monkeypatch.setattr(tuning, "GEMM_SERIAL", 1 << 10)


def run(numbers: range) -> int:
    """Checks programs, and returns how many of them run by blocks of rows."""
    found = 0
    for seed in numbers:
        text, arguments = random_row_blocks(seed)
        try:
            random_check.check(text, arguments)
            exe = shlo_jit.compile(text, cache=False, threads=1)
            found += any(word in exe.text("plan").splitlines()[0] for word in ("row_blocks", "attention"))
            if seed % 10 == 0:
                same_for_threads(text, arguments)
        except Exception as e:
            e.add_note(f"program {seed}:\n{text}")
            raise
    return found


def same_for_threads(text: str, arguments: list[np.ndarray]) -> None:
    first = guarded.outputs(shlo_jit.compile(text, threads=1, cache=False)(*arguments))
    for threads in (2, 8):
        other = guarded.outputs(shlo_jit.compile(text, threads=threads, cache=False)(*arguments))
        assert [x.tobytes() for x in first] == [x.tobytes() for x in other]


def test_random_programs() -> None:
    assert run(range(30)) > 10, "too few programs run by blocks of rows"


def run_given(numbers: range) -> tuple[int, int]:
    """Checks programs with random moves for their row blocks; returns how many were legal and how many were not."""
    legal = illegal = 0
    for seed in numbers:
        text, arguments = random_row_blocks(seed)
        exe = shlo_jit.compile(text, cache=False, threads=1)
        labels = [line.split()[0] for line in exe.text("plan").splitlines() if " row_blocks " in line[:20]]
        choose = random.Random(seed)
        rows = [1, 2, 5, 7, 12, 40, 100, 200]
        for label in labels:
            moves = [{"move": "split", "loop": "m", "by": choose.choice(rows)}]
            if choose.random() < 0.8:
                moves.append({"move": "parallel", "grain": choose.choice(rows)})
            try:
                random_check.check(text, arguments, schedule={label: moves})
                legal += 1
            except OptionError:
                illegal += 1
            except Exception as e:
                e.add_note(f"program {seed} with {moves}:\n{text}")
                raise
    return legal, illegal


def test_given_moves() -> None:
    legal, illegal = run_given(range(40))
    assert legal > 3 and illegal > 3


def test_printed_moves_give_the_same_code() -> None:
    text, _ = random_row_blocks(next(s for s in range(99) if "1 row_blocks" in plan_of(s)))
    exe = shlo_jit.compile(text, cache=False, threads=1)
    again = shlo_jit.compile(text, cache=False, threads=1, schedule=json.loads(exe.text("moves")))
    assert again.text("lowered") == exe.text("lowered")


def test_alternatives_are_legal_and_have_the_same_bits() -> None:
    found = 0
    for seed in range(12):
        text, arguments = random_row_blocks(seed)
        lowered = lower(shlo_jit.parse(text), CompileOptions(resolve(), threads=2))
        first = guarded.outputs(shlo_jit.compile(text, cache=False, threads=2)(*arguments))
        for label, step in {v: s for s in all_steps(lowered.plan) for v in [labels_of(lowered.plan)[id(s)]]}.items():
            scheduled = lowered.entry.schedule[step]
            if isinstance(scheduled, RowBlocksSchedule):
                for moves in alternatives(step, scheduled, resolve()):
                    exe = shlo_jit.compile(text, cache=False, threads=2, schedule={label: to_json(moves)})
                    again = guarded.outputs(exe(*arguments))
                    assert [x.tobytes() for x in again] == [x.tobytes() for x in first]
                    found += 1
    assert found > 5


def plan_of(seed: int) -> str:
    return shlo_jit.compile(random_row_blocks(seed)[0], cache=False, threads=1).text("plan").splitlines()[0]


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_more_random_programs() -> None:
    numbers = seeds(1000)
    assert run(numbers) > len(numbers) // 3


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_more_given_moves() -> None:
    legal, _ = run_given(seeds(1000))
    assert legal > 0


def of(*shape: int) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) / 4).astype(np.float32)


X, W, V, U = of(200, 24), of(24, 64), of(64, 24), of(24, 64) + 0.5
PLAIN = "contracting_dims = [1] x [0] : (tensor<{}xf32>, tensor<{}xf32>) -> tensor<{}xf32>"
ROW_SUM = (
    "stablehlo.reduce({} init: %zero) applies stablehlo.add across dimensions = [1]"
    " : (tensor<200x{}xf32>, tensor<f32>) -> tensor<200xf32>"
)


def product(left: str, right: str, k: int, n: int) -> str:
    return f"stablehlo.dot_general {left}, {right}, " + PLAIN.format(f"200x{k}", f"{k}x{n}", f"200x{n}")


def spread(value: str, n: int) -> str:
    return f"stablehlo.broadcast_in_dim {value}, dims = [0] : (tensor<200xf32>) -> tensor<200x{n}xf32>"


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x)
    return e / e.sum(-1, keepdims=True)


def test_a_view_of_a_value_that_other_steps_read() -> None:
    """A product reads its left operand through a reshape; a sort reads it too, so it is in memory."""
    text = f"""func.func @main(%x: tensor<200x24xf32>, %w: tensor<24x64xf32>, %v: tensor<64x24xf32>)
      -> (tensor<200x24xf32>, tensor<200x64xf32>) {{
  %s = {product("%x", "%w", 24, 64)}
  %r = stablehlo.reshape %s : (tensor<200x64xf32>) -> tensor<20x10x64xf32>
  %y = stablehlo.dot_general %r, %v, contracting_dims = [2] x [0]
    : (tensor<20x10x64xf32>, tensor<64x24xf32>) -> tensor<20x10x24xf32>
  %z = stablehlo.reshape %y : (tensor<20x10x24xf32>) -> tensor<200x24xf32>
  %o = "stablehlo.sort"(%s) <{{dimension = 1 : i64}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %l = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %l : tensor<i1>
  }}) : (tensor<200x64xf32>) -> tensor<200x64xf32>
  return %z, %o : tensor<200x24xf32>, tensor<200x64xf32>
}}"""
    exe = guarded.compile(text, cache=False, threads=3)
    assert "row_blocks" in exe.text("plan").splitlines()[0]
    found, ordered = guarded.outputs(exe(X, W, V))
    np.testing.assert_allclose(found, X @ W @ V, 1e-5, 1e-5)
    np.testing.assert_allclose(ordered, np.sort(X @ W, 1), 1e-5, 1e-5)


FORMS = {
    "softmax of a product": (
        [f"%s = {product('%x', '%w', 24, 64)}", "%e = stablehlo.exponential %s : tensor<200x64xf32>",
         f"%r = {ROW_SUM.format('%e', 64)}", f"%b = {spread('%r', 64)}",
         "%y = stablehlo.divide %e, %b : tensor<200x64xf32>"],
        64, lambda x, w, v, u: softmax(x @ w),
    ),
    "feed-forward": (
        [f"%s = {product('%x', '%w', 24, 64)}", "%h = stablehlo.tanh %s : tensor<200x64xf32>",
         f"%y = {product('%h', '%v', 64, 24)}"],
        24, lambda x, w, v, u: np.tanh(x @ w) @ v,
    ),
    "gated feed-forward": (
        [f"%s = {product('%x', '%w', 24, 64)}", f"%g = {product('%x', '%u', 24, 64)}",
         "%t = stablehlo.tanh %s : tensor<200x64xf32>", "%h = stablehlo.multiply %t, %g : tensor<200x64xf32>",
         f"%y = {product('%h', '%v', 64, 24)}"],
        24, lambda x, w, v, u: (np.tanh(x @ w) * (x @ u)) @ v,
    ),
    "product of normalized rows": (
        ["%q = stablehlo.multiply %x, %x : tensor<200x24xf32>", f"%r = {ROW_SUM.format('%q', 24)}",
         f"%b = {spread('%r', 24)}", "%i = stablehlo.rsqrt %b : tensor<200x24xf32>",
         "%n = stablehlo.multiply %x, %i : tensor<200x24xf32>", f"%y = {product('%n', '%w', 24, 64)}"],
        64, lambda x, w, v, u: x / np.sqrt((x * x).sum(-1, keepdims=True)) @ w,
    ),
    "sums of a product's rows": (
        [f"%s = {product('%x', '%w', 24, 64)}", f"%r = {ROW_SUM.format('%s', 64)}",
         "%y = stablehlo.reshape %r : (tensor<200xf32>) -> tensor<200x1xf32>"],
        1, lambda x, w, v, u: (x @ w).sum(-1, keepdims=True),
    ),
    "a small inner size": (
        [f"%s = {product('%x', '%w', 24, 64)}", f"%y = {product('%s', '%v', 64, 24)}"],
        24, lambda x, w, v, u: x @ w @ v,
    ),
}  # fmt: skip
"""Lines of each combination, the columns of its result, and the same in NumPy."""


@pytest.mark.parametrize("form", FORMS)
def test_nothing_between_stages_is_in_memory(form: str) -> None:
    lines, n, exact = FORMS[form]
    body = "\n  ".join(["%zero = stablehlo.constant dense<0.0> : tensor<f32>", *lines])
    text = f"""func.func @main(%x: tensor<200x24xf32>, %w: tensor<24x64xf32>, %v: tensor<64x24xf32>, %u: tensor<24x64xf32>)
      -> tensor<200x{n}xf32> {{
  {body}
  return %y : tensor<200x{n}xf32>
}}"""
    exe = guarded.compile(text, cache=False, threads=3)
    plan = exe.text("plan")
    assert plan.startswith("1 step: 1 row_blocks") or "1 row_blocks, 1 view" in plan.splitlines()[0]
    assert "200x64xf32" not in in_memory(plan) or n == 64
    found = guarded.outputs(exe(X, W, V, U))[0]
    wide = [a.astype(np.float64) for a in (X, W, V, U)]
    np.testing.assert_allclose(found, exact(*wide), 1e-5, 1e-5)
