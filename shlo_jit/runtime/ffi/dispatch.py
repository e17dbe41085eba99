"""Machine code that makes custom calls: the `callback` of programs whose instances have handlers.

    i32 @shlo_ffi_dispatch(ptr table, i64 number, ptr operands, ptr results)

`table` is a `structures.Table`. If a call is Python's, or its handler has failed, it calls the trampoline of
`runtime/callbacks.py`; in the second case with the error and the stage in place of operands and results. Everything
else runs without Python and its lock: it takes the call's block, or copies the template while another thread has the
block, writes addresses into the buffers, and calls the handlers.

    ptr @shlo_ffi_run(ptr handler, ptr frame, i32 stage)

calls one handler, waits for its future if it returns one, and returns its error or null. An exception of a C++ handler
becomes an error if the process has GNU's C++ library. That library finds the catching frame by the tables that were
registered with `__register_frame` (see `library.py`). It ends the process if no frame catches an exception.
"""

from __future__ import annotations

import ctypes

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.runtime.ffi import structures as s
from shlo_jit.runtime.ffi.api import TYPES, Functions, function
from shlo_jit.runtime.ffi.functions import STAGES
from shlo_jit.runtime.ffi.struct_fields import NULL, get, place, put

FRAME_BYTES = ctypes.sizeof(s.CallFrame)
BUFFERS = FRAME_BYTES + ctypes.sizeof(s.Context)
"""Offset of the pointers to buffers in a block."""
PERSONALITY = "__gxx_personality_v0"
STD_EXCEPTION = V("ptr", "@_ZTISt9exception")
WHAT = 2
"""Index of std::exception::what among its virtual functions."""


def build(module: ModuleText, target: Target) -> None:
    """Writes the functions of this file, and those of `api.py`."""
    functions = Functions(module, target)
    functions.write()
    _write_run(module, functions)
    _write_copy(module)
    _write_call(module, functions)
    _write_dispatch(module)


def _write_run(module: ModuleText, functions: Functions) -> None:
    for name, declared in (
        (PERSONALITY, "i32 @{}(...)"), ("__cxa_begin_catch", "ptr @{}(ptr)"), ("__cxa_end_catch", "void @{}()")
    ):  # fmt: skip
        module.declarations[name] = f"declare extern_weak {declared.format(name)}"
    module.define_global(STD_EXCEPTION.text[1:], "extern_weak constant ptr")
    b = module.function(
        "shlo_ffi_run",
        [("ptr", "handler"), ("ptr", "frame"), ("i32", "stage")],
        "ptr",
        linkage="external",
        attributes=f"noinline uwtable personality ptr @{PERSONALITY}",
    )
    handler, frame, stage = b.params
    put(b, stage, frame, s.CallFrame, "stage")
    put(b, NULL, frame, s.CallFrame, "future")
    returned, thrown = b.label("returned"), b.label("thrown")
    call = f"invoke ptr {handler.text}(ptr {frame.text}) to label %{returned} unwind label %{thrown}"
    error = b.emit("ptr", call)
    b.start(thrown)
    b.ret_early(_caught(b, functions))
    b.branch(returned)
    b.start(returned)
    with b.if_(b.icmp("ne", error, NULL)):
        b.ret_early(error)
    future = get(b, "ptr", frame, s.CallFrame, "future")
    with b.if_(b.icmp("eq", future, NULL)):
        b.ret_early(NULL)
    b.ret(functions.wait(b, future))


def _caught(b: Builder, functions: Functions) -> V:
    """Converts the exception at a landing pad to an error."""
    pad = b.emit("{ ptr, i32 }", f"landingpad {{ ptr, i32 }} catch ptr {STD_EXCEPTION.text} catch ptr null")
    thrown, kind = (b.emit(t, f"extractvalue {pad.type} {pad.text}, {i}") for i, t in enumerate(("ptr", "i32")))
    known = b.emit("i32", f"call i32 @llvm.eh.typeid.for.p0(ptr {STD_EXCEPTION.text})")
    b.module.declarations["llvm.eh.typeid.for.p0"] = "declare i32 @llvm.eh.typeid.for.p0(ptr)"
    exception = b.call("ptr", "__cxa_begin_catch", [thrown])

    def what() -> list[V]:
        virtual = b.load("ptr", exception)
        text = b.call_pointer("ptr", b.load("ptr", b.element(virtual, "ptr", WHAT)), [exception])
        return [functions.error_of(b, "UNKNOWN", text)]

    def unknown() -> list[V]:
        return [functions.error(b, "UNKNOWN", "an exception that is not a std::exception")]

    (error,) = b.if_else(b.icmp("eq", kind, known), what, unknown)
    b.call("void", "__cxa_end_catch", [])
    return error


