"""Several threads, processes and calls at the same time; memory over many calls."""

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from programs import TARGET, arena_sum, binary, callback, copies, parallel

from shlo_jit.runtime import pool
from shlo_jit.runtime.build import build

X = np.arange(4, dtype=np.float32)


def run_in_threads(work, count=8):
    """Runs work(k) in threads; raises the exception of any of them."""
    errors = []

    def guarded(k):
        try:
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=120)
    assert not any(t.is_alive() for t in threads)
    if errors:
        raise errors[0]


@pytest.mark.parametrize("arena_bytes", [64, 1 << 20])
def test_threads_share_an_executable(arena_bytes):
    exe = build(arena_sum(16, arena_bytes), TARGET, cache=False)

    def work(k):
        x = np.full(16, k, np.float32)
        for _ in range(2000 if arena_bytes == 64 else 100):
            assert (exe(x) == k + 1).all()

    run_in_threads(work)


def test_threads_with_executables_of_their_own():
    def work(k):
        for n in (3, 50, 4096):
            exe = build(binary(n, "fadd" if k % 2 else "fmul"), TARGET, cache=False)
            x = np.full(n, k, np.float32)
            for _ in range(100):
                assert (exe(x, x) == (2 * k if k % 2 else k * k)).all()

    run_in_threads(work)


def test_threads_share_a_parallel_executable():
    exe = build(parallel(1 << 14, 16), TARGET, threads=4, cache=False)

    def work(k):
        x = np.full(1 << 14, k, np.float32)
        for _ in range(300):
            assert (exe(x) == 2 * k).all()

    run_in_threads(work)


def test_callbacks_and_parallel_programs_at_once():
    double = build(parallel(1 << 12, 8), TARGET, threads=2, cache=False)
    ones = np.ones(1 << 12, np.float32)
    exe = build(callback(), TARGET, cache=False, custom_calls={"f": lambda x, y: x + double(ones)[:4]})

    def work(k):
        x = np.full(4, k, np.float32)
        for _ in range(100):
            assert (exe(x, x) == k + 2).all()

    run_in_threads(work)


@pytest.mark.parametrize("n", [4, 1 << 10, 1 << 16, 1 << 20])
def test_results_survive_later_calls(n):
    exe = build(copies((n,), "f32"), TARGET, cache=False)
    kept = [exe(np.full(n, k, np.float32)) for k in range(10)]
    views = [exe(np.full(n, k, np.float32))[: n // 2].view() for k in range(10)]
    for _ in range(10):
        exe(np.full(n, -1, np.float32))
    for k in range(10):
        assert (kept[k] == k).all()
        assert (views[k] == k).all()
    assert len({a.ctypes.data for a in kept}) == 10


def test_large_results_are_reused():
    exe = build(copies((1 << 20,), "f32"), TARGET, cache=False)
    x = np.ones(1 << 20, np.float32)
    first = exe(x)
    address = first.ctypes.data
    assert address % 64 == 0
    del first
    mapped = pool.POOL.mapped_bytes
    for _ in range(20):
        assert exe(x).ctypes.data == address
    assert pool.POOL.mapped_bytes == mapped


def test_pool_is_bounded():
    small = pool.BlockPool(limit=1 << 20)
    blocks = [small.take(1 << 18) for _ in range(10)]
    for address in blocks:
        small.give(1 << 18, address)
    assert small.idle_bytes <= 1 << 20
    small.clear()
    assert small.idle_bytes == small.mapped_bytes == 0


def test_pool_sizes():
    for nbytes in [1, 4096, 16385, 100_000, 1 << 20, (1 << 20) + 1, 5_000_000, 1 << 33]:
        size = pool.block_size(nbytes)
        assert nbytes <= size <= max(pool.SMALLEST_BLOCK, nbytes * 1.25)
        assert size % 4096 == 0
        assert pool.block_size(size) == size


def test_no_memory_for_a_result():
    exe = build(copies((1 << 50,), "i8"), TARGET, cache=False)
    fake = np.broadcast_to(np.int8(0), (1 << 50,))
    with pytest.raises(MemoryError):
        exe(fake)


def resident() -> int:
    """Returns the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_dropped_executables_give_their_memory_back():
    def run(count):
        for k in range(count):
            exe = build(arena_sum(4 + k % 3, 1 << 16), TARGET, cache=False)
            exe(np.zeros(4 + k % 3, np.float32))

    run(30)
    gc.collect()
    before = resident()
    run(200)
    gc.collect()
    assert resident() - before < 4 << 20


def test_executables_die_without_the_collector():
    gc.disable()
    try:
        exe = build(binary(4), TARGET, cache=False)
        exe(X, X)
        import weakref

        gone = weakref.ref(exe._front)
        del exe
        assert gone() is None
    finally:
        gc.enable()


def test_bound_call_keeps_the_code_alive():
    call = build(arena_sum(4, 64), TARGET, cache=False).__call__
    gc.collect()
    np.testing.assert_array_equal(call(X), X + 1)


def test_calls_do_not_leak():
    exe, pair = build(binary(4), TARGET, cache=False), build(copies((4,), "f32", 2), TARGET, cache=False)
    dtype = exe.outputs[0].dtype
    for _ in range(10):
        exe(X, X), pair(X)
    references, before = sys.getrefcount(dtype), resident()
    for _ in range(50_000):
        exe(X, X)
        pair(X)
    assert abs(sys.getrefcount(dtype) - references) < 10
    assert resident() - before < 1 << 20


FORK = """
import os, sys, threading, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
import numpy as np
from programs import TARGET, parallel
from shlo_jit.runtime.build import build
exe = build(parallel(1 << 12, 16), TARGET, threads=3, cache=False)
x = np.ones(1 << 12, np.float32)
stop = False
def busy():
    while not stop:
        exe(x)
other = threading.Thread(target=busy)
other.start()
for _ in range(20):
    assert exe(x).sum() == 1 << 13
    child = os.fork()
    if child == 0:
        right = all(exe(x).sum() == 1 << 13 for _ in range(50))
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(0 if exe(x).sum() == 1 << 13 else 1)
        os._exit(0 if right and os.waitpid(grandchild, 0)[1] == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
stop = True
other.join()
print("done")
"""


def test_fork():
    command = [sys.executable, "-c", FORK, str(Path(__file__).parent)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout == "done\n", run.stderr


END = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import numpy as np
from programs import TARGET, parallel
from shlo_jit.runtime.build import build
exe = build(parallel(1 << 12, 16), TARGET, threads=4, cache=False)
x = np.ones(1 << 12, np.float32)
def busy():
    while True:
        exe(x)
threading.Thread(target=busy, daemon=True).start()
for _ in range(50):
    exe(x)
print("done")
"""


def test_end_of_the_process():
    command = [sys.executable, "-c", END, str(Path(__file__).parent)]
    for _ in range(3):
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr


def test_other_threads_run_during_a_long_call():
    exe = build(arena_sum(4, 1 << 26), TARGET, cache=False)
    exe(X)
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    other = threading.Thread(target=tick)
    other.start()
    during = []
    for _ in range(50):  # a call takes some milliseconds, in which a busy machine may not schedule the thread
        begin = time.perf_counter()
        exe(X)
        end = time.perf_counter()
        during.append(sum(begin < t < end for t in ticks))
    stop.set()
    other.join()
    assert max(during) >= 2
