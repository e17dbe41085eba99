"""Signals during a call: Ctrl-C, and whatever else Python has a handler for.

Python runs handlers in the main thread, with the GIL, when asked to. A program that may be long asks now and then (see
`lower/interrupts.py`) by calling

    i32 @shlo_pause()

which does nothing in other threads, and nothing before PAUSE_MILLISECONDS have passed since it last did something: to
wait for the GIL costs more than to look at a clock. Where a handler raises, it leaves the exception set and returns
INTERRUPTED, which the program returns in turn.

    i32 @shlo_call(ptr main, ptr args, ptr results, ptr dims, ptr arena, ptr instance)

calls a program without the GIL, for `Core.call`: ctypes itself would lose the exception.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING

from shlo_jit.codegen import abi
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V, i32
from shlo_jit.kernels.target import Target

if TYPE_CHECKING:
    from shlo_jit.codegen.jit import Library

PAUSE_MILLISECONDS = 40
SYMBOLS = ("shlo_pause", "shlo_call", "shlo_main_thread")
CALL = ctypes.PYFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * (1 + len(abi.PARAMETERS)))
"""Of shlo_call: with the GIL, and raising the exception that is set."""
MONOTONIC_COARSE = 6
"""The clock that costs least to read; it ticks every 1-10 ms."""


def build(module: ModuleText, target: Target) -> None:
    """Write the functions into `module`."""
    module.define_global("shlo_main_thread", "global i64 0, align 8")
    module.define_global("shlo_last_pause", "internal global i64 0, align 8")
    _write_pause(module)
    _write_call(module)


def _write_pause(module: ModuleText) -> None:
    b = module.function("shlo_pause", [], "i32", linkage="external", attributes="nounwind")
    nothing, ask = b.label("nothing"), b.label("ask")
    is_main, last = b.label("main"), V("ptr", "@shlo_last_pause")
    this = b.call("i64", "pthread_self", [])
    b.branch_if(b.icmp("eq", this, b.load("i64", V("ptr", "@shlo_main_thread"))), is_main, nothing)
    b.start(is_main)
    time = b.alloca("i64", 2)
    b.call("i32", "clock_gettime", [i32(MONOTONIC_COARSE), time])
    seconds, nanoseconds = b.load("i64", time), b.load("i64", b.offset(time, 8))
    now = b.add(b.mul(seconds, 1000), b.udiv(nanoseconds, 1_000_000))
    due = b.icmp("sge", b.sub(now, b.load("i64", last)), PAUSE_MILLISECONDS)
    b.branch_if(due, ask, nothing)
    b.start(nothing)
    b.line(f"ret i32 {abi.Status.OK}")
    b.start(ask)
    b.store(now, last)
    state = b.call("i32", "PyGILState_Ensure", [])
    raised = b.call("i32", "PyErr_CheckSignals", [])
    b.call("void", "PyGILState_Release", [state])
    b.ret(b.select(b.icmp("eq", raised, i32(0)), i32(abi.Status.OK), i32(abi.Status.INTERRUPTED)))


def _write_call(module: ModuleText) -> None:
    b = module.function(
        "shlo_call", [("ptr", "main"), *abi.PARAMETERS], "i32", linkage="external", attributes="nounwind"
    )
    thread = b.call("ptr", "PyEval_SaveThread", [])
    status = b.call_pointer("i32", b.params[0], b.params[1:])
    b.call("void", "PyEval_RestoreThread", [thread])
    b.ret(status)


_watched: set[int] = set()
"""Addresses of the words `shlo_main_thread` in this process."""


def watch_main_thread(library: Library) -> None:
    """Tell the code which thread is the main one, now and in children of a fork."""
    _watched.add(library.addresses["shlo_main_thread"])
    _note_main_thread()


def _note_main_thread() -> None:
    for address in _watched:
        ctypes.c_uint64.from_address(address).value = threading.main_thread().ident or 0


os.register_at_fork(after_in_child=_note_main_thread)
