"""`shlo_jit.jax.jit` compared with `jax.jit`."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp
import ml_dtypes

import shlo_jit
import shlo_jit.jax as sj

pytestmark = pytest.mark.xla


class Pair(NamedTuple):
    a: Any
    b: Any


def same(f: Callable[..., Any], *args: Any, rtol: float = 1e-6, **named: Any) -> Any:
    """Returns our result, which equals JAX's: structure, shapes, dtypes, weak types, values."""
    got, expected = sj.jit(f)(*args, **named), jax.jit(f)(*args, **named)
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for g, e in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert (g.shape, g.dtype) == (e.shape, e.dtype)
        if g.dtype == jax.dtypes.float0:
            continue
        assert type(g) is type(e)
        assert g.aval.weak_type == e.aval.weak_type
        if jnp.issubdtype(g.dtype, jax.dtypes.prng_key):
            g, e = jax.random.key_data(g), jax.random.key_data(e)
        wide = np.complex128 if jnp.iscomplexobj(e) else np.float64
        np.testing.assert_allclose(np.asarray(g).astype(wide), np.asarray(e).astype(wide), rtol=rtol, atol=rtol)
    return got


X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def test_structures() -> None:
    def f(p: dict[str, Any], pair: Pair, rest: list[Any], *, scale: Any) -> Any:
        return {"y": jnp.tanh(pair.a @ p["w"]) * scale, "none": None, "rest": (rest, pair)}, p["b"]

    params = {"w": jnp.ones((4, 2)), "b": np.arange(2), "unused": jnp.ones(7)}
    got = same(f, params, Pair(jnp.asarray(X), 2), [np.float32(3), ()], scale=0.5)
    assert isinstance(got[0]["rest"][1], Pair)


@pytest.mark.parametrize("results", [0, 1, 2])
def test_numbers_of_results(results: int) -> None:
    same(lambda x: (x + 1,) * results, X)
    same(lambda x: [x] * results, X)


@pytest.mark.parametrize(
    "dtype",
    "float32 float16 bfloat16 float8_e4m3fn int8 uint8 int16 uint16 int32 uint32 bool complex64 int4 uint4".split(),
)
def test_dtypes(dtype: str) -> None:
    x = jnp.asarray([[0, 1, 2], [3, 1, 0]]).astype(dtype)
    same(lambda x: (x, x[::-1].T, jnp.where(x == x[0, 1], x, x[0, 0])), x)
    same(lambda x: x, np.asarray(x))


def test_wide_types() -> None:
    with jax.enable_x64(True):
        for dtype in ("float64", "int64", "uint64", "complex128"):
            same(lambda x: (x * x, x + 1), jnp.asarray([1, 2, 3], dtype))
        assert same(lambda x, n: x * n, 1.5, 2).dtype == np.float64
    f = sj.jit(lambda x: x + 1)
    assert f(np.arange(3)).dtype == np.int32  # as in JAX: 64 bits become 32 without x64
    with jax.enable_x64(True):
        assert f(np.arange(3)).dtype == np.int64
    assert f(np.arange(3)).dtype == np.int32
    assert f.signatures == 2


@pytest.mark.parametrize("number", [3, 2.5, True, 1j, np.float16(2), np.int8(-3), np.bool_(True)])
def test_numbers_and_weak_types(number: Any) -> None:
    same(lambda x, n: (x * n, n, n + 1), X, number)
    same(lambda n: n, number)
    same(lambda n: n * jnp.ones(2, jnp.float16), jax.jit(lambda: 1.5)())  # an array of a weak type


def test_weak_types_have_code_of_their_own() -> None:
    f = sj.jit(lambda x: x * jnp.ones(2, jnp.float16))
    assert (f(2.0).dtype, f(np.float32(2)).dtype, f(3.0).dtype) == (np.float16, np.float32, np.float16)
    assert f.signatures == 2


