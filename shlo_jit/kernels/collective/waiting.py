"""Waiting for a word of the board: a rank spins for a while, then it sleeps until another rank rings its bell.

    i32 @shlo_await(ptr communicator, ptr word, i64 expected, i64 peer)

returns OK when the word's upper part equals that of `expected`, which `peer` writes. Otherwise it returns why that will
not happen: the ranks are to stop, the peer has ended its program without it, or made no progress for `time_out`. The
last two are recorded as this rank's fault, and stop the others. A peer that sleeps itself makes progress if the rank
that it sleeps for does, and so on. If a round takes longer than expected, it counts as at most two: this process may
have been suspended meanwhile.

    void @shlo_ring(ptr communicator, i64 rank)

wakes a rank that sleeps. A rank that changes a word on which others may wait rings afterwards. By sequential
consistency, either the sleeper sees the change, or the ringing rank sees that it sleeps.

Ranks may be processes, so futexes are the kernel's shared ones. Without futexes, sleepers check every NAP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_jit.kernels.atomics import atomic, atomic_load, atomic_store
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.collective import board
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.waiting import EVERYBODY, relax, spinning

FUTEX_WAIT, FUTEX_WAKE = 0, 1
"""Futex operations that work between processes."""
SLICE_NANOSECONDS = 50_000_000
"""Maximum time that a rank sleeps before it checks hearts and clocks."""
NAP_NANOSECONDS = 50_000
NULL = V("ptr", "null")
HOST_PAUSE = V("ptr", "@shlo_host_pause")
"""Function that the host's own rank calls while it waits, an `i32 ()`; null in the other ranks."""


class Sleep:
    """Emits the calls by which a rank sleeps on a word, an i32 of the board, and is woken."""

    def __init__(self, target: Target) -> None:
        self._has_futex = target.threads == "futex"
        self._number = i64(202 if target.arch == "x86_64" else 98)
        self._monotonic = i32(6 if target.system == "macos" else 1)

    def wait(self, b: Builder, word: V, seen: V, nanoseconds: V) -> None:
        """Sleeps while the word is `seen`, at most `nanoseconds`; may return spuriously."""
        if self._has_futex:
            b.call("i64", "syscall", [self._number, word, i64(FUTEX_WAIT), b.cast("sext", seen, "i64"),
                                      self._time(b, nanoseconds)])  # fmt: skip
        else:
            b.call("i32", "nanosleep", [self._time(b, b.min_(nanoseconds, NAP_NANOSECONDS)), NULL])

    def wake(self, b: Builder, word: V) -> None:
        """Wakes all ranks that sleep on the word."""
        if self._has_futex:
            b.call("i64", "syscall", [self._number, word, i64(FUTEX_WAKE), i64(EVERYBODY), NULL])

    def clock(self, b: Builder) -> V:
        """Returns the time in nanoseconds, an i64."""
        time = b.alloca("i64", 2, 8)
        b.call("i32", "clock_gettime", [self._monotonic, time])
        return b.add(b.mul(b.load("i64", time), 1_000_000_000), b.load("i64", b.offset(time, 8)))

    @staticmethod
    def _time(b: Builder, nanoseconds: V) -> V:
        time = b.alloca("i64", 2, 8)
        b.store(b.udiv(nanoseconds, 1_000_000_000), time)
        b.store(b.urem(nanoseconds, 1_000_000_000), b.offset(time, 8))
        return time


def pause_of_host(b: Builder) -> V:
    """Returns the status of the host's own `pause`, in its rank; OK in the others."""
    function = b.load("ptr", HOST_PAUSE)
    (status,) = b.if_else(
        b.icmp("ne", function, NULL), lambda: [b.call_pointer("i32", function, [])], lambda: [i32(board.OK)]
    )
    return status


def field(b: Builder, communicator: V, name: str, type: str = "i64") -> V:
    """Returns a field of the communicator."""
    return b.load(type, b.offset(communicator, board.COMMUNICATOR[name]))


def rank_area(b: Builder, board_address: V, rank: V) -> V:
    """Returns the address of a rank's area on the board."""
    return b.offset(b.offset(board_address, b.mul(rank, board.RANK_BYTES)), board.RANKS)


def own_area(b: Builder, communicator: V) -> V:
    return rank_area(b, field(b, communicator, "board", "ptr"), field(b, communicator, "rank"))


def beat(b: Builder, communicator: V) -> None:
    """Signals that the rank makes progress; only the rank itself writes its heart."""
    heart = b.offset(own_area(b, communicator), board.HEART)
    atomic_store(b, b.add(b.load("i64", heart), 1), heart, "monotonic")


def stop_all(b: Builder, communicator: V, status: V) -> None:
    """Asks all ranks to stop, and wakes those that sleep."""
    b.call("void", "shlo_stop_all", [communicator, status], declare=False)


