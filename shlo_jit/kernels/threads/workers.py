"""The pool's workers: their start, their loop, and their end."""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit import tuning
from shlo_jit.kernels.atomics import atomic, atomic_load, atomic_store, exchange
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.state import (
    EPOCH,
    HANDLES,
    LEFT,
    MAX_WORKERS,
    PLACES,
    POOL,
    QUIT,
    READY,
    SLEEPERS,
    STARTED,
    STARTING,
    WAITING,
    WAITING_BYTES,
    free_state,
    get_state,
    is_own,
)
from shlo_jit.kernels.threads.waiting import EVERYBODY, Waiting, spin, spinning

Note = Callable[[Builder, Target, V, V], None]
"""See `neighbors.note_if_late`."""
STACK_BYTES = 2 << 20
"""Stack of a worker. musl's default is 128 KiB; tasks keep up to 256 KiB of intermediate values on the stack."""
ATTRIBUTE_BYTES = 128
"""Size of a thread's attributes (56 or 64 bytes) and of a set of signals (4 to 128 bytes), rounded up."""
PINS = V("ptr", "@shlo_pins")
MOST_CPUS = 8 * ATTRIBUTE_BYTES
"""CPUs that a thread's mask can have."""


def write_workers(module: ModuleText, target: Target, waiting: Waiting, note_if_late: Note, pins: bool) -> None:
    """Emits the functions of workers. `note_if_late` emits what a worker does that the caller has slept for. `pins`:
    with `shlo_pins`, if the system can bind threads."""
    _write_worker(module, target, waiting, note_if_late)
    _write_start(module, target, pins and target.system == "linux")
    _write_prepare(module)
    _write_end(module, waiting)


def start_workers(b: Builder, state: V, want: V, settled: bool) -> None:
    """Ensures that there are `want` workers (i32), or as many as can be started. `settled`: later calls that could use
    that many take the existing ones; otherwise they try again."""
    b.call("void", "shlo_pool_start", [state, want, V("i1", "true" if settled else "false")], declare=False)


def _write_worker(module: ModuleText, target: Target, waiting: Waiting, note_if_late: Note) -> None:
    """Emits ptr @shlo_pool_worker(ptr state), the loop of a worker."""
    b = module.function("shlo_pool_worker", [("ptr", "state")], "ptr", attributes=spinning(target))
    (state,) = b.params
    objects = b.offset(state, WAITING_BYTES)
    taken_off = b.alloca("i64", 1)
    b.store(i64(0), taken_off)
    epoch, places, sleepers = (b.offset(state, at) for at in (EPOCH, PLACES, SLEEPERS))
    again, look, join, work, idle, sleep, end = (
        b.label(n) for n in ("again", "look", "join", "work", "idle", "sleep", "end")
    )
    b.branch(again)

    # QUIT is set before the epoch changes for the last time. A worker that reads that epoch sees QUIT; a worker that
    # reads an earlier one finds it changed, below, and comes back.
    b.start(again)
    seen = atomic_load(b, "i32", epoch)
    b.branch_if(b.icmp("eq", atomic_load(b, "i32", b.offset(state, QUIT), "monotonic"), i32(0)), look, end)

    b.start(look)  # places are checked first, so that a job published before `seen` was read is not missed
    open_places = atomic_load(b, "i32", places)
    b.branch_if(b.icmp("sgt", open_places, i32(0)), join, idle)

    b.start(join)  # acquires the job, which was written before its places were opened
    place = atomic(b, "sub", places, i32(1), "acq_rel")
    b.branch_if(b.icmp("sgt", place, i32(0)), work, idle)

    b.start(work)
    b.call("void", "shlo_pool_run", [state, b.cast("sext", place, "i64")], declare=False)
    # Sequentially consistent: either the caller sees this worker leave before it sleeps, or the worker sees it waiting.
    left = b.offset(state, LEFT)
    atomic(b, "add", left, i32(1), "seq_cst")
    asleep = atomic_load(b, "i32", b.offset(state, WAITING))
    with b.if_(b.icmp("ne", asleep, i32(0))):
        waiting.wake(b, objects, left, i32(1), of_caller=True)
        note_if_late(b, target, state, taken_off)
    b.branch(again)

    b.start(idle)
    changed = spin(b, target, lambda: b.icmp("ne", atomic_load(b, "i32", epoch, "monotonic"), seen))
    b.branch_if(changed, again, sleep)

    b.start(sleep)
    atomic(b, "add", sleepers, i32(1), "seq_cst")
    waiting.wait(b, objects, epoch, seen, of_caller=False)
    others = b.sub(atomic(b, "sub", sleepers, i32(1), "seq_cst"), i32(1))
    places_of_others = b.sub(atomic_load(b, "i32", places), i32(1))
    more = b.min_(b.min_(others, places_of_others), i32(tuning.WOKEN_WORKERS))
    with b.if_(b.icmp("sgt", more, i32(0))):
        waiting.wake(b, objects, epoch, more, of_caller=False)
    b.branch(again)

    b.start(end)
    b.ret(V("ptr", "null"))


