"""Temporal tiling of loops whose elements need their neighbours: several iterations run on a part of the arrays before
the next part, with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import guarded
import numpy as np
import pytest
from printed_codes import codes

import shlo_jit
from shlo_jit import tuning
from shlo_jit.reference.interpreter import evaluate
from shlo_jit.runtime.executable import Executable

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

State = Any
Step = Callable[..., Any]


def text_of(step: Step, states: tuple[np.ndarray, ...], iterations: int | None = None) -> str:
    """A program of `iterations` iterations; None: their number is its first argument."""

    def program(n: Any, *given: Any) -> Any:
        def iteration(i: Any, s: Any) -> Any:
            found = step(*s, i) if step in NUMBERED else step(*s)
            return found if isinstance(found, tuple) else (found,)

        return jax.lax.fori_loop(0, n if iterations is None else iterations, iteration, given)

    return jax.jit(program).lower(np.int32(0), *states).as_text()


def laplace(u: State, shift: Callable[[State, int, int], State]) -> State:
    """The sum over neighbours, less their number times the element."""
    total = -2.0 * u.ndim * u
    for d in range(u.ndim):
        total = total + shift(u, 1, d) + shift(u, -1, d)
    return total


def rolled(u: State, by: int, d: int) -> State:
    return jnp.roll(u, by, d)


def padded(u: State, by: int, d: int, mode: str = "constant") -> State:
    around = jnp.pad(u, [(1, 1) if k == d else (0, 0) for k in range(u.ndim)], mode=mode)
    start = [0] * u.ndim
    start[d] = 1 - by
    return jax.lax.slice(around, start, [s + n for s, n in zip(start, u.shape, strict=True)])


def periodic(u: State) -> State:
    return u + 0.125 * laplace(u, rolled)


def zeros_around(u: State) -> State:
    return u + 0.125 * laplace(u, padded)


def same_around(u: State) -> State:
    return u + 0.125 * laplace(u, lambda x, by, d: padded(x, by, d, "edge"))


def wrapped_around(u: State) -> State:
    return u + 0.125 * laplace(u, lambda x, by, d: padded(x, by, d, "wrap"))


def fixed_border(u: State) -> State:
    inside = (slice(1, -1),) * u.ndim
    return u.at[inside].add((0.125 * laplace(u, rolled))[inside])


def set_border(u: State) -> State:
    inside = (slice(1, -1),) * u.ndim
    return u.at[inside].set((u + 0.125 * laplace(u, rolled))[inside])


def far(u: State) -> State:
    return u + 0.25 * (jnp.roll(u, 3, 0) - jnp.roll(u, -2, u.ndim - 1))


def corners(u: State) -> State:
    return 0.5 * u + 0.25 * (jnp.roll(u, (1, 1), (0, u.ndim - 1)) + jnp.roll(u, (-1, 1), (0, u.ndim - 1)))


def wave(u: State, v: State) -> tuple[State, State]:
    return 2 * u - v + 0.125 * laplace(u, padded), u


def wave_around(u: State, v: State) -> tuple[State, State]:
    return 2 * u - v + 0.125 * laplace(u, rolled), u


def reaction(u: State, v: State) -> tuple[State, State]:
    r = u * v * v
    return u + 0.125 * laplace(u, rolled) - r, v + 0.0625 * laplace(v, rolled) + r - 0.125 * v


def staggered(u: State, v: State) -> tuple[State, State]:
    """One state is only read at the index where it is written."""
    return u + 0.5 * v, v + 0.125 * laplace(u, padded)


def driven(u: State, i: Any) -> State:
    """A source that depends on the iteration, and a scalar that comes from a table."""
    strength = jnp.sqrt(1.0 + i.astype(jnp.float32)) + jnp.arange(0.0, 6.0, 0.25)[i]
    return u + 0.125 * laplace(u, padded) + strength


def midpoint(u: State) -> State:
    """Two steps of a Runge-Kutta method."""
    return u + 0.125 * laplace(u + 0.0625 * laplace(u, rolled), rolled)


def runge_kutta(u: State) -> State:
    k = [laplace(u, padded)]
    for step in (0.0625, 0.0625, 0.125):
        k.append(laplace(u + step * k[-1], padded))
    return u + 0.03125 * (k[0] + 2 * k[1] + 2 * k[2] + k[3])


def two_fields(u: State, v: State) -> tuple[State, State]:
    """One field is updated from the new values of the other."""
    v = v + 0.125 * laplace(u, rolled)
    return u + 0.125 * laplace(v, rolled), v


def red_and_black(u: State) -> State:
    red = sum(jax.lax.broadcasted_iota(jnp.int32, u.shape, d) for d in range(u.ndim)) % 2 == 0
    u = jnp.where(red, u + 0.125 * laplace(u, padded), u)
    return jnp.where(red, u, u + 0.125 * laplace(u, padded))


def alternating(u: State) -> State:
    """A half step along each of two dimensions."""
    for d in (0, u.ndim - 1):
        u = u + 0.125 * (rolled(u, 1, d) + rolled(u, -1, d) - 2 * u)
    return u


def fields_on_parts(u: State, v: State) -> tuple[State, State]:
    """Each field is updated except for a border."""
    v = v.at[..., :-1].add(0.5 * jnp.diff(u, axis=-1))
    inside = (slice(1, -1),) * u.ndim
    return u.at[inside].add((v - rolled(v, 1, u.ndim - 1))[inside]), v


def first_and_last_line(u: State) -> State:
    inside = (slice(1, -1),) * u.ndim
    u = u.at[inside].set((u + 0.125 * laplace(u, rolled))[inside])
    return u.at[0].set(0.5 * u[1] + 0.25).at[-1].set(1.0)


def fourth_order(u: State, v: State) -> tuple[State, State]:
    """A wave whose step is two loops: the new state overwrites the one before the last."""
    inner = jnp.sqrt(jnp.abs(laplace(u, rolled)))
    return 2 * u - v + 0.0625 * laplace(inner, rolled), u


def driven_twice(u: State, i: Any) -> State:
    """Nests that read other scalars of the iteration."""
    u = u + 0.125 * laplace(u, rolled) + jnp.sqrt(1.0 + i.astype(jnp.float32))
    return u + 0.125 * laplace(u, rolled) + jnp.arange(0.0, 6.0, 0.25)[i]


NUMBERED = (driven, driven_twice)
SEVERAL = (midpoint, runge_kutta, two_fields, red_and_black, alternating, fields_on_parts, first_and_last_line,
           driven_twice, fourth_order)  # fmt: skip
"""Steps with more than one nest per iteration."""
ONE = (periodic, zeros_around, same_around, wrapped_around, fixed_border, set_border, far, corners, driven)
TWO = (wave, wave_around, reaction, staggered, two_fields, fields_on_parts, fourth_order)
SHAPES = ((4001,), (96,), (97, 35), (128, 16), (41, 3, 50), (64, 5, 7))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes arrays of a test count as large."""
    monkeypatch.setattr(tuning, "TEMPORAL_TILE_LOOP_BYTES", 1)
    monkeypatch.setattr(tuning, "TEMPORAL_TILE_WAVEFRONT", 1024)
    monkeypatch.setattr(tuning, "TEMPORAL_TILE_STRIPES", 3)
    monkeypatch.setattr(tuning, "TASK_WORK", 1 << 12)


