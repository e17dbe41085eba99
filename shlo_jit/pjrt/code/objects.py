"""Errors, events, and functions without an effect.

    ptr @shlo_pjrt_error(i32 code, ptr message, i64 size)    a new error with a copy of the text
    ptr @shlo_pjrt_event()                                   a new event, which has two references
    void @shlo_pjrt_happen(ptr event)                        signals the event; drops a reference

Our functions are synchronous, so the events that they return have happened: they are all the constant READY, which is
never freed. Only the release of a host's array can happen later.
"""

from __future__ import annotations

from shlo_jit.kernels.atomics import atomic, atomic_load, atomic_store
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.pjrt.code.function_writer import NULL, Record, Slot, new, symbol
from shlo_jit.pjrt.host_records import ERROR, EVENT, WAITER, nbytes
from shlo_jit.pjrt.interface import fields_of

READY = V("ptr", "@shlo_pjrt_ready")
ERROR_TABLE = V("ptr", "@shlo_pjrt_error_table")


def write_objects(module: ModuleText) -> None:
    happened = ", ".join(f"i64 {1 if field in ('is_ready', 'references') else 0}" for field in EVENT)
    module.define_global(READY.text[1:], f"global {{{', '.join(['i64'] * len(EVENT))}}} {{{happened}}}, align 8")
    _write_errors(module)
    _write_events(module)
    # Hosts report the state of all processes, from a thread of their own, and abort on an error. We have one process.
    Slot(module, "Client_UpdateGlobalProcessInfo").done()


# ---------------------------------------------------------------------- errors
def _write_errors(module: ModuleText) -> None:
    functions = ("destroy", "message", "get_code", "for_each_payload")
    slots = ("Error_Destroy", "Error_Message", "Error_GetCode", "Error_ForEachPayload")
    size = max(field.offset for field in fields_of("Error_FunctionTable").values()) + 8
    entries = ", ".join(f"ptr @{symbol(slot)}" for slot in slots)
    assert [*fields_of("Error_FunctionTable")][2:] == [*functions]
    types = f"{{i64, i64, ptr, {', '.join(['ptr'] * len(slots))}}}"
    module.define_global(
        ERROR_TABLE.text[1:], f"internal constant {types} {{i64 {size}, i64 {nbytes(ERROR)}, ptr null, {entries}}}"
    )

    params = [("i32", "code"), ("ptr", "message"), ("i64", "size")]
    b = module.function("shlo_pjrt_error", params, "ptr", linkage="external", attributes="nounwind cold")
    code, message, size_ = b.params
    made = new(b, b.add(size_, nbytes(ERROR) + 1))
    record, copy = Record(b, ERROR, made), b.offset(made, nbytes(ERROR))
    record["vtable"] = b.cast("ptrtoint", ERROR_TABLE, "i64")
    record["code"] = b.cast("sext", code, "i64")
    record["message"] = b.cast("ptrtoint", copy, "i64")
    record["message_size"] = size_
    b.memcpy(copy, message, size_)
    b.store(V("i8", "0"), b.offset(copy, size_))
    b.ret(made)

    slot = Slot(module, "Error_Destroy", "void")
    slot.b.call("void", "free", [slot["error"]])
    slot.b.ret()
    slot = Slot(module, "Error_Message", "void")
    record = Record(slot.b, ERROR, slot["error"])
    slot["message"], slot["message_size"] = record.pointer("message"), record["message_size"]
    slot.b.ret()
    slot = Slot(module, "Error_GetCode")
    slot["code"] = Record(slot.b, ERROR, slot["error"])["code"]
    slot.done()
    Slot(module, "Error_ForEachPayload").done()  # there are none


# ---------------------------------------------------------------------- events
def _write_events(module: ModuleText) -> None:
    b = module.function("shlo_pjrt_event", [], "ptr", linkage="external", attributes="nounwind")
    made = new(b, nbytes(EVENT))
    record = Record(b, EVENT, made)
    record["references"], record["is_ready"], record["waiting"] = 2, 0, 0
    b.ret(made)
    _write_drop(module)
    _write_happen(module)

    slot = Slot(module, "Event_Destroy")
    slot.b.call("void", "shlo_pjrt_drop_event", [slot["event"]], declare=False)
    slot.done()
    slot = Slot(module, "Event_IsReady")
    slot["is_ready"] = atomic_load(slot.b, "i64", Record(slot.b, EVENT, slot["event"]).place("is_ready"), "acquire")
    slot.done()
    Slot(module, "Event_Error").done()
    _write_await(module)
    _write_on_ready(module)


