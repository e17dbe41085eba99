"""Parameters of functions under `jit` that are given as constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import shlo_jit
from shlo_jit import builder
from shlo_jit.text import printer

X, W, B = (
    np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((4, 192), (192, 128), (128,))
)


@dataclass
class Params:
    w: Any
    b: Any


def layer(x: Any, params: Any, scale: Any = None, *, negated: bool = False) -> Any:
    y = builder.tanh(x @ params.w + params.b.reshape((1, -1)))
    y = y if scale is None else y * scale
    return {"y": -y if negated else y}


WANT = np.tanh(X @ W + B)


def close(found: Any, want: Any = WANT) -> None:
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("key", ["params", 1])
def test_calls_do_not_pass_constants(key: Any) -> None:
    f = shlo_jit.jit(layer, constants={key: Params(W, B)})
    for _ in range(3):
        close(f(X)["y"])
    close(f(X, np.float32(2))["y"], 2 * WANT)
    close(f(X, scale=np.float32(2))["y"], 2 * WANT)
    assert [(port.name, port.shape) for port in f.compile(X).inputs] == [("x", (4, 192))]
    assert [a.name for a in f.lower(X).function("main").block().arguments] == ["x", "params_w", "params_b"]  # type: ignore[union-attr]


def test_the_first_parameter_may_be_a_constant() -> None:
    f = shlo_jit.jit(layer, constants={0: X, "scale": np.float32(2)}, static_argnames="negated")
    close(f(Params(W, B))["y"], 2 * WANT)
    close(f(Params(W, B), negated=True)["y"], -2 * WANT)

    @shlo_jit.jit(constants={"w": W})
    def product(w: Any, x: Any) -> Any:
        return x @ w

    close(product(X), X @ W)


def test_keywords_and_methods() -> None:
    f = shlo_jit.jit(lambda x, /, **weights: x @ weights["w"] + weights["b"].reshape((1, -1)), constants={"w": W})
    close(f(X, b=B), X @ W + B)

    class Network:
        @shlo_jit.jit(constants={"w": W}, static_argnums=0)
        def __call__(self, x: Any, w: Any) -> Any:
            return x @ w

    close(Network()(X), X @ W)  # type: ignore[call-arg]


def test_static_parameters_keep_their_positions() -> None:
    def f(w: Any, n: int, x: Any) -> Any:
        return x @ w if n else x

    for options in ({"static_argnums": 1}, {"static_argnums": -2}, {"static_argnames": "n"}):
        made = shlo_jit.jit(f, constants={"w": W}, **options)
        assert (made(1, X).shape, made(0, X).shape) == ((4, 128), (4, 192))
    for options in ({"static_argnums": 0}, {"static_argnames": "w"}):
        with pytest.raises(ValueError, match="'w' is a constant, and can be neither static nor donated"):
            shlo_jit.jit(f, constants={"w": W}, **options)


def test_a_function_with_constants_inside_another() -> None:
    f = shlo_jit.jit(layer, constants={"params": Params(W, B)})
    close(shlo_jit.jit(lambda x: f(x)["y"] * 2.0)(X), 2 * WANT)


def test_arrays_keep_the_values_they_had() -> None:
    w = W.copy()
    f = shlo_jit.jit(layer, constants={"params": Params(w, B)})
    w[...] = 0
    close(f(X)["y"])


def test_constants_are_not_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path))
    printed: list[str] = []
    print_module = printer.print_module
    monkeypatch.setattr(printer, "print_module", lambda module: printed.append(print_module(module)) or printed[-1])
    close(shlo_jit.jit(layer, constants={"params": Params(W, B)})(X)["y"])
    assert printed and max(map(len, printed)) < 10_000


def test_modules_take_constants() -> None:
    with builder.module() as m, builder.function("main", x="f32[4,192]", w="f32[192,128]") as f:
        f.returns(f.x @ f.w)
    close(shlo_jit.compile(m.module, constants={"w": W})(X), X @ W)


@pytest.mark.parametrize(
    ("constants", "kind", "words"),
    [
        ({"q": W}, ValueError, "no parameter 'q'; it has x, params, scale, negated"),
        ({3: W}, ValueError, "no parameter 3"),
        ({True: W}, ValueError, "no parameter True"),
        ({1: W, "params": W}, ValueError, "'params' is given twice"),
        ([W], TypeError, "expected a dictionary"),
        ({"params": {"w": "w"}}, builder.BuilderError, r"params\['w'\]: expected arrays"),
    ],
)
def test_refusals(constants: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        shlo_jit.jit(layer, constants=constants)


def test_a_constant_is_not_passed() -> None:
    f = shlo_jit.jit(layer, constants={"params": Params(W, B)})
    with pytest.raises(TypeError, match="'params' is a constant of the function"):
        f(X, params=Params(W, B))
    with pytest.raises(TypeError, match="positional argument"):
        f(X, X, X)