def test_typed_keys() -> None:
    key = jax.random.key(7)
    same(lambda k: (jax.random.split(k, 3), jax.random.normal(k, (4,))), key, rtol=1e-5)
    same(jax.vmap(lambda k: jax.random.bits(k, (2,)) + 1), jax.random.split(key, 2))
    same(lambda k: jax.random.uniform(k, (3,)), jax.random.PRNGKey(3))


def test_transformations_inside() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w) ** 2)

    w = jnp.asarray(X.T[:, :2])
    same(jax.grad(loss), w, X, rtol=1e-5)
    same(jax.value_and_grad(loss, argnums=(0, 1)), w, X, rtol=1e-5)
    same(jax.vmap(lambda r: r @ w), X, rtol=1e-5)
    same(lambda x: jax.lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(4), x), X)
    same(lambda x: jax.lax.while_loop(lambda c: c.sum() < 100, lambda c: c + 1, x), X, rtol=1e-5)
    same(lambda i, x: jax.lax.cond(i > 0, jnp.sin, jnp.cos, x), 1, X, rtol=1e-5)


def test_gradients_of_integers_are_float0() -> None:
    same(jax.grad(lambda n, x: x * 2.0, argnums=(0, 1), allow_int=True), 3, 2.0)


def test_static_arguments() -> None:
    def f(n: int, x: Any, *, mode: str = "sum", axis: int = 0) -> Any:
        return getattr(jnp, mode)(x[:n], axis=axis)

    ours = sj.jit(f, static_argnums=0, static_argnames=("mode", "axis"))
    theirs = jax.jit(f, static_argnums=0, static_argnames=("mode", "axis"))
    for args, named in (((2, X), {}), ((1, X), {}), ((2, X), {"mode": "max"}), ((2, X), {"axis": 1})):
        np.testing.assert_allclose(ours(*args, **named), theirs(*args, **named), rtol=1e-6)
    assert ours.signatures == 4
    ours(2, X + 1)
    assert ours.signatures == 4
    np.testing.assert_allclose(sj.jit(lambda x, n: x[:n], static_argnums=-1)(X, 2), X[:2])
    with pytest.raises(ValueError, match="Non-hashable"):
        ours([2], X)


def test_static_arguments_of_equal_value_and_other_type() -> None:
    f = sj.jit(lambda x, n: x * (2 if isinstance(n, bool) else 3), static_argnums=1)
    assert (f(1.0, 1), f(1.0, True), f(1.0, 1.0)) == (3, 2, 3)
    assert f.signatures == 3


def test_arguments_that_are_not_used_are_not_passed() -> None:
    f = sj.jit(lambda a, b, c: b + 1)
    compiled = f.lower(X, np.ones(2, np.float32), jnp.ones(3)).compile()
    assert [port.name for port in compiled.executable.inputs] == ["b"]
    np.testing.assert_array_equal(compiled(X, np.ones(2, np.float32), jnp.ones(3)), [2, 2])


def test_names_in_signatures_and_errors() -> None:
    executable = sj.jit(lambda p, x: {"y": p["w"] + x}).lower({"w": X}, X).compile().executable
    assert [port.name for port in executable.inputs] == ["p['w']", "x"]
    assert [port.name for port in executable.outputs] == ["result['y']"]
    with pytest.raises(ValueError, match=r"^argument 1 \(x\): .*float32\[3,4\].*float32\[2,4\]"):
        executable(X, X[:2])
    np.testing.assert_array_equal(executable(**{"p['w']": X, "x": X}), X + X)


def test_traced_once_per_signature() -> None:
    traced = []

    @sj.jit
    def f(x: Any) -> Any:
        traced.append(x.shape)
        return x + 1

    for shape in ((2,), (3,), (2,), (2,), (3,)):
        f(np.zeros(shape, np.float32))
        f(jnp.zeros(shape))
    assert traced == [(2,), (3,)]
    assert f.signatures == 2
    f(np.zeros(2, np.int32))
    with jax.default_matmul_precision("highest"):
        f(np.zeros(2, np.float32))
    f(np.zeros(2, np.float32))
    assert len(traced) == f.signatures == 4
    assert (f.__name__, f.__wrapped__.__name__) == ("f", "f")
    assert repr(f) == "<shlo_jit.jax.jit of f>"


