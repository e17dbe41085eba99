"""Typical attempts of users of Python and NumPy: they work, or the error says what to write."""

from __future__ import annotations

import copy
import pickle
import re
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import shlo_jit
import shlo_jit.builder as b
from shlo_jit.builder.trees import flatten, flatten_as

X = np.array([1, 2, 3], np.float32)
EDGES = np.array([-4, 4, 1, -1, 0.0, -0.0, 5.5, -5.5, np.inf, -np.inf, np.nan, 0.3, 0.1, 2.0**-14])


def refused(f: Any, *shapes: str) -> b.BuilderError:
    with pytest.raises(b.BuilderError) as caught, b.function("main", *shapes) as g:
        f(*g)
    assert caught.value.diagnostics[0].file == __file__
    return caught.value


def assign(x: Any) -> None:
    x[0] = 1.0


@pytest.mark.parametrize(
    ("f", "shape", "says"),
    [
        (assign, "f32[3]", "values of the program are immutable.*dynamic_update_slice"),
        (np.sum, "f32[3]", "numpy.sum expects arrays"),
        (lambda x: np.concatenate([x, x]), "f32[3]", "numpy.concatenate expects arrays"),
        (np.asarray, "f32[3]", "unknown while it is built"),
        (lambda x: max(x, x + 1.0), "f32[]", "builder.max, builder.min"),
        (lambda x: x > 0.0 and x < 1.0, "f32[]", "for and, or, not"),
        (lambda x: 0.0 < x < 1.0, "f32[]", "the truth of a value is unknown"),
        (lambda x: 3 in x, "s32[3]", "the truth of a value is unknown"),
        (lambda x: list(range(x)), "s32[]", "unknown while it is built"),
        (lambda x: round(x, 2), "f32[]", "rounded to integers only"),
        (lambda x: x[x > 0.0], "f32[3]", "use builder.select for masks"),
        (lambda x: x[np.array([True, False, True])], "f32[3]", "use builder.select for masks"),
        (lambda x: x[np.True_], "f32[3]", "got a truth value"),
        (lambda x: x[0], "token", "token has no elements"),
        (lambda x: x.sum(x), "s32[2]", "axis: expected an integer, got a value of the program"),
        (lambda x: x.sum(2**70), "s32[2]", "does not fit into 64 bits"),
        (lambda x: x.all(), "s32[3]", r"write \(x != 0\).all\(\)"),
        (lambda x: x.astype(None), "f32[3]", "expected an element type, got None"),
        (lambda x: x.astype(x), "f32[3]", "expected an element type"),
        (lambda x: x.broadcast_to((-1, 3)), "f32[3]", "a size is negative"),
        (lambda x: b.full("f32[?]", 0.0), "f32[3]", "expected known extents"),
        (lambda x: b.constant([1e39], "f32"), "f32[3]", "out of the range of f32"),
        (lambda x: b.constant([2**53 + 1], "f64"), "f32[3]", "not exact in f64"),
        (lambda x: b.constant([True], "s32"), "f32[3]", "bool is not converted to i32"),
        (lambda x: b.exp(x, b.ResultAccuracy("BEST")), "f32[3]", "expected DEFAULT, HIGHEST or TOLERANCE"),  # type: ignore[arg-type]
        (lambda x: b.all_gather(x, 0, 2, [0, 1]), "f32[3]", "numbers of processes for each group"),  # type: ignore[list-item]
        (lambda x: b.all_gather(x, 0, 2, [[0, 1, 2]]), "f32[3]", "expected groups of 2 processes"),
        (lambda x: b.reduce(x, np.float64(0), b.add, (0,)), "f32[3]", r"init_values\[0\]: expected a scalar of f32"),
        (lambda x: b.reduce(x, 0.0, lambda a: a, (0,)), "f32[3]", "expected a function of 2 arguments"),
        (lambda x: b.while_(lambda a, c: a < c, lambda s: s, x), "f32[]", "expected a function of 1 argument"),
        (lambda x: b.op("stablehlo.add", [x, x], {"foo": object()}), "f32[]", r"attributes\['foo'\]"),
        (lambda x: b.partition_id("s32[]"), "f32[]", "expected ui32"),
        (b.async_done, "f32[]", "expected a future, got f32"),
    ],
)  # fmt: skip
def test_mistakes(f: Any, shape: str, says: str) -> None:
    error = refused(f, shape)
    assert re.search(says, str(error), re.S), str(error)


