"""Processes that die, raise, hang or disagree: an error reports it in time, and no resources leak."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import failing_calls
import numpy as np
import pytest
from failing_programs import LOOP, SOON, arguments, children, compiled, later, meeting, nothing_left, sums

import shlo_jit
from shlo_jit import tuning
from shlo_jit.errors import ExecutionError, WorkerError, WorkerTimeoutError
from shlo_jit.kernels.collective import board
from shlo_jit.runtime.transport import processes
from shlo_jit.runtime.transport.shared import Segment

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
    pytest.mark.usefixtures("ctrl_c"),
]


def failing(exe: Any, error: type[Exception] = WorkerError, ranks: int = 3, within: float = SOON) -> Any:
    """Returns the error of a call; the next call reports that there are no processes any more."""
    begun = time.monotonic()
    with pytest.raises(error) as caught:
        exe(arguments(ranks))
    assert time.monotonic() - begun < within
    with pytest.raises(ExecutionError, match="processes.*ended.*compile"):
        exe(arguments(ranks))
    return caught.value


# ---------------------------------------------------------------------- deaths
def test_a_worker_that_is_killed_between_calls_is_named() -> None:
    with nothing_left():
        exe = compiled(3)
        exe(arguments(3))
        os.kill(exe.pids[2], signal.SIGKILL)
        error = failing(exe)
        assert "SIGKILL" in str(error) and error.rank == 2
        del exe, error


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (failing_calls.kills_itself, "the process of rank 1 was ended by SIGKILL"),
        (failing_calls.exits, "the process of rank 1 ended with exit code 3"),
    ],
)
def test_a_worker_that_dies_in_a_call_is_noticed_at_once(call: Any, text: str) -> None:
    with nothing_left():
        error = failing(compiled(3, call))
        assert str(error) == text
        del error


def test_a_death_says_where_the_rank_met_others_last() -> None:
    end = "%z = stablehlo.custom_call @c(%r) : (tensor<4xf32>) -> tensor<4xf32>\n  return %z"
    text = meeting(2).replace("return %r", end)
    with nothing_left():
        exe = shlo_jit.compile(text, num_replicas=2, custom_calls={"c": failing_calls.kills_worker})
        error = failing(exe, ranks=2)
        assert "SIGKILL" in str(error) and "f32[4] (line 3)" in str(error)
        assert (error.rank, error.op, error.place) == (1, "all_reduce", "line 3")
        del exe, error


def test_a_death_is_noticed_without_exit_codes() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with nothing_left():
            assert failing(compiled(3, failing_calls.kills_itself)).rank == 1
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_the_last_words_of_a_worker_are_seen(capfd: pytest.CaptureFixture[str]) -> None:
    failing(compiled(2, failing_calls.prints), ranks=2)
    assert capfd.readouterr().out == "before the end\n"


# ---------------------------------------------------------------------- exceptions
@pytest.mark.parametrize("transport", ["processes", "threads"])
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (failing_calls.raises, "ValueError: no ones"),
        (failing_calls.raises_unprintable, "failing_calls.Unprintable: <exception str() failed>"),
        (failing_calls.raises_much, "ValueError: much much"),
    ],
)
@pytest.mark.sampled(3)
def test_what_one_rank_raises_while_others_wait(call: Any, text: str, transport: str) -> None:
    with nothing_left():
        error = failing(compiled(3, call, transport=transport))
        assert str(error).startswith(f"rank 1 is at custom_call @c (line 2): {text}")
        assert (error.rank, error.op, error.place) == (1, "custom_call @c", "line 2")
        assert f"in {call.__name__}" in error.remote
        del error


def test_an_exception_of_the_callers_own_rank_is_the_cause() -> None:
    def raises(x: np.ndarray) -> np.ndarray:
        raise LookupError("mine")

    error = failing(compiled(2, raises, transport="threads"), ranks=2)
    assert error.rank in (0, 1)
    assert isinstance(error.__cause__, LookupError)


# ---------------------------------------------------------------------- no progress
@pytest.mark.parametrize("is_idle", [True, False])
@pytest.mark.sampled(4)
def test_a_worker_that_is_stopped_is_lost_after_the_time_out(is_idle: bool) -> None:
    with nothing_left():
        exe = compiled(3, failing_calls.nothing if is_idle else failing_calls.sleeps, time_out=1.5)
        stop = later(0.0 if is_idle else 0.3, lambda pid=exe.pids[1]: os.kill(pid, signal.SIGSTOP))
        if is_idle:
            stop.join()
        error = failing(exe, WorkerTimeoutError)
        stop.join()
        text = r"rank [02] is at all_reduce of f32\[4\] \(line 3\), and rank 1, .*, made no progress for 1.5 s"
        assert re.fullmatch(text, str(error))
        assert (error.rank, error.op, error.place) == (1, "all_reduce", "line 3")
        del exe, error, stop


@pytest.mark.slow
def test_an_endless_custom_call_is_ended_after_the_time_out() -> None:
    with nothing_left():
        error = failing(compiled(3, failing_calls.loops, time_out=1.0), WorkerTimeoutError)
        assert (error.rank, error.op, error.place) == (1, "all_reduce", "line 3")
        assert "rank 1, before its first collective op," in str(error)
        del error


def test_a_rank_that_no_other_waits_for_is_lost_too() -> None:
    text = meeting(2, call=True).partition("%r =")[0] + "return %y : tensor<4xf32>\n}"
    exe = shlo_jit.compile(text, num_replicas=2, custom_calls={"c": failing_calls.loops}, time_out=1.0)
    error = failing(exe, WorkerTimeoutError, ranks=2)
    assert error.rank == 1 and "1 s" in str(error)


def permute(result: str, operand: str, source: int, target: int) -> str:
    pairs = f"source_target_pairs = dense<[[{source}, {target}]]> : tensor<1x2xi64>"
    types = "(tensor<4xf32>) -> tensor<4xf32>"
    return f'%{result} = "stablehlo.collective_permute"(%{operand}) <{{{pairs}}}> : {types}'


def test_the_rank_that_is_blamed_is_the_one_that_all_wait_for_in_the_end() -> None:
    """Rank 0 waits for 1, and 1 waits for 2."""
    bodies = (
        [permute("r", "x", 1, 0)],
        [permute("y", "x", 2, 1), permute("r", "y", 1, 0)],
        ["%y = stablehlo.custom_call @c(%x) : (tensor<4xf32>) -> tensor<4xf32>", permute("r", "y", 2, 1)],
    )
    signature = "(%x: tensor<4xf32>) -> tensor<4xf32>"
    functions = [
        "\n".join([f"func.func @f{rank}{signature} {{", *body, "return %r : tensor<4xf32>", "}"])
        for rank, body in enumerate(bodies)
    ]

    def call(x: np.ndarray) -> np.ndarray:
        time.sleep(3.0)
        return x

    options = {"num_replicas": 3, "programs": [["f0"], ["f1"], ["f2"]], "custom_calls": {"c": call}}
    with shlo_jit.compile("\n".join(functions), transport="threads", time_out=1.0, **options) as exe:
        error = failing(exe, WorkerTimeoutError)
    assert (error.rank, error.op) == (2, "collective_permute")
    assert "rank 2, before its first collective op," in str(error)
    for thread in threading.enumerate():  # it leaves when its call has returned
        if thread.name == "shlo_jit-2":
            thread.join(SOON)
            assert not thread.is_alive()


@pytest.mark.slow
def test_time_in_which_all_are_stopped_does_not_count() -> None:
    """Ctrl-Z, and later fg."""
    script = """
