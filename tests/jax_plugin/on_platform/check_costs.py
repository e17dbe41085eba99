"""Properties of programs of every kind before they run: their costs and their texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib import xla_client

MESH = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
N = 64
X = np.ones((N, N), np.float32)
PARTS = jax.device_put(X, NamedSharding(MESH, P("x", "y")))


def on_parts(f: Callable[..., Any], given: P, out: P) -> Callable[..., Any]:
    return jax.shard_map(f, mesh=MESH, in_specs=given, out_specs=out, check_vma=False)


def rows(x: jax.Array) -> jax.Array:
    return jax.lax.psum(x @ x.T, "x")


def callback(x: jax.Array) -> jax.Array:
    return jax.pure_callback(np.asarray, x, x)


def unknown_sizes(x: jax.Array) -> jax.Array:
    (n,) = jax.export.symbolic_shape("n")
    f = jax.jit(lambda v: v.reshape(-1, 1) + v.shape[0])
    return jax.export.export(f)(jax.ShapeDtypeStruct((n,), jnp.float32)).call(x.reshape(-1))


CASES: dict[str, tuple[Callable[..., Any], Any, int | None, int, str]] = {
    "a product": (lambda x: x @ x, X, 2 * N**3, 2 * X.nbytes, "dot"),
    "LAPACK": (jnp.linalg.eigh, X, None, X.nbytes, "lapack_ssyevd_ffi"),
    "random numbers": (lambda x: x + jax.random.normal(jax.random.key(0), x.shape), X, None, X.nbytes, "while"),
    "a callback": (callback, X, 0, 2 * X.nbytes, "xla_ffi_python_cpu_callback"),
    "an ordered callback": (lambda x: io_callback(np.asarray, x, x, ordered=True), X, 0, 2 * X.nbytes, "token"),
    "an unknown size": (unknown_sizes, X, N * N, 2 * X.nbytes, "add"),
    "whole arrays": (lambda x: x @ x, PARTS, 2 * N**3, 2 * X.nbytes, "dot"),
    "a wanted sharding": (
        lambda x: jax.lax.with_sharding_constraint(x + 1, NamedSharding(MESH, P("x"))),
        PARTS,
        N * N,
        2 * X.nbytes,
        f"f32[{N},{N}]",
    ),
    "parts": (on_parts(rows, P("x"), P()), PARTS, 2 * (N // 2) ** 2 * N, X.nbytes // 2, f"f32[{N // 2},{N}]"),
    "a callback on parts": (on_parts(callback, P("x"), P("x")), PARTS, 0, X.nbytes, "xla_ffi_python_cpu_callback"),
}


@pytest.mark.parametrize("case", CASES)
def test_costs_and_text(case: str) -> None:
    f, x, operations, least_bytes, word = CASES[case]
    compiled = jax.jit(f).lower(x).compile()
    costs = compiled.cost_analysis()
    if operations is None:
        assert costs["flops"] >= 0
    else:
        assert operations <= costs["flops"] <= operations * 1.2 + 100
    assert costs["bytes accessed"] >= least_bytes
    assert word in compiled.as_text()
    jax.block_until_ready(compiled(x))


def test_a_handler_of_the_user() -> None:
    handler = xla_client.custom_call_targets("Host")["lapack_sgetrf_ffi"]  # any handler
    jax.ffi.register_ffi_target("factors", handler["execute"], platform="cpu")
    types = [jax.ShapeDtypeStruct(*t) for t in (((N, N), jnp.float32), ((N,), jnp.int32), ((), jnp.int32))]
    call = jax.ffi.ffi_call("factors", types)
    compiled = jax.jit(lambda x: call(x)[0] + 1).lower(X).compile()
    assert compiled.cost_analysis()["flops"] == N * N
    assert compiled.cost_analysis()["bytes accessed"] >= 2 * X.nbytes
