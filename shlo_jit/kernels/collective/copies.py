"""Copies of a caller's arrays into memory that ranks share, by several threads in parallel.

    void @shlo_copy_all(ptr rows, i64 count, i64 tasks, i64 threads)

`rows` are COPY_ROW words each: target, source, number of bytes, and the number of the first task. Each task copies
COPY_TASK_BYTES of one row, or the rest of it.
"""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V, i64

COPY_ROW = 4
TARGET, SOURCE, NBYTES, FIRST = (8 * i for i in range(COPY_ROW))


def write_copies(module: ModuleText) -> None:
    params = [("ptr", "rows"), ("i64", "count"), ("i64", "tasks"), ("i64", "threads")]
    b = module.function("shlo_copy_all", params, linkage="external", attributes="nounwind")
    rows, count, tasks, threads = b.params
    frame = b.alloca("ptr", 2, 8)
    b.store(rows, frame)
    b.store(count, b.offset(frame, 8))
    b.call("void", "shlo_parallel", [V("ptr", "@shlo_copy_task"), frame, tasks, threads])
    b.ret()

    b = module.function(
        "shlo_copy_task", [("ptr", "frame"), ("i64", "index"), ("i64", "worker")], attributes="nounwind"
    )
    frame, index, _ = b.params
    rows, count = b.load("ptr", frame), b.load("i64", b.offset(frame, 8))
    row = b.alloca("ptr", 1, 8)
    b.store(rows, row)
    with b.loop(1, count) as i:  # finds the last row whose first task is not after this one
        next_row = b.offset(rows, b.mul(i, 8 * COPY_ROW))
        with b.if_(b.icmp("sle", b.load("i64", b.offset(next_row, FIRST)), index)):
            b.store(next_row, row)
    found = b.load("ptr", row)
    start = b.mul(b.sub(index, b.load("i64", b.offset(found, FIRST))), tuning.COPY_TASK_BYTES)
    left = b.sub(b.load("i64", b.offset(found, NBYTES)), start)
    target, source = (b.offset(b.load("ptr", b.offset(found, at)), start) for at in (TARGET, SOURCE))
    b.memcpy(target, source, b.min_(left, i64(tuning.COPY_TASK_BYTES)))
    b.ret()
