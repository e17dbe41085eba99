"""Functions of the interface that are implemented in Python, and unimplemented ones.

    ptr @shlo_pjrt_ask(ptr function, ptr args, i64 tries)   calls a Python function; an error or null
    void @shlo_pjrt_interrupt()                 the main thread raises RAISED, or else KeyboardInterrupt, soon
    void @shlo_pjrt_keep_exception()            this thread's current exception becomes RAISED
    i32 @shlo_pjrt_raise(ptr exception)         for Python's list of pending calls: the main thread raises it

A Python function is called with the address for its answer, which is DONE, INTERRUPTED, STOPPED or the address of an
error. If Ctrl-C hits it outside of its own `try`, ctypes returns, and there is no answer.

An exception that a signal handler raises must not become an error of the interface: the host would raise that as an
exception of its own, which `except Exception` catches. So an interrupted call is a success for the host. A short call
is repeated; a program returns results that are already deleted. Back in Python, the main thread runs its pending calls
before the next bytecode, so the exception appears where the call was made.
"""

from __future__ import annotations

from shlo_jit.kernels.atomics import atomic
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.code.function_writer import NULL, Slot, error, symbol, text

DONE, INTERRUPTED, STOPPED = 1, 2, 3
"""Answers of Python functions. INTERRUPTED: not done, and RAISED is to be raised; STOPPED: done, and RAISED is to be
raised."""
TRIES = 8
"""Maximum number of attempts of a short call that is interrupted."""
FUNCTIONS = V("ptr", "@shlo_pjrt_functions")
"""Addresses of Python's functions, in the order of PYTHON."""
INSIDE = V("ptr", "@shlo_pjrt_inside")
"""Number of Python calls that are running."""
RAISED = V("ptr", "@shlo_pjrt_raised")
"""A reference to the exception that a signal handler has raised, or null."""
PENDING = V("ptr", "@shlo_pjrt_pending")
"""The thread that has yet to raise an exception, or 0: programs that it runs until then stop immediately."""
MAIN_THREAD = V("ptr", "@shlo_pjrt_main_thread")
"""The main thread of an interpreter that is shutting down; 0 before."""
MACHINE_CODE = (
    *("Error_Destroy", "Error_Message", "Error_GetCode", "Error_ForEachPayload"),
    *("Event_Destroy", "Event_IsReady", "Event_Error", "Event_Await", "Event_OnReady"),
    *("Buffer_Destroy", "Buffer_Delete", "Buffer_IsDeleted", "Buffer_ElementType", "Buffer_Dimensions"),
    *("Buffer_UnpaddedDimensions", "Buffer_DynamicDimensionIndices", "Buffer_OnDeviceSizeInBytes", "Buffer_Device"),
    *("Buffer_Memory", "Buffer_IsOnCpu", "Buffer_ReadyEvent", "Buffer_UnsafePointer"),
    *("Buffer_OpaqueDeviceMemoryDataPointer", "Buffer_IncreaseExternalReferenceCount"),
    *("Buffer_DecreaseExternalReferenceCount", "Buffer_ToHostBuffer", "Buffer_CopyRawToHost"),
    *("Buffer_CopyToDevice", "Buffer_CopyToMemory"),
    *("Client_BufferFromHostBuffer", "Client_CreateViewOfDeviceBuffer", "Client_CreateUninitializedBuffer"),
    "Client_UpdateGlobalProcessInfo",
    *("Executable_NumReplicas", "Executable_NumPartitions", "Executable_NumOutputs", "Executable_Destroy"),
    *("LoadedExecutable_Execute", "LoadedExecutable_GetExecutable", "LoadedExecutable_Destroy"),
    *("LoadedExecutable_Delete", "LoadedExecutable_IsDeleted", "Memory_Kind"),
)
"""Functions of the interface that are written in machine code."""
EXTENSIONS = (
    *("Executable_ParameterShardings", "Executable_OutputShardings", "Client_GetDefaultLayout"),
    *("Topology_GetDefaultLayout", "Executable_GetOutputLayouts", "Executable_GetParameterLayouts"),
)
"""Functions of extensions."""
PYTHON = (
    *(name for name, fields in interface.FUNCTIONS.items() if fields is not None and name not in MACHINE_CODE),
    *EXTENSIONS,
)
"""Functions that call Python."""
MAKING = ("Client_Compile", "Executable_DeserializeAndLoad")
"""Slow Python functions that create an object which the host then uses: the host has to know if there is none."""