import sys
from failing_programs import arguments, compiled
import failing_calls
if __name__ == "__main__":
    with compiled(2, failing_calls.sleeps, time_out=1.5) as exe:
        print("ready", flush=True)
        print(exe(arguments(2))[0][0], flush=True)
"""
    with started(script, start_new_session=True) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        os.killpg(child.pid, signal.SIGSTOP)
        time.sleep(3.0)
        os.killpg(child.pid, signal.SIGCONT)
        assert child.communicate(timeout=SOON) == ("1.0\n", "")


# ---------------------------------------------------------------------- interrupts
@pytest.mark.parametrize("transport", ["processes", "threads"])
def test_an_interrupt_leaves_an_executable_that_can_be_called(transport: str) -> None:
    """Rank 0 waits, or computes, while the other computes, or waits."""
    exe = shlo_jit.compile(LOOP, num_replicas=2, transport=transport)
    ones, twos = np.ones(4, np.float32), np.full(4, 2, np.float32)
    for given in ([(ones,), (twos,)], [(twos,), (ones,)]):
        timer = later(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            exe(given)
        assert time.monotonic() - begun < 2
        timer.join()
        assert [r[0] for r in exe([(twos,), (twos,)])] == [4.0, 4.0]
    exe.close()


def test_what_an_interrupted_call_raised_is_not_about_the_next() -> None:
    with compiled(2, failing_calls.sleeps_and_raises) as exe:
        timer = later(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            exe(arguments(2))
        timer.join()
        assert exe([(np.zeros(4, np.float32),)] * 2)[0][0] == 0
        os.kill(exe.pids[1], signal.SIGKILL)
        error = failing(exe, ranks=2)
        assert error.rank == 1 and "SIGKILL" in str(error)


@pytest.mark.slow
def test_an_interrupt_of_what_cannot_be_stopped_ends_the_processes() -> None:
    with nothing_left():
        exe = compiled(2, failing_calls.loops)
        timer = later(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        failing(exe, KeyboardInterrupt, ranks=2)
        timer.join()
        del exe, timer


def test_ctrl_c_goes_to_all_of_the_foreground_and_only_the_caller_hears_it() -> None:
    script = """
