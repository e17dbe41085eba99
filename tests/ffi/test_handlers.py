"""Calls of handlers: errors, versions, stages and their states, memory, threads, futures."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ffi_programs import X, call, capsule, compiled, program, simple

import shlo_jit
from shlo_jit.errors import ExecutionError


# ---------------------------------------------------------------------- errors
def test_an_error_names_target_line_stage_code_and_message(handlers: ctypes.CDLL) -> None:
    exe = simple(handlers, "fail_above", "limit = 5.0 : f32")
    expected = r"'fail_above' \(line 2\).*execute: OUT_OF_RANGE: element 3 is too large$"
    for _ in range(3):
        with pytest.raises(ExecutionError, match=expected):
            exe(X * 2)
        np.testing.assert_array_equal(exe(X), X)


@pytest.mark.parametrize(
    ("target", "config", "message"),
    [
        (
            "affine",
            "scale = 2.0 : f32",
            r"INVALID_ARGUMENT: \[execute\] Wrong number of attributes: expected 3 but got 1",
        ),
        ("fail_above", "limits = 5.0 : f32", "Attribute name mismatch: limits vs limit"),
        ("fail_above", "limit = 5.0 : f64", "Wrong scalar data type"),
        ("row_sums", "", "Wrong buffer rank: expected 2 but got 1"),
    ],
)
def test_calls_that_do_not_fit_the_handler(handlers: ctypes.CDLL, target: str, config: str, message: str) -> None:
    with pytest.raises(ExecutionError, match=message):
        simple(handlers, target, config)(X)


def test_errors_of_threads_are_their_own(handlers: ctypes.CDLL) -> None:
    exe = simple(handlers, "fail_above", "limit = 0.0 : f32")

    def work(k: int) -> None:
        x = np.zeros(4, np.float32)
        x[k] = 1
        for _ in range(200):
            with pytest.raises(ExecutionError, match=f"element {k} is"):
                exe(x)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


@pytest.mark.parametrize(
    ("target", "message"),
    [("throws", "thrown on purpose"), ("throws_number", "an exception that is not a std::exception")],
)
def test_exceptions_of_cpp_are_errors(throwing: ctypes.CDLL, target: str, message: str) -> None:
    exe = simple(throwing, target)
    for _ in range(3):
        with pytest.raises(ExecutionError, match=f"execute: UNKNOWN: {message}$"):
            exe(X)


def test_exceptions_when_it_is_compiled(throwing: ctypes.CDLL) -> None:
    stages = {"instantiate": throwing.throws_at_first, "execute": throwing.increment}
    with pytest.raises(ExecutionError, match="instantiate: UNKNOWN: thrown at first"):
        compiled(program(call("f")), {"f": stages})


def test_exceptions_in_threads(throwing: ctypes.CDLL) -> None:
    exe = simple(throwing, "throws")

    def work() -> None:
        for _ in range(100):
            with pytest.raises(ExecutionError, match="thrown on purpose"):
                exe(X)

    in_threads([work] * 4)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("of_another_version", "its handler is for version 0.6; expected version 0.0 to 0.5 of XLA's FFI"),
        ("of_no_version", "its handler does not say its version; expected version 0.0 to 0.5"),
        ("fails_to_say", "failed in its stage execute: FAILED_PRECONDITION: not here"),
    ],
)
def test_versions_that_do_not_fit(handlers: ctypes.CDLL, target: str, message: str) -> None:
    with pytest.raises(ExecutionError, match=rf"custom call '{target}' \(line 2\):? {message}"):
        simple(handlers, target)


def test_functions_of_version_0_5(handlers: ctypes.CDLL) -> None:
    with pytest.raises(ExecutionError, match="ABORTED: no extension, 0 options of 48 bytes, lost 15"):
        simple(handlers, "of_version_0_5")(X)


def test_what_the_table_refuses(handlers: ctypes.CDLL) -> None:
    with pytest.raises(ExecutionError) as caught:
        simple(handlers, "misuse")(X)
    said = str(caught.value).partition("ABORTED: ")[2].split("; ")
    expected = [
        "arguments of XLA_FFI_DeviceMemory_Allocate are of another version", "not a power of two", "no memory of that size",
        "not allocated, or is another call's", "no streams", "no run id", "is not registered", "has no state",
        "is not set", "",
    ]  # fmt: skip
    assert len(said) == len(expected)
    assert [e for e, s in zip(expected, said, strict=True) if e not in s] == []


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({}, "'f': .*got dict"),
        ({"prepare": 1}, "'f': .*execute, got prepare"),
        (
            {"execute": 1, "exit": 1},
            "'f': .*instantiate, prepare, initialize, execute, got 'exit'",
        ),
        (
            {"execute": len},
            "execute, got builtin_function",
        ),
        ({"execute": None}, "execute, got NoneType"),
        ({"execute": 0}, "execute, got int"),
        ({"execute": True}, "execute, got bool"),
    ],
)
def test_what_cannot_be_handlers(target: Any, message: str) -> None:
    for give in (
        lambda: compiled(program(call("f")), {"f": target}),
        lambda: shlo_jit.register_custom_call("f", target),
    ):
        with pytest.raises(TypeError, match=message):
            give()


def test_handlers_are_for_calls_of_their_version(handlers: ctypes.CDLL) -> None:
    text = program(call("f")).replace("api_version = 4", "api_version = 2")
    with pytest.raises(ExecutionError, match=r"'f' \(line 2\).*version 4 .*version 2"):
        compiled(text, {"f": {"execute": handlers.increment}})


# ---------------------------------------------------------------------- states
@pytest.fixture(scope="module")
def counter(handlers: ctypes.CDLL) -> dict[str, Any]:
    """Handlers that count the calls of an instance."""
    handlers.counters_alive.restype = ctypes.c_int64
    for name in ("counter_id", "counter_info", "other_id"):
        getattr(handlers, name).restype = ctypes.c_void_p
    registration = {"type_id": capsule(handlers.counter_id()), "type_info": capsule(handlers.counter_info())}
    for _ in range(2):
        shlo_jit.register_ffi_type("tests.counter", registration)
    shlo_jit.register_ffi_type("tests.other", {"type_id": capsule(handlers.other_id())})
    return {"instantiate": capsule(handlers.counter_instantiate), "execute": capsule(handlers.counter_execute)}


def counting(config: str = "start = 5 : i64", result: str = "%r") -> str:
    return call("count", config, "", "() -> tensor<i64>", ", has_side_effect = true", result)


def test_a_state_is_kept_by_call_and_freed_with_the_executable(handlers: ctypes.CDLL, counter: dict[str, Any]) -> None:
    gc.collect()
    before = handlers.counters_alive()
    text = program(
        counting(result="%a") + counting("start = 100 : i64", "%b"), "", "tensor<i64>, tensor<i64>", "%a, %b"
    )
    one, two = (compiled(text, {"count": counter}) for _ in range(2))
    assert handlers.counters_alive() == before + 4
    assert [tuple(map(int, one())) for _ in range(3)] == [(6, 101), (7, 102), (8, 103)]
    assert tuple(map(int, two())) == (6, 101)
    del one
    gc.collect()
    assert handlers.counters_alive() == before + 2
    del two
    gc.collect()
    assert handlers.counters_alive() == before


def test_instantiate_refuses_when_it_is_compiled(handlers: ctypes.CDLL, counter: dict[str, Any]) -> None:
    text = program(counting("start = -1 : i64"), "", "tensor<i64>")
    with pytest.raises(ExecutionError, match="instantiate: INVALID_ARGUMENT: a counter below 0"):
        compiled(text, {"count": counter})


def test_a_state_that_is_missing_or_of_another_type(handlers: ctypes.CDLL, counter: dict[str, Any]) -> None:
    text = program(counting(), "", "tensor<i64>")
    with pytest.raises(ExecutionError, match="state.*not set"):
        compiled(text, {"count": counter["execute"]})()
    with pytest.raises(ExecutionError, match="state.*another type"):
        compiled(text, {"count": {**counter, "execute": handlers.counter_of_another_type}})()


def test_stages_in_their_order(handlers: ctypes.CDLL, counter: dict[str, Any]) -> None:
    """States of `prepare` and `initialize` belong to the call."""
    staged = {name: getattr(handlers, f"staged_{name}") for name in ("prepare", "initialize", "execute")}
    before = handlers.counters_alive()
    exe = compiled(program(counting(), "", "tensor<i64>"), {"count": {"instantiate": counter["instantiate"], **staged}})
    assert [int(exe()) for _ in range(3)] == [6221, 7221, 8221]
    assert handlers.counters_alive() == before + 1
    failing = compiled(program(call("f")), {"f": {"prepare": handlers.cannot_prepare, "execute": handlers.increment}})
    with pytest.raises(ExecutionError, match="prepare: UNAVAILABLE: nothing is ready"):
        failing(X)


def test_types_are_registered_once(handlers: ctypes.CDLL, counter: dict[str, Any]) -> None:
    register = shlo_jit.register_ffi_type
    own = {"type_id": capsule(handlers.counter_id())}
    with pytest.raises(ValueError, match="'tests.counter'.*already"):
        register("tests.counter", own)
    with pytest.raises(ValueError, match="'tests.third'.*number.*'tests.counter'"):
        register("tests.third", own)
    for wrong in ({}, {"type_info": 1}, {"type_id": capsule(handlers.counter_id()), "more": 1}, [1]):
        with pytest.raises(TypeError, match="type_id and type_info"):
            register("tests.third", wrong)
    with pytest.raises(TypeError, match="type_id.*got str"):
        register("tests.third", {"type_id": "no"})
    with pytest.raises(TypeError, match="name, got 3"):
        register(3, own)


def test_types_by_the_table(handlers: ctypes.CDLL) -> None:
    with pytest.raises(ExecutionError, match="INVALID_ARGUMENT: .*'from the table'.*already"):
        simple(handlers, "registers_type")(X)


# ---------------------------------------------------------------------- memory, threads, futures
@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_scratch_memory(handlers: ctypes.CDLL, alignment: int) -> None:
    exe = simple(handlers, "reverse", f"alignment = {alignment} : i64")
    np.testing.assert_array_equal(exe(X), X[::-1])


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_memory_that_a_handler_leaves_is_freed(handlers: ctypes.CDLL) -> None:
    exe = simple(handlers, "leaves_memory")
    exe(X)
    before = resident_bytes()
    for _ in range(100):  # each leaks 4 MiB
        exe(X)
    assert resident_bytes() - before < 64 << 20


def test_errors_and_futures_are_freed(handlers: ctypes.CDLL) -> None:
    fails = simple(handlers, "fail_above", "limit = 0.0 : f32")
    future = simple(handlers, "later", "code = 0 : i64, milliseconds = 0 : i64")
    refused = simple(handlers, "later", "code = 9 : i64, milliseconds = 0 : i64")

    def round_of_calls() -> None:
        for _ in range(500):
            future(X)
            for exe in (fails, refused):
                with pytest.raises(ExecutionError):
                    exe(X)

    round_of_calls()
    before = resident_bytes()
    for _ in range(10):  # each has at least some 60 bytes
        round_of_calls()
    assert resident_bytes() - before < 256 << 10


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_thread_pool(handlers: ctypes.CDLL, threads: int) -> None:
    exe = simple(handlers, "pooled", threads=threads)
    for _ in range(100):
        np.testing.assert_array_equal(exe(X), X + 1)


def rally(handlers: ctypes.CDLL, tasks: int, seconds: int, threads: int) -> Any:
    config = f"tasks = {tasks} : i64, seconds = {seconds} : i64"
    text = program(call("rally", config, "", "() -> tensor<i64>"), "", "tensor<i64>")
    return compiled(text, {"rally": handlers.rally}, threads=threads)


@pytest.mark.parametrize("threads", [2, 5])
def test_tasks_run_at_the_same_time(handlers: ctypes.CDLL, threads: int) -> None:
    exe = rally(handlers, threads, 30, threads)
    for _ in range(20):
        assert exe() == threads


def test_tasks_of_one_thread_run_one_by_one(handlers: ctypes.CDLL) -> None:
    with pytest.raises(ExecutionError, match="DEADLINE_EXCEEDED: they did not meet"):
        rally(handlers, 2, 1, 1)()
    assert rally(handlers, 1, 30, 1)() == 1


def test_tasks_of_several_callers(handlers: ctypes.CDLL) -> None:
    exe = simple(handlers, "pooled", threads=3)

    def work() -> None:
        for _ in range(100):
            np.testing.assert_array_equal(exe(X), X + 1)

    in_threads([work] * 4)


def test_tasks_after_a_fork(handlers: ctypes.CDLL) -> None:
    exe = rally(handlers, 2, 30, 2)
    assert exe() == 2
    child = os.fork()
    if not child:
        try:
            os._exit(0 if exe() == 2 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert exe() == 2


@pytest.mark.parametrize("milliseconds", [0, 50])
def test_futures_are_awaited(handlers: ctypes.CDLL, milliseconds: int) -> None:
    exe = simple(handlers, "later", f"code = 0 : i64, milliseconds = {milliseconds} : i64")
    for _ in range(20 if milliseconds == 0 else 2):
        np.testing.assert_array_equal(exe(X), X + 1)
    failing = simple(handlers, "later", f"code = 14 : i64, milliseconds = {milliseconds} : i64")
    with pytest.raises(ExecutionError, match="execute: UNAVAILABLE: it was not to be"):
        failing(X)


# ---------------------------------------------------------------------- positions of calls
LOOP = """func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %a = func.call @step(%v) : (tensor<4xf32>) -> tensor<4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %a : tensor<i32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}
func.func private @step(%v: tensor<4xf32>) -> tensor<4xf32> {
  %s = stablehlo.custom_call @f(%v) {api_version = 4 : i32} : (tensor<4xf32>) -> tensor<4xf32>
  return %s : tensor<4xf32>
}
"""


def test_shapes_of_the_call(handlers: ctypes.CDLL) -> None:
    """A program with unknown dimensions, for the shapes of each call."""
    body = "  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>\n"
    body += "  %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>\n"
    types = "(tensor<?xf32>, tensor<1xi32>) -> tensor<?xf32>"
    shape = ", indices_of_shape_operands = dense<1> : tensor<1xi64>"
    body += call("increment", operands="%x, %s", types=types, more=shape)
    text = program(body, "%x: tensor<?xf32>", "tensor<?xf32>")
    for options in ({}, {"dynamic": "symbolic"}):
        exe = compiled(text, {"increment": handlers.increment}, **options)
        for n in (1, 3, 1000):
            np.testing.assert_array_equal(exe(np.arange(n, dtype=np.float32)), np.arange(1, n + 1))


def test_in_loops_and_functions(handlers: ctypes.CDLL) -> None:
    exe = compiled(LOOP, {"f": handlers.increment})
    np.testing.assert_array_equal(exe(X, np.int32(1000)), X + 1000)
    np.testing.assert_array_equal(exe(X, np.int32(0)), X)


def test_an_error_ends_a_loop(handlers: ctypes.CDLL) -> None:
    text = LOOP.replace("api_version = 4 : i32", "api_version = 4 : i32, backend_config = {limit = 2.0 : f32}")
    with pytest.raises(ExecutionError, match=r"'f' \(line 16\).*element 3 is too large"):
        compiled(text, {"f": handlers.fail_above})(X, np.int32(10))


def test_beside_python_callables(handlers: ctypes.CDLL) -> None:
    body = call("f", result="%a") + call("g", operands="%a", result="%b") + call("f", operands="%b")
    text = program(body)
    np.testing.assert_array_equal(compiled(text, {"f": handlers.increment, "g": lambda x: x * 2})(X), (X + 1) * 2 + 1)

    def fail(x: np.ndarray) -> np.ndarray:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        compiled(text, {"f": handlers.increment, "g": fail})(X)


def test_composites(handlers: ctypes.CDLL) -> None:
    """They are called like custom calls of version 4."""
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.composite "my.op" %x {decomposition = @body, composite_attributes = {limit = 2.0 : f32}} : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func private @body(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"""
    exe = shlo_jit.compile(text, composites={"my.op": handlers.fail_above})
    np.testing.assert_array_equal(exe(X / 2), X / 2)
    with pytest.raises(ExecutionError, match="element 3 is too large"):
        exe(X)