def write_python(module: ModuleText) -> None:
    module.define_global(MAIN_THREAD.text[1:], "global i64 0, align 8")
    module.define_global(INSIDE.text[1:], "global i64 0, align 8")
    module.define_global(RAISED.text[1:], "global ptr null, align 8")
    module.define_global(PENDING.text[1:], "global i64 0, align 8")
    _write_ask(module)
    _write_interrupt(module)
    _write_keep_exception(module)
    _write_raise(module)
    module.define_global(FUNCTIONS.text[1:], f"global [{len(PYTHON)} x ptr] zeroinitializer, align 8")
    for i, name in enumerate(PYTHON):
        slot = Slot(module, name)
        function = slot.b.load("ptr", slot.b.element(FUNCTIONS, "ptr", i64(i)))
        slot.b.ret(call_python(slot.b, function, slot.address, 1 if name in MAKING else TRIES))
    for name, fields in interface.FUNCTIONS.items():
        if fields is None:
            b = _external(module, symbol(name))
            b.ret(b.call("ptr", "shlo_pjrt_missing", [text(module, b, name)[0]], declare=False))
    b = module.function("shlo_pjrt_missing", [("ptr", "name")], "ptr", attributes="nounwind cold noinline")
    b.ret(error(module, b, interface.UNIMPLEMENTED, "shlo_jit has no %s", b.params[0]))
    b = _external(module, "shlo_pjrt_nothing_void", "args", "void")
    b.ret()
    b = _external(module, "shlo_pjrt_nothing", "answer", "void")
    b.store(i64(DONE), b.params[0])
    b.ret()
    b = _external(module, "shlo_pjrt_ended", "answer", "void")
    b.store(error(module, b, interface.CANCELLED, "the interpreter has ended"), b.params[0])
    b.ret()


def block_at_shutdown(b: Builder) -> None:
    """Blocks other threads when the interpreter shuts down. If they request its lock, the interpreter ends them, and
    the host's frames in their stacks do not permit that."""
    main = b.load("i64", MAIN_THREAD)
    with b.if_(b.icmp("ne", main, 0), "ending"), b.if_(b.icmp("ne", main, b.call("i64", "pthread_self", [])), "other"):
        again = b.label("again")
        b.branch(again)
        b.start(again)
        b.call("i32", "pause", [])
        b.branch(again)
        b.start(b.label("never"))


def call_python(b: Builder, function: V, args: V, tries: int = 1) -> V:
    """Returns an error, or null. `tries` is the maximum number of attempts of a call that is interrupted."""
    return b.call("ptr", "shlo_pjrt_ask", [function, args, i64(tries)], declare=False)


def answer_of(b: Builder, function: V, *arguments: V) -> V:
    """Returns the answer of a Python function; 0 for none."""
    place = b.variable(i64(0))
    b.store(i64(0), place)
    atomic(b, "add", INSIDE, i64(1), "acq_rel")
    b.call_pointer("void", function, [place, *arguments])
    atomic(b, "sub", INSIDE, i64(1), "acq_rel")
    return b.load("i64", place)


def is_interrupted(b: Builder, answer: V) -> V:
    """Whether the main thread was interrupted before the function was done."""
    nothing = b.and_(b.icmp("eq", answer, 0), b.icmp("eq", b.load("i64", MAIN_THREAD), 0))
    return b.or_(b.icmp("eq", answer, INTERRUPTED), nothing)


def must_raise(b: Builder) -> V:
    """Whether this thread has yet to raise an exception that an earlier call left."""
    thread = b.load("i64", PENDING)
    (mine,) = b.if_else(
        b.icmp("eq", thread, 0),
        lambda: [V("i1", "false")],
        lambda: [b.icmp("eq", thread, b.call("i64", "pthread_self", []))],
    )
    return mine


def _external(module: ModuleText, name: str, parameter: str = "args", result: str = "ptr") -> Builder:
    return module.function(name, [("ptr", parameter)], result, linkage="external", attributes="nounwind")


