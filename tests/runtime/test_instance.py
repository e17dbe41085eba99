"""A loaded program that is run with pointers, without the NumPy front."""

from __future__ import annotations

import ctypes
import dataclasses

import numpy as np
import pytest
from programs import TARGET, arena_sum, binary, callback

import shlo_jit
from shlo_jit.codegen import abi
from shlo_jit.codegen.program import Program
from shlo_jit.errors import ExecutionError
from shlo_jit.runtime.build import build
from shlo_jit.runtime.callbacks import TRAMPOLINE
from shlo_jit.runtime.fastcall import call_library
from shlo_jit.runtime.instance import Instance
from shlo_jit.runtime.loaded import Loaded
from shlo_jit.schedule.scratch import ScratchBytes

X = np.arange(4, dtype=np.float32)
CALLS = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @first(%x) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.custom_call @second(%0) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
"""


def loaded(program: Program) -> Loaded:
    return build(program, TARGET, cache=False, custom_calls={"f": lambda x, y: x})._front.instance.loaded


def instance(program: Loaded, threads: int = 1, **options) -> Instance:
    return Instance(program, call_library(TARGET, None), threads, **options)


def pointers(*arrays: np.ndarray):
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))


def test_instances_share_code_and_have_threads_and_arenas_of_their_own() -> None:
    program = loaded(arena_sum(4, 4096))
    program.program = dataclasses.replace(program.program, scratch=(ScratchBytes(64, 128),))
    first, second = instance(program, 1), instance(program, 3, rank=2, communicator=0x1000)
    assert (first.arena_bytes, second.arena_bytes) == (4096 + 192, 4096 + 448)
    assert (first.record.threads, second.record.threads) == (1, 3)
    assert (first.record.rank, first.record.communicator) == (0, None)
    assert (second.record.rank, second.record.communicator) == (2, 0x1000)
    for each in (first, second):
        z = np.empty_like(X)
        assert each.run(pointers(X), pointers(z)) == abi.Status.OK
        np.testing.assert_array_equal(z, X + 1)
    assert ctypes.addressof(first._arenas[0]) != ctypes.addressof(second._arenas[0])


def test_arrays_are_not_touched_by_the_front() -> None:
    x = np.stack([X, X], axis=1)[:, 0].copy()
    z = np.empty_like(x)
    assert instance(loaded(binary(4))).run(pointers(x, x), pointers(z)) == abi.Status.OK
    np.testing.assert_array_equal(z, x + x)


def test_the_error_record_tells_which_call_failed() -> None:
    def fails(x: np.ndarray) -> np.ndarray:
        raise KeyError("mine")

    exe = shlo_jit.compile(CALLS, custom_calls={"first": lambda x: x, "second": fails})
    record = exe._front.instance.record
    assert (record.error_status, record.error_call) == (abi.Status.OK, abi.NO_CALL)
    with pytest.raises(KeyError, match="mine"):
        exe(X)
    assert (record.error_status, record.error_call) == (abi.Status.CALL_FAILED, 1)


def test_failures_of_another_host_s_calls() -> None:
    """The record's callback raises no exception."""
    exe = shlo_jit.compile(CALLS, custom_calls={"first": lambda x: x, "second": lambda x: x})
    host = exe._front.instance
    answers = iter([0, abi.Status.CALL_FAILED, 77])
    replaced = TRAMPOLINE(lambda handle, number, operands, results: next(answers))
    host.record.callback = ctypes.cast(replaced, ctypes.c_void_p).value
    with pytest.raises(ExecutionError, match="'second' failed$"):
        exe(X)
    with pytest.raises(ExecutionError, match="status 77$"):
        exe(X)


def test_interrupted_is_a_status() -> None:
    """It is the status that `pause` returns; hosts without signal handlers have one that returns OK."""
    text = """func.func @main(%x: tensor<i32>) -> tensor<i32> {
      %0 = stablehlo.while(%i = %x) : tensor<i32>
      cond {
        %n = stablehlo.constant dense<100000000> : tensor<i32>
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %next = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %next : tensor<i32>
      }
      return %0 : tensor<i32>
    }"""
    host = shlo_jit.compile(text)._front.instance
    pause = ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: abi.Status.INTERRUPTED)
    host.record.pause = ctypes.cast(pause, ctypes.c_void_p).value
    z = np.zeros((), np.int32)
    assert host.run(pointers(np.zeros((), np.int32)), pointers(z)) == abi.Status.INTERRUPTED
    assert (host.record.error_status, host.record.error_call) == (abi.Status.INTERRUPTED, abi.NO_CALL)
    assert "interrupted" in str(host.failure(abi.Status.INTERRUPTED))


def test_callbacks_are_each_instance_s_own() -> None:
    program = loaded(callback())
    plus, minus = (instance(program, custom_calls={"f": f}) for f in (np.add, np.subtract))
    z = np.empty_like(X)
    for each, expected in ((plus, X + X), (minus, X - X)):
        assert each.run(pointers(X, X), pointers(z)) == abi.Status.OK
        np.testing.assert_array_equal(z, expected)
    with pytest.raises(ExecutionError, match="'f'.*registered"):
        instance(program)


def test_random_state_is_each_instance_s_own() -> None:
    text = """func.func @main(%a: tensor<f32>, %b: tensor<f32>) -> tensor<4xf32> {
      %shape = stablehlo.constant dense<4> : tensor<1xi64>
      %0 = stablehlo.rng %a, %b, %shape, distribution = UNIFORM
        : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    bounds = np.zeros((), np.float32), np.ones((), np.float32)
    exe = shlo_jit.compile(text)
    drawn = [exe(*bounds) for _ in range(3)]
    for _ in range(2):
        z, another = np.empty_like(X), instance(exe._front.instance.loaded)
        for numbers in drawn:
            assert another.run(pointers(*bounds), pointers(z)) == abi.Status.OK
            np.testing.assert_array_equal(z, numbers)
        assert another.record.draws == 3
