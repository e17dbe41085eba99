"""The thread pool, in LLVM text: no run-time library, the same code in the JIT and in an exported library.

    void @shlo_parallel(ptr task, ptr frame, i64 tasks, i64 threads)

runs `task(ptr frame, i64 index, i64 worker)` for every index in [0, tasks) and returns when all are done. `worker` is
in [0, threads), and no two tasks of one call run with the same worker number at the same time. Any thread may call it,
and so may a task.

    i32 @shlo_pool_prepare(i64 threads)

allocates everything that calls with `threads` threads need, so that they allocate nothing. Returns 0, or 1 if memory is
missing. Fewer workers than requested are no error: calls use the existing ones. Any thread may call it, also while
others are in parallel calls.

    void @shlo_pool_end()

ends the workers, waits until they no longer execute an instruction, and frees all memory. No thread may be in one of
the other two functions meanwhile; a later call starts again. Libraries call these two functions, the JIT does not: its
code stays loaded.

How a call works. The caller takes the pool's lock. If it is held (by another thread, or by the caller itself further up
its stack), the caller runs all tasks itself, so no call waits for another. It publishes the job, opens `threads - 1`
places, and takes indices like the workers. A worker joins by taking a place, whose number is the worker's. With place p
comes the p-th index from the end, so that joining and the first task are one access to a cache line that all threads
write. Then it takes indices by counting `remaining` down, and leaves. The caller takes indices from the front, the
helpers from the end. So if two threads run the same step again, each finds in its own caches the data that it read
before. At the end the caller takes the places that are still open, runs their tasks, and waits until as many workers
have left as have joined: a worker that wakes up late finds no place and does not access the job. A worker that has left
may take another place of the same job. The caller wakes a few sleeping workers, and each of those wakes a few more as
long as there are open places.

A worker that loses its core in a task makes the caller wait. `neighbors.py` says what follows from that.

Workers spin some tens of microseconds after a job and then sleep; idle, the pool uses no CPU. They block all signals.

    ptr @shlo_ask

is null, or an `i32 ask(ptr began)` that the caller's thread calls after each of its tasks, with a word that is 0 the
first time in a call. Any result other than 0 ends the call: tasks that have not begun are left out, and later calls do
nothing as long as the result stays that way. So a long step can be interrupted (see `runtime/signals.py`). Tasks of
more than some milliseconds can ask in between:

    i1 @shlo_is_stopped(ptr began)

returns whether the task shall return early; the word belongs to the task, and is 0 the first time. Only the thread that
called the program asks. The pool of a library never asks: it has neither the word nor a use for it.

    ptr @shlo_pins

is null, or a table of i64: the number of CPUs, then their numbers. The i-th worker that is started is bound to the i-th
CPU of the table, if the system has such a call. The pool of a library has no such word either.

    ptr @shlo_team

lets jobs run on threads of the host program; see `openmp.py`. The pool of a library has no such word.

There are three forms, see `Target.threads`. With `futex` or `pthread`, workers sleep by one of the mechanisms in
`waiting.py`. In the `serial` form the caller runs all tasks, and the other two functions do nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from shlo_jit import tuning
from shlo_jit.kernels.atomics import atomic, atomic_load, atomic_store, exchange
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.neighbors import note_if_late, runs_alone, store_sleep, write_neighbors
from shlo_jit.kernels.threads.openmp import TEAM, run_with_team, write_team
from shlo_jit.kernels.threads.state import (
    EPOCH,
    FRAME,
    LEFT,
    LOCK,
    MAX_WORKERS,
    PLACES,
    READY,
    REMAINING,
    RESERVED,
    SLEEPERS,
    STARTED,
    TAKEN,
    TASK,
    TASKS,
    WAITING,
    WAITING_BYTES,
    get_state,
    is_own,
    write_state,
)
from shlo_jit.kernels.threads.waiting import Conditions, Futexes, Waiting, spin, spinning
from shlo_jit.kernels.threads.workers import PINS, start_workers, write_workers

PARAMETERS = [("ptr", "task"), ("ptr", "frame"), ("i64", "tasks"), ("i64", "threads")]


def build(module: ModuleText, target: Target, form: str | None = None, asks: bool = True) -> None:
    """Emits the pool into `module`, in the target's form or in `form`: `futex`, `pthread` or `serial`. SYMBOLS get
    external linkage. `asks`: with `shlo_ask`, `shlo_pins` and `shlo_team`."""
    form = form or target.threads
    if asks:
        for word in (ASK, PINS, TEAM):
            module.define_global(word.text[1:], "global ptr null, align 8")
    _write_is_stopped(module, asks)
    if form == "serial":
        _write_serial_form(module, asks)
        return
    waiting: Waiting = {"futex": Futexes, "pthread": Conditions}[form](target)
    write_state(module, target, waiting)
    write_neighbors(module, target)
    write_workers(module, target, waiting, note_if_late, pins=asks)
    _write_run(module, asks)
    _write_rest(module, asks)
    _write_alone(module, asks)
    if asks:
        write_team(module)
    _write_parallel(module, target, waiting, asks)


SYMBOLS = ("shlo_parallel", "shlo_pool_prepare", "shlo_pool_end", "shlo_is_stopped")
ASK = V("ptr", "@shlo_ask")
THREADS = Routine("threads", (*SYMBOLS, *(word.text[1:] for word in (ASK, PINS, TEAM))), build)
"""The pool as an object that all programs of a process share."""
OF_LIBRARY = Routine("threads_of_library", SYMBOLS, functools.partial(build, asks=False))
"""The pool of an exported library."""
SERIAL = Routine("threads_serial", SYMBOLS, functools.partial(build, form="serial", asks=False))
"""The same functions without threads, for a library for any target."""


def _write_is_stopped(module: ModuleText, asks: bool) -> None:
    b = module.function("shlo_is_stopped", [("ptr", "began")], "i1", linkage="external", attributes="nounwind")
    b.ret(_is_stopped(b, b.params[0]) if asks else V("i1", "false"))


def _is_stopped(b: Builder, began: V) -> V:
    """Returns an i1: the answer of `shlo_ask`, or false if it is null."""
    ask = b.load("ptr", ASK)
    (answer,) = b.if_else(
        b.icmp("eq", ask, V("ptr", "null")), lambda: [i32(0)], lambda: [b.call_pointer("i32", ask, [began])]
    )
    return b.icmp("ne", answer, i32(0))


def _leave_if_stopped(b: Builder, asks: bool) -> None:
    """Returns early if the program is stopped: a step of several calls must not continue after an incomplete call."""
    if asks:
        with b.if_(_is_stopped(b, _word(b))):
            b.ret_early()


def _word(b: Builder) -> V:
    """Returns the address of a word that is 0."""
    word = b.alloca("i64", 1)
    b.store(i64(0), word)
    return word


def _write_serial_form(module: ModuleText, asks: bool) -> None:
    _write_alone(module, asks)
    b = module.function("shlo_parallel", PARAMETERS, linkage="external", attributes="nounwind")
    _leave_if_stopped(b, asks)
    _run_alone(b)
    b.ret()
    b = module.function("shlo_pool_prepare", [("i64", "threads")], "i32", linkage="external", attributes="nounwind")
    b.ret(i32(0))
    b = module.function("shlo_pool_end", [], linkage="external", attributes="nounwind")
    b.ret()


def _write_alone(module: ModuleText, asks: bool) -> None:
    """Emits void @shlo_pool_alone(ptr task, ptr frame, i64 tasks), which runs all tasks on the caller."""
    b = module.function("shlo_pool_alone", PARAMETERS[:3], attributes="nounwind")
    task, frame, tasks = b.params
    began = _word(b) if asks else None
    with b.loop(0, tasks) as index:
        b.call_pointer("void", task, [frame, index, i64(0)])
        if began is not None:
            with b.if_(_is_stopped(b, began)):
                b.ret_early()
    b.ret()


def _run_alone(b: Builder) -> None:
    b.call("void", "shlo_pool_alone", b.params[:3], declare=False)


def _write_run(module: ModuleText, asks: bool) -> None:
    """Emits void @shlo_pool_run(ptr state, i64 worker), which runs the task of the worker's place, takes other indices
    of the job, and runs them until none are left. Worker 0 is the caller, and has no place."""
    b = module.function("shlo_pool_run", [("ptr", "state"), ("i64", "worker")], attributes="nounwind")
    state, worker = b.params
    task = b.load("ptr", b.offset(state, TASK))
    frame = b.load("ptr", b.offset(state, FRAME))
    tasks = b.load("i64", b.offset(state, TASKS))
    remaining, taken = b.offset(state, REMAINING), b.offset(state, TAKEN)
    free = b.sub(tasks, b.load("i64", b.offset(state, RESERVED)))
    began = _word(b) if asks else None

    def run_all(index_after: Callable[[V], V], began: V | None = None) -> list[V]:
        """Runs tasks. `index_after(tasks that this thread has run)` is the next index. With `began`, it asks."""
        with b.loop(0, tasks, hint="task") as done:
            with b.if_(b.icmp("sle", atomic(b, "sub", remaining, i64(1), "acq_rel"), 0)):
                b.ret_early()
            b.call_pointer("void", task, [frame, index_after(done), worker])
            if began is not None:
                with b.if_(_is_stopped(b, began)):
                    atomic_store(b, i64(0), remaining, "release")
                    b.ret_early()
        return []

    def from_the_end(_: V) -> V:
        return b.sub(b.sub(free, 1), atomic(b, "add", taken, i64(1), "monotonic"))

    def run_with_place() -> list[V]:
        b.call_pointer("void", task, [frame, b.sub(tasks, worker), worker])
        with b.if_(b.icmp("sle", free, 1)):  # the caller's
            b.ret_early()
        return run_all(from_the_end)

    b.if_else(b.icmp("eq", worker, 0), lambda: run_all(lambda done: done, began), run_with_place)
    b.ret()


def _write_rest(module: ModuleText, asks: bool) -> None:
    """Emits i32 @shlo_pool_rest(ptr state, ptr places), by which the caller runs the tasks of the places that are still
    open, and closes these. Returns their number."""
    b = module.function("shlo_pool_rest", [("ptr", "state"), ("ptr", "places")], "i32", attributes="nounwind")
    state, places = b.params
    task, frame = (b.load("ptr", b.offset(state, at)) for at in (TASK, FRAME))
    tasks = b.load("i64", b.offset(state, TASKS))
    began = _word(b) if asks else None
    with b.repeat([i32(0)], "place") as each:
        (count,) = each.values
        place = atomic(b, "sub", places, i32(1), "acq_rel")
        with b.if_(b.icmp("sle", place, i32(0))):
            b.ret_early(count)
        stopped = V("i1", "false") if began is None else _is_stopped(b, began)
        with b.if_(b.not_(stopped)):
            b.call_pointer("void", task, [frame, b.sub(tasks, b.cast("sext", place, "i64")), i64(0)])
        each.next(b.add(count, i32(1)))
        each.again = V("i1", "true")
    b.ret(i32(0))


def _write_parallel(module: ModuleText, target: Target, waiting: Waiting, asks: bool) -> None:
    b = module.function("shlo_parallel", PARAMETERS, linkage="external", attributes=spinning(target))
    _leave_if_stopped(b, asks)
    _, _, tasks, threads = b.params
    several, alone, known, own, free, job = (
        b.label(n) for n in ("several", "alone", "known", "own", "free", "job")
    )
    hands = b.min_(tasks, threads)
    b.branch_if(b.icmp("sgt", hands, 1), several, alone)

    b.start(alone)
    _run_alone(b)
    b.line("ret void")

    b.start(several)
    state = get_state(b)
    b.branch_if(b.icmp("eq", state, V("ptr", "null")), alone, known)

    b.start(known)
    b.branch_if(is_own(b, state), own, alone)

    b.start(own)
    b.branch_if(runs_alone(b, target, state, hands), alone, free)

    b.start(free)
    lock = b.offset(state, LOCK)
    b.branch_if(exchange(b, lock, i32(0), i32(1)), job, alone)

    b.start(job)
    helpers = b.cast("trunc", b.min_(b.sub(hands, 1), MAX_WORKERS), "i32")
    _store_job(b, state, helpers)
    done = run_with_team(b, state, helpers) if asks else V("i1", "false")
    with b.if_(b.not_(done)):
        with b.if_(b.icmp("slt", atomic_load(b, "i32", b.offset(state, READY), "monotonic"), helpers)):
            start_workers(b, state, helpers, settled=False)
        _run_job(b, target, waiting, state, helpers)
    atomic_store(b, i32(0), lock, "release")
    b.ret()


def _store_job(b: Builder, state: V, helpers: V) -> None:
    """Stores the job for whoever takes a place. The caller holds the lock."""
    task, frame, tasks, _ = b.params
    b.store(task, b.offset(state, TASK))
    b.store(frame, b.offset(state, FRAME))
    b.store(tasks, b.offset(state, TASKS))
    atomic_store(b, i64(0), b.offset(state, TAKEN), "monotonic")
    reserved = b.cast("sext", helpers, "i64")
    b.store(reserved, b.offset(state, RESERVED))
    atomic_store(b, b.sub(tasks, reserved), b.offset(state, REMAINING), "monotonic")


def _run_job(b: Builder, target: Target, waiting: Waiting, state: V, helpers: V) -> None:
    """Publishes the job to the workers, works on it, and waits for them. The caller holds the lock."""
    places, left, epoch = b.offset(state, PLACES), b.offset(state, LEFT), b.offset(state, EPOCH)
    atomic_store(b, i32(0), left, "monotonic")
    atomic_store(b, helpers, places, "release")  # publishes the stores above to the workers that take a place
    # The order of these two against a sleeper's (add to SLEEPERS, then wait on EPOCH) rules out a lost wake-up.
    atomic(b, "add", epoch, i32(1), "seq_cst")
    sleepers = atomic_load(b, "i32", b.offset(state, SLEEPERS))
    awake = b.sub(atomic_load(b, "i32", b.offset(state, STARTED), "monotonic"), sleepers)
    missing = b.min_(b.sub(helpers, awake), i32(tuning.WOKEN_WORKERS))
    with b.if_(b.icmp("sgt", missing, i32(0))):
        waiting.wake(b, b.offset(state, WAITING_BYTES), epoch, missing, of_caller=False)

    b.call("void", "shlo_pool_run", [state, i64(0)], declare=False)

    joined = b.sub(helpers, b.call("i32", "shlo_pool_rest", [state, places], declare=False))
    # Acquires the results that the tasks of the workers which have left have written.
    done = spin(b, target, lambda: b.icmp("eq", atomic_load(b, "i32", left, "acquire"), joined))
    with b.if_(b.not_(done)):
        store_sleep(b, target, state, helpers)
        _sleep_until_left(b, waiting, state, joined)


def _sleep_until_left(b: Builder, waiting: Waiting, state: V, joined: V) -> None:
    """Sleeps until the helpers have left. Sequentially consistent: a worker that leaves after LEFT is read here sees
    WAITING and wakes the caller."""
    left, asleep = b.offset(state, LEFT), b.offset(state, WAITING)
    again, sleep, end = b.label("again"), b.label("sleep"), b.label("awake")
    atomic_store(b, i32(1), asleep, "seq_cst")
    b.branch(again)
    b.start(again)
    so_far = atomic_load(b, "i32", left)
    b.branch_if(b.icmp("eq", so_far, joined), end, sleep)
    b.start(sleep)
    waiting.wait(b, b.offset(state, WAITING_BYTES), left, so_far, of_caller=True)
    b.branch(again)
    b.start(end)
    atomic_store(b, i32(0), asleep, "monotonic")
