"""Programs that JAX writes with `jax.ffi.ffi_call` have the same results here as in XLA."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp
from ffi_programs import F4, X, call, program

import shlo_jit
from shlo_jit.errors import ExecutionError

pytestmark = pytest.mark.xla

TARGETS = ["affine", "copy", "increment", "row_sums", "fail_above", "throws", "later", "describe"]
Y = jax.ShapeDtypeStruct((4,), jnp.float32)


@pytest.fixture(scope="module")
def calls(handlers: ctypes.CDLL) -> dict[str, Any]:
    """The targets, also registered with JAX's own run time."""
    found = {f"tests_{name}": jax.ffi.pycapsule(getattr(handlers, name)) for name in TARGETS}
    handlers.counter_id.restype = handlers.counter_info.restype = ctypes.c_void_p
    ids = {"type_id": jax.ffi.pycapsule(handlers.counter_id()), "type_info": jax.ffi.pycapsule(handlers.counter_info())}
    jax.ffi.register_ffi_type("tests.counter", ids, platform="cpu")
    shlo_jit.register_ffi_type("tests.counter", ids)
    stages = ("instantiate", "execute")
    found["tests_counter"] = {s: jax.ffi.pycapsule(getattr(handlers, f"counter_{s}")) for s in stages}
    for name, target in found.items():
        jax.ffi.register_ffi_target(name, target, platform="cpu")
    return found


def affine(x: Any) -> Any:
    shift = np.array([1.0, 2.0])
    return jax.ffi.ffi_call("tests_affine", Y)(x, scale=np.float32(2), shift=shift, how="minus")


def several(x: Any) -> Any:
    shapes = (Y, jax.ShapeDtypeStruct((2, 2), jnp.int32))
    return jax.ffi.ffi_call("tests_copy", shapes)(x, x.astype(jnp.int32).reshape(2, 2))


def in_a_loop(x: Any) -> Any:
    return jax.lax.fori_loop(0, 10, lambda i, v: jax.ffi.ffi_call("tests_increment", Y)(v) * 0.5, x)


def in_a_branch(x: Any) -> Any:
    fun = jax.ffi.ffi_call("tests_increment", Y)
    return jax.lax.cond(x[0] > 0, fun, lambda v: fun(fun(v)), x)


def mapped(x: Any) -> Any:
    fun = jax.ffi.ffi_call("tests_increment", Y, vmap_method="broadcast_all")
    return jax.vmap(lambda v: fun(v) * v)(jnp.stack([x, x + 1]))


def column_major(x: Any) -> Any:
    out = jax.ShapeDtypeStruct((2,), jnp.float32)
    return jax.ffi.ffi_call("tests_row_sums", out, input_layouts=[(1, 0)])(jnp.concatenate([x, x[:2]]).reshape(2, 3))


def in_place(x: Any) -> Any:
    return jax.ffi.ffi_call("tests_increment", Y, input_output_aliases={0: 0})(x + 1) + x


def with_effect(x: Any) -> Any:
    y = jax.ffi.ffi_call("tests_increment", Y, has_side_effect=True)(x)
    return jax.ffi.ffi_call("tests_later", Y, has_side_effect=True)(y, code=np.int64(0), milliseconds=np.int64(1))


def stateful(x: Any) -> Any:
    count = jax.ffi.ffi_call("tests_counter", jax.ShapeDtypeStruct((), jnp.int64), has_side_effect=True)
    return count(start=np.int64(41)), x


@pytest.mark.parametrize(
    "function",
    [affine, several, in_a_loop, in_a_branch, mapped, column_major, in_place, with_effect, stateful],
)
def test_the_same_as_jax(calls: dict[str, Any], function: Callable[[Any], Any]) -> None:
    with jax.enable_x64(True):
        jitted = jax.jit(function)
        text = jitted.lower(X).as_text()
        expected = jax.tree.leaves(jitted(X))
    assert "tests_" in text
    got = shlo_jit.compile(text, custom_calls=calls)(X)
    got = got if isinstance(got, tuple) else (got,)
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, np.asarray(theirs))