def values(shape: tuple[int, ...], count: int) -> tuple[np.ndarray, ...]:
    r = np.random.default_rng(sum(shape) + count)
    return tuple(r.standard_normal(shape).astype(np.float32) for _ in range(count))


def check(text: str, *given: Any) -> guarded.GuardedExecutable:
    wants = evaluate(shlo_jit.parse(text), *given)
    exe = guarded.compile(text, cache=False)
    for got, want in zip(guarded.outputs(exe(*given)), wants, strict=True):
        np.testing.assert_array_equal(got, want)
    return exe


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("step", dict.fromkeys([*ONE, *TWO, *SEVERAL]), ids=lambda f: f.__name__)
@pytest.mark.sampled(8)
def test_the_reference_says_the_same(step: Step, shape: tuple[int, ...]) -> None:
    """The number of iterations is known only at the call."""
    states = values(shape, 2 if step in TWO else 1)
    text = text_of(step, states)
    for iterations in (0, 1, 2, 7, 8, 17):
        check(text, np.int32(iterations), *states)


def blocks_of(text: str) -> list[str]:
    exe = shlo_jit.compile(text, cache=False)
    return [line.strip() for line in exe.text("schedule").splitlines() if line.lstrip().startswith("temporal tiling")]


@pytest.mark.parametrize("step", dict.fromkeys([*ONE, *TWO, *SEVERAL]), ids=lambda f: f.__name__)
@pytest.mark.sampled(4)
def test_several_iterations_at_a_time(step: Step) -> None:
    """The code follows the schedule."""
    states = values((300, 64), 2 if step in TWO else 1)
    text = text_of(step, states)
    lines = blocks_of(text)
    assert len(lines) > 1 if step in SEVERAL else len(lines) == 1
    assert all("iterations at a time" in line for line in lines), lines
    assert ".triangles." in shlo_jit.compile(text, cache=False).text("lowered")


