"""The thread pool, in LLVM text: no run-time library, the same object in the JIT and in an exported `.so`.

    void @shlo_parallel(ptr task, ptr frame, i64 tasks, i64 threads)

runs `task(ptr frame, i64 index, i64 worker)` for every index in [0, tasks) and returns when all are done. `worker` is
in [0, threads) and no two tasks of one call run with the same worker number at the same time.

How a call works. The caller takes the pool's lock; when somebody else holds it (another thread, or the caller itself
further up its stack) it runs all tasks itself, so nothing ever waits for the pool. It publishes the job, opens
`threads - 1` places, and takes indices like everybody else. A worker joins by taking a place (its number is the
place's), takes indices by counting `remaining` down, and leaves. At the end the caller closes the places, sees from
their number how many had joined, and waits for that many to leave: a worker that wakes up late finds no place and
touches nothing of the job.

Workers spin some tens of microseconds after a job and then sleep in a futex; idle, the pool uses no CPU. They are
detached, block all signals and last as long as the process.

Fork. The state is a page of its own that the kernel zeroes in the child (MADV_WIPEONFORK), and all zeroes is the
state of a pool that has no workers yet. Where the kernel cannot do that, each call compares process ids instead.

Linux on x86-64 and AArch64.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder, ModuleText, V, i32, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target

# Byte offsets in the state, a cache line for each thing that different threads write.
LOCK = 0
EPOCH, SLEEPERS = 64, 68
"""The number of jobs so far, which sleepers wait on; and how many sleep."""
PLACES = 128
TASK, FRAME, TASKS = 192, 200, 208
REMAINING = 256
LEFT, WAITING = 320, 324
"""Workers that have left the job, and whether the caller sleeps until they have."""
STARTED, CHECK, PID = 384, 388, 392

STATE_BYTES = 1 << 16
"""A page, whatever the machine's page size."""
MAX_WORKERS = 1023
FUTEX_WAIT, FUTEX_WAKE = 128, 129
"""With FUTEX_PRIVATE_FLAG."""


