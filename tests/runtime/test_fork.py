"""Children of a fork at any moment compile and call, or get an error that they cannot."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from shlo_jit import forking

STRESS = """
import os, random, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")
import numpy as np
import shlo_jit

def program(n, k):
    return f'''func.func @main(%x: tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32> {{
  %c = stablehlo.constant dense<{k}.5> : tensor<{n}x{n}xf32>
  %0 = stablehlo.dot %x, %c : (tensor<{n}x{n}xf32>, tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
  %1 = stablehlo.exponential %0 : tensor<{n}x{n}xf32>
  %2 = chlo.erf %1 : tensor<{n}x{n}xf32> -> tensor<{n}x{n}xf32>
  return %2 : tensor<{n}x{n}xf32>
}}'''

def work(n, k, cache):
    exe = shlo_jit.compile(program(n, k), threads=2, cache=cache)
    assert np.isfinite(exe(np.zeros((n, n), np.float32))).all()

def child(k, parallel):
    signal.alarm(30)  # a child that hangs dies of it
    try:
        work(9, k % 7, False)
        assert (parallel(big) == 2).all()
    except BaseException as error:
        print("child:", repr(error), flush=True)
        os._exit(1)
    os._exit(0)

big = np.ones((1 << 10, 1 << 10), np.float32)
parallel = shlo_jit.compile('''func.func @main(%x: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
  %0 = stablehlo.add %x, %x : tensor<1024x1024xf32>
  return %0 : tensor<1024x1024xf32>
}''', threads=2)
stop = False

def busy(seed):
    k = seed
    while not stop:
        work(5 + k % 30, k, k % 2 == 0)
        parallel(big)
        k += 2

threads = [threading.Thread(target=busy, args=(seed,)) for seed in (0, 1)]
for t in threads:
    t.start()
rng, worst, failed = random.Random(0), 0.0, 0
for k in range(int(sys.argv[1])):
    time.sleep(rng.random() * 0.02)
    begin = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        child(k, parallel)
    worst = max(worst, time.perf_counter() - begin)
    failed += os.waitpid(pid, 0)[1] != 0
stop = True
for t in threads:
    t.join()
print(f"{failed} failed, slowest fork {worst:.2f} s")
"""


def stress(forks: int, tmp_path: Path) -> str:
    run = subprocess.run(
        [sys.executable, "-c", STRESS, str(forks)],
        capture_output=True,
        text=True,
        timeout=60 + 4 * forks,
        check=False,
        env={**os.environ, "SHLO_JIT_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


def test_children_of_busy_parents(tmp_path):
    assert stress(6, tmp_path).startswith("0 failed")


@pytest.mark.slow
def test_many_children_of_busy_parents(tmp_path):
    assert stress(300, tmp_path).startswith("0 failed")


def in_child(work) -> int:
    """Returns the exit status of a child that does the work."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def occupied():
    """Runs another thread that compiles until it is stopped; with `pausing`, it pauses all the time."""
    done, pausing, begun = threading.Event(), threading.Event(), threading.Event()

    def occupy() -> None:
        with forking.compiling():
            begun.set()
            while not done.wait(0.001):
                if pausing.is_set():
                    forking.pause()

    thread = threading.Thread(target=occupy)
    thread.start()
    begun.wait()
    yield pausing
    done.set()
    thread.join()


def can_compile() -> bool:
    with forking.compiling():
        return True


def is_refused() -> bool:
    try:
        return not can_compile()
    except RuntimeError as error:
        return "compile before the fork" in str(error)


def test_a_fork_waits_for_a_pause(occupied):
    occupied.set()
    begin = time.perf_counter()
    assert in_child(can_compile) == 0
    assert time.perf_counter() - begin < 5


def test_a_fork_does_not_wait_for_ever(occupied, monkeypatch):
    monkeypatch.setattr(forking, "FORK_SECONDS", 0.2)
    assert in_child(is_refused) == 0
    assert in_child(lambda: in_child(is_refused) == 0) == 0  # nor its children
    assert can_compile()


def test_a_fork_from_inside_does_not_wait(occupied):
    occupied.set()
    with forking.compiling():
        assert in_child(can_compile) == 0


FORKS_AT_ONCE = """
import os, sys, threading
sys.path.insert(0, sys.argv[1])
from test_fork import can_compile, in_child
results = []
threads = [threading.Thread(target=lambda: results.append(in_child(can_compile))) for _ in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join(timeout=60)
print(results)
"""


def test_forks_at_once():
    """Runs in a separate process: once filelock has been imported, it refuses forks of two threads at a time."""
    folder = str(Path(__file__).parent)
    script = [sys.executable, "-c", FORKS_AT_ONCE, folder]
    run = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout == f"{[0] * 8}\n", run.stderr[-3000:]


SIGNAL_IN_A_FORK = """
import os, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
from shlo_jit import forking
from shlo_jit.runtime.code_table import CodeTable
from test_fork import can_compile, in_child
table, main, found = CodeTable(), threading.get_ident(), []

def make():
    with forking.compiling():
        begun.set()
        while not forking.GATE.is_fork_waiting:
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGUSR1)
        while not handling.is_set():
            time.sleep(0.001)
        forking.pause()
        return "code"

def handler(*_):
    handling.set()
    found.append(ACTION)

begun, handling = threading.Event(), threading.Event()
signal.signal(signal.SIGUSR1, handler)
maker = threading.Thread(target=lambda: table.find("key", make))
maker.start()
begun.wait()
status = in_child(can_compile)
maker.join()
print(status, found)
"""


@pytest.mark.parametrize(
    ("action", "found"), [("table.find('key', None)", "['code']"), ("in_child(can_compile)", "[0]")]
)
def test_a_signal_while_a_fork_waits(action, found):
    """Its handler may wait for the thread that the fork waits for, and fork itself."""
    script = [sys.executable, "-c", SIGNAL_IN_A_FORK.replace("ACTION", action), str(Path(__file__).parent)]
    run = subprocess.run(script, capture_output=True, text=True, timeout=30, check=False)
    assert run.stdout == f"0 {found}\n", run.stderr[-3000:]


def test_the_collector_runs_in_children(occupied):
    import gc

    from shlo_jit.ir.collector import paused_collector

    paused, done = threading.Event(), threading.Event()

    def pause() -> None:
        with paused_collector():
            paused.set()
            done.wait()

    thread = threading.Thread(target=pause)
    thread.start()
    paused.wait()
    occupied.set()
    assert not gc.isenabled()
    assert in_child(gc.isenabled) == 0
    done.set()
    thread.join()
    assert gc.isenabled()