def test_chunks_of_several_loops_have_one_size() -> None:
    """Arrays of one dimension: each loop alone would have different chunks."""
    states = values((200_000,), 1)
    text = text_of(lambda u: midpoint(u) * u, states)
    assert all("iterations at a time" in line for line in blocks_of(text)), blocks_of(text)
    check(text, np.int32(5), *states)


@pytest.mark.parametrize("step", [periodic, fixed_border, wave, midpoint, two_fields], ids=lambda f: f.__name__)
def test_other_targets_and_profiles(step: Step) -> None:
    """Code for processors without masks, and profiled code."""
    states = values((97, 35), 2 if step in TWO else 1)
    text, iterations = text_of(step, states), np.int32(13)
    wants = evaluate(shlo_jit.parse(text), iterations, *states)
    for target in ("x86-64", "x86-64-v3"):
        there = shlo_jit.compile(text, target=target, cache=False)
        for got, want in zip(guarded.outputs(there(iterations, *states)), wants, strict=True):
            np.testing.assert_array_equal(got, want)
    exe = shlo_jit.compile(text, cache=False)
    assert isinstance(exe, Executable)
    with exe.profile() as p:
        exe(iterations, *states)
    assert max((s for s in p.steps if s.title == "loop"), key=lambda s: s.total_us).gigaflops is None


@pytest.mark.parametrize(
    "step,code",
    [
        (lambda u: u + u.T, "not-simple-vector-loop"),
        (lambda u: u + jnp.flip(u, 0), "not-neighbours"),
        (lambda u: u + u[5], "iterations-exceed-cache"),
        (lambda u: u + u[jnp.int32(u[0, 0]) % 7], "not-neighbours"),
        (lambda u: u + jnp.roll(u, 30, 0), "iterations-exceed-cache"),
    ],
)
def test_which_loops_are_not_tiled(step: Step, code: str) -> None:
    states = values((64, 64), 1)
    text = text_of(step, states)
    check(text, np.int32(3), *states)
    found = blocks_of(text)
    assert all(code in codes(line) for line in found), found


@pytest.mark.parametrize(
    "step,code",
    [
        (lambda u, v, w: (u + rolled(v, 1, 0) - w, u, v), "states-permuted"),
        (lambda u, v, w: (u + v, rolled(u, 1, 0), u), ""),
        (lambda u, v, w: (rolled(u, 1, 0) - rolled(v, 1, 0), u, w), "old-state-read-elsewhere"),
        (lambda u, v, w: ((rolled(u, 1, 0) - v),) * 2 + (w,), "shared-state"),
        (lambda u, v, w: (rolled(u, 1, 0) + jnp.sum(v), v + w, u), ""),
    ],
)
def test_states_without_two_places(step: Step, code: str) -> None:
    states = tuple(np.round(x) for x in values((150, 32), 3))
    text = text_of(step, states)
    for iterations in (1, 2, 5):
        check(text, np.int32(iterations), *states)
    assert not code or any(code in codes(line) for line in blocks_of(text)), blocks_of(text)


def smooth(u: State) -> State:
    """Two loops: the second reads the result of the first at neighbouring places."""
    return 0.125 * laplace(jnp.sqrt(jnp.abs(laplace(u, rolled))), rolled)