def fence(b: Builder) -> None:
    """Orders a store before a load of another word, sequentially consistently."""
    b.line("fence seq_cst")


def spin_until(b: Builder, target: Target, rounds: V, mask: V, met: Callable[[], V], found: str) -> None:
    """Evaluates `met` up to `rounds` times with pauses in between, and branches to `found` if it holds; continues here
    if it never does. After rounds whose number has all bits of `mask`, it yields the CPU, which the peer may need."""
    body, more, over = b.label("body"), b.label("more"), b.label("over")
    before = b.block
    b.branch(body)
    b.start(body)
    at, count = b.position(), b.reserve("i64")
    b.branch_if(met(), found, more)
    b.start(more)
    relax(b, target)
    with b.if_(b.icmp("eq", b.and_(count, mask), mask), "yield"):
        b.call("i32", "sched_yield", [])
    following = b.add(count, i64(1))
    last = b.block
    b.branch_if(b.icmp("slt", following, rounds), body, over)
    b.fill_phi(at, count, [(i64(0), before), (following, last)])
    b.start(over)


def write_waiting(module: ModuleText, target: Target) -> None:
    sleep = Sleep(target)
    _write_ring(module, sleep)
    _write_stop_all(module)
    _write_culprit(module)
    _write_await(module, target)
    _write_await_asleep(module, target, sleep)


def _write_ring(module: ModuleText, sleep: Sleep) -> None:
    b = module.function("shlo_ring", [("ptr", "communicator"), ("i64", "rank")], attributes="nounwind")
    communicator, rank = b.params
    area = rank_area(b, field(b, communicator, "board", "ptr"), rank)
    asleep = atomic_load(b, "i32", b.offset(area, board.ASLEEP))
    with b.if_(b.icmp("ne", asleep, i32(0)), "asleep"):
        atomic(b, "add", b.offset(area, board.BELL), i32(1), "seq_cst")
        sleep.wake(b, b.offset(area, board.BELL))
    b.ret()


def _write_stop_all(module: ModuleText) -> None:
    """Emits void @shlo_stop_all(ptr communicator, i32 status), for any status but OK."""
    params = [("ptr", "communicator"), ("i32", "status")]
    b = module.function("shlo_stop_all", params, linkage="external", attributes="nounwind")
    communicator, status = b.params
    word = b.offset(field(b, communicator, "board", "ptr"), board.STOP)
    atomic_store(b, status, word, "seq_cst")
    fence(b)
    with b.loop(0, field(b, communicator, "ranks")) as rank:
        b.call("void", "shlo_ring", [communicator, rank], declare=False)
    b.ret()


AWAIT = [("ptr", "communicator"), ("ptr", "word"), ("i64", "expected"), ("i64", "peer")]


def _is_there(b: Builder, word: V, expected: V, order: str = "acquire") -> V:
    there = b.lshr(atomic_load(b, "i64", word, order), board.NUMBER_SHIFT)
    return b.icmp("eq", there, b.lshr(expected, board.NUMBER_SHIFT))


def _write_await(module: ModuleText, target: Target) -> None:
    b = module.function("shlo_await", AWAIT, "i32", attributes=spinning(target))
    communicator, word, expected, peer = b.params
    found = b.label("found")
    spins, mask = field(b, communicator, "spins"), field(b, communicator, "yields")
    spin_until(b, target, spins, mask, lambda: _is_there(b, word, expected), found)
    status = b.call("i32", "shlo_await_asleep", [communicator, word, expected, peer], declare=False)
    b.line(f"ret i32 {status.text}")
    b.start(found)
    b.ret(i32(board.OK))