CLOSED = i64(1)
"""Value of the list of waiters after the event has happened."""


def _write_drop(module: ModuleText) -> None:
    b = module.function("shlo_pjrt_drop_event", [("ptr", "event")], attributes="nounwind")
    (event,) = b.params
    with b.if_(b.icmp("eq", event, READY), "constant"):
        b.ret_early()
    left = atomic(b, "sub", Record(b, EVENT, event).place("references"), i64(1), "acq_rel")
    with b.if_(b.icmp("eq", left, 1), "last"):
        b.call("void", "free", [event])
    b.ret()


def _call_back(b: Builder, callback: V, argument: V) -> None:
    b.call_pointer("void", callback, [NULL, argument])


def _write_happen(module: ModuleText) -> None:
    b = module.function("shlo_pjrt_happen", [("ptr", "event")], linkage="external", attributes="nounwind")
    (event,) = b.params
    record = Record(b, EVENT, event)
    atomic_store(b, i64(1), record.place("is_ready"), "release")
    first = atomic(b, "xchg", record.place("waiting"), CLOSED, "acq_rel")
    again, body, over = b.label("again"), b.label("body"), b.label("over")
    before = b.block
    b.branch(again)
    b.start(again)
    at, waiter = b.position(), b.reserve("i64")
    b.branch_if(b.icmp("eq", waiter, 0), over, body)
    b.start(body)
    address = b.cast("inttoptr", waiter, "ptr")
    found = Record(b, WAITER, address)
    following = found["next"]
    _call_back(b, found.pointer("callback"), found.pointer("argument"))
    b.call("void", "free", [address])
    last = b.block
    b.branch(again)
    b.fill_phi(at, waiter, [(first, before), (following, last)])
    b.start(over)
    b.call("void", "shlo_pjrt_drop_event", [event], declare=False)
    b.ret()


def _write_await(module: ModuleText) -> None:
    slot = Slot(module, "Event_Await")
    b = slot.b
    place = Record(b, EVENT, slot["event"]).place("is_ready")
    again, wait, over = b.label("again"), b.label("wait"), b.label("over")
    b.branch(again)
    b.start(again)
    b.branch_if(b.icmp("ne", atomic_load(b, "i64", place, "acquire"), 0), over, wait)
    b.start(wait)
    b.call("i32", "usleep", [i32(50)])
    b.branch(again)
    b.start(over)
    slot.done()


def _write_on_ready(module: ModuleText) -> None:
    """Writes Event_OnReady. The callback is called immediately or put into the list; the list's state decides."""
    slot = Slot(module, "Event_OnReady")
    b = slot.b
    event, callback, argument = slot["event"], slot["callback"], slot["user_arg"]
    with b.if_(b.icmp("eq", event, READY), "constant"):
        _call_back(b, callback, argument)
        b.ret_early(NULL)
    waiter = new(b, nbytes(WAITER))
    record, place = Record(b, WAITER, waiter), Record(b, EVENT, event).place("waiting")
    record["callback"], record["argument"] = (b.cast("ptrtoint", x, "i64") for x in (callback, argument))
    again, try_, done, closed = (b.label(n) for n in ("again", "try", "done", "closed"))
    b.branch(again)
    b.start(again)
    first = atomic_load(b, "i64", place, "acquire")
    b.branch_if(b.icmp("eq", first, 1), closed, try_)
    b.start(try_)
    record["next"] = first
    put = b.emit("{i64, i1}", f"cmpxchg ptr {place.text}, i64 {first.text}, i64 {_number(b, waiter)} release monotonic")
    b.branch_if(b.emit("i1", f"extractvalue {put.type} {put.text}, 1"), done, again)
    b.start(closed)
    b.call("void", "free", [waiter])
    _call_back(b, callback, argument)
    b.branch(done)
    b.start(done)
    slot.done()


def _number(b: Builder, pointer: V) -> str:
    return b.cast("ptrtoint", pointer, "i64").text
