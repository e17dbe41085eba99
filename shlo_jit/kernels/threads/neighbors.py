"""Two threads beside other work that keeps a core busy: for a while, calls run on the caller's thread alone.

A worker that the system takes off its core in the middle of a task is waited for until it gets a core again, which
takes up to milliseconds. So a worker that the caller has slept for, and that was taken off its core since it last
looked, notes how long the caller slept. If that happens often, so that more than one part in LATE_OFTEN of the time is
lost, jobs of two threads run on the caller for LATE_SHARE times as long: at most one part in LATE_SHARE of the time is
lost then. What happens once in a while costs less than a thread. Jobs of more threads still use all workers, since the
others of them are not late.

Nothing of this costs a call of the system unless the caller slept. Only Linux says how often a thread was taken off its
core; elsewhere, nothing is emitted.
"""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.kernels.atomics import atomic_load, atomic_store
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.state import ALONE_UNTIL, LATE_BEFORE, SLEPT_AT

MONOTONIC, OF_THREAD = 1, 1
"""CLOCK_MONOTONIC and RUSAGE_THREAD of Linux."""
USAGE_BYTES, TAKEN_OFF = 144, 136
"""Size of the system's record of a thread, and the offset of the number of times that it was taken off its core."""
SECOND = 1_000_000_000


def is_known(target: Target) -> bool:
    """Whether the system says how often a thread was taken off its core."""
    return target.system == "linux"


def write_neighbors(module: ModuleText, target: Target) -> None:
    """Emits the functions of this file that others call."""
    if not is_known(target):
        return
    b = module.function("shlo_pool_clock", [], "i64", attributes="nounwind noinline cold")
    time = b.alloca("i64", 2)
    b.call("i32", "clock_gettime", [i32(MONOTONIC), time])
    b.ret(b.add(b.mul(b.load("i64", time), SECOND), b.load("i64", b.element(time, "i64", 1))))
    _write_note(module)


def _write_note(module: ModuleText) -> None:
    """Emits void @shlo_pool_note(ptr state, ptr seen), which a worker calls that the caller has slept for. `seen` has
    the number of times that it was taken off its core before, and gets the new one."""
    params = [("ptr", "state"), ("ptr", "seen")]
    b = module.function("shlo_pool_note", params, attributes="nounwind noinline cold")
    state, seen = b.params
    usage = b.alloca("i64", USAGE_BYTES // 8)
    with b.if_(b.icmp("ne", b.call("i32", "getrusage", [i32(OF_THREAD), usage]), i32(0))):
        b.ret_early()
    count = b.load("i64", b.offset(usage, TAKEN_OFF))
    same = b.icmp("eq", count, b.load("i64", seen))
    b.store(count, seen)
    since = atomic_load(b, "i64", b.offset(state, SLEPT_AT), "monotonic")
    with b.if_(b.or_(same, b.icmp("eq", since, 0))):
        b.ret_early()
    now = _clock(b)
    late, before = b.max_(b.sub(now, since), 0), b.offset(state, LATE_BEFORE)
    last = atomic_load(b, "i64", before, "monotonic")
    is_often = b.icmp("slt", b.sub(since, last), b.mul(late, tuning.LATE_OFTEN))
    alone = b.min_(b.mul(late, tuning.LATE_SHARE), tuning.LONGEST_ALONE)
    end = b.add(now, b.select(is_often, alone, i64(0)))
    atomic_store(b, end, before, "monotonic")
    with b.if_(is_often):
        atomic_store(b, end, b.offset(state, ALONE_UNTIL), "monotonic")
    b.ret()


def _clock(b: Builder) -> V:
    return b.call("i64", "shlo_pool_clock", [], declare=False)


def note_if_late(b: Builder, target: Target, state: V, seen: V) -> None:
    """Emits what a worker does that the caller has slept for; see `_write_note`."""
    if is_known(target):
        b.call("void", "shlo_pool_note", [state, seen], declare=False)


def store_sleep(b: Builder, target: Target, state: V, helpers: V) -> None:
    """Stores when the caller of a job begins to sleep for its helper; 0 if it has several."""
    if is_known(target):
        (now,) = b.if_else(b.icmp("eq", helpers, i32(1)), lambda: [_clock(b)], lambda: [i64(0)])
        atomic_store(b, now, b.offset(state, SLEPT_AT), "monotonic")


def runs_alone(b: Builder, target: Target, state: V, hands: V) -> V:
    """Returns an i1: whether a job of so many threads runs on the caller because a worker was late."""
    if not is_known(target):
        return V("i1", "false")
    until = atomic_load(b, "i64", b.offset(state, ALONE_UNTIL), "monotonic")

    def is_early() -> list[V]:
        early = b.icmp("slt", _clock(b), until)
        with b.if_(b.not_(early)):
            atomic_store(b, i64(0), b.offset(state, ALONE_UNTIL), "monotonic")
        return [early]

    asks = b.and_(b.icmp("ne", until, 0), b.icmp("eq", hands, 2))
    return b.if_else(asks, is_early, lambda: [V("i1", "false")])[0]
