"""Numba functions of arrays as kernels of a program."""

from __future__ import annotations

import numpy as np
import pytest
from one_call import call
from refusing import refused

import shlo_jit
from shlo_jit.errors import ExecutionError, UnsupportedError

pytest.importorskip("numba")

X, Y = np.arange(30, dtype=np.float32) / 7, np.arange(40, dtype=np.float32)
OUTER = call(["30xf32", "40xf32"], ["30x40xf32"])


def outer(x, y, out):
    for i in range(x.shape[0]):
        for j in range(y.shape[0]):
            out[i, j] = x[i] * y[j]


def returned(x, y):
    out = np.zeros((x.shape[0], y.shape[0]), x.dtype)
    for i in range(x.shape[0]):
        out[i] = x[i] * y
    if x[0] > 3:
        raise ValueError("too large")
    return out


def compiled(text, function, **options):
    return shlo_jit.compile(text, custom_calls={"f": shlo_jit.array_function(function)}, **options)


@pytest.mark.parametrize("function", [outer, returned])
def test_results_are_written_or_returned(function):
    exe = compiled(OUTER, function)
    np.testing.assert_array_equal(exe(X, Y), np.outer(X, Y))
    assert f"machine code of {function.__name__} (test_arrays.py:" in exe.text("schedule")


def test_memory_is_freed():
    exe = compiled(OUTER, returned)

    def kilobytes() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4

    for _ in range(1000):
        exe(X, Y)
    before = kilobytes()
    for _ in range(20_000):
        exe(X, Y)
    assert kilobytes() - before < 10_000  # each call allocates 4.8 KB


def test_exceptions_name_the_call_and_the_line():
    exe = compiled(OUTER, returned)
    with pytest.raises(ExecutionError, match=r"'f' \(line 2.*ValueError: too large.*test_arrays"):
        exe(X + 10, Y)
    np.testing.assert_array_equal(exe(X, Y), np.outer(X, Y))


def test_bounds_are_checked_as_in_numba():
    def beyond(x, out):
        for i in range(x.shape[0]):
            out[i] = x[-1 - i]

    exe = compiled(call(["5xf64"], ["5xf64"]), beyond)
    np.testing.assert_array_equal(exe(np.arange(5.0)), np.arange(5.0)[::-1])


def test_results_of_another_shape_are_refused_when_they_come():
    def shorter(x):
        return x[:3].copy()

    exe = compiled(call(["5xf64"], ["5xf64"]), shorter)
    with pytest.raises(ExecutionError, match="another shape"):
        exe(np.arange(5.0))


def test_results_of_another_type_are_refused():
    with refused(UnsupportedError, "result-mismatch", (2, 8), shows="float64"):
        compiled(call(["5xf64"], ["5xf32"]), lambda x: x + 1)


def test_several_results():
    def both(x, low, high):
        low[0], high[0] = x.min(), x.max()

    exe = compiled(call(["2x3xi32"], ["1xi32", "1xi32"]), both)
    low, high = exe(np.array([[3, 1, 2], [9, -4, 0]], np.int32))
    assert (low[0], high[0]) == (-4, 9)


def test_attributes_are_parameters():
    def power(x, out, factor, offset=1.0):
        out[...] = x * factor + offset

    exe = compiled(call(["3xf64"], ["3xf64"], "{backend_config = {factor = 3 : i64}, api_version = 4 : i32}"), power)
    np.testing.assert_array_equal(exe(np.arange(3.0)), [1, 4, 7])
    with refused(UnsupportedError, "argument-mismatch", (2, 8), shows="factor"):
        compiled(call(["3xf64"], ["3xf64"]), power)


@pytest.mark.parametrize("dtype", ["i1", "i8", "ui16", "i64", "complex<f32>", "f64"])
def test_types(dtype):
    def reverse(x, out):
        out[:] = x[::-1]

    exe = compiled(call([f"4x{dtype}"], [f"4x{dtype}"]), reverse)
    x = np.array([0, 1, 1, 0]).astype(
        exe.inputs[0].dtype.numpy if hasattr(exe.inputs[0].dtype, "numpy") else exe.inputs[0].dtype
    )
    np.testing.assert_array_equal(exe(x), x[::-1])


def test_types_that_numba_does_not_have():
    with refused(UnsupportedError, "numba-type", (2, 8), shows="bf16"):
        compiled(call(["4xbf16"], ["4xbf16"]), lambda x, out: None)


def test_what_numba_refuses_names_the_function():
    def wrong(x, out):
        out[:] = x.no_such_thing

    with refused(UnsupportedError, "numba-rejects", (2, 8), shows="wrong (test_arrays.py:"):
        compiled(call(["4xf32"], ["4xf32"]), wrong)


def test_calls_of_python_are_refused_by_name():
    import numba

    def bounded(x, out):
        with numba.objmode():
            print(x)
        out[:] = x

    with refused(UnsupportedError, ("numba-fails", "unknown-callee"), (2, 8)):
        compiled(call(["4xf32"], ["4xf32"]), bounded)


def test_addresses_of_this_process_are_refused():
    import ctypes

    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(ctypes.CDLL("libm.so.6").cbrt)

    def roots(x, out):
        out[0] = function(x[0])

    with refused(UnsupportedError, ("refers-to-process", "numba-rejects"), (2, 8)):
        compiled(call(["4xf64"], ["4xf64"]), roots)


def test_divisions_that_cannot_be_done_do_not_end_the_process():
    def divided(x, y, out):
        for i in range(x.shape[0]):
            out[i] = x[i] // y[i] + x[i] % y[i]

    exe = compiled(call(["4xi64"] * 2, ["4xi64"]), divided)
    x, y = np.array([1, -(2**63), 5, -7]), np.array([0, -1, 2, 2])
    np.testing.assert_array_equal(exe(x, y), [0, 0, 3, -3])


def test_threads_call_it_at_once():
    from concurrent.futures import ThreadPoolExecutor

    exe = compiled(OUTER, returned)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda k: exe(X, Y + k), range(40)):
            assert found.shape == (30, 40)
