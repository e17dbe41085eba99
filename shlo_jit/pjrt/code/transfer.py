"""Converts the host's arrays to arrays on a device: in the host's memory if it permits that, else copied."""

from __future__ import annotations

from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V, const, i64
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.code.buffers import NO_MEMORY
from shlo_jit.pjrt.code.function_writer import NULL, Record, Slot, error, new
from shlo_jit.pjrt.code.layouts import layout_strides, refuse_order
from shlo_jit.pjrt.code.objects import READY
from shlo_jit.pjrt.code.python import block_at_shutdown
from shlo_jit.pjrt.code.shapes import checked_size, itemsize
from shlo_jit.pjrt.host_records import DEVICE, MEMORY

VIEW_ALIGNMENT = V("ptr", "@shlo_pjrt_view_alignment")
"""Required alignment of memory that others own: 16 bytes, which every allocator provides, or a value set by the host.
"""


def write_transfer(module: ModuleText) -> None:
    module.define_global(VIEW_ALIGNMENT.text[1:], "global i64 16, align 8")
    _write_from_host(module)
    _write_view(module)
    _write_uninitialized(module)


def _placement(module: ModuleText, slot: Slot) -> tuple[V, V]:
    """Returns the device and memory of a new array, of which the host names one or both. Returns an error if it names
    none."""
    b = slot.b
    with b.if_(b.and_(b.icmp("eq", slot["memory"], NULL), b.icmp("eq", slot["device"], NULL)), "nowhere"):
        b.ret_early(error(module, b, interface.INVALID_ARGUMENT, "neither a device nor a memory is given"))

    def of_device() -> list[V]:
        return [slot["device"], Record(b, DEVICE, slot["device"]).pointer("memory")]

    def of_memory() -> list[V]:
        return [Record(b, MEMORY, slot["memory"]).pointer("device"), slot["memory"]]

    device, memory = b.if_else(b.icmp("eq", slot["memory"], NULL), of_device, of_memory)
    return device, memory


def _take(module: ModuleText, slot: Slot, size: V) -> V:
    b = slot.b
    data = b.call("ptr", "shlo_pjrt_take", [size], declare=False)
    with b.if_(b.icmp("eq", data, NULL), "full"):
        b.ret_early(error(module, b, interface.RESOURCE_EXHAUSTED, NO_MEMORY, size))
    return data


def _refuse_null(module: ModuleText, slot: Slot, field: str, size: V) -> None:
    b = slot.b
    with b.if_(b.and_(b.icmp("eq", slot[field], NULL), b.icmp("ne", size, 0)), "null"):
        message = f"{field} is null, but the array has %ld bytes"
        b.ret_early(error(module, b, interface.INVALID_ARGUMENT, message, size))


def _give(slot: Slot, storage: V, data: V, size: V, type: V, dims: V, rank: V, home: tuple[V, V]) -> None:
    b = slot.b
    arguments = [storage, data, size, b.cast("zext", type, "i64"), rank, dims, *home]
    slot["buffer"] = b.call("ptr", "shlo_pjrt_buffer", arguments, declare=False)


def _write_from_host(module: ModuleText) -> None:
    b = module.function("shlo_pjrt_release_host", [("ptr", "data"), ("ptr", "event")], attributes="nounwind")
    b.call("void", "shlo_pjrt_happen", [b.params[1]], declare=False)
    b.ret()

    slot = Slot(module, "Client_BufferFromHostBuffer")
    b = slot.b
    block_at_shutdown(b)
    type, dims, rank, given = slot["type"], slot["dims"], slot["num_dims"], slot["data"]
    size = checked_size(module, slot, type, dims, rank)
    item, strides, home = itemsize(b, type), slot["byte_strides"], _placement(module, slot)
    _refuse_null(module, slot, "data", size)
    refuse_order(module, slot, "device_layout", item, dims, rank, size)
    semantics = slot["host_buffer_semantics"]
    with b.if_(b.icmp("ugt", semantics, const("i32", interface.MUTABLE_ZERO_COPY)), "semantics"):
        message = "host_buffer_semantics: expected 0 to 3, got %ld"
        b.ret_early(error(module, b, interface.INVALID_ARGUMENT, message, b.cast("sext", semantics, "i64")))
    count = slot["num_byte_strides"]
    with b.if_(b.and_(b.icmp("ne", strides, NULL), b.icmp("ne", count, rank)), "strides"):
        message = "num_byte_strides: expected one stride for each of %ld dimensions, got %ld"
        b.ret_early(error(module, b, interface.INVALID_ARGUMENT, message, rank, count))
    no_strides = b.or_(b.icmp("eq", strides, NULL), b.icmp("eq", size, 0))
    (dense,) = b.if_else(
        no_strides,
        lambda: [V("i1", "true")],
        lambda: [b.call("i1", "shlo_pjrt_is_dense", [item, dims, strides, rank], declare=False)],
    )
    address = b.cast("ptrtoint", given, "i64")
    is_aligned = b.icmp("eq", b.and_(address, b.sub(b.min_(item, 8), 1)), 0)
    may_stay = b.icmp("uge", semantics, const("i32", interface.IMMUTABLE_ZERO_COPY))
    stays = b.and_(b.and_(dense, is_aligned), b.and_(may_stay, b.icmp("ne", size, 0)))

    def in_place() -> list[V]:
        event = b.call("ptr", "shlo_pjrt_event", [], declare=False)
        release = V("ptr", "@shlo_pjrt_release_host")
        storage = b.call("ptr", "shlo_pjrt_storage", [given, size, release, event, i64(0)], declare=False)
        slot["done_with_host_buffer"] = event
        return [storage, given]

    def copied() -> list[V]:
        data = _take(module, slot, size)

        def run() -> list[V]:
            b.memcpy(data, given, size)
            return []

        def rows() -> list[V]:
            b.call("ptr", "shlo_pjrt_gather", [data, given, dims, strides, rank, item], declare=False)
            return []

        b.if_else(dense, run, rows)
        slot["done_with_host_buffer"] = READY
        return [b.call("ptr", "shlo_pjrt_storage", [data, size, NULL, NULL, i64(1)], declare=False), data]

    storage, data = b.if_else(stays, in_place, copied)
    _give(slot, storage, data, size, type, dims, rank, home)
    block_at_shutdown(b)
    slot.done()