@pytest.mark.parametrize(
    ("target", "attributes", "message"),
    [
        ("fail_above", {"limit": np.float32(2)}, "element 3 is too large"),
        ("fail_above", {"limits": np.float32(2)}, "Attribute name mismatch: limits vs limit"),
        ("fail_above", {}, "Wrong number of attributes: expected 1 but got 0"),
        ("later", {"code": np.int64(10), "milliseconds": np.int64(1)}, "it was not to be"),
    ],
)
def test_the_same_errors(calls: dict[str, Any], target: str, attributes: dict[str, Any], message: str) -> None:
    with jax.enable_x64(True):
        jitted = jax.jit(lambda x: jax.ffi.ffi_call(f"tests_{target}", Y)(x, **attributes))
        text = jitted.lower(X).as_text()
        with pytest.raises(Exception, match=message):  # jax.errors.JaxRuntimeError, a private class
            jitted(X).block_until_ready()
    with pytest.raises(ExecutionError, match=message):
        shlo_jit.compile(text, custom_calls=calls)(X)


def xla_error(text: str) -> str:
    """Returns the error of XLA's run time for a program that fails."""
    from jaxlib import _jax

    client = jax.devices("cpu")[0].client
    devices = _jax.DeviceList(tuple(jax.local_devices(backend="cpu")[:1]))
    with pytest.raises(Exception) as caught:
        executable = client.compile_and_load(f"module {{ {text} }}", devices, _jax.CompileOptions())
        results = executable.execute_sharded([jax.device_put(X)])
        [np.asarray(a) for arrays in results.disassemble_into_single_device_arrays() for a in arrays]
    return str(caught.value)


@pytest.mark.parametrize(
    "config",
    [
        "",
        "b = true, a = 1 : i8, Z = 7 : i64, _c = 255 : ui8, d = 1.5 : f32",
        'text = "a\\00b", empty = ""',
        "a = array<i64: 1, 2>, b = array<f64>, c = dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>, d = dense<7> : tensor<3xi8>",
        "a = {b = {c = 1 : i32, B = array<i8: 1>}, a = 1 : ui64}",
    ],
)
def test_frames_say_what_those_of_xla_say(calls: dict[str, Any], config: str) -> None:
    text = program(call("tests_describe", config))
    token = "!stablehlo.token"
    with_tokens = program(
        f"  %t = stablehlo.create_token : {token}\n"
        + call("tests_describe", config, "%t, %x", f"({token}, {F4}) -> ({F4}, {token})", result="%r:2"),
        returned="%r#0",
    )
    for each in (text, with_tokens):
        with pytest.raises(ExecutionError) as caught:
            shlo_jit.compile(each, custom_calls=calls)(X)
        mine = str(caught.value).partition("ABORTED: ")[2]
        assert mine
        assert mine in xla_error(each)


ON_THE_PLATFORM = """
import ctypes, sys
import jax, jax.numpy as jnp, numpy as np
library = ctypes.CDLL(sys.argv[1])
for name in ("increment", "fail_above"):
    jax.ffi.register_ffi_target(f"tests_{name}", jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
assert "shlo_jit" in jax.devices()[0].client.platform_version
y = jax.ShapeDtypeStruct((4,), jnp.float32)
f = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, v: jax.ffi.ffi_call("tests_increment", y)(v), x))
np.testing.assert_array_equal(f(jnp.zeros(4)), np.full(4, 3))
"""


def test_targets_that_jax_knows_are_called_on_the_platform(handlers_path: Path) -> None:
    environment = {**os.environ, "JAX_PLATFORMS": "shlo", "PYTHONPATH": str(Path(shlo_jit.__file__).parents[1])}
    command = [sys.executable, "-c", ON_THE_PLATFORM, str(handlers_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
