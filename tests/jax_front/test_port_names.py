"""Names of arguments and results, calls by name, and reports of donation. JAX is not needed here."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import shlo_jit
from shlo_jit.check_options import compile_options

NAMED = """
func.func @main(%arg0: tensor<2xf32> loc("x"), %arg1: tensor<2xf32> {jax.arg_info = "w"} loc("f.py":1:2),
                %arg2: tensor<2xf32> {jax.arg_info = "other"} loc("params['b']"), %last: tensor<2xf32> loc(unknown))
    -> (tensor<2xf32> {jax.result_info = "sum"}, tensor<2xf32>) {
  %0 = stablehlo.multiply %arg0, %arg1 : tensor<2xf32>
  %1 = stablehlo.add %0, %arg2 : tensor<2xf32>
  %2 = stablehlo.subtract %last, %arg0 : tensor<2xf32>
  return %1, %2 : tensor<2xf32>, tensor<2xf32>
}
"""
X, W, B, LAST = (np.array([n, -n], np.float32) for n in (1, 2, 4, 8))


def names(ports: Any) -> list[str]:
    return [port.name for port in ports]


def test_what_names_come_from() -> None:
    exe = shlo_jit.compile(NAMED)
    assert names(exe.inputs) == ["x", "w", "params['b']", "last"]
    assert names(exe.outputs)[0] == "sum"
    with pytest.raises(ValueError, match=r"^argument 2 \(params\['b'\]\): expected float32\[2\]"):
        exe(X, W, B[:1], LAST)


def test_names_that_several_have_say_nothing() -> None:
    text = NAMED.replace('loc("x")', 'loc("same")').replace("loc(unknown)", 'loc("same")')
    exe = shlo_jit.compile(text)
    assert names(exe.inputs) == ["arg0", "w", "params['b']", "last"]
    np.testing.assert_array_equal(exe(X, W, B, last=LAST)[1], LAST - X)


def test_the_object_cache_knows_names(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path))
    other = NAMED.replace('loc("x")', 'loc("z")')
    for text, first in ((NAMED, "x"), (other, "z"), (NAMED, "x")):
        assert shlo_jit.compile(text).inputs[0].name == first


def test_calls_by_name() -> None:
    exe = shlo_jit.compile(NAMED)
    expected = X * W + B
    np.testing.assert_array_equal(exe(X, W, last=LAST, **{"params['b']": B})[0], expected)
    np.testing.assert_array_equal(exe(arg0=X, arg1=W, arg3=LAST, arg2=B)[0], expected)
    with pytest.raises(TypeError, match=r"^argument 0 \(x\), argument 3 \(last\).*missing$"):
        exe(w=W, arg2=B)
    with pytest.raises(TypeError, match=r"^argument 0 \(x\).*twice"):
        exe(x=X, arg0=X, w=W, arg2=B, last=LAST)


DYNAMIC = """
func.func @main(%a: tensor<?x2xf32> loc("x"), %b: tensor<2xf32> loc("w")) -> (tensor<?x2xf32> {jax.result_info = "y"}) {
  %n = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?x2xf32>) -> tensor<i32>
  %m = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %k = stablehlo.constant dense<2> : tensor<1xi32>
  %s = stablehlo.concatenate %m, %k, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %w = stablehlo.dynamic_broadcast_in_dim %b, %s, dims = [1] : (tensor<2xf32>, tensor<2xi32>) -> tensor<?x2xf32>
  %0 = stablehlo.multiply %a, %w : tensor<?x2xf32>
  return %0 : tensor<?x2xf32>
}
"""


@pytest.mark.parametrize("dynamic", ["specialize", "symbolic"])
def test_names_of_programs_with_unknown_dimensions(dynamic: str) -> None:
    exe = shlo_jit.compile(DYNAMIC, dynamic=dynamic)
    assert (names(exe.inputs), names(exe.outputs)) == (["x", "w"], ["y"])
    for rows in (3, 3, 4):
        x = np.ones((rows, 2), np.float32)
        for _ in range(2):
            np.testing.assert_array_equal(exe(x, w=W), x * W)
            np.testing.assert_array_equal(exe(w=W, x=x), x * W)
        with pytest.raises(TypeError, match=r"argument 1 \(w\).*missing"):
            exe(x=x)
        with pytest.raises(ValueError, match=r"argument 1 \(w\): .*float32\[2\].*float32\[1\]"):
            exe(x, W[:1])
    assert names(exe.executable([(3, 2), (2,)]).outputs) == ["y"]


def test_names_of_programs_with_sizes_of_data() -> None:
    staged = shlo_jit.compile(
        """