def _write_copy(module: ModuleText) -> None:
    """Writes the function that copies the call's template to a block of the heap; it returns null without memory for
    it."""
    b = module.function("copy", [("ptr", "call")], "ptr", attributes="nounwind")
    (call,) = b.params
    nbytes = get(b, "i64", call, s.Call, "block_bytes")
    block = b.call("ptr", "malloc", [nbytes])
    with b.if_(b.icmp("eq", block, NULL)):
        b.ret_early(NULL)
    b.memcpy(block, get(b, "ptr", call, s.Call, "template"), nbytes)
    moved = b.sub(b.cast("ptrtoint", block, "i64"), get(b, "i64", call, s.Call, "base"))

    def move(pointer: V) -> None:
        b.store(b.add(b.load("i64", pointer), moved), pointer)

    move(place(b, block, s.CallFrame, "ctx"))
    move(place(b, block, s.CallFrame, "args", "values"))
    move(place(b, block, s.CallFrame, "rets", "values"))
    with b.loop(0, get(b, "i64", call, s.Call, "buffers")) as i:
        move(b.element(b.offset(block, BUFFERS), "i64", i))
    b.ret(block)


def _fill(b: Builder, block: V, places: V, addresses: V, count: V) -> None:
    """Writes addresses into buffers."""
    with b.loop(0, count) as i:
        to = b.offset(block, b.load("i64", b.element(places, "i64", i)))
        b.store(b.load("ptr", b.element(addresses, "ptr", i)), to)


def _write_call(module: ModuleText, functions: Functions) -> None:
    """Writes the function that makes one call. It returns the error, or null, and the stage of the error in
    `failed`."""
    names = ["call", "operands", "results", "failed"]
    b = module.function("call", [("ptr", name) for name in names], "ptr", attributes="nounwind")
    call, operands, results, failed = b.params
    slot = place(b, call, s.Call, "block")
    own = b.emit("ptr", f"atomicrmw xchg ptr {slot.text}, ptr null acquire")
    is_own = b.icmp("ne", own, NULL)
    (block,) = b.if_else(is_own, lambda: [own], lambda: [b.call("ptr", "copy", [call], declare=False)])
    with b.if_(b.icmp("eq", block, NULL)):
        b.store(i32(s.EXECUTE), failed)
        b.ret_early(functions.error(b, "RESOURCE_EXHAUSTED", "no memory for the call"))
    places, before = get(b, "ptr", call, s.Call, "places"), get(b, "i64", call, s.Call, "operands")
    _fill(b, block, places, operands, before)
    _fill(b, block, b.element(places, "i64", before), results, get(b, "i64", call, s.Call, "results"))
    done = b.label("done")
    ends: list[tuple[V, str]] = []
    for stage in (s.PREPARE, s.INITIALIZE, s.EXECUTE):
        handler = get(b, "ptr", call, s.Call, STAGES[stage])
        run, following = b.label("run"), b.label("next")
        b.branch_if(b.icmp("ne", handler, NULL), run, following)
        b.start(run)
        b.store(i32(stage), failed)
        error = b.call("ptr", "shlo_ffi_run", [handler, block, i32(stage)], declare=False)
        ends.append((error, b.block))
        b.branch_if(b.icmp("ne", error, NULL), done, following)
        b.start(following)
    ends.append((NULL, b.block))
    b.branch(done)
    b.start(done)
    error = b.phi("ptr", ends)
    b.call("void", "shlo_ffi_end", [b.offset(block, FRAME_BYTES)], declare=False)

    def back() -> list[V]:
        b.line(f"store atomic ptr {block.text}, ptr {slot.text} release, align 8")
        return []

    def free() -> list[V]:
        b.call("void", "free", [block])
        return []

    b.if_else(is_own, back, free)
    b.ret(error)


def _write_dispatch(module: ModuleText) -> None:
    params = [("ptr", "table"), ("i64", "number"), ("ptr", "operands"), ("ptr", "results")]
    b = function(module, "dispatch", params, "i32")
    table, number, operands, results = b.params
    at = b.sub(number, get(b, "i64", table, s.Table, "first"))
    call = b.load("ptr", b.element(get(b, "ptr", table, s.Table, "calls"), "ptr", at))
    trampoline, handle = (get(b, t, table, s.Table, name) for t, name in (("ptr", "trampoline"), ("i64", "handle")))
    with b.if_(b.icmp("eq", call, NULL)):
        b.ret_early(b.call_pointer("i32", trampoline, [handle, number, operands, results]))
    failed = b.alloca("i32", align=4)
    error = b.call("ptr", "call", [call, operands, results, failed], declare=False)
    with b.if_(b.icmp("eq", error, NULL)):
        b.ret_early(i32(0))
    stage = b.cast("inttoptr", b.cast("zext", b.load("i32", failed), "i64"), "ptr")
    b.ret(b.call_pointer("i32", trampoline, [handle, number, error, stage]))


_NAMES = [*(name for name in s.FUNCTIONS if name != "Type_Register"), "error", "run", "end", "drop", "dispatch"]
FFI = Routine("ffi", (*(f"shlo_ffi_{name}" for name in _NAMES), TYPES.text[1:]), build)
