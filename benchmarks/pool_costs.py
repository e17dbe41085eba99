"""Measures the costs of the thread pool and of memory on this machine, for `schedule_model.py`."""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import replace

import numpy as np

from benchmarks.schedule_model import Costs, Memory
from benchmarks.task_times import Recorder
from shlo_jit.codegen import jit
from shlo_jit.codegen.optimize import emit_object, optimize
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.builder import ModuleText

ROUNDS = 9
COPIED_BYTES = 128 << 20
"""Bytes of an array that is copied to measure memory: far more than any cache."""
_Parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Pool:
    """The pool with a task that does nothing."""

    def __init__(self, recorder: Recorder) -> None:
        target = resolve()
        module = ModuleText(target)
        parameters = [("ptr", "frame"), ("i64", "index"), ("i64", "worker")]
        module.function("empty", parameters, linkage="external").ret()
        self._code = jit.load([emit_object(optimize(module.text(), target), target)], ["empty"])
        self._parallel = _Parallel(recorder.addresses["shlo_parallel"])

    def seconds(self, tasks: int, times: int, pause: float = 0.0) -> float:
        """Returns the shortest mean time of a job of so many empty tasks on two threads, after a pause."""
        empty, best = self._code.addresses["empty"], float("inf")
        for _ in range(ROUNDS):
            total = 0.0
            for _ in range(times):
                if pause:
                    time.sleep(pause)
                begin = time.perf_counter()
                self._parallel(empty, 0, tasks, 2)
                total += time.perf_counter() - begin
            best = min(best, total / times)
        return best


def measured_costs(recorder: Recorder) -> Costs:
    """Returns the costs of the pool by two threads. A call through ctypes takes as long as a job of one task, which
    needs no worker."""
    pool = Pool(recorder)
    call = pool.seconds(1, 2000)
    line = (pool.seconds(20_000, 20) - call) / 20_000
    two = pool.seconds(2, 2000) - call
    cold = pool.seconds(2, 50, pause=2e-3) - pool.seconds(1, 50, pause=2e-3)
    costs = Costs(line=line, see=max(0.0, two - Costs.start - 3 * line))
    return replace(costs, wake=max(0.0, cold - two))


def measured_memory() -> Memory:
    """Returns the bandwidth of copies by one thread and by two. A copy reads a byte and writes one."""
    arrays = [(np.ones(COPIED_BYTES // 8), np.zeros(COPIED_BYTES // 8)) for _ in range(2)]
    best = {1: 0.0, 2: 0.0}
    for _ in range(ROUNDS):
        for count, so_far in list(best.items()):
            threads = [threading.Thread(target=np.copyto, args=(to, of)) for of, to in arrays[:count]]
            begin = time.perf_counter()
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            best[count] = max(so_far, 2 * count * COPIED_BYTES / (time.perf_counter() - begin))
    return Memory("this machine", best[1], max(best.values()))
