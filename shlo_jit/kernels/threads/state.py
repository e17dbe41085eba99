"""The state of the pool: its layout, how it is allocated and freed, and how a forked child resets it.

It is a separate block of memory; the only writable global of the pool points to it. All zeroes is the state of a pool
without workers, so a child starts with that: the kernel zeroes its copy (MADV_WIPEONFORK). Where the kernel cannot, the
first thread of the child that uses the state finds another process id and zeroes it.
"""

from __future__ import annotations

from shlo_jit.kernels.atomics import atomic_load, atomic_store, exchange
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.waiting import Waiting

# Byte offsets; data written by different threads is in different cache lines.
LOCK = 0
"""Held by the thread that runs a job."""
ALONE_UNTIL = 8
"""The time until which jobs of two threads run on the caller, or 0; see `neighbors.py`."""
EPOCH, SLEEPERS = 64, 68
"""The number of jobs so far, on which sleepers wait; and the number of sleepers."""
PLACES, TEAM_PLACES = 128, 132
"""Places of a job that workers can take, or threads of a team (see `openmp.py`)."""
TASK, FRAME, TASKS, RESERVED = 192, 200, 208, 216
"""The job. The last `RESERVED` tasks belong to the places: whoever takes place p runs the p-th from the end."""
REMAINING, TAKEN = 256, 264
"""Tasks without a place that have not been taken, below 0 at the end; and the number of those that helpers have
taken."""
LEFT, WAITING = 320, 324
"""Workers that have left the job, and whether the caller sleeps until all have left."""
SLEPT_AT = 328
"""When the caller of a job of two threads went to sleep, or 0."""
LATE_BEFORE = 336
"""When a worker was late last, or jobs ceased to run on the caller for that; see `neighbors.py`."""
STARTING, STARTED, READY, QUIT = 384, 388, 392, 396
"""The lock for starting workers; the number of workers; the number of helpers up to which a call takes the existing
ones; whether all workers are to end."""
CHECK, PID = 448, 452
"""Whether calls compare process ids, and the process that owns the state. All before is zeroed in a child."""
WAITING_BYTES = 512
"""Offset of the objects of `waiting.py`."""
HANDLES = 1024
"""Offset of the workers' handles: 8 bytes each in every C library."""

MAX_WORKERS = 1023
STATE_BYTES = 1 << 16
"""A multiple of every machine's page size."""
assert HANDLES + 8 * MAX_WORKERS <= STATE_BYTES
POOL = V("ptr", "@shlo_pool")


def write_state(module: ModuleText, target: Target, waiting: Waiting) -> None:
    """Emits the global, and the functions that return the state."""
    module.define_global(POOL.text[1:], "internal global ptr null, align 64")
    _write_new(module, target, waiting)
    _write_own(module, waiting)


def get_state(b: Builder) -> V:
    """Returns the state, allocated if there is none; null if there is no memory for it."""
    known = atomic_load(b, "ptr", POOL, "acquire")
    (state,) = b.if_else(
        b.icmp("eq", known, V("ptr", "null")),
        lambda: [b.call("ptr", "shlo_pool_new", [], declare=False)],
        lambda: [known],
    )
    return state


def is_own(b: Builder, state: V) -> V:
    """Returns an i1: whether the state belongs to this process, after an attempt to take it over."""
    return b.call("i1", "shlo_pool_own", [state], declare=False)


def free_state(b: Builder, state: V, waiting: Waiting) -> None:
    """Frees the state. A later call finds no pool."""
    atomic_store(b, V("ptr", "null"), POOL, "release")
    waiting.destroy(b, b.offset(state, WAITING_BYTES))
    b.call("i32", "munmap", [state, i64(STATE_BYTES)])


def _write_new(module: ModuleText, target: Target, waiting: Waiting) -> None:
    """Emits ptr @shlo_pool_new(), which allocates the state; it returns null if there is no memory for it."""
    b = module.function("shlo_pool_new", [], "ptr", attributes="nounwind noinline cold")
    size = i64(STATE_BYTES)
    read_and_write, private_and_anonymous = i32(3), i32(0x1002 if target.system == "macos" else 0x22)
    page = b.call("ptr", "mmap", [V("ptr", "null"), size, read_and_write, private_and_anonymous, i32(-1), i64(0)])
    with b.if_(b.icmp("eq", b.cast("ptrtoint", page, "i64"), i64(-1))):
        b.ret_early(V("ptr", "null"))
    if waiting.wiped_on_fork:
        kept = b.call("i32", "madvise", [page, size, i32(18)])  # MADV_WIPEONFORK
        b.store(b.cast("zext", b.icmp("ne", kept, i32(0)), "i32"), b.offset(page, CHECK))
    else:
        b.store(i32(1), b.offset(page, CHECK))
    b.store(b.call("i32", "getpid", []), b.offset(page, PID))
    waiting.make(b, b.offset(page, WAITING_BYTES))
    # Release, so that threads that find the state also see the stores above.
    pair = b.emit("{ptr, i1}", f"cmpxchg ptr {POOL.text}, ptr null, ptr {page.text} acq_rel acquire")
    won = b.emit("i1", f"extractvalue {{ptr, i1}} {pair.text}, 1")
    with b.if_(b.not_(won)):  # another thread was faster
        waiting.destroy(b, b.offset(page, WAITING_BYTES))
        b.call("i32", "munmap", [page, size])
        b.ret_early(b.emit("ptr", f"extractvalue {{ptr, i1}} {pair.text}, 0"))
    b.ret(page)


def _write_own(module: ModuleText, waiting: Waiting) -> None:
    """Emits i1 @shlo_pool_own(ptr state): whether the state belongs to this process. In a child of the owner, the first
    thread to ask takes it over for the child; other threads of the child that ask meanwhile get false."""
    b = module.function("shlo_pool_own", [("ptr", "state")], "i1", attributes="nounwind")
    (state,) = b.params
    yes, no = V("i1", "true"), V("i1", "false")
    with b.if_(b.icmp("eq", b.load("i32", b.offset(state, CHECK)), i32(0))):
        b.ret_early(yes)
    process, owner = b.call("i32", "getpid", []), b.offset(state, PID)
    seen = atomic_load(b, "i32", owner, "acquire")
    with b.if_(b.icmp("eq", seen, process)):
        b.ret_early(yes)
    # The negative of this process's id means that one of its threads is taking the state over. That of another process
    # is left from a fork, and is treated like any other foreign id.
    taken = b.sub(i32(0), process)
    with b.if_(b.icmp("eq", seen, taken)):
        b.ret_early(no)
    with b.if_(b.not_(exchange(b, owner, seen, taken))):
        b.ret_early(no)
    b.memset(state, 0, CHECK)
    waiting.make(b, b.offset(state, WAITING_BYTES))
    atomic_store(b, process, owner, "release")  # so that threads that read this id also see the zeroes
    b.ret(yes)