def _write_ask(module: ModuleText) -> None:
    params = [("ptr", "function"), ("ptr", "args"), ("i64", "tries")]
    b = module.function("shlo_pjrt_ask", params, "ptr", attributes="nounwind noinline")
    function, args, tries = b.params
    left, was_interrupted = b.variable(tries), b.variable(i64(0))
    again, interrupted, more, over, answered = (
        b.label(name) for name in ("again", "interrupted", "more", "over", "answered")
    )
    b.branch(again)
    b.start(again)
    answer = answer_of(b, function, args)
    b.branch_if(is_interrupted(b, answer), interrupted, answered)
    b.start(interrupted)
    b.store(i64(1), was_interrupted)
    b.store(b.sub(b.load("i64", left), 1), left)
    b.branch_if(b.icmp("sgt", b.load("i64", left), 0), more, over)
    b.start(more)
    b.branch(again)
    b.start(over)
    b.call("void", "shlo_pjrt_interrupt", [], declare=False)
    stopped = error(module, b, interface.CANCELLED, "the call was interrupted")
    b.line(f"ret ptr {stopped.text}")
    b.start(answered)
    has_raised = b.or_(b.icmp("eq", answer, STOPPED), b.icmp("ne", b.load("i64", was_interrupted), 0))
    with b.if_(has_raised, "raised"):
        b.call("void", "shlo_pjrt_interrupt", [], declare=False)
    with b.if_(b.or_(b.icmp("eq", answer, DONE), b.icmp("eq", answer, STOPPED)), "done"):
        b.ret_early(NULL)
    with b.if_(b.icmp("eq", answer, 0), "ended"):
        b.ret_early(error(module, b, interface.CANCELLED, "the interpreter has ended"))
    b.ret(b.cast("inttoptr", answer, "ptr"))


def _write_interrupt(module: ModuleText) -> None:
    b = module.function("shlo_pjrt_interrupt", [], attributes="nounwind cold noinline")
    raised = b.cast("inttoptr", atomic(b, "xchg", RAISED, i64(0), "acq_rel"), "ptr")
    with b.if_(must_raise(b), "waits"):  # one exception is enough, the first
        b.ret_early()
    kept = b.label("kept")
    unknown = b.label("unknown")
    b.branch_if(b.icmp("ne", raised, NULL), kept, unknown)
    b.start(kept)
    b.store(b.call("i64", "pthread_self", []), PENDING)
    is_full = b.icmp("ne", b.call("i32", "Py_AddPendingCall", [V("ptr", "@shlo_pjrt_raise"), raised]), i32(0))
    with b.if_(b.xor(is_full, V("i1", "true")), "listed"):
        b.ret_early()
    b.store(i64(0), PENDING)
    b.branch(unknown)
    b.start(unknown)
    with b.if_(b.icmp("eq", b.load("i64", MAIN_THREAD), 0), "goes_on"):
        b.call("void", "PyErr_SetInterrupt", [])
    b.ret()


def _write_keep_exception(module: ModuleText) -> None:
    b = module.function("shlo_pjrt_keep_exception", [], attributes="nounwind cold")
    parts = [b.alloca("ptr", 1, 8) for _ in range(3)]
    state = b.call("i32", "PyGILState_Ensure", [])
    for function in ("PyErr_Fetch", "PyErr_NormalizeException"):
        b.call("void", function, parts)
    kind, value, traceback = (b.load("ptr", part) for part in parts)
    for thing in (kind, traceback):
        b.call("void", "Py_DecRef", [thing])
    before = b.cast("inttoptr", atomic(b, "xchg", RAISED, b.cast("ptrtoint", value, "i64"), "acq_rel"), "ptr")
    b.call("void", "Py_DecRef", [before])
    b.call("void", "PyGILState_Release", [state])
    b.ret()


def _write_raise(module: ModuleText) -> None:
    """Writes shlo_pjrt_raise, which receives a reference to the exception.

    PyErr_SetObject would make the error that JAX handles at that time (the call was interrupted) its context."""
    b = module.function("shlo_pjrt_raise", [("ptr", "exception")], "i32", linkage="external", attributes="nounwind")
    (exception,) = b.params
    b.store(i64(0), PENDING)
    kind = b.call("ptr", "PyObject_Type", [exception])
    traceback = b.call("ptr", "PyException_GetTraceback", [exception])
    b.call("void", "PyErr_Restore", [kind, exception, traceback])  # takes over all three references
    b.ret(i32(-1))
