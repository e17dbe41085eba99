"""Calls of code for any size: what it does to its arena while other threads call it."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

import shlo_jit
from shlo_jit.runtime import pool
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
    """A call that begins while a larger one makes the arena grow must not bring back the smaller arena afterwards."""
    plain_lease, plain_take = pool.lease, Instance.take_arena
    called, grown = threading.Event(), threading.Event()
    arenas: dict[int, int] = {}
    larger: list[int] = []

    def lease(nbytes: int) -> Any:
        if threading.current_thread() is other:  # its result, in the midst of the call
            called.set()
            assert grown.wait(60)
        return plain_lease(nbytes)

    def take_arena(self: Instance, nbytes: int) -> Any:
        arena = plain_take(self, nbytes)
        arenas[ctypes.addressof(arena)] = len(arena)
        if threading.current_thread() is not other:
            larger.append(nbytes)
            if len(larger) == 2:  # the first is for the large call itself
                other.start()
                assert called.wait(60)
        return arena

    monkeypatch.setattr(pool, "lease", lease)
    other = threading.Thread(target=lambda: exe(rows(600)))
    exe = shlo_jit.compile(SORTED_TWICE, dynamic="symbolic", threads=1, cache=False)
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


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32)