def test_decorator_and_methods() -> None:
    class Model:
        scale = 3.0

        @partial(sj.jit, static_argnums=0)
        def apply(self, x: Any) -> Any:
            return x * self.scale

    np.testing.assert_array_equal(Model().apply(np.ones(2, np.float32)), [3, 3])

    @sj.jit(static_argnames="n")
    def repeat(x: Any, n: int) -> Any:
        return jnp.tile(x, n)

    assert repeat(np.ones(2), n=3).shape == (6,)


def test_functions_within_functions() -> None:
    inner = sj.jit(lambda x: jnp.sin(x) * 2)
    outer = sj.jit(lambda x: jax.grad(lambda y: inner(y).sum())(x) + inner(x))
    np.testing.assert_allclose(outer(X), 2 * np.cos(X) + 2 * np.sin(X), rtol=1e-5)
    assert inner.signatures == 0  # a part of the other
    np.testing.assert_allclose(sj.jit(inner)(X), 2 * np.sin(X), rtol=1e-5)
    inner(X)
    np.testing.assert_allclose(sj.jit(lambda x: inner(x) + 1)(X), 2 * np.sin(X) + 1, rtol=1e-5)
    with pytest.raises(TypeError, match="JAX cannot transform"):
        jax.vmap(lambda x: inner(jnp.stack([x] * 3)))(X)  # the shape has code already


def test_transformations_outside_are_refused() -> None:
    f = sj.jit(lambda x: (x * x).sum())
    for call in (lambda: jax.grad(f)(X), lambda: jax.vmap(f)(X), lambda: jax.jit(f)(X)):
        with pytest.raises(TypeError, match=r"shlo_jit.jax.jit\(jax.grad\(f\)\)"):
            call()


def test_closures_over_what_is_traced_are_refused() -> None:
    def closed(x: Any) -> Any:
        return sj.jit(lambda y: x + y)(1.0)

    with pytest.raises(NotImplementedError, match="closes over"):
        jax.jit(closed)(2.0)


def test_mutable_arrays_are_refused() -> None:
    def add(ref: Any, x: Any) -> Any:
        ref[...] += x
        return x

    with pytest.raises(NotImplementedError, match="mutable array"):
        sj.jit(add)(jax.new_ref(jnp.zeros(3)), 1.0)
    ref = jax.new_ref(jnp.zeros(3))
    with pytest.raises(NotImplementedError, match="mutable array"):
        sj.jit(lambda x: add(ref, x))(1.0)


SEVERAL = """
import jax, numpy as np, pytest
import jax.numpy as jnp
import shlo_jit.jax as sj
jax.config.update("jax_num_cpu_devices", 2)
mesh = jax.sharding.Mesh(np.array(jax.devices()), "i")
spec = jax.sharding.PartitionSpec("i")
x = jax.device_put(np.arange(8.0, dtype=np.float32), jax.sharding.NamedSharding(mesh, spec))
one = jax.device_put(jnp.ones(8), jax.devices()[1])
np.testing.assert_array_equal(sj.jit(lambda a, b: a * 2 + b)(x, one), np.arange(8) * 2 + 1)
f = sj.jit(jax.shard_map(lambda a: jax.lax.psum(a, "i"), mesh=mesh, in_specs=spec, out_specs=jax.sharding.PartitionSpec()))
with pytest.raises(NotImplementedError, match="the function runs on several devices"):
    f(x)
"""


def test_several_devices() -> None:
    subprocess.run([sys.executable, "-c", SEVERAL], check=True, capture_output=True, text=True, timeout=120)


def test_what_is_no_array() -> None:
    f = sj.jit(lambda x: x)
    for value in ("text", object(), np.array(["a"])):
        with pytest.raises(TypeError):
            f(value)
    f(X)
    with pytest.raises(TypeError, match="missing 1 required positional argument|missing a required argument"):
        f()