# ---------------------------------------------------------------------------- numbers
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_division_of_floats_is_numpys_to_the_sign_of_zeros(dtype: type) -> None:
    x, y = (a.ravel() for a in np.meshgrid(EDGES.astype(dtype), EDGES.astype(dtype)))
    with np.errstate(all="ignore"):
        wanted = x // y, x % y
    got = shlo_jit.jit(lambda x, y: (x // y, x % y, *divmod(x, y)))(x, y)
    for a, c in zip(got, (*wanted, *wanted), strict=True):
        np.testing.assert_array_equal(a, c)
        known = ~np.isnan(c)
        np.testing.assert_array_equal(np.signbit(a[known]), np.signbit(c[known]))


def test_divmod_of_integers() -> None:
    x, y = np.array([-7, 7, -7, 7, 6], np.int8), np.array([2, 2, -2, -2, 3], np.int8)
    for got, wanted in zip(shlo_jit.jit(divmod)(x, y), divmod(x, y), strict=True):
        np.testing.assert_array_equal(got, wanted)
    f = shlo_jit.jit(lambda x: divmod(20, x))
    assert [int(a[0]) for a in f(np.array([7], np.uint8))] == [2, 6]


def test_means_of_small_floats_are_computed_in_f32() -> None:
    x = np.full(70000, 3, np.float16)
    mean = shlo_jit.jit(lambda x: x.mean())(x)
    assert mean == 3 and mean.dtype == np.float16
    assert shlo_jit.jit(lambda x: x.mean())(np.ones(1001, ml_dtypes.bfloat16)) == 1


def test_the_sum_of_nothing_is_0() -> None:
    total = shlo_jit.jit(lambda x: x.sum())(np.zeros((0, 3), np.float32))
    assert total == 0 and not np.signbit(total)


def test_axes_may_be_arrays() -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    for axis in (np.array(1), np.array([0, 1]), np.int64(0)):
        got = shlo_jit.jit(lambda x, a=axis: x.sum(a))(x)
        np.testing.assert_array_equal(got, x.sum(tuple(axis) if axis.ndim else int(axis)))


# ---------------------------------------------------------------------------- arrays of others, trees
def test_arrays_of_other_libraries() -> None:
    f = shlo_jit.jit(lambda x: x + jnp.ones(3) + b.mul(jnp.float32(2), x))
    np.testing.assert_array_equal(f(X), 3 * X + 1)
    np.testing.assert_array_equal(f(jnp.asarray(X)), 3 * X + 1)
    assert f.signatures == 1
    half = shlo_jit.jit(lambda p: p["x"] * 2.0)({"x": jnp.ones(3, jnp.bfloat16)})
    assert half.dtype == ml_dtypes.bfloat16 and (half == 2).all()
    assert "tensor<3xf32>" in str(f.lower(jax.ShapeDtypeStruct((3,), np.float32)))
    with pytest.raises(b.BuilderError, match="x: .*Tracer"):
        jax.jit(shlo_jit.jit(lambda x: x))(X)


def test_keys_of_dictionaries_come_in_any_order() -> None:
    def step(s: dict[str, Any]) -> dict[str, Any]:
        return {"x": s["x"] * 2.0, "i": s["i"] + 1}

    def program(x: Any) -> Any:
        start = {"i": b.constant(0, "s32"), "x": x}
        end = b.while_(lambda s: s["i"] < 3, step, start)
        yes, no = (lambda s: {"a": s["x"], "n": 1 + s["i"]}), (lambda s: {"n": s["i"], "a": x})
        return b.conditional(x[0] > 0.0, end, yes, end, no)

    got = shlo_jit.jit(program)(X)
    assert list(got) == ["a", "n"] and got["n"] == 4
    np.testing.assert_array_equal(got["a"], 8 * X)
    _, tree = flatten({"a": [1, None], "b": OrderedDict(c=2, d=3)})
    assert flatten_as(tree, {"b": OrderedDict(d=6, c=5), "a": [4, None]}) == [4, 5, 6]
    assert flatten_as(tree, {"b": OrderedDict(d=6, c=5), "a": [4]}) is None


# ---------------------------------------------------------------------------- functions
def test_captured_values_in_every_region() -> None:
    s, one = np.float32(2), np.ones((1, 1), np.int32)
    dims = b.ScatterDimensionNumbers((), (0,), (0,), 1)
    programs: list[tuple[Any, Any]] = [
        (lambda x, s: b.reduce(x, 0.0, lambda a, c: a + c * s - c * (s - 1.0), (0,)), 6),
        (lambda x, s: b.reduce_window(x, 0.0, lambda a, c: b.max(a, c) * s / s, (2,)), [2, 3]),
        (lambda x, s: b.sort(x, lambda p, q: p * s > q * s), [3, 2, 1]),
        (lambda x, s: b.map(x, lambda p: p * s), [2, 4, 6]),
        (lambda x, s: b.scatter(x, one, x[:1] * 10.0, lambda p, q: p + q * s, dims), [1, 22, 3]),
        (
            lambda x, s: b.select_and_scatter(
                x, lambda p, q: p * s >= q * s, (2,), None, "VALID", x[:2], 0.0, lambda p, q: p + q * s
            ),
            [0, 2, 4],
        ),
        (lambda x, s: b.while_(lambda c: (c < s * 10.0).all(), lambda c: c * s, x), [8, 16, 24]),
        (lambda x, s: b.conditional(s > 1.0, None, lambda: x * s, None, lambda: x), [2, 4, 6]),
        (lambda x, s: b.all_reduce(x, lambda a, c: a + c * s, [[0]]), [1, 2, 3]),
    ]
    for f, wanted in programs:
        np.testing.assert_array_equal(shlo_jit.jit(f)(X, s), np.array(wanted, np.float32))


def test_a_function_that_calls_itself() -> None:
    def again(x: Any) -> Any:
        return b.call(again, x)

    assert "calls itself" in str(refused(lambda x: b.call(again, x), "f32[]"))


def test_functions_that_have_no_hash() -> None:
    class Layer:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, x: Any) -> Any:
            return x * 2.0

        def twice(self, x: Any) -> Any:
            return self(self(x))

    layer = Layer()
    f = shlo_jit.jit(lambda x: b.call(layer, b.call(layer.twice, x)) + b.call(layer.twice, x))
    np.testing.assert_array_equal(f(X), 12 * X)
    assert str(f.lower(X)).count("func.func private") == 2


# ---------------------------------------------------------------------------- jit
def test_a_call_that_raises_is_not_made_twice() -> None:
    calls = []

    def host(x: np.ndarray) -> np.ndarray:
        calls.append(x)
        if len(calls) > 1:
            raise KeyError("host")
        return x

    f = shlo_jit.jit(lambda x: b.custom_call("host", [x], "f32[3]"), custom_calls={"host": host})
    f(X)
    with pytest.raises(KeyError, match="host"):
        f(X)
    assert len(calls) == 2


@pytest.mark.parametrize("scale", [np.float32(2), 2.0])
def test_numbers_after_arrays_of_no_dimension(scale: Any) -> None:
    f = shlo_jit.jit(lambda x: x * x)
    assert f(np.array(3, np.float32)).dtype == np.float32
    wanted = np.float64 if isinstance(scale, float) else np.float32
    assert f(scale).dtype == wanted and f(scale) == 4


def test_kinds_of_arguments_do_not_mix() -> None:
    """More kinds than are tried first, one after the other, repeatedly."""
    f = shlo_jit.jit(lambda p, n=2.0: {"sum": p["a"] * n + p["b"], "n": None}, static_argnames="n")
    kinds: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (({"a": X, "b": X},), {}), (({"b": X, "a": -X},), {}), (({"a": X[:2], "b": X[:2]},), {}),
        (({"a": X, "b": X}, 3.0), {}), (({"a": X, "b": X},), {"n": 5.0}), ((), {"p": {"a": X, "b": X}}),
        (({"a": X.astype(np.float64), "b": X.astype(np.float64)},), {}), ((OrderedDict(a=X, b=X),), {}),
        (({"a": X[::2], "b": X[::2]},), {}), (({"a": 1.5, "b": np.float64(1)},), {}),
    ]  # fmt: skip
    for _ in range(3):
        for args, named in kinds:
            p, n = args[0] if args else named["p"], args[1] if len(args) > 1 else named.get("n", 2.0)
            got = f(*args, **named)
            wanted = p["a"] * n + p["b"]
            assert got["n"] is None and got["sum"].dtype == np.asarray(wanted).dtype
            np.testing.assert_array_equal(got["sum"], wanted)
    assert f.signatures == 9  # one for X[:2] and X[::2]


