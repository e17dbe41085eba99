"""Programs of `benchmarks.stateful_loops` at small sizes: right in guarded memory, without copies of states in loops."""

from __future__ import annotations

import re

import guarded
import jax
import jax.numpy as jnp
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


def energy(state, best, place, other, number):
    """A proposal is a change of one element; its energy is that of the whole state."""
    proposed = state.at[place].add(number)
    found = (proposed**2).sum()
    return jnp.where(found < best + number, proposed, state), jnp.minimum(found, best)


def exchanged(state, best, place, other, number):
    """Two elements change places, or the same one twice; the sides of the choice are the other way around."""
    proposed = state.at[place].set(state[other] + number).at[other].set(state[place])
    found = (proposed * jnp.arange(state.size)).sum()
    return jnp.where(found > best + number, state, proposed), jnp.minimum(found, best)


def rows_of_branches(state, best, place, other, number):
    """Rows of two overlapping slices, chosen by branches."""
    rows = state.reshape(-1, 8)
    proposed = jax.lax.dynamic_update_slice(rows, rows[:2] + number, (place % 100, 0))
    proposed = jax.lax.dynamic_update_slice(proposed, proposed[1:3] * 2, (other % 100, 0))
    found = jnp.abs(proposed).sum()
    chosen = jax.lax.cond(found % 2 < 1, lambda a, b: a, lambda a, b: b, proposed, rows)
    return chosen.ravel() / (1 + jnp.abs(chosen).max()), best + chosen[place % 100, 0]


@pytest.mark.parametrize(("step", "copies"), [(energy, 0), (exchanged, 0), (rows_of_branches, None)])
def test_rejected_proposals_are_undone_where_they_differ(step, copies: int | None) -> None:
    r = np.random.default_rng(3)
    state, numbers = r.standard_normal(1024, np.float32), r.standard_normal(40, np.float32)
    places = r.integers(0, 1024, (40, 2)).astype(np.int32)
    places[::7, 1] = places[::7, 0]

    def program(state, places, numbers):
        def body(carry, x):
            return step(*carry, x[0][0], x[0][1], x[1]), carry[1]

        return jax.lax.scan(body, (state, jnp.float32(1e3)), (places, numbers))

    text = jax.jit(program).lower(state, places, numbers).as_text()
    wants = evaluate(shlo_jit.parse(text), state, places, numbers)
    exe = guarded.compile(text, threads=2, cache=False)
    for got, want in zip(exe(state, places, numbers), wants, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=2e-5)
    assert copies is None or len(copied(exe)) == copies
