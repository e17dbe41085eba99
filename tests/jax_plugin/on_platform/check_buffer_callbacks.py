"""Python functions that write results into the program's memory."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.errors import JaxRuntimeError
from jax.experimental.buffer_callback import Buffer, ExecutionContext, ExecutionStage, buffer_callback
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shlo_jit.jax

MESH = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
X = np.arange(64, dtype=np.float32).reshape(8, 8)


def twice(context: ExecutionContext, out: Buffer, x: Buffer) -> None:
    np.asarray(out)[...] = np.asarray(x) * 2


def doubled(x: jax.Array, function: Any = twice, **options: Any) -> jax.Array:
    return buffer_callback(function, jax.ShapeDtypeStruct(x.shape, x.dtype), **options)(x)


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float8_e5m2", "int4", "bool", "complex64", "int8", "float4_e2m1fn"]
)
@pytest.mark.parametrize("shape", [(), (3, 2), (0, 4)], ids=str)
def test_what_a_function_is_called_with(dtype: str, shape: tuple[int, ...]) -> None:
    x = (np.arange(np.prod(shape)) % 2).reshape(shape).astype(jnp.dtype(dtype))
    seen = []

    def copy(context: ExecutionContext, out: Buffer, given: Buffer) -> None:
        assert isinstance(context, ExecutionContext) and context.stage == ExecutionStage.EXECUTE
        with pytest.raises(JaxRuntimeError, match="XLA FFI GPU context is not available"):
            _ = context.stream
        for buffer in (out, given):
            assert isinstance(buffer, Buffer)
            assert (buffer.shape, buffer.ndim, buffer.dtype) == (shape, len(shape), jnp.dtype(dtype))
            assert buffer.__dlpack_device__() == (1, 0)
        assert (out.writeable, given.writeable) == (True, False)
        assert not np.asarray(given).flags.writeable
        assert np.asarray(given, np.complex64).dtype == np.complex64
        np.asarray(out)[...] = np.asarray(given)
        seen.append(1)

    np.testing.assert_array_equal(np.asarray(jax.jit(partial(doubled, function=copy))(x)), x)
    assert len(seen) == (1 if x.size else 0)  # a result without elements needs no call


def test_dlpack() -> None:
    seen = []

    def look(context: ExecutionContext, out: Buffer, x: Buffer) -> None:
        view = np.from_dlpack(x)
        assert view.ctypes.data == np.asarray(x).ctypes.data and not view.flags.writeable
        np.from_dlpack(out)[...] = view + 1
        assert np.from_dlpack(x, copy=True).ctypes.data != view.ctypes.data
        seen.append(np.asarray(jnp.from_dlpack(x)).tolist())

    assert doubled(jnp.arange(3), look).tolist() == [1, 2, 3]
    assert seen == [[0, 1, 2]]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_dlpack_of_types_that_numpy_does_not_know(dtype: str) -> None:
    seen = []

    def look(context: ExecutionContext, out: Buffer, x: Buffer) -> None:
        for array in (jnp.from_dlpack(x), jnp.from_dlpack(out)):
            assert array.dtype == jnp.dtype(dtype)
        seen.append(np.asarray(jnp.from_dlpack(x)).astype(float).tolist())

    doubled(jnp.arange(3).astype(dtype), look)
    assert seen == [[0, 1, 2]]


def test_buffers_end_with_the_call() -> None:
    kept = []

    def keep(context: ExecutionContext, out: Buffer, x: Buffer) -> None:
        kept.extend([out, x])
        raise ValueError("so")

    with pytest.raises(JaxRuntimeError, match="so"):
        jax.block_until_ready(doubled(jnp.ones(3), keep))
    for buffer in kept:
        with pytest.raises(RuntimeError, match="callback returns"):
            np.asarray(buffer)


def test_trees_of_arguments_and_results() -> None:
    def both(context: ExecutionContext, out: Any, pair: Any, *, third: Buffer) -> None:
        np.asarray(out["sum"])[...] = np.asarray(pair["a"]) + np.asarray(pair["b"][0])
        np.asarray(out["third"][0])[...] = np.asarray(third)

    types = {"sum": jax.ShapeDtypeStruct((3,), jnp.float32), "third": [jax.ShapeDtypeStruct((), jnp.int32)]}
    f = jax.jit(buffer_callback(both, types))
    made = f({"a": jnp.ones(3), "b": [jnp.arange(3.0)]}, third=jnp.int32(7))
    assert made["sum"].tolist() == [1, 2, 3] and int(made["third"][0]) == 7


def test_in_loops_branches_and_batches() -> None:
    def f(x: jax.Array) -> jax.Array:
        _, rows = jax.lax.scan(lambda c, row: (c, doubled(row)), 0, x)
        rows = jax.lax.fori_loop(0, 2, lambda i, v: doubled(v), rows)
        return jax.lax.cond(rows[0, 1] > 0, doubled, lambda v: v, rows)

    np.testing.assert_array_equal(np.asarray(jax.jit(f)(X)), 16 * X)
    for method in ("sequential", "expand_dims", "broadcast_all"):
        got = jax.jit(jax.vmap(partial(doubled, vmap_method=method)))(X)
        np.testing.assert_array_equal(np.asarray(got), 2 * X)


@pytest.mark.parametrize("donated", [False, True])
def test_an_operand_that_the_result_aliases_is_its_memory(donated: bool) -> None:
    same = []

    def add(context: ExecutionContext, out: Buffer, x: Buffer) -> None:
        same.append(np.asarray(x).ctypes.data == np.asarray(out).ctypes.data)
        np.asarray(out)[...] += 1

    f = jax.jit(partial(doubled, function=add, input_output_aliases={0: 0}), donate_argnums=0 if donated else ())
    x = jnp.arange(1000.0) + 0
    before, place = np.arange(1000.0, dtype=np.float32), x.unsafe_buffer_pointer()
    result = f(x)
    np.testing.assert_array_equal(np.asarray(result), before + 1)
    assert same == [True] and x.is_deleted() == donated
    assert (result.unsafe_buffer_pointer() == place) == donated
    if not donated:
        np.testing.assert_array_equal(np.asarray(x), before)


def test_side_effects_happen_and_nothing_else_does() -> None:
    calls = []

    def note(context: ExecutionContext, out: Any, *arguments: Buffer) -> None:
        calls.append(len(arguments))

    jax.jit(lambda x: (buffer_callback(note, (), has_side_effect=True)(x), x)[1])(X)
    jax.jit(buffer_callback(note, (), has_side_effect=True))()
    jax.jit(lambda x: (buffer_callback(note, ())(x), x)[1])(X)
    jax.effects_barrier()
    assert calls == [1, 0]
    assert doubled(jnp.ones(2), command_buffer_compatible=True).tolist() == [2, 2]


@pytest.mark.parametrize("spec", [P("x"), P("x", "y")], ids=str)
def test_on_several_devices(spec: P) -> None:
    shapes, lock = [], threading.Lock()

    def note(context: ExecutionContext, out: Buffer, x: Buffer) -> None:
        with lock:
            shapes.append(x.shape)
        twice(context, out, x)

    given = jax.device_put(X, NamedSharding(MESH, spec))
    np.testing.assert_array_equal(np.asarray(jax.jit(partial(doubled, function=note))(given)), 2 * X)
    assert {*shapes} == {(8, 8)}
    shapes.clear()
    parts = jax.shard_map(partial(doubled, function=note), mesh=MESH, in_specs=spec, out_specs=spec)
    np.testing.assert_array_equal(np.asarray(jax.jit(parts)(given)), 2 * X)
    assert shapes == [given.addressable_shards[0].data.shape] * 4


def fail(context: ExecutionContext, out: Buffer, x: Buffer) -> None:
    raise KeyError("not so")


def give(context: ExecutionContext, out: Buffer, x: Buffer) -> Any:
    return 3


@pytest.mark.parametrize(("function", "text"), [(fail, "KeyError: 'not so'"), (give, "must not return any values")])
def test_errors(function: Any, text: str) -> None:
    f = partial(doubled, function=function)
    with pytest.raises(JaxRuntimeError, match=text) as caught:
        jax.block_until_ready(jax.jit(f)(X))
    if function is fail:
        assert 'raise KeyError("not so")' in str(caught.value)  # where it was raised
    given = jax.device_put(X, NamedSharding(MESH, P("x")))
    for g in (f, jax.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P("x"), check_vma=False)):
        with pytest.raises(JaxRuntimeError, match=text):
            jax.block_until_ready(jax.jit(g)(given))
    np.testing.assert_array_equal(np.asarray(jax.jit(doubled)(given)), 2 * X)


def test_what_is_known_of_such_a_program() -> None:
    compiled = jax.jit(doubled).lower(X).compile()
    assert "xla_buffer_python_cpu_callback" in compiled.as_text()
    assert compiled.cost_analysis()["bytes accessed"] == 2 * X.nbytes


def test_a_function_of_shlo_jit() -> None:
    got = shlo_jit.jax.jit(lambda x: doubled(x) + 1)(X)
    np.testing.assert_array_equal(np.asarray(got), 2 * X + 1)