import failing_calls
from failing_programs import arguments, compiled
if __name__ == "__main__":
    with compiled(3, failing_calls.sleeps) as exe:
        print("ready", flush=True)
        try:
            exe(arguments(3))
        except KeyboardInterrupt:
            print("interrupted", exe(arguments(3))[0][0], flush=True)
"""
    with started(script, start_new_session=True) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        os.killpg(child.pid, signal.SIGINT)
        assert child.communicate(timeout=SOON) == ("interrupted 3.0\n", "")


# ---------------------------------------------------------------------- ends
@pytest.mark.parametrize("transport", ["processes", "threads"])
@pytest.mark.slow
def test_nothing_is_left_of_what_is_closed_or_dropped(transport: str) -> None:
    with nothing_left():
        for _ in range(2):
            exe = compiled(3, transport=transport)
            results = exe(arguments(3))
            exe.close()
            exe.close()
            with pytest.raises(ExecutionError, match=r"ended \(closed\)"):
                exe(arguments(3))
            exe = compiled(3, transport=transport)
            del exe
        assert [r[0] for r in results] == [sums(3)] * 3
        del results


def test_closing_stops_the_call_of_another_thread() -> None:
    with nothing_left():
        exe = compiled(2, failing_calls.loops)
        caught: list[BaseException] = []

        def call(exe: Any) -> None:
            try:
                exe(arguments(2))
            except ExecutionError as error:
                caught.append(error.with_traceback(None))

        thread = threading.Thread(target=call, args=(exe,))
        thread.start()
        time.sleep(0.3)
        with pytest.raises(ExecutionError, match="another thread"):
            exe(arguments(2))
        begun = time.monotonic()
        exe.close()
        thread.join()
        assert time.monotonic() - begun < SOON
        assert "closed" in str(caught[0])
        del exe, thread


def test_a_fork_has_no_processes_and_ends_none() -> None:
    """The fork exits as a script does, with all exit handlers."""
    script = """
import os, sys
from failing_programs import arguments, compiled
if __name__ == "__main__":
    with compiled(2) as exe:
        exe(arguments(2))
        pid = os.fork()
        if pid == 0:
            try:
                exe(arguments(2))
            except Exception as error:
                print(error, flush=True)
            sys.exit()
        os.waitpid(pid, 0)
        print(exe(arguments(2))[1][0])
