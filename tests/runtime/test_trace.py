"""Traces: the contents of the file, its nesting, and the error if there is nothing to write."""

from __future__ import annotations

import json
import os
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measured_programs import LAYER, LOOP, layer_arguments
from programs import TARGET, constant

import shlo_jit
from shlo_jit import tuning
from shlo_jit.lower import steps
from shlo_jit.lower.services import Services
from shlo_jit.runtime.build import build
from shlo_jit.runtime.measured import ProfileMemory
from shlo_jit.runtime.trace_events import ProcessEvents, Recording, write_trace

Event = dict[str, Any]
CALLS_OUT = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @host(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.custom_call @host(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of a trace, in a separate folder."""
    (tmp_path / "traces").mkdir()
    return tmp_path / "traces" / "t.json"


def read(path: Path) -> list[Event]:
    return json.loads(path.read_text())["traceEvents"]


def runs(path: Path) -> list[Event]:
    """Returns the runs of steps in a trace, those of each track nested."""
    found = [e for e in read(path) if e["ph"] == "X"]
    for track in {(e["pid"], e["tid"]) for e in found}:
        check_nested([e for e in found if (e["pid"], e["tid"]) == track])
    return found


def end(event: Event) -> float:
    return event["ts"] + event["dur"]


def check_nested(events: list[Event]) -> None:
    """Checks that each event begins after the one before it in the file, and is either inside or after it."""
    around: list[Event] = []
    for event in events:
        while around and end(around[-1]) <= event["ts"]:
            around.pop()
        assert not around or (around[-1]["ts"] <= event["ts"] and end(event) <= end(around[-1]))
        around.append(event)


def inside(outer: Event, events: list[Event]) -> list[Event]:
    return [e for e in events if e is not outer and outer["ts"] <= e["ts"] and end(e) <= end(outer)]


def loop_argument() -> np.ndarray:
    return np.linspace(0, 1, 64, dtype=np.float32)


def test_what_is_in_the_file(path: Path) -> None:
    exe, arguments = shlo_jit.compile(LAYER), layer_arguments()
    ordinary = exe(*arguments)
    with exe.trace(path):
        np.testing.assert_array_equal(exe(*arguments), ordinary)
    process, order, thread, call, product, row = read(path)
    assert process == {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "shlo_jit"}}
    assert order == {"ph": "M", "name": "process_sort_index", "pid": 0, "tid": 0, "args": {"sort_index": 0}}
    name = threading.current_thread().name
    assert thread == {"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "args": {"name": name}}
    heads = [(e["ph"], e["name"], e["cat"], e["pid"], e["tid"]) for e in (call, product, row)]
    assert heads == [("X", "@main", "call", 0, 1), ("X", "dot_general", "step", 0, 1), ("X", "row", "step", 0, 1)]
    assert call["args"] == {}
    given = product["args"]
    assert given["step"] == "0" and given["ops"] == "dot_general (line 2)"
    assert given["kernels"] == "shlo_gemm_f32_f32_f32"
    assert given["bytes"] == 4 * (64 * 784 + 784 * 10 + 64 * 10)
    assert given["operations"] == 2 * 64 * 784 * 10
    assert given["GB/s"] == pytest.approx(given["bytes"] / product["dur"] / 1e3, rel=0.01)
    assert given["GFLOP/s"] == pytest.approx(given["operations"] / product["dur"] / 1e3, rel=0.01)
    assert row["args"]["step"] == "1" and row["args"]["ops"].endswith("(lines 3-8)")
    assert inside(call, [call, product, row]) == [product, row]
    assert 0 < product["dur"] + row["dur"] < call["dur"]


def test_times_are_those_of_the_clock_that_python_reads(path: Path) -> None:
    exe = shlo_jit.compile(LAYER)
    with exe.trace(path):
        before = time.monotonic_ns() / 1e3
        exe(*layer_arguments())
        after = time.monotonic_ns() / 1e3
    call, *_ = runs(path)
    assert before <= call["ts"] < end(call) <= after


def test_every_iteration_of_a_loop_is_there(path: Path) -> None:
    exe = shlo_jit.compile(LOOP)
    with exe.trace(path) as trace:
        exe(loop_argument(), np.int32(7))
    found = runs(path)
    assert trace.noted == len(found) and trace.missed == 0
    (loop,) = [e for e in found if e["name"] == "while"]
    assert loop["cat"] == "control"
    turns = inside(loop, found)
    number = loop["args"]["step"]
    labels = [e["args"]["step"] for e in turns]
    assert all(label.startswith(f"{number}.") for label in labels)
    assert labels.count(f"{number}.0.0") == 8  # the condition is evaluated once more
    body = {label for label in labels if label.startswith(f"{number}.1.")}
    assert body and {labels.count(label) for label in body} == {7}
    assert sum(e["dur"] for e in turns) < loop["dur"]


def test_calls_are_one_after_the_other(path: Path) -> None:
    exe = shlo_jit.compile(LOOP)
    with exe.trace(path) as trace:
        exe(loop_argument(), np.int32(99))
        trace.reset()
        for turns in (2, 3):
            exe(loop_argument(), np.int32(turns))
    found = runs(path)
    first, second = (e for e in found if e["cat"] == "call")
    assert end(first) < second["ts"]
    steps = [sum(e["args"].get("step") == "1.0.0" for e in inside(call, found)) for call in (first, second)]
    assert steps == [3, 4]


@pytest.mark.parametrize("room", [1, 5, 25, 26, 27])
def test_the_first_events_are_kept(room: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is an event, and enclosing steps are kept before inner ones."""
    exe = shlo_jit.compile(LOOP)
    all_of_them = events_of_loop(exe, path)
    assert len(all_of_them) == 26
    monkeypatch.setattr(tuning, "TRACE_EVENTS", room)
    kept = events_of_loop(exe, path)
    assert [e["name"] for e in kept] == [e["name"] for e in all_of_them[:room]]
    missed = max(0, 26 - room)
    assert json.loads(path.read_text())["otherData"] == {"missed_events": missed}
    marks = [e for e in read(path) if e["ph"] == "i"]
    assert [e["name"] for e in marks] == ([f"{missed} more events did not fit"] if missed else [])
    assert all(e["ts"] == pytest.approx(max(map(end, kept))) for e in marks)


def events_of_loop(exe: Any, path: Path) -> list[Event]:
    with exe.trace(path) as trace:
        exe(loop_argument(), np.int32(7))
    found = runs(path)
    assert (trace.noted, trace.missed) == (len(found), 26 - len(found))
    return found


def test_threads_have_tracks(path: Path) -> None:
    exe = shlo_jit.compile(LOOP)
    done = threading.Barrier(3)

    def call() -> None:
        for _ in range(20):
            exe(loop_argument(), np.int32(50))
        done.wait(60)  # the thread exists, with its name, while the others call

    with exe.trace(path) as trace:
        threads = [threading.Thread(target=call, name=f"caller {i}") for i in range(2)]
        for t in threads:
            t.start()
        done.wait(60)
        for t in threads:
            t.join(60)
        exe(loop_argument(), np.int32(0))
    found = runs(path)
    names = {e["tid"]: e["args"]["name"] for e in read(path) if e["name"] == "thread_name"}
    assert set(names) == {e["tid"] for e in found} == {1, 2, 3}
    assert threading.current_thread().name in names.values()
    counts = sorted(sum(e["cat"] == "call" for e in found if e["tid"] == tid) for tid in names)
    assert counts == [1, 20, 20]
    turns = [e for e in found if e["args"].get("step") == "1.0.0"]
    assert len(turns) == 40 * 51 + 1 and trace.missed == 0


def test_a_call_that_fails_is_there_up_to_where_it_failed(path: Path) -> None:
    calls: list[int] = []

    def host(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        if len(calls) == 2:
            raise KeyError("second")
        return x

    exe = shlo_jit.compile(CALLS_OUT, custom_calls={"host": host})
    x = np.ones(4, np.float32)
    with pytest.raises(KeyError, match="second"), exe.trace(path):
        exe(x)
    found = runs(path)
    assert [(e["cat"], e["args"].get("step")) for e in found] == [("call", None), ("step", "0"), ("step", "1")]
    calls.clear()
    with pytest.raises(KeyError, match="second"), exe.profile() as profile:
        exe(x)
    assert [s.label for s in profile.steps] == ["0"]


@pytest.mark.parametrize("part_steps", [1, 100])
def test_loops_around_what_failed_end_with_it(part_steps: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with one step per function: the loop and its iteration are in other functions than the failing step."""
    monkeypatch.setattr(tuning, "PART_STEPS", part_steps)
    text = LOOP.replace(
        "%b = stablehlo.cosine %a : tensor<64xf32>",
        """%c = stablehlo.cosine %a : tensor<64xf32>
    %b = stablehlo.custom_call @host(%c) : (tensor<64xf32>) -> tensor<64xf32>""",
    )
    turns: list[int] = []

    def host(x: np.ndarray) -> np.ndarray:
        turns.append(1)
        if len(turns) % 3 == 0:
            raise KeyError("third")
        return x

    exe = shlo_jit.compile(text, custom_calls={"host": host})
    with exe.trace(path):
        for _ in range(2):
            with pytest.raises(KeyError, match="third"):
                exe(loop_argument(), np.int32(7))
    found = runs(path)
    calls = [e for e in found if e["cat"] == "call"]
    loops = [e for e in found if e["name"] == "while"]
    assert [inside(call, loops) for call in calls] == [[loop] for loop in loops]
    assert [sum(e["name"] == "custom_call" for e in inside(loop, found)) for loop in loops] == [3, 3]


def test_a_call_that_still_runs_is_left_out(path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def host(x: np.ndarray) -> np.ndarray:
        entered.set()
        assert go_on.wait(60)
        return x

    exe = shlo_jit.compile(CALLS_OUT, custom_calls={"host": host})
    thread = threading.Thread(target=exe, args=[np.ones(4, np.float32)])
    with pytest.raises(ValueError, match="no call"), exe.trace(path):
        thread.start()
        assert entered.wait(60)
    go_on.set()
    thread.join(60)  # it has recorded the rest in the memory that its own code keeps
    assert not thread.is_alive()
    assert list(path.parent.iterdir()) == []


def test_without_a_call_there_is_nothing_to_write(path: Path) -> None:
    exe = shlo_jit.compile(LAYER)
    path.write_text("the last one")
    expected = r"t\.json: no call"
    with pytest.raises(ValueError, match=expected), exe.trace(path):
        pass
    with pytest.raises(KeyError), exe.trace(path):
        raise KeyError
    assert path.read_text() == "the last one"
    assert list(path.parent.iterdir()) == [path]


def test_what_was_noted_is_written_when_the_body_raises(path: Path) -> None:
    exe = shlo_jit.compile(LAYER)
    with pytest.raises(KeyError), exe.trace(path):
        exe(*layer_arguments())
        raise KeyError
    assert len(runs(path)) == 3


@pytest.mark.parametrize(
    ("name", "error"),
    [("missing/t.json", FileNotFoundError), ("", OSError), ("file/t.json", NotADirectoryError), ("fifo", OSError)],
)
def test_paths_that_cannot_be_written(name: str, error: type[OSError], path: Path) -> None:
    folder = path.parent
    (folder / "file").touch()
    os.mkfifo(folder / "fifo")
    exe = shlo_jit.compile(LAYER)
    ordinary = exe.__call__
    with pytest.raises(error) as raised, exe.trace(folder / name):
        pytest.fail("the body is not run")
    assert str(folder / name) in str(raised.value)
    assert exe.__call__ is ordinary
    assert sorted(p.name for p in folder.iterdir()) == ["fifo", "file"]


def test_a_relative_path_is_that_of_the_beginning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    exe = shlo_jit.compile(LAYER)
    with exe.trace("t.json"):
        exe(*layer_arguments())
        monkeypatch.chdir(path.parent.parent)
    assert len(runs(path)) == 3


def test_paths_of_another_type() -> None:
    exe = shlo_jit.compile(LAYER)
    with pytest.raises(TypeError, match="int"):
        exe.trace(3)  # type: ignore[arg-type]


def test_executables_without_a_program_have_no_trace(path: Path) -> None:
    with pytest.raises(ValueError, match="profiled or traced"):
        build(constant(np.ones(3)), TARGET, cache=False).trace(path)


@pytest.mark.parametrize("measure", [lambda exe, path: exe.trace(path), lambda exe, path: exe.profile()])
def test_one_measures_at_a_time(measure: Callable[[Any, Path], Any], path: Path) -> None:
    exe = shlo_jit.compile(LAYER)
    ordinary = exe.__call__
    with exe.trace(path):
        other = measure(exe, path.with_name("other.json"))
        with pytest.raises(RuntimeError, match="profiled or traced"), other:
            pytest.fail("the body is not run")
        exe(*layer_arguments())
    assert exe.__call__ is ordinary
    assert len(runs(path)) == 3
    assert list(path.parent.iterdir()) == [path]


def test_queues_are_those_of_the_executable(path: Path) -> None:
    text = """func.func @main() -> tensor<2xf32> {
      %token = stablehlo.create_token : !stablehlo.token
      %0:2 = "stablehlo.infeed"(%token) {infeed_config = ""} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
      return %0#0 : tensor<2xf32>
    }"""
    exe = shlo_jit.compile(text)
    results: list[np.ndarray] = []
    thread = threading.Thread(target=lambda: results.append(exe()), daemon=True)
    exe.infeed.put(np.array([1, 2], np.float32))
    with exe.trace(path):
        thread.start()
        thread.join(20)
    np.testing.assert_array_equal(results, [[1, 2]])


def test_parts_of_a_step_lie_in_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = steps.lower_nest

    def in_a_part(low: Services, *step: Any) -> None:
        with low.timing.part(low.scope, "waiting"):
            write(low, *step)

    exe = shlo_jit.compile(LAYER)
    ordinary = exe(*layer_arguments())
    monkeypatch.setattr(steps, "lower_nest", in_a_part)
    with exe.trace(path):
        np.testing.assert_array_equal(exe(*layer_arguments()), ordinary)
    found = runs(path)
    *_, row, part = found
    assert (part["name"], part["cat"], part["args"]["step"]) == ("waiting", "part", "1")
    assert inside(row, found) == [part]
    with exe.profile() as profile:
        exe(*layer_arguments())
    assert [s.title for s in profile.steps] == ["dot_general", "row", "waiting"]
    assert profile.steps[2].share == 0
    assert sum(s.share for s in profile.steps) == pytest.approx(1)


def test_several_processes_in_one_file(path: Path) -> None:
    exe = shlo_jit.compile(LAYER)
    with exe.trace(path) as trace:
        exe(*layer_arguments())
    (part,) = trace._parts
    noted = Recording("", part.timed, part.memory.events, 0)
    processes = [ProcessEvents(i, f"process {i}", [noted._replace(missed=i)]) for i in range(3)]
    write_trace(path, pickle.loads(pickle.dumps(processes)))
    found = runs(path)
    assert [(e["pid"], e["name"]) for e in found] == [
        (i, name) for i in range(3) for name in ("@main", "dot_general", "row")
    ]
    names = {e["pid"]: e["args"]["name"] for e in read(path) if e["name"] == "process_name"}
    assert names == {0: "process 0", 1: "process 1", 2: "process 2"}
    threads = [e["args"]["name"] for e in read(path) if e["name"] == "thread_name"]
    assert threads == ["thread 1"] * 3
    assert [(e["pid"], e["name"]) for e in read(path) if e["ph"] == "i"] == [
        (1, "1 more events did not fit"),
        (2, "2 more events did not fit"),
    ]
    assert json.loads(path.read_text())["otherData"] == {"missed_events": 3}


def test_memory_without_room_has_no_events() -> None:
    memory = ProfileMemory(3, 0)
    assert len(memory.events) == 0 and memory.missed == 0
    assert memory.records.shape[0] == 3