class _Writer:
    """Writes the pool's functions into a module."""

    def __init__(self, module: ModuleText, target: Target) -> None:
        self.module = module
        self.x86 = target.is_x86

    def function(self, name: str, params: list[tuple[str, str]], ret: str = "void", attributes: str = "") -> Builder:
        linkage = "external" if name == "shlo_parallel" else "internal"
        return self.module.function(name, params, ret, linkage=linkage, attributes=f"nounwind {attributes}")

    def pause(self, b: Builder) -> None:
        """Tell the core that this is a spin loop."""
        if self.x86:
            b.call("void", "llvm.x86.sse2.pause", [])
        else:
            b.call("void", "llvm.aarch64.hint", [i32(1)])

    def futex(self, b: Builder, word: V, operation: int, value: V) -> None:
        number = i64(202 if self.x86 else 98)
        args = [number, word, i64(operation), b.cast("sext", value, "i64"), V("ptr", "null")]
        b.call("i64", "syscall", args)

    # ------------------------------------------------------------------ the functions
    def write(self) -> None:
        self.module.define_global("shlo_pool", "internal global ptr null, align 64")
        self.write_state()
        self.write_run()
        self.write_worker()
        self.write_start()
        self.write_serial()
        self.write_parallel()

    def write_state(self) -> None:
        """ptr @shlo_pool_new(): make the state; null when there is no memory for it."""
        b = self.function("shlo_pool_new", [], "ptr", "noinline cold")
        size, protection, flags = i64(STATE_BYTES), i32(3), i32(0x22)  # read and write; private and anonymous
        page = b.call("ptr", "mmap", [V("ptr", "null"), size, protection, flags, i32(-1), i64(0)])
        failed = b.icmp("eq", b.cast("ptrtoint", page, "i64"), i64(-1))
        with b.if_(failed):
            _return_early(b, V("ptr", "null"))
        wipe = b.call("i32", "madvise", [page, size, i32(18)])  # MADV_WIPEONFORK
        with b.if_(b.icmp("ne", wipe, i32(0))):
            b.store(i32(1), b.offset(page, CHECK))
            b.store(b.call("i32", "getpid", []), b.offset(page, PID))
        pair = b.emit("{ptr, i1}", f"cmpxchg ptr @shlo_pool, ptr null, ptr {page.text} acq_rel acquire")
        won = b.emit("i1", f"extractvalue {{ptr, i1}} {pair.text}, 1")
        with b.if_(b.not_(won)):  # another thread was faster
            b.call("i32", "munmap", [page, size])
            _return_early(b, b.emit("ptr", f"extractvalue {{ptr, i1}} {pair.text}, 0"))
        b.ret(page)

    def write_run(self) -> None:
        """void @shlo_pool_run(ptr state, i64 worker): take indices of the job and run them until none are left."""
        b = self.function("shlo_pool_run", [("ptr", "state"), ("i64", "worker")])
        state, worker = b.params
        task = b.load("ptr", b.offset(state, TASK))
        frame = b.load("ptr", b.offset(state, FRAME))
        tasks = b.load("i64", b.offset(state, TASKS))
        remaining = b.offset(state, REMAINING)
        again, body, end = b.label("again"), b.label("body"), b.label("end")
        b.branch(again)
        b.start(again)
        old = b.emit("i64", f"atomicrmw sub ptr {remaining.text}, i64 1 acq_rel")
        b.branch_if(b.icmp("sgt", old, 0), body, end)
        b.start(body)
        b.call_pointer("void", task, [frame, b.sub(tasks, old), worker])
        b.branch(again)
        b.start(end)
        b.ret()

    def write_worker(self) -> None:
        """ptr @shlo_pool_worker(ptr state): the life of a worker."""
        b = self.function("shlo_pool_worker", [("ptr", "state")], "ptr")
        (state,) = b.params
        epoch, places, sleepers = b.offset(state, EPOCH), b.offset(state, PLACES), b.offset(state, SLEEPERS)
        again, look, join, work, spin, sleep = (b.label(n) for n in ("again", "look", "join", "work", "spin", "sleep"))
        b.branch(again)

        b.start(again)
        seen = _atomic_load(b, "i32", epoch)
        b.branch(look)

        b.start(look)  # a place first, so that a job published before `seen` was read is not missed
        open_places = _atomic_load(b, "i32", places)
        b.branch_if(b.icmp("sgt", open_places, i32(0)), join, spin)

        b.start(join)
        place = b.emit("i32", f"atomicrmw sub ptr {places.text}, i32 1 acq_rel")
        b.branch_if(b.icmp("sgt", place, i32(0)), work, spin)

        b.start(work)
        b.call("void", "shlo_pool_run", [state, b.cast("sext", place, "i64")], declare=False)
        left = b.offset(state, LEFT)
        b.emit("i32", f"atomicrmw add ptr {left.text}, i32 1 seq_cst")
        waiting = _atomic_load(b, "i32", b.offset(state, WAITING))
        with b.if_(b.icmp("ne", waiting, i32(0))):
            self.futex(b, left, FUTEX_WAKE, i32(1))
        b.branch(again)

        b.start(spin)
        changed = self.spin(b, lambda: b.icmp("ne", _atomic_load(b, "i32", epoch, "monotonic"), seen))
        b.branch_if(changed, again, sleep)

        b.start(sleep)
        b.emit("i32", f"atomicrmw add ptr {sleepers.text}, i32 1 seq_cst")
        self.futex(b, epoch, FUTEX_WAIT, seen)
        b.emit("i32", f"atomicrmw sub ptr {sleepers.text}, i32 1 seq_cst")
        b.branch(again)
        b.done()

    def spin(self, b: Builder, met: Callable[[], V]) -> V:
        """Evaluate `met()` up to SPIN_ROUNDS times with pauses between; the last answer (i1)."""
        before, body, more, end = b.block, b.label("turn"), b.label("more"), b.label("spun")
        b.branch(body)
        b.start(body)
        count = V("i32", b._name("n"))
        at = len(b._lines)
        answer = met()
        b.branch_if(answer, end, more)
        b.start(more)
        self.pause(b)
        following = b.add(count, i32(1))
        b.branch_if(b.icmp("slt", following, i32(tuning.SPIN_ROUNDS)), body, end)
        b._lines.insert(at, f"  {count.text} = phi i32 [ 0, %{before} ], [ {following.text}, %{more} ]")
        b.start(end)
        return answer

    def write_start(self) -> None:
        """void @shlo_pool_start(ptr state, i32 want): start workers until there are `want`, or no more can be."""
        b = self.function("shlo_pool_start", [("ptr", "state"), ("i32", "want")], attributes="noinline cold")
        state, want = b.params
        started = b.offset(state, STARTED)
        every, old, thread = b.alloca("i8", 128), b.alloca("i8", 128), b.alloca("i64")
        b.memset(every, 0xFF, 128)
        # Signals stay with the threads of the host program: SIG_SETMASK is 2.
        b.call("i32", "pthread_sigmask", [i32(2), every, old])
        have = b.load("i32", started)
        with b.loop(have, want, V("i32", "1")):
            function = V("ptr", "@shlo_pool_worker")
            status = b.call("i32", "pthread_create", [thread, V("ptr", "null"), function, state])
            with b.if_(b.icmp("eq", status, i32(0))):
                b.call("i32", "pthread_detach", [b.load("i64", thread)])
                b.store(b.add(b.load("i32", started), i32(1)), started)
        b.call("i32", "pthread_sigmask", [i32(2), old, V("ptr", "null")])
        b.ret()

    def write_serial(self) -> None:
        """void @shlo_pool_serial(ptr task, ptr frame, i64 tasks): all tasks on the caller."""
        b = self.function("shlo_pool_serial", [("ptr", "task"), ("ptr", "frame"), ("i64", "tasks")])
        task, frame, tasks = b.params
        with b.loop(0, tasks) as index:
            b.call_pointer("void", task, [frame, index, i64(0)])
        b.ret()

    def write_parallel(self) -> None:
        params = [("ptr", "task"), ("ptr", "frame"), ("i64", "tasks"), ("i64", "threads")]
        b = self.function("shlo_parallel", params)
        task, frame, tasks, threads = b.params
        several, serial, locked, job = (b.label(n) for n in ("several", "serial", "locked", "job"))
        hands = b.min_(tasks, threads)
        b.branch_if(b.icmp("sgt", hands, 1), several, serial)

        b.start(serial)
        b.call("void", "shlo_pool_serial", [task, frame, tasks], declare=False)
        b.line("ret void")

        b.start(several)
        known = _atomic_load(b, "ptr", V("ptr", "@shlo_pool"), "acquire")
        (state,) = b.if_else(
            b.icmp("eq", known, V("ptr", "null")),
            lambda: [b.call("ptr", "shlo_pool_new", [], declare=False)],
            lambda: [known],
        )
        b.branch_if(b.icmp("eq", state, V("ptr", "null")), serial, locked)

        b.start(locked)
        self.check_process(b, state)
        pair = b.emit("{i32, i1}", f"cmpxchg ptr {b.offset(state, LOCK).text}, i32 0, i32 1 acquire monotonic")
        b.branch_if(b.emit("i1", f"extractvalue {{i32, i1}} {pair.text}, 1"), job, serial)

        b.start(job)
        helpers = b.cast("trunc", b.min_(b.sub(hands, 1), MAX_WORKERS), "i32")
        with b.if_(b.icmp("slt", b.load("i32", b.offset(state, STARTED)), helpers)):
            b.call("void", "shlo_pool_start", [state, helpers], declare=False)
        self.run_job(b, state, helpers)
        b.line(f"store atomic i32 0, ptr {b.offset(state, LOCK).text} release, align 4")
        b.ret()

    def check_process(self, b: Builder, state: V) -> None:
        """Without MADV_WIPEONFORK: forget the parent's workers when this is a child."""
        with b.if_(b.icmp("ne", b.load("i32", b.offset(state, CHECK)), i32(0))):
            pid = b.call("i32", "getpid", [])
            with b.if_(b.icmp("ne", pid, b.load("i32", b.offset(state, PID)))):
                b.memset(state, 0, CHECK)
                b.store(pid, b.offset(state, PID))

    def run_job(self, b: Builder, state: V, helpers: V) -> None:
        """Publish the job, work on it, wait for the helpers. The caller holds the lock."""
        task, frame, tasks, _ = b.params
        places, left, epoch = b.offset(state, PLACES), b.offset(state, LEFT), b.offset(state, EPOCH)
        b.store(task, b.offset(state, TASK))
        b.store(frame, b.offset(state, FRAME))
        b.store(tasks, b.offset(state, TASKS))
        b.line(f"store atomic i32 0, ptr {left.text} monotonic, align 4")
        b.line(f"store atomic i64 {tasks.text}, ptr {b.offset(state, REMAINING).text} monotonic, align 8")
        b.line(f"store atomic i32 {helpers.text}, ptr {places.text} release, align 4")
        # The order of these two against a sleeper's (add to SLEEPERS, then wait on EPOCH) rules out a lost wake-up.
        b.emit("i32", f"atomicrmw add ptr {epoch.text}, i32 1 seq_cst")
        awake = b.sub(b.load("i32", b.offset(state, STARTED)), _atomic_load(b, "i32", b.offset(state, SLEEPERS)))
        missing = b.sub(helpers, awake)
        with b.if_(b.icmp("sgt", missing, i32(0))):
            self.futex(b, epoch, FUTEX_WAKE, missing)

        b.call("void", "shlo_pool_run", [state, i64(0)], declare=False)

        still_open = b.emit("i32", f"atomicrmw xchg ptr {places.text}, i32 0 acq_rel")
        joined = b.sub(helpers, b.max_(still_open, i32(0)))
        done = self.spin(b, lambda: b.icmp("eq", _atomic_load(b, "i32", left, "acquire"), joined))
        with b.if_(b.not_(done)):
            self.sleep_until_left(b, state, joined)

    def sleep_until_left(self, b: Builder, state: V, joined: V) -> None:
        left, waiting = b.offset(state, LEFT), b.offset(state, WAITING)
        again, sleep, end = b.label("again"), b.label("sleep"), b.label("awake")
        b.line(f"store atomic i32 1, ptr {waiting.text} seq_cst, align 4")
        b.branch(again)
        b.start(again)
        so_far = _atomic_load(b, "i32", left)
        b.branch_if(b.icmp("eq", so_far, joined), end, sleep)
        b.start(sleep)
        self.futex(b, left, FUTEX_WAIT, so_far)
        b.branch(again)
        b.start(end)
        b.line(f"store atomic i32 0, ptr {waiting.text} monotonic, align 4")


def _atomic_load(b: Builder, type: str, pointer: V, order: str = "seq_cst") -> V:
    return b.emit(type, f"load atomic {type}, ptr {pointer.text} {order}, align {8 if type in ('i64', 'ptr') else 4}")


def _return_early(b: Builder, value: V) -> None:
    """A return inside an `if_`: what follows in the block is unreachable."""
    b.line(f"ret {value.type} {value.text}")
    b.start(b.label("unreachable"))


def build(module: ModuleText, target: Target) -> None:
    """Write the pool into `module`; `shlo_parallel` gets external linkage."""
    _Writer(module, target).write()


THREADS = Routine("threads", ("shlo_parallel",), build)
"""The pool as an object that all programs of a process share."""