def in_threads(functions: list[Callable[[], Any]]) -> list[Any]:
    """Returns the results of functions, each called in a separate thread."""
    with ThreadPoolExecutor(len(functions)) as pool:
        return [future.result() for future in [pool.submit(f) for f in functions]]


def test_two_threads_are_in_one_call_at_once(handlers: ctypes.CDLL) -> None:
    """Each has separate buffers, and neither holds Python's lock."""
    exe = simple(handlers, "meet")
    for result in in_threads([lambda: exe(X), lambda: exe(X)]):
        np.testing.assert_array_equal(result, X + 1)


def test_many_threads(handlers: ctypes.CDLL) -> None:
    exe = compiled(LOOP, {"f": handlers.increment})

    def work(k: int) -> None:
        for n in range(50):
            np.testing.assert_array_equal(exe(X * k, np.int32(n)), X * k + n)

    in_threads([lambda k=k: work(k) for k in range(6)])


def test_python_runs_while_a_handler_does(handlers: ctypes.CDLL) -> None:
    """The lock is free: this thread counts while the other is in a handler."""
    exe = simple(handlers, "later", "code = 0 : i64, milliseconds = 300 : i64")
    thread = threading.Thread(target=exe, args=(X,))
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
    thread.join()
    assert turns > 1000


