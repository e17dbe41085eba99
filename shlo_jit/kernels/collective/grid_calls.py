"""Calls of the programs of a grid: a host begins a call on all ranks, runs one itself, and waits for the others.

    i64 @shlo_serve(ptr worker)

is the loop of the other ranks: they run their program at every call. It returns 0 when the host commands LEAVE, and any
status other than OK that its program ends with. Then Python reports the details to the host, and
`void @shlo_end_call(ptr worker, i64 status)` ends the call for the rank, which serves again.

    void @shlo_call_all(ptr board, i64 command)        begins a call
    void @shlo_begin(ptr worker)                       for the host's own rank, which ends the call by shlo_end_call
    i64 @shlo_await_all(ptr board, i64 ranks, i64 spins, i64 yields, i64 nanoseconds)

The last function waits until all ranks have ended the call, but at most for `nanoseconds`, and returns whether they
have. Afterwards

    i64 @shlo_unread(ptr board, ptr mail, i64 ranks, i64 words)

returns the index of a word, among `words` words of mail, whose message its receiver never read; -1 if there is none.

    i32 @shlo_get_on()

is the `pause` of ranks: their hearts beat while they compute, and they stop on request. The host's own rank then checks
for signals, by a function whose address is in `shlo_host_pause`.
"""

from __future__ import annotations

from shlo_jit.kernels.atomics import atomic, atomic_load, atomic_store
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.collective import board
from shlo_jit.kernels.collective.waiting import (
    HOST_PAUSE,
    NULL,
    SLICE_NANOSECONDS,
    Sleep,
    beat,
    come_to,
    fence,
    field,
    note_fault,
    own_area,
    pause_of_host,
    rank_area,
    set_field,
    spin_until,
    stop_all,
)
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.waiting import spinning

WORKER = {
    name: 8 * i
    for i, name in enumerate(
        (
            *("main", "instance", "arena", "communicator"),
            *("inputs", "outputs"),  # numbers of arguments and results
            *("input_offsets", "output_offsets"),  # i64 each, from the base of the memory that the ranks share
            *("arguments", "results"),  # memory for their addresses
            *("seen", "per_call", "per_call_bytes"),  # the last call; memory that is zeroed when one begins
        )
    )
}
"""Byte offset of each field of a rank's own record; each is a 64-bit value."""
THIS_RANK = V("ptr", "@shlo_this_rank")
"""The communicator of the rank that runs this code: each rank loads its own copy of the object."""


def write_calls(module: ModuleText, target: Target) -> None:
    sleep = Sleep(target)
    module.define_global(THIS_RANK.text[1:], "global ptr null, align 8")
    module.define_global(HOST_PAUSE.text[1:], "global ptr null, align 8")
    _write_begin(module)
    _write_serve(module, target, sleep)
    _write_end_call(module, sleep)
    _write_call_all(module, sleep)
    _write_await_all(module, target, sleep)
    _write_unread(module)
    _write_get_on(module)


def _field(b: Builder, worker: V, name: str, type: str = "i64") -> V:
    return b.load(type, b.offset(worker, WORKER[name]))


def _write_serve(module: ModuleText, target: Target, sleep: Sleep) -> None:
    b = module.function("shlo_serve", [("ptr", "worker")], "i64", linkage="external", attributes=spinning(target))
    (worker,) = b.params
    communicator = _field(b, worker, "communicator", "ptr")
    shared = field(b, communicator, "board", "ptr")
    word, idle = b.offset(shared, board.CALL), b.offset(shared, board.IDLE)
    seen = b.offset(worker, WORKER["seen"])
    again, look, called, leave = (b.label(n) for n in ("again", "look", "called", "leave"))
    b.branch(again)

    b.start(again)
    last = b.cast("trunc", b.load("i64", seen), "i32")

    def is_new() -> V:
        return b.icmp("ne", atomic_load(b, "i32", word, "acquire"), last)

    # It yields after every check: between calls the host copies arrays, with all CPUs.
    spin_until(b, target, field(b, communicator, "spins"), i64(0), is_new, called)
    b.branch(look)
    b.start(look)
    atomic(b, "add", idle, i32(1), "seq_cst")
    sleep.wait(b, word, last, i64(SLICE_NANOSECONDS * 10))
    atomic(b, "sub", idle, i32(1), "seq_cst")
    b.branch_if(is_new(), called, look)  # after a long sleep one check is enough: ranks of many executables may wait

    b.start(called)
    command = atomic_load(b, "i32", b.offset(shared, board.COMMAND), "monotonic")
    work = b.label("work")
    b.branch_if(b.icmp("eq", command, i32(board.LEAVE)), leave, work)

    b.start(work)
    b.call("void", "shlo_begin", [worker], declare=False)
    parameters = [_field(b, worker, n, "ptr") for n in ("arguments", "results")]
    parameters += [NULL, *(_field(b, worker, n, "ptr") for n in ("arena", "instance"))]
    status = b.call_pointer("i32", _field(b, worker, "main", "ptr"), parameters)
    with b.if_(b.icmp("ne", status, i32(board.OK)), "failed"):
        stop_all(b, communicator, status)
        b.ret_early(b.cast("sext", status, "i64"))
    b.call("void", "shlo_end_call", [worker, i64(board.OK)], declare=False)
    b.branch(again)

    b.start(leave)
    b.ret(i64(0))


