"""Calls of code for any size: the arguments they accept, and growth of the arena while other threads call."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest
from refusing import refused

import shlo_jit
from shlo_jit.runtime import pool
from shlo_jit.runtime.dynamic import DynamicExecutable
from shlo_jit.runtime.executable import Executable
from shlo_jit.runtime.instance import Instance

_SORT = """
  "stablehlo.sort"(%{}) <{{dimension = 1 : i64}}> ({{ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %p = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }}) : (tensor<?x64xf32>) -> tensor<?x64xf32>"""
SORTED_TWICE = f"""
func.func @main(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {{
  %0 = {_SORT.format("x")}
  %1 = stablehlo.negate %0 : tensor<?x64xf32>
  %2 = {_SORT.format("1")}
  return %2 : tensor<?x64xf32>
}}
"""


def test_the_arena_grows_while_another_thread_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that begins while a larger one makes the arena grow must not restore the smaller arena afterwards."""
    plain_lease, plain_take = pool.lease, Instance.take_arena
    called, grown = threading.Event(), threading.Event()
    arenas: dict[int, int] = {}
    larger: list[int] = []

    def lease(nbytes: int) -> Any:
        if threading.current_thread() is other:  # its result, in the middle of the call
            called.set()
            assert grown.wait(60)
        return plain_lease(nbytes)

    def take_arena(self: Instance, nbytes: int) -> Any:
        arena = plain_take(self, nbytes)
        arenas[ctypes.addressof(arena)] = len(arena)
        if threading.current_thread() is not other:
            larger.append(nbytes)
            if len(larger) == 2:  # the first one is for the large call itself
                other.start()
                assert called.wait(60)
        return arena

    monkeypatch.setattr(pool, "lease", lease)
    other = threading.Thread(target=lambda: exe(rows(600)))
    exe = shlo_jit.compile(SORTED_TWICE, dynamic="symbolic", threads=1, cache=False)
    assert isinstance(exe, DynamicExecutable)
    code = exe.executable([(600, 64)])
    assert isinstance(code, Executable)
    assert code._fast is not None
    exe(rows(700))
    record = code._fast.items[-1]
    arenas[record.arena] = record.arena_bytes
    monkeypatch.setattr(Instance, "take_arena", take_arena)
    exe(rows(3000))
    grown.set()
    other.join()
    assert record.arena_bytes <= arenas[record.arena]
    np.testing.assert_array_equal(exe(rows(3000)), np.sort(-np.sort(rows(3000), 1), 1))


ADDED = """
func.func @main(%x: tensor<?x3xf32>, %y: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %0 = stablehlo.add %x, %y : tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}
"""


class OnlyDlpack:
    """An array of another library, without a shape."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def added() -> tuple[DynamicExecutable, Executable]:
    """A program with two arguments, and its code for any size."""
    exe = shlo_jit.compile(ADDED, dynamic="symbolic")
    assert isinstance(exe, DynamicExecutable)
    code = exe.executable([(4, 3), (4, 3)])
    assert isinstance(code, Executable)
    assert code.symbol is not None
    return exe, code


def test_arrays_of_other_libraries() -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for exe in added():
        np.testing.assert_array_equal(exe(OnlyDlpack(x), x), x + x)


@pytest.mark.parametrize(
    ("given", "error", "got"),
    [
        ([[1, 2], [3]], TypeError, r"float32\[\?,3\].*list"),
        ("abc", TypeError, r"float32\[\?,3\].*str"),
        (None, TypeError, r"float32\[\?,3\].*NoneType"),
        (2.5, ValueError, r"float32\[\?,3\].*2.5"),
        (np.ones((4, 3)), TypeError, r"float32\[\?,3\].*float64\[4,3\]"),
        (np.float32(1), ValueError, r"float32\[\?,3\].*2 to 1,048,576.*dimension 0.*float32\[\]"),
        (np.ones((1, 3), "f4"), ValueError, r"float32\[\?,3\].*2 to 1,048,576.*dimension 0.*float32\[1,3\]"),
    ],
)
def test_arguments_that_the_code_does_not_accept(given: object, error: type[Exception], got: str) -> None:
    _, code = added()
    with pytest.raises(error, match=rf"argument 0 \(x\): .*{got}"):
        code(given, np.ones((4, 3), np.float32))


def test_the_wrong_number_of_arguments() -> None:
    for exe in added():
        message = r"2 arguments \(float32\[\?,3\], float32\[\?,3\]\).*got 1"
        with pytest.raises(TypeError, match=message):
            exe(np.ones((4, 3), np.float32))


ASSERTED = """
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %ok = stablehlo.compare GE, %n, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%ok, %n) {error_message = "{0} are too few", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
  return %x : tensor<?xf32>
}
"""


def test_assertions_about_the_size() -> None:
    """They are checked at the call for sizes that the code supports, at compile time for all others."""
    exe = shlo_jit.compile(ASSERTED, dynamic="symbolic")
    assert isinstance(exe, DynamicExecutable)
    for n in (10, 9, 2, 11):
        x = np.ones(n, np.float32)
        if n < 10:
            with pytest.raises(shlo_jit.ExecutionError, match=f"^{n} are too few$"):
                exe(x)
        else:
            np.testing.assert_array_equal(exe(x), x)
    assert exe.specialisations == 0
    with refused(shlo_jit.VerifyError, "assertion", (6, 3), shows="1 are too few"):
        exe(np.ones(1, np.float32))


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32)
