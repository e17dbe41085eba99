"""Measures the costs of the thread pool and of memory on this machine, for `schedule_model.py`."""

from __future__ import annotations

import ctypes
import time
from dataclasses import replace

import numpy as np

from benchmarks.schedule_model import Costs, Memory
from benchmarks.task_times import Recorder
from shlo_jit.codegen import jit
from shlo_jit.codegen.optimize import emit_object, optimize
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V, i64

ROUNDS = 9
READ_BYTES, READ_TASK_BYTES = 256 << 20, 1 << 20
"""Bytes of an array that is read to measure memory, far more than any cache, and those that a task reads."""
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


def measured_memory(recorder: Recorder) -> Memory:
    """Returns the bandwidth of reads by one thread and by two. Most of the bytes that programs move are read."""
    target = resolve()
    module = ModuleText(target)
    parameters = [("ptr", "frame"), ("i64", "index"), ("i64", "worker")]
    b = module.function("read", parameters, linkage="external", attributes="nounwind")
    frame, index, _ = b.params
    lane = "<8 x i64>"
    chunk = b.offset(frame, b.mul(index, READ_TASK_BYTES))
    with b.repeat([i64(0), V(lane, "zeroinitializer")], "line") as line:
        at, seen = line.values
        seen = b.or_(seen, b.load(lane, b.offset(chunk, at), align=8))
        line.next(b.add(at, 64), seen)
        line.again = b.icmp("slt", b.add(at, 64), READ_TASK_BYTES)
    b.store(b.reduce("or", seen), chunk)
    b.ret()
    code = jit.load([emit_object(optimize(module.text(), target), target)], ["read"])
    parallel = _Parallel(recorder.addresses["shlo_parallel"])
    data = np.zeros(READ_BYTES // 8, np.int64)
    data += 1
    best = {1: 0.0, 2: 0.0}
    for _ in range(ROUNDS):
        for count, so_far in list(best.items()):
            begin = time.perf_counter()
            parallel(code.addresses["read"], data.ctypes.data, READ_BYTES // READ_TASK_BYTES, count)
            best[count] = max(so_far, READ_BYTES / (time.perf_counter() - begin))
    return Memory("this machine", best[1], max(best.values()))