def _write_begin(module: ModuleText) -> None:
    """Emits shlo_begin, which resets everything to its state at the beginning of a call."""
    b = module.function("shlo_begin", [("ptr", "worker")], linkage="external", attributes="nounwind")
    (worker,) = b.params
    communicator = _field(b, worker, "communicator", "ptr")
    shared = field(b, communicator, "board", "ptr")
    word = atomic_load(b, "i32", b.offset(shared, board.CALL), "acquire")
    b.store(b.cast("zext", word, "i64"), b.offset(worker, WORKER["seen"]))
    b.memset(_field(b, worker, "per_call", "ptr"), 0, _field(b, worker, "per_call_bytes"))
    call = b.load("i64", b.offset(shared, board.CALL_NUMBER))
    set_field(b, communicator, "tag", b.shl(call, board.CALL_SHIFT))
    atomic_store(b, word, b.offset(own_area(b, communicator), board.THIS_CALL), "monotonic")
    come_to(b, communicator, i64(board.NONE))
    note_fault(b, communicator, i64(board.NONE), i32(board.NONE))
    base = field(b, communicator, "base", "ptr")
    for count, offsets, addresses in (
        ("inputs", "input_offsets", "arguments"),
        ("outputs", "output_offsets", "results"),
    ):
        given, made = _field(b, worker, offsets, "ptr"), _field(b, worker, addresses, "ptr")
        with b.loop(0, _field(b, worker, count)) as i:
            b.store(b.offset(base, b.load("i64", b.element(given, "i64", i))), b.element(made, "ptr", i))
    beat(b, communicator)
    b.ret()


def _write_end_call(module: ModuleText, sleep: Sleep) -> None:
    params = [("ptr", "worker"), ("i64", "status")]
    b = module.function("shlo_end_call", params, linkage="external", attributes="nounwind")
    worker, status = b.params
    communicator = _field(b, worker, "communicator", "ptr")
    shared, ranks = field(b, communicator, "board", "ptr"), field(b, communicator, "ranks")
    own = rank_area(b, shared, field(b, communicator, "rank"))
    b.store(b.cast("trunc", status, "i32"), b.offset(own, board.STATUS))
    call = b.cast("trunc", b.lshr(field(b, communicator, "tag"), board.CALL_SHIFT), "i32")
    atomic_store(b, call, b.offset(own, board.LAST_CALL), "seq_cst")
    fence(b)
    with b.loop(0, ranks) as rank:  # wakes ranks that wait for messages which will not arrive
        b.call("void", "shlo_ring", [communicator, rank], declare=False)
    before = atomic(b, "add", b.offset(shared, board.ENDED), i32(1), "seq_cst")
    is_last = b.icmp("eq", b.add(b.cast("zext", before, "i64"), 1), ranks)
    asleep = b.icmp("ne", atomic_load(b, "i32", b.offset(shared, board.CALLER_ASLEEP)), i32(0))
    with b.if_(b.and_(is_last, asleep), "wake"):
        sleep.wake(b, b.offset(shared, board.ENDED))
    b.ret()