def test_closed_over_arrays() -> None:
    w, host = jnp.asarray(X), X.copy()
    f = sj.jit(lambda x: x @ w.T + host.sum())
    np.testing.assert_allclose(f(X), X @ X.T + X.sum(), rtol=1e-5, atol=1e-6)


def test_callbacks() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        y = jax.pure_callback(np.sin, shape, x)
        jax.debug.callback(lambda v: seen.append(("debug", float(v))), x[0, 0])
        z = jax.experimental.io_callback(np.cos, shape, x, ordered=True)
        jax.experimental.io_callback(lambda v: seen.append(("first", float(v))), None, x[0, 1], ordered=True)
        jax.experimental.io_callback(lambda v: seen.append(("second", float(v))), None, x[0, 2], ordered=True)
        return y + z, jax.pure_callback(lambda a, b: (a + b, a - b), (shape, shape), x, y)

    ours = sj.jit(f)
    for _ in range(2):
        seen.clear()
        (total, (plus, minus)) = ours(X)
        np.testing.assert_allclose(total, np.sin(X) + np.cos(X), rtol=1e-6)
        np.testing.assert_allclose(plus, X + np.sin(X), rtol=1e-6)
        np.testing.assert_allclose(minus, X - np.sin(X), rtol=1e-6, atol=1e-7)
        assert seen.count(("debug", X[0, 0])) == 1
        assert [s for s in seen if s[0] != "debug"] == [("first", X[0, 1]), ("second", X[0, 2])]


def test_errors_of_callbacks_get_to_the_caller() -> None:
    def fail(x: Any) -> Any:
        raise KeyError("mine")

    f = sj.jit(lambda x: jax.pure_callback(fail, jax.ShapeDtypeStruct((), np.float32), x))
    with pytest.raises(KeyError, match="mine"):
        f(1.0)


def test_lowered_and_compiled() -> None:
    f = sj.jit(lambda x, n: x * n, static_argnames="n")
    lowered = f.lower(jax.ShapeDtypeStruct((3, 4), np.float32), n=2)
    assert "stablehlo.multiply" in lowered.as_text()
    assert 'loc("x")' in lowered.as_text(debug_info=True)
    compiled = lowered.compile()
    np.testing.assert_array_equal(compiled(X), X * 2)
    assert isinstance(compiled.executable, type(shlo_jit.compile(lowered.as_text())))
    with pytest.raises(TypeError, match=r"argument 0 .*float32\[3,4\].*float32\[2,4\]"):
        compiled(X[:2])
    with pytest.raises(TypeError, match=r"float32\[3,4\].*int32\[3,4\]"):
        compiled(X.astype(np.int32))
    with pytest.raises(TypeError, match="compiled for arguments"):
        compiled(X, X)
    with pytest.raises(TypeError, match="transform compiled code"):
        jax.jit(compiled)(X)


def test_options_of_compile() -> None:
    f = sj.jit(lambda x: x + 1, threads=1, cache=False)
    assert f.lower(X).compile().executable.threads == 1
    with pytest.raises(ValueError, match="threads.*positive"):
        sj.jit(lambda x: x, threads="many")(X)
    with pytest.raises(TypeError, match="'donate': .*cache, composites, custom_calls"):
        sj.jit(lambda x: x, donate=(0,))


def test_static_arguments_that_are_trees() -> None:
    @jax.tree_util.register_pytree_node_class
    class Setting:
        def __init__(self, scale: Any) -> None:
            self.scale = scale

        def tree_flatten(self) -> Any:
            return (self.scale,), None

        @classmethod
        def tree_unflatten(cls, _: Any, leaves: Any) -> Any:
            return cls(*leaves)

    setting = Setting(jnp.asarray(3.0))  # hashed by identity, and cannot be traced
    f = sj.jit(lambda s, x, t: x * float(s.scale) + len(t), static_argnums=(0, 2))
    np.testing.assert_array_equal(f(setting, np.ones(2, np.float32), (1, (2, 3))), [5, 5])
    assert f.signatures == 1