func.func @main(%a: tensor<4xf32> loc("x"), %n: tensor<1xi64> loc("n")) -> (tensor<?xf32> {jax.result_info = "y"}) {
  %p = stablehlo.multiply %n, %n : tensor<1xi64>
  %one = stablehlo.constant dense<1> : tensor<1xi64>
  %zero = stablehlo.constant dense<0> : tensor<1xi64>
  %0 = stablehlo.real_dynamic_slice %a, %zero, %p, %one
    : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}"""
    )
    assert (names(staged.inputs), names(staged.outputs)) == (["x", "n"], ["y"])
    x = np.arange(4, dtype=np.float32)
    assert staged(n=np.array([2]), x=x).shape == (4,)
    assert staged(x, n=np.array([1])).shape == (1,)


def test_names_in_libraries_with_sizes(tmp_path: Any) -> None:
    shlo_jit.export(DYNAMIC, tmp_path / "d.o", header=tmp_path / "d.h", shapes=[[(3, 2), (2,)]])
    header = " ".join((tmp_path / "d.h").read_text().split())
    assert "const float *x" in header
    assert "float *y" in header
    exe = shlo_jit.load(tmp_path / "d.o")
    assert (names(exe.inputs), names(exe.outputs)) == (["x", "w"], ["y"])
    x = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(exe(x, w=W), x * W)


PLATFORMS = """
func.func @main(%p: tensor<i32> {jax.global_constant = "_platform_index"} loc("p"), %a: tensor<2xf32> loc("x"))
    -> tensor<2xf32> {
  %0 = stablehlo.negate %a : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""


def test_names_on_the_platform() -> None:
    exe = shlo_jit.compile(PLATFORMS)
    assert names(exe.inputs) == ["x"]
    np.testing.assert_array_equal(exe(x=X), -X)


@pytest.mark.parametrize("attribute", ["tf.aliasing_output = 0 : i32", "jax.buffer_donor = true"])
def test_donation_that_the_program_asks_for(attribute: str) -> None:
    text = f"""
func.func @main(%a: tensor<64xf32>, %b: tensor<64xf32> {{{attribute}}}) -> tensor<64xf32> {{
  %0 = stablehlo.add %a, %b : tensor<64xf32>
  return %0 : tensor<64xf32>
}}"""
    exe = shlo_jit.compile(text, donate="program")
    a, b = np.ones(64, np.float32), np.full(64, 2, np.float32)
    place = b.ctypes.data
    for n in (3, 4, 5):
        b = exe(a, b)
        assert b.ctypes.data == place
        np.testing.assert_array_equal(b, np.full(64, n))
    b = np.full(64, 2, np.float32)
    assert shlo_jit.compile(text)(a, b).ctypes.data != b.ctypes.data
    assert (b == 2).all()


def test_donation_that_the_program_does_not_ask_for() -> None:
    for attribute in ("jax.buffer_donor = false", 'jax.arg_info = "b"'):
        text = f"""
func.func @main(%p: tensor<i32> {{jax.global_constant = "_platform_index"}}, %b: tensor<64xf32> {{{attribute}}})
    -> tensor<64xf32> {{
  %0 = stablehlo.negate %b : tensor<64xf32>
  return %0 : tensor<64xf32>
}}"""
        b = np.ones(64, np.float32)
        assert shlo_jit.compile(text, donate="program")(b).ctypes.data != b.ctypes.data
        b = np.ones(64, np.float32)
        taken = shlo_jit.compile(text.replace(attribute, "jax.buffer_donor = true"), donate="program")
        assert taken(b).ctypes.data == b.ctypes.data


def test_donate_in_libraries(tmp_path: Any) -> None:
    text = """
func.func @main(%a: tensor<64xf32> {tf.aliasing_output = 0 : i32}) -> tensor<64xf32> {
  %0 = stablehlo.negate %a : tensor<64xf32>
  return %0 : tensor<64xf32>
}"""
    shlo_jit.export(text, tmp_path / "n.o", donate="program")
    a = np.ones(64, np.float32)
    assert shlo_jit.load(tmp_path / "n.o")(a) is a


def test_what_donate_may_be() -> None:
    assert compile_options("main", donate="program").donate == "program"
    with pytest.raises(TypeError, match="'program'.*'all'"):
        shlo_jit.compile(NAMED, donate="all")


def test_the_package_for_jax_imports_jax_when_it_is_asked() -> None:
    code = "import sys, shlo_jit.jax as sj; assert 'jax' not in sys.modules, 'imported'; sj.nonsense"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.rstrip().endswith("AttributeError: module 'shlo_jit.jax' has no attribute 'nonsense'")
