"""Tests of sorting by partition and networks, on arrays between guards."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest
from jit_util import compile_text
from loader import routine_text

from shlo_jit.codegen.target import resolve, target_machine
from shlo_jit.kernels import quicksort
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.kernels.sort import SLACK

pytestmark = pytest.mark.skipif(not quicksort.has_quicksort(resolve(), 32), reason="lanes cannot be packed here")

Sort = Callable[[np.ndarray], np.ndarray]


def compiled(bits: int) -> Sort:
    target = resolve()
    quicksort.quicksort_routine.cache_clear()
    module, _ = compile_text(routine_text(quicksort.quicksort_routine(bits, target), target))
    engine = llvm.create_mcjit_compiler(module, target_machine(target))
    engine.finalize_object()
    address = engine.get_function_address(f"quicksort{bits}")
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)

    def run(x: np.ndarray) -> np.ndarray:
        """Returns x sorted; asserts that the memory around the arrays is unchanged."""
        assert engine
        guard = SLACK // x.itemsize
        array, other = (np.full(x.size + 2 * guard, 0xA5, x.dtype) for _ in range(2))
        array[guard : guard + x.size] = x
        function(array[guard:].ctypes.data, other[guard:].ctypes.data, x.size)
        for one in (array, other):
            assert (one[:guard] == 0xA5).all() and (one[guard + x.size :] == 0xA5).all()
        return array[guard : guard + x.size]

    return run


@pytest.fixture(params=[32, 64])
def bits(request: pytest.FixtureRequest) -> int:
    if not quicksort.has_quicksort(resolve(), request.param):
        pytest.skip("lanes of this width cannot be packed here")
    return request.param


def arrays(bits: int, n: int) -> dict[str, np.ndarray]:
    rng, dtype = np.random.default_rng(n), f"u{bits // 8}"
    top = 2**bits - 1
    found = {
        "any": rng.integers(0, top, n, dtype, endpoint=True),
        "few": rng.integers(0, 3, n).astype(dtype) * np.asarray(top // 2, dtype),
        "rising": np.arange(n, dtype=dtype),
        "falling": np.arange(n, dtype=dtype)[::-1].copy(),
        "pipe": np.minimum(np.arange(n), np.arange(n)[::-1]).astype(dtype),
        "least": np.zeros(n, dtype),
        "most": np.full(n, top, dtype),
    }
    found["mostly one"] = np.where(rng.random(n) < 0.95, np.asarray(top, dtype), found["any"])
    return found


def test_sorts(bits: int) -> None:
    run = compiled(bits)
    for n in (*range(70), 127, 128, 129, 255, 256, 257, 1000, 4099, 100_003):
        for name, x in arrays(bits, n).items():
            np.testing.assert_array_equal(run(x), np.sort(x), f"{name}, {n}")


def test_after_too_many_bad_cuts_digits_are_sorted(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for levels in (0, 1, 2):
        monkeypatch.setattr(quicksort._Kind, "levels", lambda self, b, n, levels=levels: i64(levels))
        run = compiled(bits)
        for n in (100, 1000, 4099):
            for name, x in arrays(bits, n).items():
                np.testing.assert_array_equal(run(x), np.sort(x), f"{name}, {n}")


def test_the_number_of_levels_is_bounded(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recursion is no deeper than the levels, even if pivots are always the smallest element."""

    def smallest(self: quicksort._Kind, b: Builder, array: V, n: V) -> V:
        return b.load(self.element, array)

    monkeypatch.setattr(quicksort._Kind, "pivot", smallest)
    x = np.arange(300_000, dtype=f"u{bits // 8}")
    np.testing.assert_array_equal(compiled(bits)(x), x)
