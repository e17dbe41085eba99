"""Arrays on a device: buffers, and the storages that they refer to.

    ptr @shlo_pjrt_storage(ptr data, i64 nbytes, ptr release, ptr argument, i64 is_own)
    void @shlo_pjrt_drop(ptr storage)
    ptr @shlo_pjrt_buffer(ptr storage, ptr data, i64 nbytes, i64 type, i64 rank, ptr dims, ptr device, ptr memory)

A buffer takes over one reference to its storage. A deleted buffer, or one donated to a program, has no reference any
more. Users that access the memory from outside (NumPy, DLPack) have references of their own.
"""

from __future__ import annotations

from shlo_jit.kernels.atomics import atomic
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.code.function_writer import NULL, Record, Slot, error, new
from shlo_jit.pjrt.code.holds import held, is_deleted, let_go
from shlo_jit.pjrt.code.layouts import refuse_order
from shlo_jit.pjrt.code.objects import READY
from shlo_jit.pjrt.code.shapes import itemsize
from shlo_jit.pjrt.host_records import BUFFER, DEVICE, MEMORY, STORAGE, nbytes

NO_MEMORY = "out of memory: %ld bytes were requested"


def write_buffers(module: ModuleText) -> None:
    _write_storage(module)
    _write_drop(module)
    _write_buffer(module)
    _write_facts(module)
    _write_ends(module)
    _write_references(module)
    _write_reads(module)
    for name in ("Buffer_CopyToDevice", "Buffer_CopyToMemory"):
        _write_copy(module, name)


def number(b: Builder, pointer: V) -> V:
    return b.cast("ptrtoint", pointer, "i64")


def buffer_of(slot: Slot, field: str = "buffer") -> Record:
    return Record(slot.b, BUFFER, slot[field])


# ---------------------------------------------------------------------- made and unmade
def _write_storage(module: ModuleText) -> None:
    params = [("ptr", "data"), ("i64", "nbytes"), ("ptr", "release"), ("ptr", "argument"), ("i64", "is_own")]
    b = module.function("shlo_pjrt_storage", params, "ptr", linkage="external", attributes="nounwind")
    data, size, release, argument, is_own = b.params
    made = new(b, nbytes(STORAGE))
    record = Record(b, STORAGE, made)
    record["references"], record["nbytes"], record["is_own"] = 1, size, is_own
    for field, value in (("data", data), ("release", release), ("argument", argument)):
        record[field] = number(b, value)
    b.ret(made)


def _write_drop(module: ModuleText) -> None:
    b = module.function("shlo_pjrt_drop", [("ptr", "storage")], linkage="external", attributes="nounwind")
    (storage,) = b.params
    record = Record(b, STORAGE, storage)
    left = atomic(b, "sub", record.place("references"), i64(1), "acq_rel")
    with b.if_(b.icmp("ne", left, 1), "others"):
        b.ret_early()
    data, release = record.pointer("data"), record.pointer("release")

    def give() -> list[V]:
        b.call("void", "shlo_pjrt_give", [data, record["nbytes"]], declare=False)
        return []

    def call() -> list[V]:
        b.call_pointer("void", release, [data, record.pointer("argument")])
        return []

    b.if_else(b.icmp("eq", release, NULL), give, call)
    b.call("void", "free", [storage])
    b.ret()


def _write_buffer(module: ModuleText) -> None:
    params = [
        *(("ptr", "storage"), ("ptr", "data"), ("i64", "nbytes"), ("i64", "type"), ("i64", "rank")),
        *(("ptr", "dims"), ("ptr", "device"), ("ptr", "memory")),
    ]
    b = module.function("shlo_pjrt_buffer", params, "ptr", linkage="external", attributes="nounwind")
    storage, data, size, type, rank, dims, device, memory = b.params
    made = new(b, b.add(b.mul(rank, 8), nbytes(BUFFER)))
    record, dims_place = Record(b, BUFFER, made), b.offset(made, nbytes(BUFFER))
    record["nbytes"], record["type"], record["rank"] = size, type, rank
    record["external"], record["state"] = 0, 0
    pointers = {"storage": storage, "data": data, "dims": dims_place, "device": device, "memory": memory}
    for field, value in pointers.items():
        record[field] = number(b, value)
    with b.loop(0, rank) as i:
        b.store(b.load("i64", b.element(dims, "i64", i)), b.element(dims_place, "i64", i))
    b.ret(made)


def _write_ends(module: ModuleText) -> None:
    slot = Slot(module, "Buffer_Delete")
    slot.b.call("void", "shlo_pjrt_delete", [slot["buffer"]], declare=False)
    slot.done()
    slot = Slot(module, "Buffer_Destroy")
    slot.b.call("void", "shlo_pjrt_delete", [slot["buffer"]], declare=False)
    slot.b.call("void", "free", [slot["buffer"]])
    slot.done()
    slot = Slot(module, "Buffer_IsDeleted")
    slot["is_deleted"] = is_deleted(slot.b, buffer_of(slot))
    slot.done()


