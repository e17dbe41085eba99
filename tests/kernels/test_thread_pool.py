"""Tests of the thread pool alone, in each of its forms: calls, start and end, and forked children."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import signal
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from shlo_jit.codegen import jit
from shlo_jit.codegen.optimize import emit_assembly, emit_object, optimize
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.threads import pool
from shlo_jit.kernels.threads.workers import STACK_BYTES

TARGET = resolve()
FORMS = ("futex", "pthread", "serial")
TASK = [("ptr", "frame"), ("i64", "index"), ("i64", "worker")]
TASKS = ("count", "who", "nest", "stack")


def write_tasks(m: ModuleText) -> None:
    """Emits tasks. `count` adds 1 to an i64 per index. `who` records, slowly, that a worker number is in use. `nest`
    starts `count` inside a task. `stack` waits until all of frame[0] tasks have begun, and stores the bytes of its
    thread's stack after these two numbers, at the worker's index. `many`, which is no task, starts one many times."""
    b = m.function("count", TASK, linkage="external")
    b.emit("i64", f"atomicrmw add ptr {b.element(b.params[0], 'i64', b.params[1]).text}, i64 1 monotonic")
    b.ret()

    b = m.function("who", TASK, linkage="external")
    frame, _, worker = b.params
    # frame[worker + 1] counts running tasks with that worker number; a second one sets frame[0].
    mine = b.element(frame, "i64", b.add(worker, 1))
    before = b.emit("i64", f"atomicrmw add ptr {mine.text}, i64 1 seq_cst")
    with b.if_(b.icmp("ne", before, i64(0))):
        b.store(i64(1), frame)
    spun = b.alloca("i64")
    with b.loop(0, 20_000) as i:
        b.line(f"store volatile i64 {i.text}, ptr {spun.text}")
    b.emit("i64", f"atomicrmw sub ptr {mine.text}, i64 1 seq_cst")
    b.ret()

    b = m.function("nest", TASK, linkage="external")
    inner = b.element(b.params[0], "i64", b.mul(b.params[1], 8))
    b.call("void", "shlo_parallel", [V("ptr", "@count"), inner, i64(8), i64(4)], declare=False)
    b.ret()

    b = m.function("stack", TASK, linkage="external")
    frame, _, worker = b.params
    begun = b.element(frame, "i64", 1)
    b.emit("i64", f"atomicrmw add ptr {begun.text}, i64 1 seq_cst")
    with b.repeat([]) as wait:
        so_far = b.emit("i64", f"load atomic i64, ptr {begun.text} seq_cst, align 8")
        b.call("i32", "sched_yield", [])
        wait.again = b.icmp("slt", so_far, b.load("i64", frame))
    attributes = b.alloca("i8", 128)
    b.call("i32", "pthread_getattr_np", [b.call("i64", "pthread_self", []), attributes])
    b.call("i32", "pthread_attr_getstacksize", [attributes, b.element(frame, "i64", b.add(worker, 2))])
    b.call("i32", "pthread_attr_destroy", [attributes])
    b.ret()

    params = [("ptr", "task"), ("ptr", "frame"), ("i64", "times"), ("i64", "tasks"), ("i64", "threads")]
    b = m.function("many", params, linkage="external")
    task, frame, times, tasks, threads = b.params
    with b.loop(0, times):
        b.call("void", "shlo_parallel", [task, frame, tasks, threads], declare=False)
    b.ret()


class Pool:
    """A loaded pool with the tasks; `extra` adds to its module, and `more` are names of functions that it adds."""

    def __init__(
        self, form: str, extra: Callable[[ModuleText], None] = lambda m: None, more: tuple[str, ...] = ()
    ) -> None:
        m = ModuleText(TARGET)
        pool.build(m, TARGET, form)
        write_tasks(m)
        extra(m)
        self.library = jit.load(
            [emit_object(optimize(m.text(), TARGET), TARGET)], [*pool.SYMBOLS, *TASKS, "many", "shlo_ask", *more]
        )
        _, prepare, end, _ = (self.library.addresses[name] for name in pool.SYMBOLS)
        self.form = form
        self.prepare = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(prepare)
        self.end = ctypes.CFUNCTYPE(None)(end)
        many = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3)
        self._many = many(self.library.addresses["many"])

    def run(self, task: str, frame: np.ndarray, times: int, tasks: int, threads: int) -> None:
        self._many(self.library.addresses[task], frame.ctypes.data, times, tasks, threads)

    def check(self, times: int = 1, threads: int = 4) -> None:
        frame = np.zeros(32, np.int64)
        self.run("count", frame, times, 32, threads)
        assert (frame == times).all()

    @property
    def workers(self) -> int:
        """The expected number of workers for 4 threads."""
        return 0 if self.form == "serial" else 3


@pytest.fixture(params=FORMS)
def a_pool(request: pytest.FixtureRequest):
    made = Pool(request.param)
    yield made
    made.end()


def threads_of_the_process() -> int:
    """Returns the number of running threads, after a pause: one that has ended may be listed for a moment."""
    time.sleep(0.002)
    return len(os.listdir("/proc/self/task"))


# ---------------------------------------------------------------------- calls
@pytest.mark.parametrize("count", [-1, 0, 1, 2, 3, 8, 100])
def test_every_index_once(a_pool: Pool, count: int) -> None:
    for tasks in (0, 1, 2, 7, 64):
        frame = np.zeros(max(tasks, 1), np.int64)
        a_pool.run("count", frame, 300, tasks, count)
        assert (frame[:tasks] == 300).all()


@pytest.mark.parametrize("count", [2, 3, 8])
def test_worker_numbers_are_unique(a_pool: Pool, count: int) -> None:
    frame = np.zeros(count + 1, np.int64)
    a_pool.run("who", frame, 50, 4 * count, count)
    assert not frame.any()


def test_nested(a_pool: Pool) -> None:
    frame = np.zeros(64, np.int64)
    a_pool.run("nest", frame, 200, 8, 3)
    assert (frame == 200).all()


def test_several_callers(a_pool: Pool) -> None:
    frames = [np.zeros(16, np.int64) for _ in range(8)]
    callers = [
        threading.Thread(target=a_pool.run, args=("count", f, 5000, 16, 2 + k % 3)) for k, f in enumerate(frames)
    ]
    for t in callers:
        t.start()
    for t in callers:
        t.join(timeout=60)
    assert all((f == 5000).all() for f in frames)


def test_an_idle_pool_uses_no_cpu(a_pool: Pool) -> None:
    a_pool.check(10, 8)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.02


def test_cold_calls(a_pool: Pool) -> None:
    for _ in range(100):
        time.sleep(0.001)
        a_pool.check()


# ---------------------------------------------------------------------- workers
@pytest.mark.parametrize("form", ["futex", "pthread"])
def test_all_workers_come_and_have_the_stack_that_tasks_need(form: str) -> None:
    made = Pool(form)
    for _ in range(20):
        frame = np.zeros(6, np.int64)
        frame[0] = 4
        made.run("stack", frame, 1, 4, 4)
        assert list(frame[3:]) == [STACK_BYTES] * 3, frame  # without the caller's
        time.sleep(0.001)
    made.end()


def test_prepared_workers_are_there_and_calls_start_none(a_pool: Pool) -> None:
    before = threads_of_the_process()
    for wanted, there in (
        (1, 0),
        (0, 0),
        (-5, 0),
        (3, min(2, a_pool.workers)),
        (4, a_pool.workers),
        (2, a_pool.workers),
    ):
        assert a_pool.prepare(wanted) == 0
        assert threads_of_the_process() - before == there
    a_pool.check(10, 4)
    assert threads_of_the_process() - before == a_pool.workers
    a_pool.end()
    assert threads_of_the_process() == before


def count_attempts(m: ModuleText) -> None:
    """Emits a pthread_create that fails and counts, and the task `attempted`, which stores the number of calls."""
    m.define_global("attempts", "global i64 0, align 8")
    b = m.function("pthread_create", [("ptr", "t"), ("ptr", "a"), ("ptr", "f"), ("ptr", "x")], "i32")
    b.emit("i64", "atomicrmw add ptr @attempts, i64 1 seq_cst")
    b.ret(i32(11))
    b = m.function("attempted", TASK, linkage="external")
    b.store(b.load("i64", V("ptr", "@attempts")), b.params[0])
    b.ret()


@pytest.mark.parametrize("form", ["futex", "pthread"])
def test_without_workers_the_caller_does_it_all(form: str) -> None:
    """No thread can be started. Calls try again, but not after a preparation."""
    made, attempts = Pool(form, count_attempts, ("attempted",)), np.zeros(1, np.int64)

    def tried() -> int:
        made.run("attempted", attempts, 1, 1, 1)
        return attempts[0]

    made.check(3, 4)
    assert tried() == 3
    assert made.prepare(4) == 0
    assert tried() == 4
    made.check(10, 4)
    assert tried() == 4
    made.check(1, 6)
    assert tried() == 5
    made.end()


def test_preparing_beside_calls(a_pool: Pool) -> None:
    frames = [np.zeros(16, np.int64) for _ in range(3)]
    callers = [threading.Thread(target=a_pool.run, args=("count", f, 5000, 16, 3)) for f in frames]
    callers += [threading.Thread(target=lambda: [a_pool.prepare(1 + k % 12) for k in range(300)]) for _ in range(3)]
    before = threads_of_the_process()
    for t in callers:
        t.start()
    for t in callers:
        t.join(timeout=60)
    assert all((f == 5000).all() for f in frames)
    assert threads_of_the_process() - before == (11 if a_pool.workers else 0)


# ---------------------------------------------------------------------- the end
def mappings() -> int:
    with open("/proc/self/maps") as lines:
        return len(lines.readlines())


def test_beginning_and_ending_a_thousand_times(a_pool: Pool) -> None:
    """The pool is started and ended with calls or without, and with workers that sleep, spin, or have not begun."""

    def cycles(count: int) -> None:
        for k in range(count):
            a_pool.prepare(4)
            a_pool.check(k % 3)
            if k % 25 == 0:
                time.sleep(0.001)
            a_pool.end()

    before = threads_of_the_process()
    cycles(100)
    memory = mappings()
    cycles(1000)
    assert threads_of_the_process() == before
    assert mappings() < memory + 50


@pytest.mark.parametrize("pause", [0, 0.02])
@pytest.mark.parametrize("form", ["futex", "pthread"])
@pytest.mark.sampled(4)
def test_code_may_go_after_the_end(form: str, pause: float) -> None:
    """No worker runs after the end: it would execute code that has been unloaded, or that of another library."""
    before = threads_of_the_process()
    made = Pool(form)
    for _ in range(10):
        made.check(5, 6)
        time.sleep(pause)
        made.end()
        del made
        gc.collect()
        made = Pool(form)
    made.end()
    assert threads_of_the_process() == before


def test_pools_end_separately(a_pool: Pool) -> None:
    other = Pool(a_pool.form)
    for each in (other, a_pool):
        each.prepare(4)
    other.end()
    other.end()
    before = threads_of_the_process()
    a_pool.check(10)
    assert threads_of_the_process() == before


# ---------------------------------------------------------------------- children
def in_child(work: Callable[[], object]) -> None:
    """Runs `work` in a child, and asserts that the child succeeds within 20 s."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            work()
        except BaseException as error:
            print("child:", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.sampled(2)
def test_children(a_pool: Pool) -> None:
    def calls() -> None:
        assert threads_of_the_process() == 1
        a_pool.check(20)
        assert threads_of_the_process() == 1 + a_pool.workers

    def prepares() -> None:
        assert a_pool.prepare(4) == 0
        assert threads_of_the_process() == 1 + a_pool.workers
        a_pool.check(20)

    def ends() -> None:
        a_pool.end()
        a_pool.check(20)
        a_pool.end()
        assert threads_of_the_process() == 1

    def has_children() -> None:
        in_child(calls)
        a_pool.check(5)
        in_child(calls)
        a_pool.check(5)

    for _ in range(5):
        for work in (calls, prepares, ends, has_children):
            a_pool.check(3)
            in_child(work)
            a_pool.check(3)


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.sampled(2)
@pytest.mark.slow
def test_children_in_the_midst_of_calls(a_pool: Pool) -> None:
    """The lock or a mutex is held at the moment of the fork, and several threads of the child call simultaneously."""
    stop = threading.Event()

    def keep_calling() -> None:
        while not stop.is_set():
            a_pool.check(50, 3)

    def several() -> None:
        callers = [threading.Thread(target=a_pool.check, args=(200,)) for _ in range(3)]
        for t in callers:
            t.start()
        for t in callers:
            t.join()
        a_pool.check(20)
        deadline = time.monotonic() + 5  # Python joins a thread shortly before the system has ended it
        while threads_of_the_process() > 1 + a_pool.workers and time.monotonic() < deadline:
            time.sleep(0.001)
        assert threads_of_the_process() == 1 + a_pool.workers

    caller = threading.Thread(target=keep_calling)
    caller.start()
    try:
        for _ in range(30):
            in_child(several)
    finally:
        stop.set()
        caller.join()


# ---------------------------------------------------------------------- targets
@pytest.mark.parametrize(
    ("name", "call", "anonymous", "set_mask", "pause", "sleep"),
    [
        ("x86-64", "i64 202", 0x22, 2, "pause", "syscall"),
        ("aarch64:neoverse-n1", "i64 98", 0x22, 2, "yield", "syscall"),
        ("riscv64", "i64 98", 0x22, 2, "pause", "syscall"),
        ("riscv64+v", "i64 98", 0x22, 2, "pause", "syscall"),
        ("aarch64-macos:apple-m1", None, 0x1002, 3, "yield", "pthread_cond_wait"),
        ("x86_64-macos:x86-64-v3", None, 0x1002, 3, "pause", "pthread_cond_wait"),
    ],
)
def test_systems(name: str, call: str | None, anonymous: int, set_mask: int, pause: str, sleep: str) -> None:
    """Each system has its own number of the system call, flags of mmap, SIG_SETMASK, and pause instruction."""
    text, assembly = written(name)
    text = text.replace(" signext", "")  # RISC-V's attribute of ints
    assert set(re.findall(r"@syscall\((i64 \d+),", text)) == ({call} if call else set())
    assert f"i32 3, i32 {anonymous}, i32 -1, i64 0)" in text
    assert f"@pthread_sigmask(i32 {set_mask}, " in text
    assert re.search(rf"^\s+{pause}$", assembly, re.MULTILINE)
    assert sleep in assembly


@pytest.mark.parametrize("threads", [1, 4])
def test_a_call_ends_early_when_asked_to(a_pool: Pool, threads: int) -> None:
    asked: list[int] = []
    stops_at = 3
    ask = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_int64))(
        lambda began: asked.append(began[0]) or int(len(asked) >= stops_at)
    )
    word = ctypes.c_void_p.from_address(a_pool.library.addresses["shlo_ask"])
    word.value = ctypes.cast(ask, ctypes.c_void_p).value
    try:
        frame = np.zeros(1 << 16, np.int64)
        a_pool.run("count", frame, 1, len(frame), threads)
        assert len(asked) == stops_at
        assert frame.sum() < len(frame)
        assert frame.max() == 1
        before = frame.copy()
        a_pool.run("count", frame, 2, len(frame), threads)
        assert (frame == before).all()
    finally:
        word.value = None
    a_pool.check(times=3, threads=threads)


@pytest.mark.parametrize("name", ["wasm32", "x86_64-windows:x86-64-v3", "x86_64-none:x86-64-v3"])
def test_systems_without_threads(name: str) -> None:
    text, assembly = written(name)
    assert "declare" not in text
    assert all(symbol in assembly for symbol in pool.SYMBOLS)


def test_the_serial_form_is_there_for_any_target() -> None:
    m = ModuleText(TARGET)
    pool.SERIAL.build(m, TARGET)
    assert set(pool.SYMBOLS) < set(m.functions)
    assert not m.declarations and not m.globals


def written(name: str) -> tuple[str, str]:
    """Returns the pool for a target: LLVM text and assembly."""
    target = resolve(name)
    m = ModuleText(target)
    pool.build(m, target)
    return m.text(), emit_assembly(optimize(m.text(), target), target)
