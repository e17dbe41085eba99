"""Elements that come from one operand or another, depending on the index: rolls, borders, pads, updates of most of a
tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import guarded
import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

Function = Callable[..., Any]
RNG = np.random.default_rng(7)


def check(f: Function, *given: Any) -> guarded.GuardedExecutable:
    text = jax.jit(f, keep_unused=True).lower(*given).as_text()
    exe = guarded.compile(text, cache=False)
    wants = evaluate(shlo_jit.parse(text), *given)
    for got, want in zip(guarded.outputs(exe(*given)), wants, strict=True):
        np.testing.assert_array_equal(got, want, exe.text("plan"))
    return exe


def steps(exe: Any) -> list[str]:
    return [line.split()[1] for line in exe.text("plan").splitlines() if line[:3].strip().isdigit()]


def numbers(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    x = RNG.integers(-9, 9, shape)
    return (x + 1j * x[::-1]).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


SHAPES = [
    (1,),
    (2,),
    (15,),
    (16,),
    (33,),
    (100,),
    (3, 5),
    (17, 33),
    (40, 64),
    (5, 100),
    (3, 4, 5),
    (9, 2, 40),
    (2, 3, 2, 19),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sampled(5)
def test_random_moves(shape: tuple[int, ...], seed: int) -> None:
    """Sums of values rearranged by one to three rolls, pads and slices, borders and updates."""
    r = np.random.default_rng((seed, *shape))

    def moved(x: Any) -> Any:
        for _ in range(r.integers(1, 4)):
            d, n = int(r.integers(x.ndim)), shape
            kind = r.integers(5)
            if kind == 0:
                x = jnp.roll(x, int(r.integers(-n[d], n[d] + 1)), d)
            elif kind == 1:
                low, high = (int(r.integers(-(n[d] // 3), 4)) for _ in range(2))
                config = [(low, high, 0) if k == d else (0, 0, 0) for k in range(x.ndim)]
                x = jax.lax.pad(x, jnp.float32(3), config)
                low, high = max(0, -(x.shape[d] - n[d])), 0
                x = jax.lax.pad(x, jnp.float32(4), [(low, 0, 0) if k == d else (0, 0, 0) for k in range(x.ndim)])
                x = jax.lax.slice_in_dim(x, 0, n[d], axis=d)
            elif kind == 2:
                mode = ["edge", "wrap", "constant"][int(r.integers(3))]
                x = jnp.pad(x, [(1, 1) if k == d else (0, 0) for k in range(x.ndim)], mode=mode)
                start = int(r.integers(3))
                x = jax.lax.slice_in_dim(x, start, start + n[d], axis=d)
            elif kind == 3:
                x = jnp.flip(x, d)
            else:
                size = [max(1, k - int(r.integers(0, 3))) for k in n]
                corner = [int(r.integers(0, k - s + 2)) for k, s in zip(n, size, strict=True)]
                part = jax.lax.slice(jnp.roll(x, 1, d), [0] * x.ndim, size)
                x = jax.lax.dynamic_update_slice(x, part + 1, corner)
        return x

    def f(x: Any) -> Any:
        total = x
        for _ in range(3):
            total = total + moved(x)
        return total

    check(f, numbers(shape, np.float32))


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint16, np.int64, np.float16, jnp.bfloat16, np.float64, np.complex64, np.bool_]
)
@pytest.mark.parametrize("shape", [(70,), (20, 37)], ids=str)
def test_element_types(dtype: Any, shape: tuple[int, ...]) -> None:
    with jax.enable_x64(True):
        combine = jnp.logical_xor if dtype is np.bool_ else jnp.add
        check(
            lambda x: combine(
                combine(jnp.roll(x, 1, -1), jnp.roll(x, -3, 0)), jnp.pad(x, 1)[(slice(2, None),) * x.ndim]
            ),
            numbers(shape, dtype),
        )


def test_a_step_is_one_loop() -> None:
    """For every form in which the borders are written."""

    def rolls(u: Any) -> Any:
        return u + sum(jnp.roll(u, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1))

    def pads(mode: str) -> Function:
        def f(u: Any) -> Any:
            p = jnp.pad(u, 1, mode=mode)
            return u + p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]

        return f

    def update(u: Any) -> Any:
        return u.at[1:-1, 1:-1].add(u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])

    for f in (rolls, pads("constant"), pads("edge"), pads("wrap"), update):
        assert steps(check(f, numbers((50, 40), np.float32))) == ["loop"]


def test_which_ops_are_written_in_parts() -> None:
    """Segments of several tensors; a part of a buffer that is updated in place."""
    x, y = numbers((8, 40), np.float32), numbers((8, 40), np.float32)
    assert steps(check(lambda x, y: jnp.concatenate([x, y]) * 2, x, y)) == ["loop", "loop", "loop"]
    exe = check(lambda x, y: (x * 2).at[1:3].set(y[:2] + 1), x, y)
    assert steps(exe) == ["loop", "loop"]


def test_the_interior_of_a_loop_has_no_conditions() -> None:
    exe = check(lambda u: u + jnp.roll(u, 1, 0) + jnp.roll(u, 1, 1), numbers((50, 100), np.float32))
    (line,) = (line for line in exe.text("schedule").splitlines() if line.lstrip().startswith("interior "))
    assert "v0 in [1, 50)" in line and "v1 in [1, 100)" in line


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_states_that_one_loop_writes_in_place(iterations: int) -> None:
    """Each is computed before the other is overwritten."""

    def program(n: Any, x: Any, y: Any, z: Any) -> Any:
        def iteration(i: Any, s: Any) -> Any:
            x, y, z = s
            return y + jnp.roll(z, 1), x * 2 - jnp.roll(z, 2), x + y

        return jax.lax.fori_loop(0, n, iteration, (x, y, z))

    states = [numbers((3000,), np.float32) for _ in range(3)]
    check(program, np.int32(iterations), *states)


SCATTERS = [
    lambda x, y: x.at[1:-1].add(y[1:-1]),
    lambda x, y: x.at[2].set(y[3]),
    lambda x, y: x.at[:, 5].multiply(y[:, 0]),
    lambda x, y: x.at[3, 4].add(1.0),
    lambda x, y: x.at[0:4, 2:7].min(y[4:8, 1:6]),
    lambda x, y: x.at[-1].add(-y[0]),
    lambda x, y: x.at[100].add(y[0]),
    lambda x, y: x.at[6:9].set(y[0:2], mode="drop"),
    lambda x, y: x.at[np.array([1, 1, 3])].add(y[:3]),
]


@pytest.mark.parametrize("f", SCATTERS)
def test_scatters_of_one_window(f: Function) -> None:
    check(f, numbers((8, 40), np.float32), numbers((8, 40), np.float32))


@pytest.mark.parametrize("shifts", [(1, 1, 2), (3, 6, 5), (5, 3, 7), (5, 6, 3)])
def test_rolls_of_reversed_rolls(shifts: tuple[int, int, int]) -> None:
    """Under a condition on a reversed index, which is undecided for most elements, a choice may have no operand left:
    then the element is not read there."""
    n, t = 8, "tensor<8x8xf32>"

    def roll(value: str, name: str, by: int) -> str:
        first, second = f"tensor<{by}x8xf32>", f"tensor<{n - by}x8xf32>"
        return f"""%{name}a = stablehlo.slice %{value} [0:{by}, 0:8] : ({t}) -> {first}
          %{name}b = stablehlo.slice %{value} [{by}:{n}, 0:8] : ({t}) -> {second}
          %{name} = stablehlo.concatenate %{name}b, %{name}a, dim = 0 : ({second}, {first}) -> {t}"""

    lines = [roll("x", "u", shifts[0]), f"%r = stablehlo.reverse %u, dims = [0] : {t}", roll("r", "v", shifts[1]),
             f"%s = stablehlo.reverse %v, dims = [0] : {t}", roll("s", "w", shifts[2])]  # fmt: skip
    text = "\n".join([f"func.func @main(%x: {t}) -> {t} {{", *lines, f"return %w : {t} }}"])
    x = np.arange(n * 8, dtype=np.float32).reshape(n, 8)
    want = np.roll(np.roll(np.roll(x, -shifts[0], 0)[::-1], -shifts[1], 0)[::-1], -shifts[2], 0)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x), want)
