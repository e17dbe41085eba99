"""Parameters of JAX's functions, and arguments of exported programs, that are given as constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_jit.jax

X, W, B = (
    np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((4, 192), (192, 128), (128,))
)
PARAMS = {"w": W, "b": jnp.asarray(B), "unused": np.ones(3, np.float32)}


def layer(x: Any, params: Any, scale: Any = None, *, negated: bool = False) -> Any:
    y = jnp.tanh(x @ params["w"] + params["b"])
    y = y if scale is None else y * scale
    return {"y": -y if negated else y}


WANT = np.asarray(layer(X, PARAMS)["y"])


def close(found: Any, want: Any = WANT) -> None:
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def residents(exe: Any) -> set[int]:
    return {r.address for r in exe._front.instance.loaded.constants}


@pytest.mark.parametrize("key", ["params", 1])
def test_calls_do_not_pass_constants(key: Any) -> None:
    f = shlo_jit.jax.jit(layer, constants={key: PARAMS})
    for _ in range(2):
        close(f(X)["y"])
    close(f(jnp.asarray(X), scale=np.float32(2))["y"], 2 * WANT)
    close(f(X, np.float32(2))["y"], 2 * WANT)
    assert f.signatures == 3
    compiled = f.lower(X).compile()
    assert [port.shape for port in compiled.executable.inputs] == [(4, 192)]
    close(compiled(X)["y"])
    with pytest.raises(TypeError, match="was compiled for arguments"):
        compiled(X, PARAMS)


def test_the_first_parameter_may_be_a_constant() -> None:
    f = shlo_jit.jax.jit(layer, constants={0: X, "scale": 2}, static_argnames="negated")
    close(f(PARAMS)["y"], 2 * WANT)
    close(f(PARAMS, negated=True)["y"], -2 * WANT)

    @shlo_jit.jax.jit(constants={"w": W})
    def product(w: Any, x: Any) -> Any:
        return x @ w

    close(product(X), X @ W)


def test_static_and_donated_parameters_keep_their_positions() -> None:
    def f(w: Any, n: int, x: Any, y: Any) -> Any:
        return x + w.sum() * n, y

    for options in ({"static_argnums": 1, "donate_argnums": 2}, {"static_argnames": ["n"], "donate_argnames": "x"}):
        made = shlo_jit.jax.jit(f, constants={"w": np.ones(8, np.float32)}, **options)
        x = jnp.ones((4, 4))
        close(made(3, x, np.ones(3, np.float32))[0], np.full((4, 4), 25))
        assert x.is_deleted()
    assert shlo_jit.jax.jit(f, constants={0: B}, static_argnums=-3)(0, X, X)[0].shape == X.shape
    for options in ({"static_argnums": 0}, {"donate_argnums": (2, 0)}, {"static_argnames": "w"}):
        with pytest.raises(ValueError, match="'w' is a constant, and can be neither static nor donated"):
            shlo_jit.jax.jit(f, constants={"w": W}, **options)


def test_a_function_with_constants_inside_another() -> None:
    f = shlo_jit.jax.jit(layer, constants={"params": PARAMS})
    close(shlo_jit.jax.jit(lambda x: f(x)["y"] * 2)(X), 2 * WANT)


def test_arrays_keep_the_values_they_had() -> None:
    w = W.copy()
    f = shlo_jit.jax.jit(layer, constants={"params": {"w": w, "b": B}})
    w[...] = 0
    close(f(X)["y"])


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_arrays_of_jax_are_read_in_place(dtype: Any) -> None:
    w = jnp.asarray(np.random.default_rng(1).integers(-4, 4, (512, 512)).astype(dtype))
    f = shlo_jit.jax.jit(lambda x, w: jnp.negative(w) + x, constants={"w": w})
    x = np.ones(512, np.float32)
    want = 1 - np.asarray(w, np.float32)
    close(f(x), want)
    assert np.asarray(w).__array_interface__["data"][0] in residents(f.lower(x).compile().executable)
    jax.jit(lambda a: a * 0, donate_argnums=0)(w)  # JAX does not reuse memory that others refer to
    del w
    close(f(x), want)


@pytest.mark.parametrize(
    "value",
    [
        jnp.ones(3, jnp.bfloat16),
        jnp.arange(3),
        np.arange(3, dtype=np.int64),
        2,
        2.5,
        True,
        jnp.float32(1),
        np.float64(3),
    ],
)
def test_types_are_those_of_jax(value: Any) -> None:
    f = shlo_jit.jax.jit(lambda x, c: x * c, constants={"c": value})
    want = jax.jit(lambda x, c: x * c)(jnp.ones(3, jnp.bfloat16), value)
    found = f(jnp.ones(3, jnp.bfloat16))
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(np.asarray(found, np.float64), np.asarray(want, np.float64))


def test_keys_of_random_numbers() -> None:
    f = shlo_jit.jax.jit(lambda x, key: x + jax.random.bits(key, (3,)), constants={"key": jax.random.key(7)})
    np.testing.assert_array_equal(f(np.zeros(3, np.uint32)), jax.random.bits(jax.random.key(7), (3,)))


@pytest.mark.parametrize(
    ("constants", "kind", "words"),
    [
        ({"q": W}, ValueError, "no parameter 'q'; it has x, params, scale, negated"),
        ({3: W}, ValueError, "no parameter 3"),
        ({1: W, "params": W}, ValueError, "'params' is given twice"),
        ([W], TypeError, "expected a dictionary"),
        ({"params": "w"}, TypeError, "not a valid JAX array type"),
    ],
)
def test_refusals_of_jit(constants: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        shlo_jit.jax.jit(layer, constants=constants)


def test_a_constant_is_not_passed() -> None:
    f = shlo_jit.jax.jit(layer, constants={"params": PARAMS})
    with pytest.raises(TypeError, match="'params' is a constant of the function"):
        f(X, params=PARAMS)


# ---------------------------------------------------------------------- exported programs
@pytest.mark.parametrize("form", ["exported", "bytes", "several platforms", "any batch"])
def test_arguments_of_exported_programs(form: str) -> None:
    platforms = ["tpu", "cpu"] if form == "several platforms" else ["cpu"]
    rows = jax.export.symbolic_shape("n")[0] if form == "any batch" else 4
    shape = jax.ShapeDtypeStruct((rows, 192), np.float32)
    exported: Any = jax.export.export(jax.jit(layer), platforms=platforms)(shape, PARAMS, scale=np.float32(2))
    exported = exported.serialize() if form == "bytes" else exported
    f = shlo_jit.jax.from_exported(exported, constants={1: PARAMS})
    close(f(X, scale=np.float32(2))["y"], 2 * WANT)
    f = shlo_jit.jax.from_exported(exported, constants={1: PARAMS, "scale": np.float32(3)})
    close(f(X)["y"], 3 * WANT)
    if form != "any batch":
        f = shlo_jit.jax.from_exported(exported, constants={0: X})
        close(f(PARAMS, scale=np.float32(2))["y"], 2 * WANT)


@pytest.mark.parametrize(
    ("constants", "kind", "words"),
    [
        ({2: W}, ValueError, "no argument 2; it has 0, 1"),
        ({"params": PARAMS}, ValueError, "no argument 'params'"),
        ({1: W}, TypeError, "argument 1 was exported as"),
        ({0: X[1:]}, ValueError, "expected float32"),
    ],
)
def test_refusals_of_exported_programs(constants: Any, kind: type[Exception], words: str) -> None:
    exported = jax.export.export(jax.jit(layer), platforms=["cpu"])(X, PARAMS)
    with pytest.raises(kind, match=words):
        shlo_jit.jax.from_exported(exported, constants=constants)


def test_lowered_programs_take_names_of_jax() -> None:
    lowered = jax.jit(layer).lower(X, PARAMS)
    exe: Callable[..., Any] = shlo_jit.compile(lowered, constants={"params['w']": W, "params['b']": B})
    close(exe(X))