"""
    with started(script) as child:
        out, _ = child.communicate(timeout=SOON)
    message, value = out.splitlines()
    assert "forked" in message and value == "-1.0"


# ---------------------------------------------------------------------- failed starts
@pytest.mark.slow
def test_a_start_that_takes_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_SECONDS", 3.0)
    with nothing_left(), pytest.raises(ExecutionError, match=r"rank 1.*start.*3 s"):
        compiled(3, failing_calls.StopsWhileLoading())


def test_a_worker_that_ends_while_it_loads_is_an_error() -> None:
    with nothing_left(), pytest.raises(ExecutionError, match=r"rank 1.* SystemExit: 5"):
        compiled(2, failing_calls.EndsWhileLoading())


def test_a_custom_call_that_cannot_be_imported_is_an_error_with_the_workers_traceback() -> None:
    with nothing_left():
        with pytest.raises(WorkerError, match="rank 1: ImportError") as caught:
            compiled(3, failing_calls.CannotLoad())
        assert "in boom" in caught.value.remote
        del caught


def test_a_custom_call_without_a_name_is_an_error_before_anything_starts() -> None:
    with nothing_left(), pytest.raises(TypeError, match=r"transport='threads'"):
        compiled(2, lambda x: x)


def test_a_process_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    start = processes.worker_start.start

    def second_fails(target: Any, rank: int, needs_main: bool) -> Any:
        if rank == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return start(target, rank, needs_main)

    monkeypatch.setattr(processes.worker_start, "start", second_fails)
    with nothing_left(), pytest.raises(ExecutionError, match="rank 2: .*unavailable"):
        compiled(3)


def test_no_memory_is_a_memory_error_and_leaves_no_file() -> None:
    with nothing_left(), pytest.raises(MemoryError, match="share .* bytes"):
        Segment(1 << 60)


# ---------------------------------------------------------------------- scripts
SCRIPT = """
from failing_programs import arguments, compiled
def call(x): return x + x
{guard}
    exe = compiled(2, {call})
    print(exe(arguments(2))[0][0])
"""
GUARD = 'if __name__ == "__main__":'


class started:
    """A Python process with a script given as a file, from stdin or as an argument; killed at the end."""

    def __init__(self, script: str, how: str = "file", **options: Any) -> None:
        paths = [str(Path(__file__).parent), str(Path(shlo_jit.__file__).parents[1])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.path = Path(os.environ.get("TMPDIR", "/tmp")) / f"failing_script_{os.getpid()}.py"
        self.path.write_text(script)
        command = {"file": [str(self.path)], "stdin": ["-"], "argument": ["-c", script]}[how]
        given = self.path.open() if how == "stdin" else subprocess.DEVNULL
        self.child = subprocess.Popen(
            [sys.executable, *command],
            env=environment,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def __enter__(self) -> Any:
        return self.child

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.communicate()
        self.path.unlink()


@pytest.mark.parametrize("how", ["file", "stdin", "argument"])
def test_a_script_without_custom_calls_needs_no_guard(how: str) -> None:
    with started(SCRIPT.format(guard="if True:", call=None), how) as child:
        assert child.communicate(timeout=30) == ("-1.0\n", "")


def test_custom_calls_of_a_script_are_imported() -> None:
    with started(SCRIPT.format(guard=GUARD, call="call")) as child:
        assert child.communicate(timeout=30) == ("2.0\n", "")


def test_custom_calls_of_a_script_without_a_guard_are_an_error_that_says_so() -> None:
    with started(SCRIPT.format(guard="if True:", call="call")) as child:
        out, errors = child.communicate(timeout=30)
    assert (out, child.returncode) == ("", 1)
    last = errors.strip().rpartition("\n")[2]
    assert "rank 1" in last and "exit code 1" in last
    assert "under `if __name__ == '__main__':`" in last
    assert "still starting" in errors


@pytest.mark.parametrize("how", ["stdin", "argument"])
def test_custom_calls_of_no_file_are_an_error(how: str) -> None:
    with started(SCRIPT.format(guard=GUARD, call="call"), how) as child:
        _, errors = child.communicate(timeout=30)
    assert "TypeError: custom_calls: " in errors and "__main__" in errors


def test_daemonic_processes_get_an_error() -> None:
    script = """