def _write_start(module: ModuleText, target: Target, pins: bool) -> None:
    """Emits void @shlo_pool_start(ptr state, i32 want, i1 settled); see `start_workers`.

    It has a separate lock: preparing does not wait for a job that another thread may be running.
    """
    params = [("ptr", "state"), ("i32", "want"), ("i1", "settled")]
    b = module.function("shlo_pool_start", params, attributes="nounwind noinline cold")
    state, want, settled = b.params
    lock, started, ready = (b.offset(state, at) for at in (STARTING, STARTED, READY))
    attributes, every, old = (b.alloca("i8", ATTRIBUTE_BYTES) for _ in range(3))
    with b.repeat([]) as attempt:
        free = exchange(b, lock, i32(0), i32(1))
        with b.if_(b.not_(free)):
            b.call("i32", "sched_yield", [])
        attempt.again = b.not_(free)

    # Signals stay with the threads of the host program.
    set_mask = i32(3 if target.system == "macos" else 2)
    b.memset(every, 0xFF, ATTRIBUTE_BYTES)
    b.call("i32", "pthread_sigmask", [set_mask, every, old])
    b.call("i32", "pthread_attr_init", [attributes])
    b.call("i32", "pthread_attr_setstacksize", [attributes, i64(STACK_BYTES)])
    have = b.load("i32", started)
    with b.if_(b.icmp("slt", have, want)), b.repeat([have]) as creation:
        (number,) = creation.values
        handle = b.element(b.offset(state, HANDLES), "i64", b.cast("sext", number, "i64"))
        worker = V("ptr", "@shlo_pool_worker")
        status = b.call("i32", "pthread_create", [handle, attributes, worker, state])
        created = b.icmp("eq", status, i32(0))
        if pins:
            with b.if_(b.and_(created, b.icmp("ne", b.load("ptr", PINS), V("ptr", "null")))):
                _pin(b, b.load("i64", handle), b.cast("sext", number, "i64"))
        following = b.add(number, b.cast("zext", created, "i32"))
        atomic_store(b, following, started, "monotonic")
        creation.next(following)
        creation.again = b.and_(created, b.icmp("slt", following, want))
    b.call("i32", "pthread_attr_destroy", [attributes])
    b.call("i32", "pthread_sigmask", [set_mask, old, V("ptr", "null")])

    enough = b.select(settled, want, b.load("i32", started))
    atomic_store(b, b.max_(b.load("i32", ready), enough), ready, "monotonic")
    atomic_store(b, i32(0), lock, "release")
    b.ret()


def _pin(b: Builder, thread: V, number: V) -> None:
    """Binds the worker with this number to its CPU. A CPU that the process has lost meanwhile is no error: the worker
    runs anywhere."""
    table, mask = b.load("ptr", PINS), b.alloca("i8", ATTRIBUTE_BYTES)
    cpu = b.load("i64", b.element(b.offset(table, 8), "i64", b.urem(number, b.load("i64", table))))
    b.memset(mask, 0, ATTRIBUTE_BYTES)
    b.store(b.shl(i64(1), b.urem(cpu, 64)), b.element(mask, "i64", b.udiv(cpu, 64)))
    b.call("i32", "pthread_setaffinity_np", [thread, i64(ATTRIBUTE_BYTES), mask])


def _write_prepare(module: ModuleText) -> None:
    """Emits i32 @shlo_pool_prepare(i64 threads)."""
    b = module.function("shlo_pool_prepare", [("i64", "threads")], "i32", linkage="external", attributes="nounwind")
    (threads,) = b.params
    with b.if_(b.icmp("sle", threads, 1)):
        b.ret_early(i32(0))
    state = get_state(b)
    with b.if_(b.icmp("eq", state, V("ptr", "null"))):
        b.ret_early(i32(1))
    with b.if_(is_own(b, state)):
        start_workers(b, state, b.cast("trunc", b.min_(b.sub(threads, 1), MAX_WORKERS), "i32"), settled=True)
    b.ret(i32(0))


def _write_end(module: ModuleText, waiting: Waiting) -> None:
    """Emits void @shlo_pool_end()."""
    b = module.function("shlo_pool_end", [], linkage="external", attributes="nounwind")
    state = atomic_load(b, "ptr", POOL, "acquire")
    with b.if_(b.icmp("eq", state, V("ptr", "null"))):
        b.ret_early()
    is_own(b, state)  # in a forked child there are no workers, and the state then belongs to the child
    epoch = b.offset(state, EPOCH)
    atomic_store(b, i32(1), b.offset(state, QUIT), "monotonic")
    atomic(b, "add", epoch, i32(1), "seq_cst")  # releases QUIT
    waiting.wake(b, b.offset(state, WAITING_BYTES), epoch, i32(EVERYBODY), of_caller=False)
    with b.loop(i32(0), b.load("i32", b.offset(state, STARTED)), V("i32", "1")) as number:
        handle = b.element(b.offset(state, HANDLES), "i64", b.cast("sext", number, "i64"))
        b.call("i32", "pthread_join", [b.load("i64", handle), V("ptr", "null")])
    free_state(b, state, waiting)
    b.ret()