def test_from_the_object_cache(handlers_path: Path, tmp_path: Path) -> None:
    """Another process finds the program, with its types and attributes, and imports no stage of the compiler."""
    text = program(call("affine", 'scale = 2.0 : f32, shift = array<f64: 1.0>, how = "plus"'))
    code = f"""if True:
        import ctypes, sys, numpy as np, shlo_jit
        lib = ctypes.CDLL({str(handlers_path)!r})
        exe = shlo_jit.compile({text!r}, custom_calls={{"affine": lib.affine}})
        print(exe(np.ones(4, np.float32)).tolist(), "shlo_jit.lower.program" in sys.modules)
    """
    lines = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], env={"SHLO_JIT_CACHE_DIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        lines.append(done.stdout.strip())
    assert lines == ["[3.0, 3.0, 3.0, 3.0] True", "[3.0, 3.0, 3.0, 3.0] False"]


def test_the_number_of_the_process(handlers: ctypes.CDLL) -> None:
    text = program(call("ordinal", operands="", types="() -> tensor<i32>"), "", "tensor<i32>")
    assert compiled(text, {"ordinal": handlers.ordinal})() == 0
    exe = compiled(text, {"ordinal": handlers.ordinal}, num_replicas=3, transport="threads")
    assert list(map(int, exe([(), (), ()]))) == [0, 1, 2]


def test_worker_processes_know_no_addresses(handlers: ctypes.CDLL) -> None:
    address = ctypes.cast(handlers.increment, ctypes.c_void_p).value
    for target in (address, {"execute": address}):
        with pytest.raises(TypeError, match="'f'.*address"):
            compiled(program(call("f")), {"f": target}, num_replicas=2, transport="processes")
