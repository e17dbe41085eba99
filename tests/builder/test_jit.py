"""`shlo_jit.jit`: trees of arguments and results, and which calls are traced again."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

import shlo_jit
import shlo_jit.builder as b
from shlo_jit.builder.trees import flatten, paths, unflatten
from shlo_jit.ir.core import Module

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Layer:
    w: Any
    b: Any = None
    name: Any = field(default=None, repr=False)


@pytest.mark.parametrize(
    "tree",
    [
        1, None, (), [], {}, (1, [2, (3,)]), {"a": 1, "b": {"c": [2]}}, Pair(1, (2, None)), Layer(1, [2], {"x": 3}),
        [None, Layer(Pair(1, 2))],
    ],
)  # fmt: skip
def test_trees_are_put_together_again(tree: Any) -> None:
    leaves, shape = flatten(tree)
    assert unflatten(shape, leaves) == tree and len(paths(shape)) == len(leaves)
    hash(shape)


def test_paths_name_the_leaves() -> None:
    _, shape = flatten({"layers": [Layer(1, Pair(2, 3))]})
    assert paths(shape, "p") == ["p['layers'][0].w", "p['layers'][0].b[0]", "p['layers'][0].b[1]"]


def test_arguments_and_results_are_trees() -> None:
    @shlo_jit.jit
    def f(layer: Layer, *more: Any, scale: Any = None) -> Any:
        y = layer.w + layer.b["bias"] if scale is None else layer.w * scale
        return {"y": y, "pair": Pair(y.sum(), None), "more": list(more), "number": 2.5, "array": np.arange(3)}

    got = f(Layer(X, {"bias": X}), X[0], (X[1],))
    np.testing.assert_array_equal(got["y"], 2 * X)
    assert isinstance(got["pair"], Pair) and got["pair"] == (2 * X.sum(), None)
    np.testing.assert_array_equal(got["more"][1][0], X[1])
    assert got["number"] == 2.5 and got["array"].tolist() == [0, 1, 2]
    assert f.signatures == 1
    np.testing.assert_array_equal(f(Layer(X), scale=np.float32(3))["y"], 3 * X)
    assert f.signatures == 2


def test_a_function_is_traced_once_for_each_kind_of_arguments() -> None:
    calls = []

    @shlo_jit.jit
    def f(x: Any, y: Any) -> Any:
        calls.append((x.shape, x.dtype))
        return x + y

    for x in (X, X, X[:1], X.astype(np.float64), X, np.asfortranarray(X), X[:, ::2]):
        np.testing.assert_array_equal(f(x, x), 2 * x)
    assert calls == [((2, 3), np.float32), ((1, 3), np.float32), ((2, 3), np.float64), ((2, 2), np.float32)]
    assert f.signatures == 4 and f(y=X, x=X).shape == (2, 3)  # named arguments are a separate structure
    f.clear_cache()
    assert f.signatures == 0
    f(X, X)
    assert len(calls) == 6


def test_numbers_are_arguments_of_numpys_types() -> None:
    f = shlo_jit.jit(lambda n, x, t: (n + 1, x * 2.0, b.not_(t)))
    n, x, t = f(3, 2.5, True)
    assert (n, x, t) == (4, 5.0, False) and (n.dtype, x.dtype, t.dtype) == (np.int64, np.float64, np.bool_)
    assert f(4, 0.5, False)[0] == 5 and f.signatures == 1


def test_static_arguments() -> None:
    @shlo_jit.jit(static_argnames=("kind", "n"))
    def f(x: Any, kind: str, n: int = 2) -> Any:
        return x * float(n) if kind == "scale" else x + float(n)

    np.testing.assert_array_equal(f(X, "scale"), 2 * X)
    np.testing.assert_array_equal(f(X, "add", n=3), X + 3)
    np.testing.assert_array_equal(f(X, kind="scale", n=5), 5 * X)
    np.testing.assert_array_equal(f(X, "scale"), 2 * X)
    assert f.signatures == 3
    with pytest.raises(b.BuilderError, match="hashable"):
        f(X, ["scale"])
    with pytest.raises(b.BuilderError, match="no argument 'm'"):
        shlo_jit.jit(lambda x: x, static_argnames="m")
    by_place = shlo_jit.jit(lambda d, x: x.sum(d), static_argnums=0)
    assert by_place(0, X).shape == (3,) and by_place(1, X).shape == (2,)
    last = shlo_jit.jit(lambda x, d: x.sum(d), static_argnums=-1)
    assert last(X, 0).shape == (3,)


def test_what_is_lowered_and_compiled() -> None:
    f = shlo_jit.jit(lambda x, p: {"y": x @ p["w"]})
    module = f.lower(X, {"w": "f32[3,4]"})
    assert isinstance(module, Module) and "%p_w: tensor<3x4xf32>" in str(module)
    exe = f.compile("f32[2,3]", {"w": "f32[3,4]"})
    assert exe(X, np.ones((3, 4), np.float32)).shape == (2, 4)
    assert f.signatures == 0
    unknown = shlo_jit.jit(lambda x: x * 2.0).compile("f32[?,3]")
    assert unknown(X).shape == (2, 3)
    symbolic = shlo_jit.jit(lambda x: x * 2.0, dynamic="symbolic").compile("f32[?,3]")
    np.testing.assert_array_equal(symbolic(X), 2 * X)


def test_functions_within_functions() -> None:
    @shlo_jit.jit
    def inner(x: Any, y: Any) -> Any:
        return x * y

    outer = shlo_jit.jit(lambda x: inner(x, x) + inner(x, np.float32(1)))
    np.testing.assert_array_equal(outer(X), X * X + X)
    assert inner.signatures == 0


def test_methods() -> None:
    class Model:
        def __init__(self) -> None:
            self.w = np.float32(3)

        @shlo_jit.jit(static_argnums=0)
        def scaled(self, x: Any) -> Any:
            return x * self.w

    model = Model()
    np.testing.assert_array_equal(model.scaled(X), 3 * X)
    assert repr(Model.scaled) == "<shlo_jit.jit of scaled>"


def test_options_are_those_of_compile() -> None:
    assert shlo_jit.jit(lambda x: x + x, threads=1).compile(X).threads == 1
    with pytest.raises(TypeError):
        shlo_jit.jit(lambda x: x, no_such_option=1)(X)


def test_results_of_other_kinds() -> None:
    assert shlo_jit.jit(lambda x: None)(X) is None
    assert shlo_jit.jit(lambda x: ())(X) == ()
    (one,) = shlo_jit.jit(lambda x: (x,))(X)
    np.testing.assert_array_equal(one, X)
    with pytest.raises(b.BuilderError, match=r"result\[1\]: expected values"):
        shlo_jit.jit(lambda x: (x, "text"))(X)


def test_arguments_that_are_none() -> None:
    with pytest.raises(b.BuilderError, match=r"p\['a'\]: expected arrays, numbers") as caught:
        shlo_jit.jit(lambda p: p)({"a": object()})
    assert caught.value.argument == "p['a']" and caught.value.diagnostics[0].file == __file__
    with pytest.raises(b.BuilderError, match="expected a function"):
        shlo_jit.jit(3)  # type: ignore[call-overload]


def test_errors_of_tracing_name_the_line_of_the_function() -> None:
    def f(x: Any) -> Any:
        y = x + 1.0
        return y + np.int32(1)

    with pytest.raises(b.BuilderError) as caught:
        shlo_jit.jit(f)(X)
    assert caught.value.line == f.__code__.co_firstlineno + 2


def test_threads_share_a_function() -> None:
    traced, results = [], []

    @shlo_jit.jit
    def f(x: Any) -> Any:
        traced.append(1)
        return b.tanh(x) * 2.0

    threads = [threading.Thread(target=lambda: results.append(f(X))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(traced) == 1 and len(results) == 8
    assert all((r == results[0]).all() for r in results)


def test_the_signature_is_the_functions() -> None:
    import inspect

    @shlo_jit.jit
    def f(x: Any, y: int = 3) -> Any:
        """What it does."""
        return x

    assert f.__doc__ == "What it does." and list(inspect.signature(f).parameters) == ["x", "y"]