def _write_await_asleep(module: ModuleText, target: Target, sleep: Sleep) -> None:
    b = module.function("shlo_await_asleep", AWAIT, "i32", attributes="nounwind noinline cold")
    communicator, word, expected, peer = b.params
    shared = field(b, communicator, "board", "ptr")
    own, other = own_area(b, communicator), rank_area(b, shared, peer)
    bell, asleep, waits_for = (b.offset(own, at) for at in (board.BELL, board.ASLEEP, board.WAITS_FOR))
    call = b.cast("trunc", b.lshr(field(b, communicator, "tag"), board.CALL_SHIFT), "i32")
    time_out = field(b, communicator, "time_out")
    end, again, look, gone, doze, count, late, early, interrupted = (
        b.label(n) for n in ("end", "again", "look", "gone", "doze", "count", "late", "early", "interrupted")
    )
    outcome = b.alloca("i32", 1, 8)
    begun = sleep.clock(b)
    atomic_store(b, b.cast("trunc", peer, "i32"), waits_for, "monotonic")
    atomic_store(b, i32(1), asleep, "seq_cst")
    before = b.block
    b.branch(again)

    b.start(again)
    at, (last_look, idle, beaten) = b.position(), [b.reserve("i64") for _ in range(3)]
    rung = atomic_load(b, "i32", bell)
    ended = atomic_load(b, "i32", b.offset(other, board.LAST_CALL))  # before the word, which the peer writes first
    b.store(i32(board.OK), outcome)
    b.branch_if(_is_there(b, word, expected, "seq_cst"), end, look)

    b.start(look)
    stop = atomic_load(b, "i32", b.offset(shared, board.STOP))
    b.store(i32(board.STOPPED), outcome)
    b.branch_if(b.icmp("ne", stop, i32(0)), end, gone)

    b.start(gone)
    b.branch_if(b.icmp("eq", ended, call), early, doze)

    b.start(doze)
    sleep.wait(b, bell, rung, b.min_(time_out, SLICE_NANOSECONDS))
    now, culprit = sleep.clock(b), b.call("i64", "shlo_culprit", [communicator, peer], declare=False)
    beats = _beats_of(b, shared, culprit)
    counted = b.add(idle, b.min_(b.sub(now, last_look), 2 * SLICE_NANOSECONDS))
    idle_now = b.select(b.icmp("ne", beats, beaten), i64(0), counted)
    paused = pause_of_host(b)
    b.store(paused, outcome)
    b.branch_if(b.icmp("ne", paused, i32(board.OK)), interrupted, count)
    b.start(count)
    last = b.block
    b.branch_if(b.icmp("sgt", idle_now, time_out), late, again)
    for phi, first, next in ((last_look, begun, now), (idle, i64(0), idle_now), (beaten, i64(board.NONE), beats)):
        b.fill_phi(at, phi, [(first, before), (next, last)])

    faults = [(late, board.TIMED_OUT, culprit), (early, board.ENDED_EARLY, peer)]
    _write_faults(b, communicator, outcome, faults, interrupted)
    b.start(interrupted)
    stop_all(b, communicator, b.load("i32", outcome))
    b.branch(end)

    b.start(end)
    atomic_store(b, i32(0), asleep, "seq_cst")
    atomic_store(b, i32(board.NONE), waits_for, "monotonic")
    b.ret(b.load("i32", outcome))


def _write_faults(
    b: Builder, communicator: V, outcome: V, faults: Sequence[tuple[str, int, V]], following: str
) -> None:
    """Writes the blocks that record a fault, each with its label, the status of the wait and the peer that is to
    blame; they end in a branch to `following`."""
    for label, status, who in faults:
        b.start(label)
        b.store(i32(status), outcome)
        note_fault(b, communicator, who, i32(board.NONE))
        b.branch(following)


def _beats_of(b: Builder, shared: V, rank: V) -> V:
    """Returns a number that changes when the rank has made progress, and differs between ranks."""
    heart = b.offset(rank_area(b, shared, rank), board.HEART)
    return b.add(atomic_load(b, "i64", heart, "monotonic"), b.shl(rank, 48))


def _write_culprit(module: ModuleText) -> None:
    """Emits i64 @shlo_culprit(ptr communicator, i64 peer): follows ranks that wait for others to the rank that all of
    them wait for. If ranks wait in a circle, it returns the last one before this rank."""
    b = module.function("shlo_culprit", [("ptr", "communicator"), ("i64", "peer")], "i64", attributes="nounwind")
    communicator, peer = b.params
    shared, rank = field(b, communicator, "board", "ptr"), field(b, communicator, "rank")
    found = b.variable(peer)
    b.store(peer, found)
    with b.loop(0, field(b, communicator, "ranks")):
        area = rank_area(b, shared, b.load("i64", found))
        following = b.cast("sext", atomic_load(b, "i32", b.offset(area, board.WAITS_FOR), "monotonic"), "i64")
        is_last = b.or_(b.icmp("slt", following, 0), b.icmp("eq", following, rank))
        b.store(b.select(is_last, b.load("i64", found), following), found)
    b.ret(b.load("i64", found))


def come_to(b: Builder, communicator: V, site: V) -> None:
    """Records where in its program the rank is; others report it when the rank makes no progress."""
    atomic_store(b, b.cast("trunc", site, "i32"), b.offset(own_area(b, communicator), board.SITE), "monotonic")


def note_fault(b: Builder, communicator: V, peer: V, peer_site: V) -> None:
    """Records why this rank stops."""
    own = own_area(b, communicator)
    b.store(b.cast("trunc", peer, "i32"), b.offset(own, board.FAULT_PEER))
    b.store(peer_site, b.offset(own, board.FAULT_PEER_SITE))


def set_field(b: Builder, communicator: V, name: str, value: V) -> None:
    b.store(value, b.offset(communicator, board.COMMUNICATOR[name]))