@pytest.mark.parametrize(
    "step",
    [
        lambda u, v, w: (smooth(u) - w, u, v),
        lambda u, v, w: (smooth(u), w, v),
        lambda u, v, w: (smooth(u) - v, u, w),
        lambda u, v, w: (smooth(u) + w, w, w),
        lambda u, v, w: (w, smooth(u) - v, u),
        lambda u, v, w: (v, u, smooth(u) + w),
        lambda u, v, w: (smooth(u),) * 3,
        lambda u, v, w: (u, v, smooth(w)),
        lambda u, v, w: (smooth(u) - v, smooth(smooth(u)), u),
        lambda u, v, w: (smooth(u).reshape(-1).reshape(u.shape) - v, u.reshape(-1)[::-1].reshape(u.shape), v),
        lambda u, v, w: (smooth(u.T.reshape(u.shape)), u, w),
    ],
)
@pytest.mark.sampled(3)
def test_states_of_several_loops_that_are_permuted(step: Step) -> None:
    """Cyclically, two of three, all of one value, through other shapes."""
    states = values((120, 32), 3)
    text = text_of(step, states)
    for iterations in (0, 1, 2, 7):
        check(text, np.int32(iterations), *states)


@pytest.mark.parametrize("shape", [(12,), (48,), (16, 4), (96, 3), (4001,)], ids=str)
@pytest.mark.parametrize("step", [periodic, wave, reaction, midpoint, fourth_order], ids=lambda f: f.__name__)
@pytest.mark.sampled(4)
def test_the_printed_schedule_is_the_code(step: Step, shape: tuple[int, ...]) -> None:
    """Also for states that are too small to swap their memory, and are copied instead."""
    exe = shlo_jit.compile(text_of(step, values(shape, 2 if step in TWO else 1)), cache=False)
    lines = [line for line in exe.text("schedule").splitlines() if line.strip().startswith("temporal tiling")]
    assert lines
    assert any("at a time" in line for line in lines) == (".stripes." in exe.text("lowered")), lines


def test_a_loop_that_is_not_blocked_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal, whenever it comes, leaves the schedule of a loop unchanged."""
    monkeypatch.setattr(tuning, "STREAM_BYTES", 1 << 10)
    monkeypatch.setattr(tuning, "PING_PONG_BYTES", 1 << 30)
    text = text_of(periodic, values((200_000,), 1))
    schedule = shlo_jit.compile(text, cache=False).text("schedule")
    assert "[state-copied]" in schedule and "streams" in schedule
    assert "[stripes]" not in schedule


def test_small_arrays_and_few_iterations() -> None:
    """Arrays that fit into the caches are not tiled."""
    tuning.TEMPORAL_TILE_LOOP_BYTES = 1 << 20
    (line,) = blocks_of(text_of(periodic, values((64, 64), 1)))
    assert codes(line) == ["fits-in-cache"]


@pytest.mark.parametrize("step", [periodic, zeros_around, wave], ids=lambda f: f.__name__)
def test_one_stripe(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then there is nothing between stripes, and calls for parts of the only stripe are divided."""
    monkeypatch.setattr(tuning, "TEMPORAL_TILE_STRIPES", 1)
    states = values((60, 32), 2 if step in TWO else 1)
    text = text_of(step, states)
    assert all("iterations at a time" in line for line in blocks_of(text)), blocks_of(text)
    check(text, np.int32(17), *states)


@pytest.mark.parametrize("iterations", [1, 5, 6, 7, 12])
def test_known_trip_counts(iterations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterations are divided as evenly as possible."""
    monkeypatch.setattr(tuning, "UNROLL_TRIP_COUNT", 0)
    monkeypatch.setattr(tuning, "TEMPORAL_TILE_ITERATIONS", 6)
    states = values((200, 64), 1)
    check(text_of(periodic, states, iterations), *states)


@pytest.mark.parametrize(
    "step", [periodic, fixed_border, wave, reaction, two_fields, runge_kutta, alternating], ids=lambda f: f.__name__
)
def test_the_same_bits_for_any_number_of_threads(step: Step) -> None:
    states = values((301, 70), 2 if step in TWO else 1)
    text = text_of(step, states)
    found = [shlo_jit.compile(text, cache=False, threads=n)(np.int32(23), *states) for n in (1, 2, 5)]
    for other in found[1:]:
        for got, want in zip(guarded.outputs(other), guarded.outputs(found[0]), strict=True):
            assert got.tobytes() == want.tobytes()
