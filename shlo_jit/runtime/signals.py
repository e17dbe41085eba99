"""Signals during a call: Ctrl-C, and all others that Python has a handler for.

Python runs handlers in the main thread, with the GIL, on request. A program that may take long requests this now and
then (see `lower/interrupts.py`) by calling

    i32 @shlo_pause()

It does nothing in other threads, and nothing before PAUSE_MILLISECONDS have passed since it last did something: waiting
for the GIL costs more than reading a clock. If a handler raises, it leaves the exception set and returns INTERRUPTED,
which the program returns in turn.

A step that takes long asks between its tasks, by the word `shlo_ask` of the thread pool, which holds

    i32 @shlo_look(ptr began)

This does nothing before PAUSE_MILLISECONDS have passed since its first call with the same word, so that short steps
never end early. If a handler raises, it returns 1, here and until the program is notified: tasks that have not begun
are not run, and the next `shlo_pause`, which directly follows a long step, returns INTERRUPTED; so does the end of the
call, if there was none.

    i32 @shlo_call(ptr main, ptr args, ptr results, ptr dims, ptr arena, ptr instance)

calls a program without the GIL, for `Core.call`: ctypes itself would lose the exception.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING

from shlo_jit.codegen import abi
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32
from shlo_jit.kernels.target import Target

if TYPE_CHECKING:
    from shlo_jit.codegen.jit import Library

PAUSE_MILLISECONDS = 40
SYMBOLS = ("shlo_pause", "shlo_call", "shlo_look", "shlo_settled", "shlo_main_thread")
PENDING = V("ptr", "@shlo_interrupted")
"""1 from the interruption of a step until the program is notified."""
CALL = ctypes.PYFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * (1 + len(abi.PARAMETERS)))
"""Type of shlo_call: with the GIL, and raising the exception that is set."""
MONOTONIC_COARSE = 6
"""The fastest clock to read; it ticks every 1-10 ms."""


def build(module: ModuleText, target: Target) -> None:
    """Writes the functions into `module`."""
    module.define_global("shlo_main_thread", "global i64 0, align 8")
    module.define_global("shlo_last_pause", "internal global i64 0, align 8")
    module.define_global(PENDING.text[1:], "internal global i32 0, align 4")
    _write_pause(module)
    _write_look(module)
    _write_settled(module)
    _write_call(module)


def _is_main(b: Builder) -> V:
    return b.icmp("eq", b.call("i64", "pthread_self", []), b.load("i64", V("ptr", "@shlo_main_thread")))


def _now(b: Builder) -> V:
    """Returns the time in milliseconds."""
    time = b.alloca("i64", 2)
    b.call("i32", "clock_gettime", [i32(MONOTONIC_COARSE), time])
    seconds, nanoseconds = b.load("i64", time), b.load("i64", b.offset(time, 8))
    return b.add(b.mul(seconds, 1000), b.udiv(nanoseconds, 1_000_000))


def _has_raised(b: Builder) -> V:
    """Runs the handlers of pending signals. Returns an i1: whether one raised."""
    state = b.call("i32", "PyGILState_Ensure", [])
    raised = b.call("i32", "PyErr_CheckSignals", [])
    b.call("void", "PyGILState_Release", [state])
    return b.icmp("ne", raised, i32(0))


def _write_pause(module: ModuleText) -> None:
    b = module.function("shlo_pause", [], "i32", linkage="external", attributes="nounwind")
    ok, interrupted, last = i32(abi.Status.OK), i32(abi.Status.INTERRUPTED), V("ptr", "@shlo_last_pause")
    with b.if_(b.not_(_is_main(b))):
        b.ret_early(ok)
    with b.if_(b.icmp("ne", b.load("i32", PENDING), i32(0))):
        b.store(i32(0), PENDING)
        b.ret_early(interrupted)
    now = _now(b)
    with b.if_(b.icmp("slt", b.sub(now, b.load("i64", last)), PAUSE_MILLISECONDS)):
        b.ret_early(ok)
    b.store(now, last)
    b.ret(b.select(_has_raised(b), interrupted, ok))


def _write_look(module: ModuleText) -> None:
    b = module.function("shlo_look", [("ptr", "began")], "i32", linkage="external", attributes="nounwind")
    (began,) = b.params
    with b.if_(b.not_(_is_main(b))):
        b.ret_early(i32(0))
    with b.if_(b.icmp("ne", b.load("i32", PENDING), i32(0))):
        b.ret_early(i32(1))
    now, last = _now(b), b.load("i64", began)
    with b.if_(b.icmp("eq", last, 0)):
        b.store(now, began)
        b.ret_early(i32(0))
    with b.if_(b.icmp("slt", b.sub(now, last), PAUSE_MILLISECONDS)):
        b.ret_early(i32(0))
    b.store(now, began)
    raised = b.cast("zext", _has_raised(b), "i32")
    b.store(raised, PENDING)
    b.ret(raised)


def _write_settled(module: ModuleText) -> None:
    """i32 @shlo_settled(i32 status): the status of a call that has ended, which its last step may have cut short."""
    b = module.function("shlo_settled", [("i32", "status")], "i32", linkage="external", attributes="nounwind")
    with b.if_(b.icmp("eq", b.load("i32", PENDING), i32(0))):
        b.ret_early(b.params[0])
    with b.if_(b.not_(_is_main(b))):
        b.ret_early(b.params[0])
    b.store(i32(0), PENDING)
    b.ret(i32(abi.Status.INTERRUPTED))


def settled(b: Builder, status: V, declare: bool = False) -> V:
    """Returns the final status of a call. `declare`: it is called from another module than that of `build`."""
    return b.call("i32", "shlo_settled", [status], declare=declare)


def _write_call(module: ModuleText) -> None:
    b = module.function(
        "shlo_call", [("ptr", "main"), *abi.PARAMETERS], "i32", linkage="external", attributes="nounwind"
    )
    thread = b.call("ptr", "PyEval_SaveThread", [])
    status = b.call_pointer("i32", b.params[0], b.params[1:])
    b.call("void", "PyEval_RestoreThread", [thread])
    b.ret(settled(b, status))


_watched: set[int] = set()
"""Addresses of the words `shlo_main_thread` in this process."""


def watch_main_thread(library: Library, pool: Library) -> None:
    """Sets the main thread in the code, now and in children of a fork, and sets the pool's function that checks for
    signals."""
    ctypes.c_uint64.from_address(pool.addresses["shlo_ask"]).value = library.addresses["shlo_look"]
    _watched.add(library.addresses["shlo_main_thread"])
    _note_main_thread()


def _note_main_thread() -> None:
    for address in _watched:
        ctypes.c_uint64.from_address(address).value = threading.main_thread().ident or 0


os.register_at_fork(after_in_child=_note_main_thread)
