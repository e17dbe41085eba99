"""Machine code of the functions that handlers may call, so that none of them needs Python or its lock.

    ptr @shlo_ffi_NAME(ptr args)                    XLA_FFI_NAME: an error, or null
    void @shlo_ffi_end(ptr context)                 frees a call's memory and states, except the instance's
    void @shlo_ffi_drop(ptr state)                  ends a State

Type_Register is in Python (`state_types.py`): libraries call it once. Errors and futures are blocks of the C library's
heap.
"""

from __future__ import annotations

import ctypes

from shlo_jit.kernels.atomics import atomic, atomic_store, exchange
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, const, i32, i64
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.waiting import EVERYBODY, Futexes, relax
from shlo_jit.runtime.ffi import structures as s
from shlo_jit.runtime.ffi import tasks
from shlo_jit.runtime.ffi.struct_fields import NULL, get, place, put

TYPES = V("ptr", "@shlo_ffi_types")
"""A list of RegisteredType, which Python replaces whenever a type is added."""
BLOCK_HEAD = 16
"""Bytes before memory that a handler has allocated: the preceding block in the list, and the pointer that malloc
returned."""
BLOCK_ALIGNMENT = 64
MAX_BYTES = 1 << 47
"""Maximum size of one block."""
PENDING, AVAILABLE, FAILED = 0, 1, 2
"""States of a future."""
UNAVAILABLE = {
    "Handler_Register": ("UNIMPLEMENTED", "handlers are registered by shlo_jit.register_custom_call"),
    "Stream_Get": ("UNIMPLEMENTED", "there are no streams on this platform"),
    "InvokeContext_Get": ("NOT_FOUND", "calls have no user data of that type"),
    "RunId_Get": ("UNIMPLEMENTED", "calls have no run id"),
}
"""Functions that are not available, and their errors."""


def function(module: ModuleText, name: str, params: list[tuple[str, str]], ret: str = "ptr") -> Builder:
    """Returns a builder for `@shlo_ffi_NAME`."""
    return module.function(f"shlo_ffi_{name}", params, ret, linkage="external", attributes="nounwind")


def text(module: ModuleText, content: str) -> V:
    """Returns the address of a text that ends with a 0."""
    data = content.encode() + b"\0"
    name = f"text{len(module.globals)}"
    literal = "".join(f"\\{byte:02X}" for byte in data)
    module.define_global(name, f'private unnamed_addr constant [{len(data)} x i8] c"{literal}", align 1')
    return V("ptr", f"@{name}")