import multiprocessing
from failing_programs import compiled
def job():
    try:
        compiled(2)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=job, daemon=True)
    process.start()
    process.join()
"""
    with started(script) as child:
        out, _ = child.communicate(timeout=30)
    expected = "daemonic processes of multiprocessing cannot start others (transport='threads' needs no processes)"
    assert out == f"ExecutionError {expected}\n"


LEAVING = """
import os, sys, threading, time
import failing_calls
from failing_programs import arguments, compiled
if __name__ == "__main__":
    exe = compiled(3, failing_calls.loops, transport="{transport}")
    print(*exe.pids[1:], flush=True)
    threading.Thread(target=exe, args=(arguments(3),), daemon=True).start()
    time.sleep({seconds})
"""


def all_ended(pids: list[int], seconds: float = SOON) -> bool:
    until = time.monotonic() + seconds
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("transport", ["processes", "threads"])
def test_the_interpreter_exits_while_another_thread_is_in_a_call(transport: str) -> None:
    with started(LEAVING.format(transport=transport, seconds=0.3)) as child:
        pids = [int(pid) for pid in child.stdout.readline().split()]
        child.wait(timeout=SOON)
        assert child.returncode == 0
        assert all_ended(pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_a_parent_that_is_killed(number: int) -> None:
    with started(LEAVING.format(transport="processes", seconds=60)) as child:
        pids = [int(pid) for pid in child.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.2)
        os.kill(child.pid, number)
        assert all_ended(pids)


# ---------------------------------------------------------------------- many
@pytest.mark.slow
def test_killed_at_any_time() -> None:
    """Runs 200 calls, in each of which a worker is killed: at a random time, of a random rank."""
    rng = np.random.default_rng(7)
    compiled(4).close()
    with nothing_left():
        for _ in range(200):
            exe = compiled(4)
            given, rank = arguments(4), int(rng.integers(1, 4))
            killer = later(rng.uniform(0, 0.03), lambda pid=exe.pids[rank]: os.kill(pid, signal.SIGKILL))
            begun = time.monotonic()
            with pytest.raises(WorkerError, match=f"rank {rank}.*SIGKILL"):
                while time.monotonic() - begun < SOON:
                    assert [r[0] for r in exe(given)] == [sums(4)] * 4
            assert time.monotonic() - begun < SOON
            killer.join()
            exe.close()
        del exe, killer
    assert not children()


# ---------------------------------------------------------------------- numbers and sleep
@pytest.mark.parametrize("transport", ["processes", "threads"])
@pytest.mark.parametrize("last", [(1 << 24) - 2, (1 << 31) - 2, (1 << 32) - 2, (1 << 40) - 2])
def test_calls_go_on_where_parts_of_their_number_begin_again(last: int, transport: str) -> None:
    with compiled(3, transport=transport) as exe:
        number = ctypes.c_int64.from_address(exe._team.board.address + board.CALL_NUMBER)
        number.value = last
        for _ in range(5):
            assert [r[0] for r in exe(arguments(3))] == [sums(3)] * 3
        assert number.value == last + 5


@pytest.mark.parametrize("patience", [(0, 1), (1, 1)])
@pytest.mark.parametrize("transport", ["processes", "threads"])
def test_ranks_that_sleep_at_every_step_are_woken(
    patience: tuple[int, int], transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No wake-up is lost: each would cost 50 ms."""
    monkeypatch.setattr(tuning, "MEETING_PATIENCE", patience)
    monkeypatch.setattr(tuning, "CROWDED_PATIENCE", patience)
    with compiled(3, transport=transport) as exe:
        times = []
        for _ in range(300):
            begun = time.monotonic()
            assert [r[0] for r in exe(arguments(3))] == [sums(3)] * 3
            times.append(time.monotonic() - begun)
    assert float(np.median(times)) < 0.02