def test_many_shapes_one_after_the_other() -> None:
    traced = []

    @shlo_jit.jit
    def f(x: Any, y: Any) -> Any:
        traced.append(x)
        return [x + y, None]

    for _ in range(3):
        for n in range(1, 9):
            x = np.arange(n, dtype=np.float32)
            np.testing.assert_array_equal(f(x, x)[0], 2 * x)
        assert f(2.0, np.float64(3))[0] == 5
        assert f(np.float32(1), np.ones(3, np.float32))[0].tolist() == [2, 2, 2]
    np.testing.assert_array_equal(shlo_jit.jit(lambda x: f(x, x)[0])(X), 2 * X)
    assert len(traced) == f.signatures + 1 == 11


def test_static_arguments_are_distinguished() -> None:
    def program(x: Any, n: Any) -> Any:
        return x * (1.0 if np.signbit(n[0]) else 2.0) if isinstance(n[0], float) else x + n[0]

    f = shlo_jit.jit(program, static_argnums=1)
    for n, wanted in (((1,), 4), ((1.0,), 6), ((0.0,), 6), ((-0.0,), 3), ((True,), None)):
        if wanted is None:
            with pytest.raises(b.BuilderError, match="truth value"):
                f(np.int32(3), n)
        else:
            x = np.int32(3) if isinstance(n[0], int) else np.float32(3)
            assert f(x, n) == wanted
    for nums in (5, -3, "a"):
        with pytest.raises(b.BuilderError, match="static_argnums"):
            shlo_jit.jit(lambda x: x, static_argnums=nums)  # type: ignore[call-overload]


