"""Calls of programs on several processes: programs that differ, and invalid options and arguments."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
from collective_programs import Writer, arguments_of_ranks, assert_same

import shlo_jit
from shlo_jit.errors import ExecutionError

PAIR = [[0, 1]]


def pair_text(name: str = "main") -> str:
    p = Writer(name)
    p.give(*p.all_reduce([p.argument((3,), "f32")], "add", PAIR))
    return p.text()


def test_programs_of_different_numbers_of_ops_and_arguments(transport: str) -> None:
    """Three programs communicate where their groups do: one reduces twice, one with much other work, one is alone."""
    first, second, alone = Writer("first"), Writer("second"), Writer("alone")
    groups = [[0, 2], [1]]
    x = first.argument((5000,), "f32")
    (once,) = first.all_reduce([x], "add", groups)
    first.give(*first.all_reduce([first.elementwise("negate", once)], "maximum", groups))
    a, b, c = (second.argument((5000,), "f32") for _ in range(3))
    (once,) = second.all_reduce([second.elementwise("subtract", second.elementwise("add", a, b), c)], "add", groups)
    (twice,) = second.all_reduce([a], "maximum", groups)
    second.give(once, twice, b, second.id("replica"))
    alone.give(alone.id("replica"))
    text = first.text() + second.text() + alone.text()
    (own,), (p, q, r) = arguments_of_ranks(0, 1, [x])[0], arguments_of_ranks(1, 1, [a, b, c])[0]
    total = own + (p + q - r)
    programs = [["first"], ["alone"], ["second"]]
    with shlo_jit.compile(text, programs=programs, transport=transport, time_out=20.0) as exe:
        assert [len(process.inputs) for process in exe.processes] == [1, 0, 3]
        for _ in range(3):
            got = exe([(own,), (), (p, q, r)])
            assert_same(got, [[np.maximum(-total, p)], [np.uint32(1)], [total, np.maximum(-total, p), q, np.uint32(2)]])


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"num_partitions": 0}, ValueError, "num_partitions: .*0"),
        ({"num_replicas": -1}, ValueError, "num_replicas: .*-1"),
        ({"num_replicas": 2.0}, TypeError, "num_replicas: .*2.0"),
        ({"num_replicas": True}, TypeError, "num_replicas: .*True"),
        ({"programs": [["main"], ["nobody"]]}, ValueError, "nobody"),
        ({"programs": []}, TypeError, "programs: "),
        ({"programs": [["main"], ["main", "main"]]}, ValueError, "programs: "),
        ({"programs": "main"}, TypeError, "programs: "),
        ({"num_replicas": 2, "transport": "pigeons"}, ValueError, "transport: .*pigeons"),
        ({"num_replicas": 2, "time_out": 0}, ValueError, "time_out: "),
        ({"num_replicas": 2, "time_out": "long"}, TypeError, "time_out: "),
    ],
)  # fmt: skip
def test_options_that_cannot_be(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        shlo_jit.compile(pair_text(), **options)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((), TypeError, r"one sequence.*2 processes"),
        ((np.zeros(3, np.float32),), TypeError, "one sequence"),
        (([[np.zeros(3, np.float32)]],), TypeError, "2 processes, got 1"),
        (([[np.zeros(3, np.float32)], []],), TypeError, "rank 1: .*1 argument"),
        (([[np.zeros(3, np.float32)], 7],), TypeError, "rank 1: .*got int"),
        (([[np.zeros(4, np.float32)], [np.zeros(3, np.float32)]],), ValueError, r"rank 0: argument 0.*float32\[3\].*float32\[4\]"),
        (([[np.zeros(3, np.float32)], [np.zeros(3, np.complex64)]],), TypeError, "rank 1: .*complex64"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(arguments: Any, kind: type[Exception], message: str) -> None:
    x = np.ones(3, np.float32)
    with shlo_jit.compile(pair_text(), num_replicas=2, transport="threads", time_out=20.0) as exe:
        with pytest.raises(kind, match=message):
            exe(*arguments)
        assert_same(exe([[x], [x]]), [[x + x]] * 2)


def test_calls_after_the_end(transport: str) -> None:
    x = np.ones(3, np.float32)
    with shlo_jit.compile(pair_text(), num_replicas=2, transport=transport, time_out=20.0) as exe:
        kept = exe([[x], [x]])
    exe.close()
    with pytest.raises(ExecutionError, match=r"ended \(closed\)"):
        exe([[x], [x]])
    assert_same(kept, [[x + x]] * 2)


def test_calls_of_two_threads_come_one_at_a_time() -> None:
    x = np.ones(3, np.float32)
    outcomes: list[Any] = []

    def calls() -> None:
        for _ in range(300):
            try:
                outcomes.append(exe([[x], [x]])[0].tolist())
            except ExecutionError as error:
                outcomes.append(str(error))

    with shlo_jit.compile(pair_text(), num_replicas=2, transport="threads", time_out=20.0) as exe:
        callers = [threading.Thread(target=calls) for _ in range(3)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        refused = "another thread is in a call; calls of several processes run one at a time"
        assert len(outcomes) == 900
        assert [2.0, 2.0, 2.0] in outcomes
        assert all(o in ([2.0, 2.0, 2.0], refused) for o in outcomes)
        assert_same(exe([[x], [x]]), [[x + x]] * 2)


def test_a_forked_process_has_no_ranks(transport: str) -> None:
    x = np.ones(3, np.float32)
    with shlo_jit.compile(pair_text(), num_replicas=2, transport=transport, time_out=20.0) as exe:
        exe([[x], [x]])
        child = os.fork()
        if child == 0:
            code = 1
            try:
                exe([[x], [x]])
            except ExecutionError as error:
                code = 0 if "forked" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert_same(exe([[x], [x]]), [[x + x]] * 2)


def test_queues_of_every_process(transport: str) -> None:
    """Each process has a separate infeed and outfeed, and channels to the host."""
    text = """func.func @main() -> tensor<2xf32> {
      %t = stablehlo.create_token : !stablehlo.token
      %x, %u = "stablehlo.infeed"(%t) {infeed_config = ""} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
      %r = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}
        : (tensor<2xf32>) -> tensor<2xf32>
      %v = "stablehlo.outfeed"(%r, %u) {outfeed_config = ""} : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
      %y, %w = "stablehlo.recv"(%v) {channel_handle = #stablehlo.channel_handle<handle = 9, type = 3>,
        is_host_transfer = true} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
      return %y : tensor<2xf32>
    }"""
    xs = [np.array([n, -n], np.float32) for n in (1, 2, 3, 4)]
    with shlo_jit.compile(text, num_replicas=2, transport=transport, time_out=20.0) as exe:
        for process, x, y in zip(exe.processes, xs[:2], xs[2:], strict=True):
            process.infeed.put(x)
            process.channel(9).put(y)
        assert_same(exe([(), ()]), [[xs[2]], [xs[3]]])
        for process, x in zip(exe.processes, reversed(xs[:2]), strict=True):
            np.testing.assert_array_equal(process.outfeed.get(time_out=5), x)