def _write_call_all(module: ModuleText, sleep: Sleep) -> None:
    params = [("ptr", "board"), ("i64", "command")]
    b = module.function("shlo_call_all", params, linkage="external", attributes="nounwind")
    shared, command = b.params[0], b.cast("trunc", b.params[1], "i32")
    b.store(i32(0), b.offset(shared, board.ENDED))
    atomic_store(b, command, b.offset(shared, board.STOP), "monotonic")
    b.store(command, b.offset(shared, board.COMMAND))
    number = b.add(b.load("i64", b.offset(shared, board.CALL_NUMBER)), 1)
    b.store(number, b.offset(shared, board.CALL_NUMBER))
    word = b.offset(shared, board.CALL)
    atomic_store(b, b.cast("trunc", number, "i32"), word, "seq_cst")
    idle = atomic_load(b, "i32", b.offset(shared, board.IDLE))
    with b.if_(b.icmp("ne", idle, i32(0)), "wake"):
        sleep.wake(b, word)
    b.ret()


def _write_await_all(module: ModuleText, target: Target, sleep: Sleep) -> None:
    params = [("ptr", "board"), ("i64", "ranks"), ("i64", "spins"), ("i64", "yields"), ("i64", "nanoseconds")]
    b = module.function("shlo_await_all", params, "i64", linkage="external", attributes=spinning(target))
    shared, ranks, spins, mask, nanoseconds = b.params
    word, asleep = b.offset(shared, board.ENDED), b.offset(shared, board.CALLER_ASLEEP)
    all_ranks = b.cast("trunc", ranks, "i32")
    done, again, doze, late = (b.label(n) for n in ("done", "again", "doze", "late"))
    spin_until(b, target, spins, mask, lambda: b.icmp("eq", atomic_load(b, "i32", word, "acquire"), all_ranks), done)
    begun = sleep.clock(b)
    atomic_store(b, i32(1), asleep, "seq_cst")
    b.branch(again)
    b.start(again)
    ended = atomic_load(b, "i32", word)
    left = b.sub(b.add(begun, nanoseconds), sleep.clock(b))
    over = b.label("over")
    b.branch_if(b.icmp("eq", ended, all_ranks), over, doze)
    b.start(doze)
    nap = b.label("nap")
    b.branch_if(b.icmp("sle", left, 0), late, nap)
    b.start(nap)
    sleep.wait(b, word, ended, left)
    b.branch(again)
    b.start(over)
    atomic_store(b, i32(0), asleep, "seq_cst")
    b.branch(done)
    b.start(late)
    atomic_store(b, i32(0), asleep, "seq_cst")
    b.line("ret i64 0")
    b.start(done)
    b.ret(i64(1))


def _write_unread(module: ModuleText) -> None:
    params = [("ptr", "board"), ("ptr", "mail"), ("i64", "ranks"), ("i64", "words")]
    b = module.function("shlo_unread", params, "i64", linkage="external", attributes="nounwind")
    shared, mail, ranks, words = b.params
    read = b.element(mail, "i64", words)
    call = b.load("i64", b.offset(shared, board.CALL_NUMBER))
    with b.loop(0, words) as i:
        posted = b.load("i64", b.element(mail, "i64", i))
        seen = b.load("i64", b.element(read, "i64", i))
        differs = b.icmp("ne", b.lshr(posted, board.NUMBER_SHIFT), b.lshr(seen, board.NUMBER_SHIFT))
        pair = b.urem(b.udiv(i, board.RING), b.mul(ranks, ranks))
        to_another = b.icmp("ne", b.udiv(pair, ranks), b.urem(pair, ranks))
        is_new = b.icmp("eq", b.lshr(posted, board.CALL_SHIFT), call)
        with b.if_(b.and_(is_new, b.and_(differs, to_another)), "unread"):
            b.ret_early(i)
    b.ret(i64(-1))


def _write_get_on(module: ModuleText) -> None:
    b = module.function("shlo_get_on", [], "i32", linkage="external", attributes="nounwind")
    communicator = b.load("ptr", THIS_RANK)
    beat(b, communicator)
    shared = field(b, communicator, "board", "ptr")
    stop = atomic_load(b, "i32", b.offset(shared, board.STOP), "monotonic")
    with b.if_(b.icmp("ne", stop, i32(0)), "stopped"):
        b.ret_early(i32(board.STOPPED))
    b.ret(pause_of_host(b))
