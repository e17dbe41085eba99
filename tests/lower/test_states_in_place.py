"""Programs of `benchmarks.stateful_loops` at small sizes: right in guarded memory, without copies of states in loops."""

from __future__ import annotations

import re

import guarded
import jax
import numpy as np
import pytest

import shlo_jit
from benchmarks import stateful_inputs
from benchmarks.stateful_programs import PROGRAMS
from shlo_jit.reference.interpreter import evaluate

COPY = re.compile(r"^(?:before step \d+\.\S+:|at the end of a region:) copy %\S+ (\d\S*x\S+) ", re.MULTILINE)
"""A copy of a tensor inside of a loop or branch, as the printed memory plan says it."""
SMALL = 256
"""Elements of a tensor that may be copied in each iteration."""


def copied(exe: shlo_jit.Executable) -> list[str]:
    """The types of large tensors that loops copy."""
    found = COPY.findall(exe.text("memory"))
    return [t for t in found if np.prod([int(n) for n in re.findall(r"(\d+)x", t)]) > SMALL]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_results_and_copies(program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateful_inputs, "ROUNDS", 10)
    function, arguments = program(1024)
    text = jax.jit(function, keep_unused=True).lower(*arguments).as_text()
    wants = evaluate(shlo_jit.parse(text), *arguments)
    exe = guarded.compile(text, threads=2, cache=False)
    out = exe(*arguments)
    gots = out if isinstance(out, (tuple, list)) else (out,)
    for got, want in zip(gots, wants, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=2e-5)
    assert copied(exe) == []


def test_a_loop_updates_a_donated_argument_in_place() -> None:
    """Its initial state is the argument, and so is its result: nothing is copied before or after the loop."""

    def rows(table, values):
        def body(i, table):
            return jax.lax.dynamic_update_slice(table, values * table[i, 0], (i, 0))

        return jax.lax.fori_loop(0, 40, body, table)

    table, values = np.ones((64, 128), np.float32), np.arange(128, dtype=np.float32)[None] + 1
    text = jax.jit(rows).lower(table, values).as_text()
    exe = guarded.compile(text, donate=[0], cache=False)
    assert "64x128" not in "".join(line for line in exe.text("memory").splitlines() if "copy" in line)
    (want,) = evaluate(shlo_jit.parse(text), table, values)
    given = table.copy()
    found = exe(given, values)
    np.testing.assert_array_equal(found, want)
    assert np.shares_memory(found, given)
    kept = guarded.compile(text, cache=False)(table, values)
    np.testing.assert_array_equal(kept, want)
    assert (table == 1).all()
