"""A host's view after Ctrl-C: calls that succeed, results that are deleted, and an exception in Python."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from plugin_host import ADD, Host, Refused, address, numbers, record

from shlo_jit.pjrt.code.python import PYTHON, TRIES

LOOP = b"""
func.func @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %n: tensor<i64>) -> (tensor<4xf32>, tensor<i64>) {
  %one = stablehlo.constant dense<1> : tensor<i64>
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i64>, tensor<4xf32>
  cond {
    %p = stablehlo.compare LT, %i, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i64>
    %b = stablehlo.cosine %a : tensor<4xf32>
    stablehlo.return %j, %b : tensor<i64>, tensor<4xf32>
  }
  return %r#1, %r#0 : tensor<4xf32>, tensor<i64>
}
"""


@contextmanager
def interrupted(seconds: float = 0.3) -> Iterator[None]:
    thread = threading.Thread(target=lambda: (time.sleep(seconds), os.kill(os.getpid(), signal.SIGINT)))
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.usefixtures("ctrl_c")
def test_results_of_an_interrupted_program_are_deleted(host: Host) -> None:
    loaded = host.compile(LOOP)
    x, n = host.put(np.ones(4, np.float32)), host.put(np.array(2**62))
    made = numbers([0, 0])
    row = numbers([x, n])
    lists = {"argument_lists": numbers([address(row)]), "output_lists": numbers([address(made)])}
    with interrupted(), pytest.raises(KeyboardInterrupt):
        host.call(
            "LoadedExecutable_Execute", executable=loaded, options=record("ExecuteOptions"), num_devices=1, num_args=2, **lists
        )  # fmt: skip
    assert made.all()
    for buffer in made.tolist():
        assert host.call("Buffer_IsDeleted", buffer=buffer).is_deleted
        with pytest.raises(Refused, match="array .*deleted"):
            host.get(buffer)
        with pytest.raises(Refused, match="argument .*deleted"):
            host.run(loaded, [buffer, n], results=2)
    assert host.call("Buffer_IsDeleted", buffer=x).is_deleted  # it was donated
    y, n2 = host.put(np.zeros(4, np.float32)), host.put(np.array(1))
    [[a, b]] = host.run(loaded, [y, n2], results=2)
    np.testing.assert_array_equal(host.get(a), np.ones(4))
    assert host.get(b) == 1
    host.destroy(x, n, y, n2, a, b, *made.tolist())
    host.call("LoadedExecutable_Destroy", executable=loaded)


@contextmanager
def replaced(host: Host, name: str, handler: Callable[[Any], None]) -> Iterator[None]:
    """Replaces a Python function of the interface by another one."""
    functions = host.plugin.table._functions
    place = PYTHON.index(name)
    before = functions[place]
    functions[place] = host.plugin.table.function(handler, name)
    try:
        yield
    finally:
        functions[place] = before


def test_short_calls_are_made_again(host: Host) -> None:
    """The host receives its result, and Python one exception afterwards."""
    calls: list[int] = []

    def process_index(args: Any) -> None:
        calls.append(1)
        if len(calls) < 3:
            raise KeyboardInterrupt
        args.process_index = 77

    args = record("Client_ProcessIndex", client=host.client)
    with replaced(host, "Client_ProcessIndex", process_index), pytest.raises(KeyboardInterrupt):
        host.functions["Client_ProcessIndex"](ctypes.addressof(args))
    assert (args.process_index, len(calls)) == (77, 3)


def test_calls_that_are_always_interrupted_are_an_error(host: Host) -> None:
    calls: list[int] = []

    def process_index(args: Any) -> None:
        calls.append(1)
        raise KeyboardInterrupt

    with replaced(host, "Client_ProcessIndex", process_index), pytest.raises(KeyboardInterrupt):
        host.call("Client_ProcessIndex", client=host.client)
    assert len(calls) == TRIES


def test_a_compilation_that_is_interrupted_is_not_made_again(host: Host) -> None:
    calls: list[int] = []

    def compile(args: Any) -> None:
        calls.append(1)
        raise KeyboardInterrupt

    with replaced(host, "Client_Compile", compile), pytest.raises(KeyboardInterrupt):
        host.compile(ADD)
    assert len(calls) == 1
    host.call("LoadedExecutable_Destroy", executable=host.compile(ADD))