def test_forgetting_code() -> None:
    traced = []
    f = sj.jit(lambda x: traced.append(1) or x + 1)
    f(1.0)
    f.clear_cache()
    assert f.signatures == 0
    assert f(2.0) == 3
    assert len(traced) == 2


def test_settings_that_change_while_threads_call() -> None:
    f = sj.jit(lambda x: x + 1)
    failures = []

    def run(wide: bool) -> None:
        with jax.enable_x64(wide):
            for _ in range(300):
                got = f(np.arange(3)).dtype
                if got != (np.int64 if wide else np.int32):
                    failures.append((wide, got))

    threads = [threading.Thread(target=run, args=(wide,)) for wide in (True, False, True, False)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    assert f.signatures == 2


def test_no_copies_in_or_out() -> None:
    seen = []
    f = sj.jit(lambda x: x + 1)
    x = jax.jit(lambda: jnp.zeros((512, 512)))()
    y = f(x)
    program = next(iter(f._latest[1].values()))
    inner = program.executable

    def call(*arrays: np.ndarray) -> Any:
        seen.append([a.ctypes.data for a in arrays])
        results = inner(*arrays)
        seen.append(results.ctypes.data)
        return results

    program.executable = call
    y = f(x)
    assert seen == [[x.unsafe_buffer_pointer()], y.unsafe_buffer_pointer()]
    assert np.asarray(y).ctypes.data == y.unsafe_buffer_pointer()
    kept = np.asarray(y)
    del y
    for _ in range(4):
        f(x)
    assert (kept == 1).all()  # memory returns to the pool with its last view only


def test_results_of_xla_that_are_not_ready() -> None:
    f, g = jax.jit(lambda x: (x @ x) / 512), sj.jit(lambda x: x.sum())
    x = jnp.ones((512, 512))
    for _ in range(5):
        x = f(x)
    np.testing.assert_allclose(g(x), 512 * 512, rtol=1e-5)


def test_threads_share_a_function() -> None:
    traced = []

    @sj.jit
    def f(x: Any) -> Any:
        traced.append(1)
        return jnp.cumsum(x * 2)

    failures: list[Any] = []

    def run(n: int) -> None:
        try:
            for i in range(20):
                x = np.full(50, n + i, np.float32)
                np.testing.assert_allclose(f(x), np.cumsum(x * 2), rtol=1e-6)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    assert len(traced) == 1


def test_threads_that_trace_functions_which_call_each_other() -> None:
    barrier = threading.Barrier(2, timeout=20)
    done = []

    def meet() -> None:
        if threading.get_ident() not in met:
            met.add(threading.get_ident())
            barrier.wait()

    met: set[int] = set()

    @sj.jit
    def f(x: Any) -> Any:
        meet()
        return x + (g(np.float32(1)) if x.shape else 0)

    @sj.jit
    def g(x: Any) -> Any:
        meet()
        return x * 2 + (f(np.float32(1)) if x.shape else 0)

    threads = [threading.Thread(target=lambda h=h: done.append(h(X).shape), daemon=True) for h in (f, g)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert done == [X.shape] * 2


def test_committed_arrays() -> None:
    x = jax.device_put(X, jax.devices()[0])
    f = sj.jit(lambda a, b: a + b)
    np.testing.assert_array_equal(f(x, jnp.asarray(X)), X + X)
    f(jnp.asarray(X), x)
    assert f.signatures == 1


def test_ml_dtypes_of_numpy() -> None:
    x = np.arange(6).astype(ml_dtypes.bfloat16)
    assert same(lambda x: x * 2, x).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("x64", [False, True])
def test_signatures_are_those_of_types(x64: bool) -> None:
    """Signatures of NumPy arrays and scalars, which are computed without JAX."""
    from shlo_jit.jax.function import signature

    with jax.enable_x64(x64):
        for dtype in map(np.dtype, "? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 bfloat16".split()):
            for leaf in (np.ones((2, 3), dtype), np.ones(3, dtype)[::-1], dtype.type(1), np.ones((), dtype)):
                aval = jax.typeof(leaf)
                assert signature(leaf) == (aval.shape, aval.dtype, aval.weak_type)