class Functions:
    """Writes the functions that handlers may call."""

    def __init__(self, module: ModuleText, target: Target) -> None:
        self.module = module
        self.target = target
        self.futexes = Futexes(target)

    def write(self) -> None:
        self.module.define_global(TYPES.text[1:], "global ptr null, align 8")
        self._errors()
        for name, (code, message) in UNAVAILABLE.items():
            b = function(self.module, name, [("ptr", "args")])
            b.ret(self.error(b, code, message))
        self._states()
        self._memory()
        self._thread_pool()
        self._futures()
        self._extras()
        b, args, context = self.begin("DeviceOrdinal_Get")
        ordinal = get(b, "i32", get(b, "ptr", context, s.Context, "call"), s.Call, "device_ordinal")
        self.give(b, "DeviceOrdinal_Get", args, "device_ordinal", ordinal)
        self._end()

    def begin(self, name: str, ret: str = "ptr") -> tuple[Builder, V, V]:
        """Returns a builder for a function of the table, its arguments, and the context, if it has one. An argument
        record of a library that lacks some of the arguments is an error."""
        struct = s.ARGUMENTS[name]
        b = function(self.module, name, [("ptr", "args")], ret)
        args = b.params[0]
        if ret == "ptr":
            known = b.load("i64", args)
            with b.if_(b.icmp("ult", known, s.least_bytes(name))):
                message = f"the arguments of XLA_FFI_{name} are of another version"
                b.ret_early(self.error(b, "INVALID_ARGUMENT", message))
        return b, args, get(b, "ptr", args, struct, "ctx") if hasattr(struct, "ctx") else NULL

    def give(self, b: Builder, name: str, args: V, field: str, value: V) -> None:
        """Returns a value in a field of the arguments, and no error."""
        put(b, value, args, s.ARGUMENTS[name], field)
        b.ret(NULL)

    def _extras(self) -> None:
        """Calls have no extensions and no options of their own."""
        b, args, _ = self.begin("InvokeContext_FindExtension")
        self.give(b, "InvokeContext_FindExtension", args, "extension", NULL)
        words = ctypes.sizeof(s.Attrs) // 8
        values = ", ".join(f"i64 {word}" for word in (ctypes.sizeof(s.Attrs), *[0] * (words - 1)))
        self.module.define_global("shlo_ffi_no_options", f"internal constant [{words} x i64] [{values}], align 8")
        b, args, _ = self.begin("CustomOptions_Get")
        self.give(b, "CustomOptions_Get", args, "attrs", V("ptr", "@shlo_ffi_no_options"))

    # ------------------------------------------------------------------ errors
    def error(self, b: Builder, code: str, message: str) -> V:
        """Creates an error."""
        return self.error_of(b, code, text(self.module, message))

    def error_of(self, b: Builder, code: str, message: V) -> V:
        """Creates an error with a text that is computed at run time."""
        return b.call("ptr", "shlo_ffi_error", [i64(s.CODES.index(code)), message], declare=False)

    def _errors(self) -> None:
        type, code = "<{ i64, [10 x i8] }>", s.CODES.index("RESOURCE_EXHAUSTED")
        no_memory = f'internal constant {type} <{{ i64 {code}, [10 x i8] c"no memory\\00" }}>, align 8'
        self.module.define_global("shlo_ffi_no_memory", no_memory)
        head = ctypes.sizeof(s.Error)

        b = function(self.module, "error", [("i64", "code"), ("ptr", "message")])
        code, message = b.params
        length = b.add(b.call("i64", "strlen", [message]), 1)
        error = b.call("ptr", "malloc", [b.add(length, head)])
        with b.if_(b.icmp("eq", error, NULL)):
            b.ret_early(V("ptr", "@shlo_ffi_no_memory"))
        b.store(code, error)
        b.memcpy(b.offset(error, head), message, length)
        b.ret(error)

        b, args, _ = self.begin("Error_Create")
        code = b.cast("sext", get(b, "i32", args, s.ARGUMENTS["Error_Create"], "errc"), "i64")
        message = get(b, "ptr", args, s.ARGUMENTS["Error_Create"], "message")
        b.ret(b.call("ptr", "shlo_ffi_error", [code, message], declare=False))

        b, args, _ = self.begin("Error_GetDetails", "void")
        details = s.ARGUMENTS["Error_GetDetails"]
        error = get(b, "ptr", args, details, "error")
        put(b, b.offset(error, head), args, details, "message")
        # handlers of version 0.3 have no room for the code
        with b.if_(b.icmp("uge", b.load("i64", args), details.errc.offset + details.errc.size)):
            put(b, b.cast("trunc", b.load("i64", error), "i32"), args, details, "errc")
        b.ret()

        b, args, _ = self.begin("Error_Destroy", "void")
        error = get(b, "ptr", args, s.ARGUMENTS["Error_Destroy"], "error")
        with b.if_(b.icmp("ne", error, V("ptr", "@shlo_ffi_no_memory"))):
            b.call("void", "free", [error])
        b.ret()

    # ------------------------------------------------------------------ states
    def _states(self) -> None:
        self._slot()
        self._deleter()
        self._set_state()
        self._get_state()
        b = function(self.module, "drop", [("ptr", "state")], "void")
        (slot,) = b.params
        with b.if_(b.icmp("ne", get(b, "i64", slot, s.State, "type_id"), 0)):
            b.store(i64(0), slot)
            deleter = get(b, "ptr", slot, s.State, "deleter")
            with b.if_(b.icmp("ne", deleter, NULL)):
                b.call_pointer("void", deleter, [get(b, "ptr", slot, s.State, "state")])
        b.ret()

    def _slot(self) -> None:
        """Writes the function that returns the address of a stage's state; null for a stage that has none."""
        b = self.module.function("slot", [("ptr", "context"), ("i32", "stage")], "ptr", attributes="nounwind")
        context, stage = b.params
        call = get(b, "ptr", context, s.Context, "call")
        for number, slot in (
            (s.INSTANTIATE, place(b, call, s.Call, "instantiated")),
            (s.PREPARE, place(b, context, s.Context, "prepared")),
            (s.INITIALIZE, place(b, context, s.Context, "initialized")),
        ):
            with b.if_(b.icmp("eq", stage, i32(number))):
                b.ret_early(slot)
        b.ret(NULL)

    def _deleter(self) -> None:
        """Writes the function that returns the entry of a type in the list; null if it is not registered."""
        b = self.module.function("registered", [("i64", "type_id")], "ptr", attributes="nounwind")
        first = b.load("ptr", TYPES)
        with b.repeat([first]) as loop:
            (entry,) = loop.values
            known = b.load("i64", entry)
            with b.if_(b.icmp("eq", known, 0)):
                b.ret_early(NULL)
            with b.if_(b.icmp("eq", known, b.params[0])):
                b.ret_early(entry)
            loop.next(b.offset(entry, ctypes.sizeof(s.RegisteredType)))
            loop.again = const("i1", 1)
        b.ret(NULL)

    def _arguments_of_state(self, name: str) -> tuple[Builder, V, V, V]:
        """Returns a builder for State_Set or State_Get, the arguments, the slot, and the number of the type."""
        b, args, context = self.begin(name)
        struct = s.ARGUMENTS[name]
        slot = b.call("ptr", "slot", [context, get(b, "i32", args, struct, "stage")], declare=False)
        with b.if_(b.icmp("eq", slot, NULL)):
            b.ret_early(self.error(b, "INVALID_ARGUMENT", "this stage has no state"))
        return b, args, slot, b.load("i64", get(b, "ptr", args, struct, "type_id"))

    def _set_state(self) -> None:
        b, args, slot, type_id = self._arguments_of_state("State_Set")
        with b.if_(b.icmp("ne", b.load("i64", slot), 0)):
            b.ret_early(self.error(b, "ALREADY_EXISTS", "the state of this stage is set already"))
        entry = b.call("ptr", "registered", [type_id], declare=False)
        with b.if_(b.icmp("eq", entry, NULL)):
            b.ret_early(self.error(b, "NOT_FOUND", "the type of this state is not registered: see register_ffi_type"))
        put(b, get(b, "ptr", entry, s.RegisteredType, "deleter"), slot, s.State, "deleter")
        put(b, get(b, "ptr", args, s.ARGUMENTS["State_Set"], "state"), slot, s.State, "state")
        put(b, type_id, slot, s.State, "type_id")
        b.ret(NULL)

    def _get_state(self) -> None:
        b, args, slot, type_id = self._arguments_of_state("State_Get")
        known = b.load("i64", slot)
        with b.if_(b.icmp("eq", known, 0)):
            b.ret_early(self.error(b, "NOT_FOUND", "the state of this stage is not set"))
        with b.if_(b.icmp("ne", known, type_id)):
            b.ret_early(self.error(b, "INVALID_ARGUMENT", "the state of this stage is of another type"))
        self.give(b, "State_Get", args, "state", get(b, "ptr", slot, s.State, "state"))

    # ------------------------------------------------------------------ memory
    def _lock(self, b: Builder, context: V) -> V:
        """Waits for the lock of a context. Returns its address. Tasks of one call may compete for it, for some
        instructions."""
        lock = place(b, context, s.Context, "lock")
        with b.repeat([]) as loop:
            relax(b, self.target)
            loop.again = b.not_(exchange(b, lock, i32(0), i32(1)))
        return lock

    def _memory(self) -> None:
        b, args, context = self.begin("DeviceMemory_Allocate")
        struct = s.ARGUMENTS["DeviceMemory_Allocate"]
        size, alignment = (get(b, "i64", args, struct, name) for name in ("size", "alignment"))
        below = b.sub(alignment, 1)
        is_power = b.icmp("eq", b.and_(alignment, below), 0)
        with b.if_(b.not_(is_power)):
            b.ret_early(self.error(b, "INVALID_ARGUMENT", "the alignment of memory is not a power of two"))
        alignment = b.call("i64", "llvm.umax.i64", [alignment, i64(BLOCK_ALIGNMENT)])
        fits = b.and_(b.icmp("ule", size, MAX_BYTES), b.icmp("ule", alignment, MAX_BYTES))
        slack = b.add(alignment, BLOCK_HEAD)
        asked = b.select(fits, b.add(size, slack), i64(-1))  # more than can be allocated
        raw = b.call("ptr", "malloc", [asked])
        with b.if_(b.icmp("eq", raw, NULL)):
            b.ret_early(self.error(b, "RESOURCE_EXHAUSTED", "no memory of that size"))
        first = b.add(b.cast("ptrtoint", raw, "i64"), b.add(slack, i64(-1)))
        data = b.cast("inttoptr", b.and_(first, b.sub(i64(0), alignment)), "ptr")
        lock, blocks = self._lock(b, context), place(b, context, s.Context, "blocks")
        b.store(b.load("ptr", blocks), b.offset(data, -BLOCK_HEAD))
        b.store(raw, b.offset(data, -BLOCK_HEAD + 8))
        b.store(data, blocks)
        atomic_store(b, i32(0), lock, "release")
        self.give(b, "DeviceMemory_Allocate", args, "data", data)
        self._free()

    def _free(self) -> None:
        b, args, context = self.begin("DeviceMemory_Free")
        data = get(b, "ptr", args, s.ARGUMENTS["DeviceMemory_Free"], "data")
        with b.if_(b.icmp("eq", data, NULL)):
            b.ret_early(NULL)
        lock = self._lock(b, context)
        with b.repeat([place(b, context, s.Context, "blocks")]) as loop:
            (link,) = loop.values
            block = b.load("ptr", link)
            with b.if_(b.icmp("eq", block, NULL)):
                atomic_store(b, i32(0), lock, "release")
                b.ret_early(self.error(b, "INVALID_ARGUMENT", "this memory is not allocated, or is another call's"))
            loop.next(b.offset(block, -BLOCK_HEAD))
            loop.again = b.icmp("ne", block, data)
        b.store(b.load("ptr", b.offset(data, -BLOCK_HEAD)), link)
        atomic_store(b, i32(0), lock, "release")
        b.call("void", "free", [b.load("ptr", b.offset(data, -BLOCK_HEAD + 8))])
        b.ret(NULL)

    def _end(self) -> None:
        b = function(self.module, "end", [("ptr", "context")], "void")
        (context,) = b.params
        for name in ("prepared", "initialized"):
            b.call("void", "shlo_ffi_drop", [place(b, context, s.Context, name)], declare=False)
        blocks = place(b, context, s.Context, "blocks")
        first = b.load("ptr", blocks)
        with b.if_(b.icmp("ne", first, NULL)):
            b.store(NULL, blocks)
            with b.repeat([first]) as loop:
                (block,) = loop.values
                following, raw = (b.load("ptr", b.offset(block, at)) for at in (-BLOCK_HEAD, -BLOCK_HEAD + 8))
                b.call("void", "free", [raw])
                loop.next(following)
                loop.again = b.icmp("ne", following, NULL)
        b.ret()

    # ------------------------------------------------------------------ threads
    def _thread_pool(self) -> None:
        tasks.write(self.module, self.target)
        b, args, context = self.begin("ThreadPool_Schedule")
        struct = s.ARGUMENTS["ThreadPool_Schedule"]
        task, data = get(b, "ptr", args, struct, "task"), get(b, "ptr", args, struct, "data")
        b.call("void", "schedule", [task, data, self._threads(b, context)], declare=False)
        b.ret(NULL)

        b, args, context = self.begin("ThreadPool_NumThreads")
        to = get(b, "ptr", args, s.ARGUMENTS["ThreadPool_NumThreads"], "num_threads")
        b.store(self._threads(b, context), to)
        b.ret(NULL)

    def _threads(self, b: Builder, context: V) -> V:
        """Returns the number of threads that a call may use."""
        return get(b, "i64", get(b, "ptr", context, s.Context, "call"), s.Call, "threads")

    # ------------------------------------------------------------------ futures
    def _futures(self) -> None:
        b, args, _ = self.begin("Future_Create")
        future = b.call("ptr", "malloc", [i64(ctypes.sizeof(s.Future))])
        with b.if_(b.icmp("eq", future, NULL)):
            b.ret_early(V("ptr", "@shlo_ffi_no_memory"))
        put(b, i32(PENDING), future, s.Future, "state")
        put(b, i32(2), future, s.Future, "owners")
        put(b, NULL, future, s.Future, "error")
        self.give(b, "Future_Create", args, "future", future)

        b = self.module.function("leave", [("ptr", "future")], attributes="nounwind")
        (future,) = b.params
        before = atomic(b, "sub", place(b, future, s.Future, "owners"), i32(1), "acq_rel")
        with b.if_(b.icmp("eq", before, i32(1))):
            b.call("void", "free", [future])
        b.ret()

        for name, state in (("Future_SetAvailable", AVAILABLE), ("Future_SetError", FAILED)):
            b, args, _ = self.begin(name)
            future = get(b, "ptr", args, s.ARGUMENTS[name], "future")
            if state == FAILED:
                put(b, get(b, "ptr", args, s.ARGUMENTS[name], "error"), future, s.Future, "error")
            word = place(b, future, s.Future, "state")
            atomic_store(b, i32(state), word, "release")
            self.futexes.wake(b, NULL, word, i32(EVERYBODY), True)
            b.call("void", "leave", [future], declare=False)
            b.ret(NULL)

    def wait(self, b: Builder, future: V) -> V:
        """Waits for a future and releases it. Returns its error, or null."""
        word = place(b, future, s.Future, "state")
        with b.repeat([]) as loop:
            state = b.emit("i32", f"load atomic i32, ptr {word.text} acquire, align 4")
            is_pending = b.icmp("eq", state, i32(PENDING))
            with b.if_(is_pending):
                self.futexes.wait(b, NULL, word, i32(PENDING), True)
            loop.again = is_pending
        error = get(b, "ptr", future, s.Future, "error")
        b.call("void", "leave", [future], declare=False)
        return error
