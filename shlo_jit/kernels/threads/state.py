"""The state of the pool: what it consists of, how it is made and freed, and what becomes of it in a forked child.

It is memory of its own, found by the one writable global of the pool. All zeroes is the state of a pool that has no
workers yet, so that is what a child begins with: the kernel zeroes its copy (MADV_WIPEONFORK), and where it cannot,
whoever comes first there compares process ids and does it.
"""

from __future__ import annotations

from shlo_jit.kernels.atomics import atomic_load, atomic_store, exchange
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.waiting import Waiting

# Byte offsets, a cache line for each thing that different threads write.
LOCK = 0
"""Held by who runs a job."""
EPOCH, SLEEPERS = 64, 68
"""The number of jobs so far, which sleepers wait on; and how many sleep."""
PLACES = 128
TASK, FRAME, TASKS = 192, 200, 208
REMAINING, TAKEN = 256, 264
"""Tasks that nobody has taken, below 0 at the end; and how many helpers have taken."""
LEFT, WAITING = 320, 324
"""Workers that have left the job, and whether the caller sleeps until they have."""
STARTING, STARTED, READY, QUIT = 384, 388, 392, 396
"""A lock on starting workers; how many there are; up to how many helpers a call takes what there is; whether all are
to end."""
CHECK, PID = 448, 452
"""Whether calls compare process ids, and of which process the state is. All before is zeroed in a child."""
WAITING_BYTES = 512
"""Where the objects of `waiting.py` are."""
HANDLES = 1024
"""Of the workers: 8 bytes each in every C library."""

MAX_WORKERS = 1023
STATE_BYTES = 1 << 16
"""A page, whatever the machine's page size."""
assert HANDLES + 8 * MAX_WORKERS <= STATE_BYTES
POOL = V("ptr", "@shlo_pool")


def write_state(module: ModuleText, target: Target, waiting: Waiting) -> None:
    """The global, and the functions that the others get the state by."""
    module.define_global(POOL.text[1:], "internal global ptr null, align 64")
    _write_new(module, target, waiting)
    _write_own(module, waiting)


def get_state(b: Builder) -> V:
    """The state, made if there is none; null when there is no memory for it."""
    known = atomic_load(b, "ptr", POOL, "acquire")
    (state,) = b.if_else(
        b.icmp("eq", known, V("ptr", "null")),
        lambda: [b.call("ptr", "shlo_pool_new", [], declare=False)],
        lambda: [known],
    )
    return state


def is_own(b: Builder, state: V) -> V:
    """i1: whether the state is this process's by now."""
    return b.call("i1", "shlo_pool_own", [state], declare=False)


def free_state(b: Builder, state: V, waiting: Waiting) -> None:
    """What a later call finds is no pool."""
    atomic_store(b, V("ptr", "null"), POOL, "release")
    waiting.destroy(b, b.offset(state, WAITING_BYTES))
    b.call("i32", "munmap", [state, i64(STATE_BYTES)])


def _write_new(module: ModuleText, target: Target, waiting: Waiting) -> None:
    """ptr @shlo_pool_new(): make the state; null when there is no memory for it."""
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
    # Release, so that whoever finds the state finds what was stored above.
    pair = b.emit("{ptr, i1}", f"cmpxchg ptr {POOL.text}, ptr null, ptr {page.text} acq_rel acquire")
    won = b.emit("i1", f"extractvalue {{ptr, i1}} {pair.text}, 1")
    with b.if_(b.not_(won)):  # another thread was faster
        waiting.destroy(b, b.offset(page, WAITING_BYTES))
        b.call("i32", "munmap", [page, size])
        b.ret_early(b.emit("ptr", f"extractvalue {{ptr, i1}} {pair.text}, 0"))
    b.ret(page)


def _write_own(module: ModuleText, waiting: Waiting) -> None:
    """i1 @shlo_pool_own(ptr state): whether the state is this process's. In a child of the process whose it was, the
    first to ask makes it the child's; threads of the child that ask meanwhile hear no."""
    b = module.function("shlo_pool_own", [("ptr", "state")], "i1", attributes="nounwind")
    (state,) = b.params
    yes, no = V("i1", "true"), V("i1", "false")
    with b.if_(b.icmp("eq", b.load("i32", b.offset(state, CHECK)), i32(0))):
        b.ret_early(yes)
    process, owner = b.call("i32", "getpid", []), b.offset(state, PID)
    seen = atomic_load(b, "i32", owner, "acquire")
    with b.if_(b.icmp("eq", seen, process)):
        b.ret_early(yes)
    # The negative of this process's id says that one of its threads is at it. That of another process is what a fork
    # left behind, like any other foreign id.
    taken = b.sub(i32(0), process)
    with b.if_(b.icmp("eq", seen, taken)):
        b.ret_early(no)
    with b.if_(b.not_(exchange(b, owner, seen, taken))):
        b.ret_early(no)
    b.memset(state, 0, CHECK)
    waiting.make(b, b.offset(state, WAITING_BYTES))
    atomic_store(b, process, owner, "release")  # so that who reads this id finds zeroes
    b.ret(yes)
