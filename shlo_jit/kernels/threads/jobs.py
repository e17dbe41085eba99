"""Jobs that several steps share: each step describes its tasks in a record, and one parallel call runs all of them.

A record is JOB_BYTES of memory: the task's address, its frame and the number of tasks, then room for the frame of a
routine, which must outlive the routine's call. `deal` runs the tasks of consecutive records together.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i64

TASK, FRAME, TASKS, ROOM = 0, 8, 16, 24
FRAME_WORDS = 125
"""Words for the largest frame of a routine; a record is then a whole number of cache lines."""
JOB_BYTES = ROOM + 8 * FRAME_WORDS
NULL = V("ptr", "null")
TASK_PARAMETERS = [("ptr", "frame"), ("i64", "index"), ("i64", "worker")]


def is_wanted(b: Builder, job: V) -> V:
    """Returns an i1: whether the tasks are to be recorded instead of run."""
    return b.icmp("ne", job, NULL)


def frame_memory(b: Builder, job: V, words: int) -> V:
    """Returns memory for a routine's frame of so many words: in the record, if there is one."""
    assert words <= FRAME_WORDS
    own = b.alloca("i64", words)
    return b.select(is_wanted(b, job), b.offset(job, ROOM), own)


def record(b: Builder, job: V, task: V, frame: V, tasks: V) -> None:
    """Describes tasks in a record."""
    for value, at in ((task, TASK), (frame, FRAME), (tasks, TASKS)):
        b.store(value, b.offset(job, at))


def spread(b: Builder, job: V, task: V, frame: V, tasks: V, threads: V) -> None:
    """Runs the tasks of a routine on the threads of the call, or describes them if there is a record."""

    def recorded() -> list[V]:
        record(b, job, task, frame, tasks)
        return []

    def run() -> list[V]:
        b.call("void", "shlo_parallel", [task, frame, tasks, threads])
        return []

    b.if_else(is_wanted(b, job), recorded, run)


def clear(b: Builder, jobs: V, count: int) -> None:
    """Empties records, so that steps which describe no tasks have none."""
    for i in range(count):
        b.store(i64(0), b.offset(jobs, i * JOB_BYTES + TASKS))


def deal(module: ModuleText, b: Builder, jobs: V, count: int, threads: V) -> None:
    """Runs the tasks of all records, on the threads of the call."""
    tasks = i64(0)
    for i in range(count):
        tasks = b.add(tasks, b.load("i64", b.offset(jobs, i * JOB_BYTES + TASKS)))
    b.call("void", "shlo_parallel", [V("ptr", f"@{_deal_task(module)}"), jobs, tasks, threads])


def _deal_task(module: ModuleText) -> str:
    """Emits `void shlo_deal(ptr jobs, i64 index, i64 worker)`, which runs a task of one of the records. Their tasks are
    numbered one record after the other. Returns its name."""
    name = "shlo_deal"
    if name in module.functions:
        return name
    b = module.function(name, TASK_PARAMETERS, attributes="nounwind")
    jobs, index, worker = b.params
    with b.repeat([jobs, index], "job") as each:
        job, left = each.values
        tasks = b.load("i64", b.offset(job, TASKS))
        is_here = b.icmp("slt", left, tasks)
        with b.if_(is_here):
            task, frame = (b.load("ptr", b.offset(job, at)) for at in (TASK, FRAME))
            b.call_pointer("void", task, [frame, left, worker])
            b.ret_early()
        each.next(b.offset(job, JOB_BYTES), b.sub(left, tasks))
        each.again = V("i1", "true")
    b.ret()
    return name