def test_static_arguments_are_found_by_their_own_hash() -> None:
    @dataclass(eq=False)
    class Model:
        w: np.ndarray

        @shlo_jit.jit(static_argnames="self")
        def scaled(self, x: Any) -> Any:
            return x * self.w

    models = Model(2 * X), Model(3 * X)
    for _ in range(2):
        for n, model in enumerate(models):
            np.testing.assert_array_equal(model.scaled(X), (n + 2) * X * X)
    assert Model.scaled.signatures == 2


@shlo_jit.jit
def doubled(x: Any) -> Any:
    return x * 2.0


def test_copies_and_pickles_are_the_function_itself() -> None:
    assert copy.copy(doubled) is doubled and copy.deepcopy({"f": doubled})["f"] is doubled
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(shlo_jit.jit(lambda x: x))


def test_tuples_of_the_program_are_results() -> None:
    f = shlo_jit.jit(lambda x: {"pair": b.tuple([x, b.tuple([x + 1.0])]), "y": x * 2.0})
    for _ in range(2):
        got = f(X)
        np.testing.assert_array_equal(got["pair"][0], X)
        np.testing.assert_array_equal(got["pair"][1][0], X + 1)
        np.testing.assert_array_equal(got["y"], 2 * X)
    with pytest.raises(b.BuilderError, match="tensors, got token"):
        shlo_jit.jit(lambda x: (x, b.create_token()))(X)


def test_names_of_arguments_do_not_collide() -> None:
    f = shlo_jit.jit(lambda p_a_2, p, p_a: p_a_2 + p["a"] + p_a)
    np.testing.assert_array_equal(f(X, {"a": X}, X), 3 * X)


def test_methods_are_lowered_too() -> None:
    class Model:
        w = 2.0

        @shlo_jit.jit(static_argnums=0)
        def scaled(self, x: Any) -> Any:
            return x * self.w

    model = Model()
    np.testing.assert_array_equal(model.scaled(X), 2 * X)
    assert "multiply" in str(model.scaled.lower("f32[3]"))
    np.testing.assert_array_equal(model.scaled.compile(X)(X), 2 * X)
    assert "<shlo_jit.jit of max>" in repr(shlo_jit.jit(max))


def test_functions_that_are_traced_in_threads_may_call_each_other() -> None:
    results = []

    def slow(other: str) -> Any:
        def f(x: Any) -> Any:
            time.sleep(0.05)
            return x + functions[other](np.float32(1)) if x.shape else x

        return f

    functions = {"a": shlo_jit.jit(slow("b")), "b": shlo_jit.jit(slow("a"))}
    threads = [threading.Thread(target=lambda f=f: results.append(f(X)), daemon=True) for f in functions.values()]
    for t in threads:
        t.start()
    for t in threads:
        t.join(600)
    assert len(results) == 2 and all((r == X + 1).all() for r in results)