# ---------------------------------------------------------------------- what is known of one
def _write_facts(module: ModuleText) -> None:
    facts = {
        "Buffer_ElementType": {"type": "type"},
        "Buffer_Dimensions": {"dims": "dims", "num_dims": "rank"},
        "Buffer_UnpaddedDimensions": {"unpadded_dims": "dims", "num_dims": "rank"},
        "Buffer_OnDeviceSizeInBytes": {"on_device_size_in_bytes": "nbytes"},
        "Buffer_Device": {"device": "device"},
        "Buffer_Memory": {"memory": "memory"},
    }
    for name, fields in facts.items():
        slot = Slot(module, name)
        record = buffer_of(slot)
        for field, own in fields.items():
            is_pointer = interface.fields_of(name)[field].type == "ptr"
            slot[field] = record.pointer(own) if is_pointer else record[own]
        slot.done()
    slot = Slot(module, "Buffer_DynamicDimensionIndices")
    slot["dynamic_dim_indices"], slot["num_dynamic_dims"] = NULL, 0
    slot.done()
    slot = Slot(module, "Buffer_IsOnCpu")
    slot["is_on_cpu"] = 1
    slot.done()
    slot = Slot(module, "Buffer_ReadyEvent")
    slot["event"] = READY
    slot.done()


def _write_references(module: ModuleText) -> None:
    for name, field in (("Buffer_UnsafePointer", "buffer_pointer"),
                        ("Buffer_OpaqueDeviceMemoryDataPointer", "device_memory_ptr")):  # fmt: skip
        slot = Slot(module, name)
        record = buffer_of(slot)
        with held(module, slot.b, record):
            slot[field] = record["data"] if name == "Buffer_UnsafePointer" else record.pointer("data")
        slot.done()
    slot = Slot(module, "Buffer_IncreaseExternalReferenceCount")
    record = buffer_of(slot)
    with held(module, slot.b, record):
        atomic(slot.b, "add", record.place("external"), i64(1), "acq_rel")
        atomic(slot.b, "add", Record(slot.b, STORAGE, record.pointer("storage")).place("references"), i64(1), "acq_rel")
    slot.done()
    slot = Slot(module, "Buffer_DecreaseExternalReferenceCount")
    record = buffer_of(slot)
    before = atomic(slot.b, "sub", record.place("external"), i64(1), "acq_rel")
    with slot.b.if_(slot.b.icmp("sle", before, 0), "none"):
        atomic(slot.b, "add", record.place("external"), i64(1), "acq_rel")
        message = "there is no external reference to the array"
        slot.b.ret_early(error(module, slot.b, interface.FAILED_PRECONDITION, message))
    slot.b.call("void", "shlo_pjrt_drop", [record.pointer("storage")], declare=False)
    slot.done()


# ---------------------------------------------------------------------- copies
def _write_reads(module: ModuleText) -> None:
    """Writes the copies to the host's memory, row-major. Without a destination, they return the required size."""
    slot = Slot(module, "Buffer_ToHostBuffer")
    b = slot.b
    record = buffer_of(slot, "src")
    size, rank, dims = record["nbytes"], record["rank"], record.pointer("dims")
    item = itemsize(b, b.cast("trunc", record["type"], "i32"))
    refuse_order(module, slot, "host_layout", item, dims, rank, size)
    with b.if_(b.icmp("eq", slot["dst"], NULL), "asked"):
        slot["dst_size"] = size
        b.ret_early(NULL)
    with b.if_(b.icmp("ult", slot["dst_size"], size), "short"):
        message = "the array has %ld bytes, but the host's buffer only %ld"
        b.ret_early(error(module, b, interface.INVALID_ARGUMENT, message, size, slot["dst_size"]))
    with held(module, b, record):
        b.memcpy(slot["dst"], record.pointer("data"), size)
    slot["event"] = READY
    slot.done()

    slot = Slot(module, "Buffer_CopyRawToHost")
    b = slot.b
    record = buffer_of(slot)
    first, count, size = slot["offset"], slot["transfer_size"], record["nbytes"]
    with b.if_(b.or_(b.icmp("ugt", first, size), b.icmp("ugt", count, b.sub(size, first))), "outside"):
        message = "an array of %ld bytes does not contain %ld bytes from byte %ld on"
        b.ret_early(error(module, b, interface.INVALID_ARGUMENT, message, size, count, first))
    with held(module, b, record):
        b.memcpy(slot["dst"], b.offset(record.pointer("data"), first), count)
    slot["event"] = READY
    slot.done()


def _write_copy(module: ModuleText, name: str) -> None:
    """Writes a copy on a device, in separate memory."""
    slot = Slot(module, name)
    b = slot.b
    record = buffer_of(slot)
    size = record["nbytes"]
    with held(module, b, record):
        data = b.call("ptr", "shlo_pjrt_take", [size], declare=False)
        with b.if_(b.icmp("eq", data, NULL), "full"):
            let_go(b, record.address)
            b.ret_early(error(module, b, interface.RESOURCE_EXHAUSTED, NO_MEMORY, size))
        b.memcpy(data, record.pointer("data"), size)
    storage = b.call("ptr", "shlo_pjrt_storage", [data, size, NULL, NULL, i64(1)], declare=False)
    if name == "Buffer_CopyToDevice":
        device = slot["dst_device"]
        memory = Record(b, DEVICE, device).pointer("memory")
    else:
        memory = slot["dst_memory"]
        device = Record(b, MEMORY, memory).pointer("device")
    arguments = [storage, data, size, record["type"], record["rank"], record.pointer("dims"), device, memory]
    slot["dst_buffer"] = b.call("ptr", "shlo_pjrt_buffer", arguments, declare=False)
    slot.done()
