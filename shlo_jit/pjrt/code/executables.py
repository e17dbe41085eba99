"""Functions on programs that run at every call, and their destruction. The rest is in Python, in
`shlo_jit/pjrt/executables.py`.

    ptr @shlo_pjrt_take_dead()      a list of the destroyed programs, which Python removes when it next checks
"""

from __future__ import annotations

from shlo_jit.kernels.atomics import atomic, atomic_load
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.pjrt.code.function_writer import NULL, Record, Slot, new
from shlo_jit.pjrt.host_records import EXECUTABLE, MEMORY, USER_DATA, nbytes

DEAD = V("ptr", "@shlo_pjrt_dead")


def write_executables(module: ModuleText) -> None:
    module.define_global(DEAD.text[1:], "internal global i64 0, align 8")
    facts = {
        "Executable_NumReplicas": {"num_replicas": "num_replicas"},
        "Executable_NumPartitions": {"num_partitions": "num_partitions"},
        "Executable_NumOutputs": {"num_outputs": "result_count"},
        "LoadedExecutable_IsDeleted": {"is_deleted": "is_deleted"},
    }
    for name, fields in facts.items():
        slot = Slot(module, name)
        for field, own in fields.items():
            slot[field] = Record(slot.b, EXECUTABLE, slot["executable"])[own]
        slot.done()
    slot = Slot(module, "LoadedExecutable_GetExecutable")
    slot["executable"] = slot["loaded_executable"]
    atomic(slot.b, "add", Record(slot.b, EXECUTABLE, slot["executable"]).place("references"), i64(1), "acq_rel")
    slot.done()
    slot = Slot(module, "LoadedExecutable_Delete")
    Record(slot.b, EXECUTABLE, slot["executable"])["is_deleted"] = 1
    slot.done()
    for name in ("LoadedExecutable_Destroy", "Executable_Destroy"):
        _write_destroy(module, name)
    b = module.function("shlo_pjrt_take_dead", [], "ptr", linkage="external", attributes="nounwind")
    b.ret(b.cast("inttoptr", atomic(b, "xchg", DEAD, i64(0), "acq_rel"), "ptr"))
    _write_memory_kind(module)


def _write_destroy(module: ModuleText, name: str) -> None:
    slot = Slot(module, name)
    b = slot.b
    exe = Record(b, EXECUTABLE, slot["executable"])
    left = atomic(b, "sub", exe.place("references"), i64(1), "acq_rel")
    with b.if_(b.icmp("ne", left, 1), "others"):
        b.ret_early(NULL)
    push(b, DEAD, exe.address, exe.place("next"))
    slot.done()


def push(b: Builder, head: V, address: V, link: V) -> None:
    """Prepends an element to a list. `link` is its field for the next element."""
    again, done = b.label("again"), b.label("done")
    number = b.cast("ptrtoint", address, "i64")
    b.branch(again)
    b.start(again)
    first = atomic_load(b, "i64", head, "acquire")
    b.store(first, link)
    pair = b.emit("{i64, i1}", f"cmpxchg ptr {head.text}, i64 {first.text}, i64 {number.text} acq_rel monotonic")
    b.branch_if(b.emit("i1", f"extractvalue {pair.type} {pair.text}, 1"), done, again)
    b.start(done)


def _write_memory_kind(module: ModuleText) -> None:
    slot = Slot(module, "Memory_Kind")
    record = Record(slot.b, MEMORY, slot["memory"])
    slot["kind"], slot["kind_size"] = record.pointer("kind"), record["kind_size"]
    slot.done()

    params = [("ptr", "memory"), ("i64", "key")]
    b = module.function("shlo_pjrt_user_data", params, "ptr", linkage="external", attributes="nounwind")
    memory, key = b.params
    entry, data = _find(b, memory, key)
    b.ret(data)

    params = [("ptr", "memory"), ("i64", "key"), ("ptr", "data"), ("ptr", "destroy")]
    b = module.function("shlo_pjrt_set_user_data", params, linkage="external", attributes="nounwind")
    memory, key, given, _ = b.params
    entry, data = _find(b, memory, key)

    def change() -> list[V]:
        Record(b, USER_DATA, entry)["data"] = b.cast("ptrtoint", given, "i64")
        return []

    def add() -> list[V]:
        made = new(b, nbytes(USER_DATA))
        record = Record(b, USER_DATA, made)
        record["key"], record["data"] = key, b.cast("ptrtoint", given, "i64")
        push(b, Record(b, MEMORY, memory).place("user_data"), made, record.place("next"))
        return []

    b.if_else(b.icmp("ne", entry, NULL), change, add)
    b.ret()


def _find(b: Builder, memory: V, key: V) -> tuple[V, V]:
    """Returns the entry of user data with a key, and the data; both null if there is none."""
    again, look, next_, over = (b.label(n) for n in ("again", "look", "next", "over"))
    first = Record(b, MEMORY, memory).pointer("user_data")
    before = b.block
    b.branch(again)
    b.start(again)
    at, entry = b.position(), b.reserve("ptr")
    b.branch_if(b.icmp("eq", entry, NULL), over, look)
    b.start(look)
    record = Record(b, USER_DATA, entry)
    data = record.pointer("data")
    b.branch_if(b.icmp("eq", record["key"], key), over, next_)
    b.start(next_)
    following = record.pointer("next")
    b.branch(again)
    b.fill_phi(at, entry, [(first, before), (following, next_)])
    b.start(over)
    return entry, b.phi("ptr", [(NULL, again), (data, look)])
