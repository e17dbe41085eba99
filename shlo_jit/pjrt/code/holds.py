"""Holds on buffers that several threads use: one may delete or donate a buffer while others read it.

    i1 @shlo_pjrt_hold(ptr buffer)       whether it could be held: not if it has been deleted
    void @shlo_pjrt_let_go(ptr buffer)
    void @shlo_pjrt_delete(ptr buffer)
    ptr @shlo_pjrt_take_over(ptr buffer) its storage, with a reference for the caller; null if it has been deleted
    void @shlo_pjrt_give_back(ptr buffer, ptr storage)

A buffer's `state` is twice the number of its holders, plus one if it has been deleted. A deleted buffer cannot be held
again, so its last holder is well defined, and drops the buffer's reference to its storage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shlo_jit.kernels.atomics import atomic, atomic_load, exchange
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.code.function_writer import NULL, Record, error
from shlo_jit.pjrt.host_records import BUFFER, STORAGE

DELETED, HOLD = 1, 2
"""Bits of `state`."""
TRUE, FALSE = V("i1", "true"), V("i1", "false")


def write_holds(module: ModuleText) -> None:
    _write_hold(module)
    _write_let_go(module)
    _write_delete(module)
    _write_take_over(module)
    _write_give_back(module)


def hold(b: Builder, buffer: V) -> V:
    return b.call("i1", "shlo_pjrt_hold", [buffer], declare=False)


def let_go(b: Builder, buffer: V) -> None:
    b.call("void", "shlo_pjrt_let_go", [buffer], declare=False)


def is_deleted(b: Builder, buffer: Record) -> V:
    state = atomic_load(b, "i64", buffer.place("state"), "acquire")
    return b.icmp("ne", b.and_(state, i64(DELETED)), 0)


@contextmanager
def held(module: ModuleText, b: Builder, buffer: Record) -> Iterator[None]:
    """Holds a buffer while its memory is accessed. Returns an error if it has been deleted."""
    with b.if_(b.xor(hold(b, buffer.address), TRUE), "deleted"):
        b.ret_early(error(module, b, interface.INVALID_ARGUMENT, "the array has been deleted or donated"))
    yield
    let_go(b, buffer.address)


def _change(b: Builder, place: V, state: V, to: V, again: str) -> None:
    """Replaces the state, or tries again if another thread has changed it."""
    done = b.label("done")
    b.branch_if(exchange(b, place, state, to), done, again)
    b.start(done)


def _look(b: Builder, place: V) -> tuple[str, V]:
    """Returns the label of the retry loop, and the state."""
    again = b.label("again")
    b.branch(again)
    b.start(again)
    return again, atomic_load(b, "i64", place, "acquire")


def _write_hold(module: ModuleText) -> None:
    b = module.function("shlo_pjrt_hold", [("ptr", "buffer")], "i1", linkage="external", attributes="nounwind")
    place = Record(b, BUFFER, b.params[0]).place("state")
    again, state = _look(b, place)
    with b.if_(b.icmp("ne", b.and_(state, i64(DELETED)), 0), "deleted"):
        b.ret_early(FALSE)
    _change(b, place, state, b.add(state, HOLD), again)
    b.ret(TRUE)


def _write_let_go(module: ModuleText) -> None:
    b = module.function("shlo_pjrt_let_go", [("ptr", "buffer")], linkage="external", attributes="nounwind")
    record = Record(b, BUFFER, b.params[0])
    was = atomic(b, "sub", record.place("state"), i64(HOLD), "acq_rel")
    with b.if_(b.icmp("eq", was, DELETED + HOLD), "last"):
        b.call("void", "shlo_pjrt_drop", [record.pointer("storage")], declare=False)
    b.ret()


def _write_delete(module: ModuleText) -> None:
    b = module.function("shlo_pjrt_delete", [("ptr", "buffer")], linkage="external", attributes="nounwind")
    (buffer,) = b.params
    with b.if_(hold(b, buffer), "alive"):
        atomic(b, "or", Record(b, BUFFER, buffer).place("state"), i64(DELETED), "acq_rel")
        let_go(b, buffer)
    b.ret()


def _write_take_over(module: ModuleText) -> None:
    """Writes shlo_pjrt_take_over. The caller holds the buffer."""
    b = module.function("shlo_pjrt_take_over", [("ptr", "buffer")], "ptr", attributes="nounwind")
    record = Record(b, BUFFER, b.params[0])
    was = atomic(b, "or", record.place("state"), i64(DELETED), "acq_rel")
    with b.if_(b.icmp("ne", b.and_(was, i64(DELETED)), 0), "deleted"):
        b.ret_early(NULL)
    storage = record.pointer("storage")
    atomic(b, "add", Record(b, STORAGE, storage).place("references"), i64(1), "acq_rel")
    b.ret(storage)


def _write_give_back(module: ModuleText) -> None:
    """Writes shlo_pjrt_give_back. The caller's reference becomes the buffer's if the buffer has lost its own, since it
    has no holder any more."""
    b = module.function("shlo_pjrt_give_back", [("ptr", "buffer"), ("ptr", "storage")], attributes="nounwind")
    buffer, storage = b.params
    place = Record(b, BUFFER, buffer).place("state")
    again, state = _look(b, place)
    _change(b, place, state, b.and_(state, i64(~DELETED)), again)
    with b.if_(b.icmp("ne", state, DELETED), "held"):
        b.call("void", "shlo_pjrt_drop", [storage], declare=False)
    b.ret()