def _write_view(module: ModuleText) -> None:
    """Writes the view of memory that another library owns, for example by DLPack. The owner is notified when it is no
    longer needed."""
    b = module.function("shlo_pjrt_release_view", [("ptr", "data"), ("ptr", "call")], attributes="nounwind")
    data, call = b.params
    callback = b.load("ptr", call)
    with b.if_(b.icmp("ne", callback, NULL), "wanted"):
        b.call_pointer("void", callback, [data, b.load("ptr", b.offset(call, 8))])
    b.call("void", "free", [call])
    b.ret()

    slot = Slot(module, "Client_CreateViewOfDeviceBuffer")
    b = slot.b
    type, dims, rank, data = slot["element_type"], slot["dims"], slot["num_dims"], slot["device_buffer_ptr"]
    size = checked_size(module, slot, type, dims, rank)
    address = b.cast("ptrtoint", data, "i64")
    is_odd = b.icmp("ne", b.and_(address, b.sub(b.load("i64", VIEW_ALIGNMENT), 1)), 0)
    with b.if_(b.and_(is_odd, b.icmp("ne", size, 0)), "odd"):
        message = "expected memory at a multiple of %ld bytes, got address %ld"
        values = b.load("i64", VIEW_ALIGNMENT), address
        b.ret_early(error(module, b, interface.INVALID_ARGUMENT, message, *values))
    item, home = itemsize(b, type), _placement(module, slot)
    _refuse_null(module, slot, "device_buffer_ptr", size)

    def look() -> list[V]:
        strides = layout_strides(slot, slot["layout"], item, dims, rank)
        dense = b.call("i1", "shlo_pjrt_is_dense", [item, dims, strides, rank], declare=False)
        return [b.select(dense, NULL, strides)]

    has_order = b.and_(b.icmp("ne", slot["layout"], NULL), b.icmp("ne", size, 0))
    (strides,) = b.if_else(has_order, look, lambda: [NULL])
    with b.if_(b.icmp("ne", strides, NULL), "ordered"):
        place = _take(module, slot, size)
        b.call("ptr", "shlo_pjrt_gather", [place, data, dims, strides, rank, item], declare=False)
        with b.if_(b.icmp("ne", slot["on_delete_callback"], NULL), "wanted"):
            b.call_pointer("void", slot["on_delete_callback"], [data, slot["on_delete_callback_arg"]])
        copy = b.call("ptr", "shlo_pjrt_storage", [place, size, NULL, NULL, i64(1)], declare=False)
        _give(slot, copy, place, size, type, dims, rank, home)
        b.ret_early(NULL)
    call = new(b, 16)
    b.store(slot["on_delete_callback"], call)
    b.store(slot["on_delete_callback_arg"], b.offset(call, 8))
    release = V("ptr", "@shlo_pjrt_release_view")
    storage = b.call("ptr", "shlo_pjrt_storage", [data, size, release, call, i64(0)], declare=False)
    _give(slot, storage, data, size, type, dims, rank, home)
    slot.done()


def _write_uninitialized(module: ModuleText) -> None:
    slot = Slot(module, "Client_CreateUninitializedBuffer")
    b = slot.b
    type, dims, rank = slot["shape_element_type"], slot["shape_dims"], slot["shape_num_dims"]
    size, home = checked_size(module, slot, type, dims, rank), _placement(module, slot)
    refuse_order(module, slot, "shape_layout", itemsize(b, type), dims, rank, size)
    data = _take(module, slot, size)
    storage = b.call("ptr", "shlo_pjrt_storage", [data, size, NULL, NULL, i64(1)], declare=False)
    _give(slot, storage, data, size, type, dims, rank, home)
    slot.done()
