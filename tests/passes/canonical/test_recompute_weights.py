"""Recomputed weights of attention in its gradient: when, and which values."""

from __future__ import annotations

import pytest
from alone import canonical

from shlo_jit import tuning
from shlo_jit.ir.core import walk

ROWS, SCORES = "tensor<8x40x16xf32>", "tensor<8x40x40xf32>"
BY_ROWS, BY_KEYS = "contracting_dims = [2] x [2]", "contracting_dims = [2] x [1]"


def dot(name: str, a: str, b: str, kinds: tuple[str, str], result: str, contracting: str) -> str:
    numbers = f"batching_dims = [0] x [0], {contracting}"
    return f"%{name} = stablehlo.dot_general %{a}, %{b}, {numbers} : ({kinds[0]}, {kinds[1]}) -> {result}"


def program(*, function: str = "exponential", results: str = "%dq, %dk, %dv", kinds: str = ROWS) -> str:
    """The gradient of a loss: it waits for the result."""
    rows, scores = (ROWS, ROWS), (SCORES, ROWS)
    lines = [
        dot("s", "q", "k", rows, SCORES, BY_ROWS),
        f"%m = stablehlo.add %s, %s : {SCORES}",
        f"%e = stablehlo.{function} %m : {SCORES}",
        f"%w = stablehlo.negate %e : {SCORES}",
        dot("y", "w", "v", scores, ROWS, BY_KEYS),
        dot("g", "y", "v", rows, SCORES, BY_ROWS),
        f"%ds = stablehlo.multiply %g, %e : {SCORES}",
        dot("dq", "ds", "k", scores, ROWS, BY_KEYS),
        dot("dk", "ds", "q", scores, ROWS, "contracting_dims = [1] x [1]"),
        dot("dv", "w", "y", scores, ROWS, "contracting_dims = [1] x [1]"),
    ]
    body = "\n".join([*lines, f"return {results} : {ROWS}, {ROWS}, {kinds}"])
    return f"func.func @main(%q: {ROWS}, %k: {ROWS}, %v: {ROWS}) -> ({ROWS}, {ROWS}, {kinds}) {{\n{body}\n}}"


def counted(text: str) -> tuple[int, int, int]:
    """Returns the numbers of products, expensive functions and negations."""
    names = [op.name.partition(".")[2] for op in walk(canonical(text).block())]
    return names.count("dot_general"), names.count("exponential"), names.count("negate")


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "RECOMPUTED_ELEMENTS", 8 * 40 * 40)
    monkeypatch.setattr(tuning, "KEPT_WEIGHTS_BYTES", 0)


def test_all_of_it() -> None:
    assert counted(program()) == (7, 2, 2)


def test_expensive_values_are_kept_if_they_fit_into_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "KEPT_WEIGHTS_BYTES", 8 * 40 * 40 * 4)
    assert counted(program()) == (6, 1, 2)
    monkeypatch.setattr(tuning, "KEPT_WEIGHTS_BYTES", 8 * 40 * 40 * 4 - 1)
    assert counted(program()) == (7, 2, 2)


def test_values_computed_from_cheap_ones_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "KEPT_WEIGHTS_BYTES", 1 << 30)
    assert counted(program(function="abs"))[0] == 7


def test_few_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "RECOMPUTED_ELEMENTS", 8 * 40 * 40 + 1)
    assert counted(program()) == (6, 1, 1)


def test_too_few_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "ATTENTION_LEAST_TASKS", 9)
    assert counted(program())[0] == 7
    monkeypatch.setattr(tuning, "GEMM_TASK", 8 * 40 * 40 * 16 - 1)
    assert counted(program()) == (6, 1, 1)


def test_weights_that_are_returned_are_in_memory_anyway() -> None:
    assert counted(program(results="%dq, %dk, %w", kinds=SCORES))[:2] == (5, 1)
