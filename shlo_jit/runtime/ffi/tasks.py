"""Machine code of the thread pool that handlers may schedule tasks on.

    void @schedule(ptr task, ptr data, i64 threads)

makes a worker run `task(data)`. If all workers are busy, a new one starts, up to `threads` of them. With one thread,
and without memory or workers, the task runs synchronously. Workers belong to this pool only: a task may wait for
another, and workers of `kernels/threads/` run the work of a program's kernels to completion. They live until the
process ends; a child of a fork starts with an empty pool.
"""

from __future__ import annotations

import ctypes

from shlo_jit.kernels.atomics import atomic_load, atomic_store, exchange
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, const, i32, i64
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.waiting import OBJECT_BYTES, relax
from shlo_jit.runtime.ffi.struct_fields import NULL, get, place, put


class Pool(ctypes.Structure):
    """State that the threads share; all except `process` is guarded by the mutex. A new one is zero."""

    _fields_ = [
        ("mutex", ctypes.c_char * OBJECT_BYTES),
        ("condition", ctypes.c_char * OBJECT_BYTES),  # signals a new task
        ("first", ctypes.c_void_p),  # first task that no worker has begun; null if there is none
        ("last", ctypes.c_void_p),
        ("waiting", ctypes.c_int64),  # number of tasks in the queue
        ("idle", ctypes.c_int64),  # number of workers that wait for a task
        ("workers", ctypes.c_int64),
        ("process", ctypes.c_int32),  # the pool's process; negated while one of its threads initializes the pool
    ]


class Task(ctypes.Structure):
    """A task that is scheduled."""

    _fields_ = [("task", ctypes.c_void_p), ("data", ctypes.c_void_p), ("next", ctypes.c_void_p)]


POOL = V("ptr", "@pool")


def write(module: ModuleText, target: Target) -> None:
    """Writes `schedule`."""
    module.define_global("pool", f"internal global [{ctypes.sizeof(Pool)} x i8] zeroinitializer, align 64")
    _write_take(module)
    _write_worker(module)
    _write_own(module, target)
    _write_schedule(module)


def _lock(b: Builder) -> None:
    b.call("i32", "pthread_mutex_lock", [place(b, POOL, Pool, "mutex")])


def _unlock(b: Builder) -> None:
    b.call("i32", "pthread_mutex_unlock", [place(b, POOL, Pool, "mutex")])


def _count(b: Builder, name: str, by: int) -> None:
    put(b, b.add(get(b, "i64", POOL, Pool, name), by), POOL, Pool, name)


def _run(b: Builder, node: V) -> None:
    """Runs a task that has been taken."""
    b.call_pointer("void", get(b, "ptr", node, Task, "task"), [get(b, "ptr", node, Task, "data")])
    b.call("void", "free", [node])


def _write_take(module: ModuleText) -> None:
    """Writes the function that takes the first task, with the mutex held; it returns null if there is none."""
    b = module.function("take", [], "ptr", attributes="nounwind")
    node = get(b, "ptr", POOL, Pool, "first")
    with b.if_(b.icmp("ne", node, NULL)):
        put(b, get(b, "ptr", node, Task, "next"), POOL, Pool, "first")
        _count(b, "waiting", -1)
    b.ret(node)


def _write_worker(module: ModuleText) -> None:
    b = module.function("worker", [("ptr", "nothing")], "ptr", attributes="nounwind")
    _lock(b)
    with b.repeat([]) as loop:
        node = b.call("ptr", "take", [], declare=False)

        def wait() -> list[V]:
            _count(b, "idle", 1)
            b.call("i32", "pthread_cond_wait", [place(b, POOL, Pool, "condition"), place(b, POOL, Pool, "mutex")])
            _count(b, "idle", -1)
            return []

        def work() -> list[V]:
            _unlock(b)
            _run(b, node)
            _lock(b)
            return []

        b.if_else(b.icmp("eq", node, NULL), wait, work)
        loop.again = const("i1", 1)
    b.ret(NULL)


def _write_own(module: ModuleText, target: Target) -> None:
    """Writes the function that initializes the pool in a new process: the state that a fork copied is invalid."""
    b = module.function("own", [], attributes="nounwind")
    process, owner = b.call("i32", "getpid", []), place(b, POOL, Pool, "process")
    taken = b.sub(i32(0), process)
    with b.repeat([]) as loop:
        seen = atomic_load(b, "i32", owner, "acquire")
        with b.if_(b.icmp("eq", seen, process)):
            b.ret_early()
        relax(b, target)
        is_other = b.icmp("ne", seen, taken)
        with b.if_(is_other), b.if_(exchange(b, owner, seen, taken)):
            b.memset(POOL, 0, Pool.process.offset)
            atomic_store(b, process, owner, "release")
            b.ret_early()
        loop.again = const("i1", 1)
    b.ret()


def _write_schedule(module: ModuleText) -> None:
    b = module.function("schedule", [("ptr", "task"), ("ptr", "data"), ("i64", "threads")], attributes="nounwind")
    task, data, threads = b.params
    inline, several, alone = b.label("inline"), b.label("several"), b.label("alone")
    b.branch_if(b.icmp("sgt", threads, 1), several, inline)
    b.start(inline)
    b.call_pointer("void", task, [data])
    b.line("ret void")
    b.start(several)
    node = b.call("ptr", "malloc", [i64(ctypes.sizeof(Task))])
    there = b.label("there")
    b.branch_if(b.icmp("ne", node, NULL), there, inline)
    b.start(there)
    for value, name in ((task, "task"), (data, "data"), (NULL, "next")):
        put(b, value, node, Task, name)
    b.call("void", "own", [], declare=False)
    _lock(b)
    is_first = b.icmp("eq", get(b, "ptr", POOL, Pool, "first"), NULL)
    link = b.select(is_first, place(b, POOL, Pool, "first"), place(b, get(b, "ptr", POOL, Pool, "last"), Task, "next"))
    b.store(node, link)
    put(b, node, POOL, Pool, "last")
    _count(b, "waiting", 1)
    b.call("i32", "pthread_cond_signal", [place(b, POOL, Pool, "condition")])
    workers = get(b, "i64", POOL, Pool, "workers")
    all_busy = b.icmp("sgt", get(b, "i64", POOL, Pool, "waiting"), get(b, "i64", POOL, Pool, "idle"))
    with b.if_(b.and_(all_busy, b.icmp("slt", workers, threads))):
        thread = b.alloca("i64", align=8)
        started = b.call("i32", "pthread_create", [thread, NULL, V("ptr", "@worker"), NULL])
        with b.if_(b.icmp("eq", started, i32(0))):
            b.call("i32", "pthread_detach", [b.load("i64", thread)])
            _count(b, "workers", 1)
    no_workers = b.icmp("eq", get(b, "i64", POOL, Pool, "workers"), 0)
    mine = b.label("mine")
    b.branch_if(no_workers, mine, alone)
    b.start(mine)
    first = b.call("ptr", "take", [], declare=False)
    _unlock(b)
    with b.if_(b.icmp("ne", first, NULL)):
        _run(b, first)
    b.line("ret void")
    b.start(alone)
    _unlock(b)
    b.ret()
