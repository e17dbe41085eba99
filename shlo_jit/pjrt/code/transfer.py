"""Arrays of the host's, as arrays on a device: in the host's memory where it lets us, else copied."""

from __future__ import annotations

from shlo_jit.ir.types import DTYPES
from shlo_jit.kernels.builder import Builder, ModuleText, V, const, i64
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.code.buffers import NO_MEMORY
from shlo_jit.pjrt.code.objects import READY
from shlo_jit.pjrt.code.writer import NULL, Args, Record, Slot, error
from shlo_jit.pjrt.records import DEVICE, MEMORY

ITEMSIZES = V("ptr", "@shlo_pjrt_itemsizes")
"""Bytes of an element of each type, an i8; 0 where there is no such type."""
TYPES = 64
VIEW_ALIGNMENT = V("ptr", "@shlo_pjrt_view_alignment")
"""Of memory that others have: 16 bytes, as every allocator gives it, or what the host allows instead."""


def write_transfer(module: ModuleText) -> None:
    sizes = [0] * TYPES
    for name, number in interface.ELEMENT_TYPES.items():
        sizes[number] = DTYPES[name].itemsize if name in DTYPES else 1
    rows = ", ".join(f"i8 {size}" for size in sizes)
    module.define_global(VIEW_ALIGNMENT.text[1:], "global i64 16, align 8")
    module.define_global(ITEMSIZES.text[1:], f"internal constant [{TYPES} x i8] [{rows}]")
    _write_size(module)
    _write_is_dense(module)
    _write_gather(module)
    _write_from_host(module)
    _write_view(module)
    _write_uninitialized(module)


def _itemsize(b: Builder, type: V) -> V:
    """0 for a type that there is not."""
    known = b.and_(b.cast("zext", type, "i64"), i64(TYPES - 1))
    size = b.cast("zext", b.load("i8", b.offset(ITEMSIZES, known)), "i64")
    return b.select(b.icmp("ult", type, V("i32", str(TYPES))), size, i64(0))


def _write_size(module: ModuleText) -> None:
    """i64 @shlo_pjrt_size(i32 type, ptr dims, i64 rank): bytes of an array; -1 where that is no number."""
    params = [("i32", "type"), ("ptr", "dims"), ("i64", "rank")]
    b = module.function("shlo_pjrt_size", params, "i64", attributes="nounwind")
    type, dims, rank = b.params
    itemsize = _itemsize(b, type)
    with b.if_(b.icmp("eq", itemsize, 0), "unknown"):
        b.ret_early(i64(-1))
    with b.loop_carry(0, rank, [itemsize]) as carry:
        extent = b.load("i64", b.element(dims, "i64", carry.index))
        pair = b.emit(
            "{i64, i1}", f"call {{i64, i1}} @llvm.smul.with.overflow.i64(i64 {carry.values[0].text}, i64 {extent.text})"
        )
        product, over = (b.emit(t, f"extractvalue {pair.type} {pair.text}, {i}") for i, t in enumerate(("i64", "i1")))
        with b.if_(b.or_(over, b.icmp("slt", extent, 0)), "absurd"):
            b.ret_early(i64(-1))
        carry.next(product)
    module.declare("llvm.smul.with.overflow.i64", "{i64, i1}", ["i64", "i64"])
    b.ret(carry.values[0])


def _write_is_dense(module: ModuleText) -> None:
    """i1: whether the strides are those of a row-major array without gaps."""
    params = [("i64", "itemsize"), ("ptr", "dims"), ("ptr", "strides"), ("i64", "rank")]
    b = module.function("shlo_pjrt_is_dense", params, "i1", attributes="nounwind")
    itemsize, dims, strides, rank = b.params
    with b.loop_carry(0, rank, [itemsize]) as carry:
        at = b.sub(b.sub(rank, 1), carry.index)
        extent, stride = (b.load("i64", b.element(x, "i64", at)) for x in (dims, strides))
        differs = b.and_(b.icmp("ne", extent, 1), b.icmp("ne", stride, carry.values[0]))
        with b.if_(differs, "gap"):
            b.ret_early(V("i1", "false"))
        carry.next(b.mul(carry.values[0], extent))
    b.ret(V("i1", "true"))


def _write_gather(module: ModuleText) -> None:
    """ptr @shlo_pjrt_gather(to, from, dims, strides, rank, itemsize): elements in row-major order; behind the last."""
    params = [
        ("ptr", "to"),
        ("ptr", "source"),
        ("ptr", "dims"),
        ("ptr", "strides"),
        ("i64", "rank"),
        ("i64", "itemsize"),
    ]
    b = module.function("shlo_pjrt_gather", params, "ptr", attributes="nounwind")
    to, source, dims, strides, rank, itemsize = b.params
    with b.if_(b.icmp("eq", rank, 0), "element"):
        b.memcpy(to, source, itemsize)
        b.ret_early(b.offset(to, itemsize))
    count, stride = b.load("i64", dims), b.load("i64", strides)
    last = b.icmp("eq", rank, 1)
    end = b.offset(to, b.mul(count, itemsize))
    with b.if_(b.and_(last, b.icmp("eq", stride, itemsize)), "run"):
        b.memcpy(to, source, b.mul(count, itemsize))
        b.ret_early(end)
    for size in (1, 2, 4, 8):
        with b.if_(b.and_(last, b.icmp("eq", itemsize, size)), "row"):
            with b.loop(0, count) as i:
                x = b.load(f"i{8 * size}", b.offset(source, b.mul(i, stride)), align=1)
                b.store(x, b.element(to, f"i{8 * size}", i), align=1)
            b.ret_early(end)
    place = b.alloca("ptr", 1, 8)
    b.store(to, place)
    with b.loop(0, count) as i:
        arguments = [
            *(b.load("ptr", place), b.offset(source, b.mul(i, stride))),
            *(b.offset(dims, 8), b.offset(strides, 8), b.sub(rank, 1), itemsize),
        ]
        b.store(b.call("ptr", "shlo_pjrt_gather", arguments, declare=False), place)
    b.ret(b.load("ptr", place))


def _home(b: Builder, slot: Slot) -> tuple[V, V]:
    """Device and memory of a new array, of which the host names one or both."""

    def of_device() -> list[V]:
        return [slot["device"], Record(b, DEVICE, slot["device"]).pointer("memory")]

    def of_memory() -> list[V]:
        return [Record(b, MEMORY, slot["memory"]).pointer("device"), slot["memory"]]

    device, memory = b.if_else(b.icmp("eq", slot["memory"], NULL), of_device, of_memory)
    return device, memory


def _size(module: ModuleText, slot: Slot, type: V, dims: V, rank: V) -> V:
    b = slot.b
    size = b.call("i64", "shlo_pjrt_size", [type, dims, rank], declare=False)
    with b.if_(b.icmp("slt", size, 0), "absurd"):
        b.ret_early(error(module, b, interface.INVALID_ARGUMENT, "there is no array of this type and shape"))
    return size


def _take(module: ModuleText, slot: Slot, size: V) -> V:
    b = slot.b
    data = b.call("ptr", "shlo_pjrt_take", [size], declare=False)
    with b.if_(b.icmp("eq", data, NULL), "full"):
        b.ret_early(error(module, b, interface.RESOURCE_EXHAUSTED, NO_MEMORY))
    return data


def _finish(slot: Slot, storage: V, data: V, size: V, type: V, dims: V, rank: V) -> None:
    _give(slot, storage, data, size, type, dims, rank)
    slot.done()


def _give(slot: Slot, storage: V, data: V, size: V, type: V, dims: V, rank: V) -> None:
    b = slot.b
    device, memory = _home(b, slot)
    arguments = [storage, data, size, b.cast("zext", type, "i64"), rank, dims, device, memory]
    slot["buffer"] = b.call("ptr", "shlo_pjrt_buffer", arguments, declare=False)


def _write_from_host(module: ModuleText) -> None:
    b = module.function("shlo_pjrt_release_host", [("ptr", "data"), ("ptr", "event")], attributes="nounwind")
    b.call("void", "shlo_pjrt_happen", [b.params[1]], declare=False)
    b.ret()

    slot = Slot(module, "Client_BufferFromHostBuffer")
    b = slot.b
    type, dims, rank, given = slot["type"], slot["dims"], slot["num_dims"], slot["data"]
    size = _size(module, slot, type, dims, rank)
    itemsize, strides = _itemsize(b, type), slot["byte_strides"]
    no_strides = b.or_(b.icmp("eq", strides, NULL), b.icmp("eq", size, 0))
    (dense,) = b.if_else(
        no_strides,
        lambda: [V("i1", "true")],
        lambda: [b.call("i1", "shlo_pjrt_is_dense", [itemsize, dims, strides, rank], declare=False)],
    )
    address = b.cast("ptrtoint", given, "i64")
    is_aligned = b.icmp("eq", b.and_(address, b.sub(b.min_(itemsize, 8), 1)), 0)
    may_stay = b.icmp("uge", slot["host_buffer_semantics"], const("i32", interface.IMMUTABLE_ZERO_COPY))
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
            b.call("ptr", "shlo_pjrt_gather", [data, given, dims, strides, rank, itemsize], declare=False)
            return []

        b.if_else(dense, run, rows)
        slot["done_with_host_buffer"] = READY
        return [b.call("ptr", "shlo_pjrt_storage", [data, size, NULL, NULL, i64(1)], declare=False), data]

    storage, data = b.if_else(stays, in_place, copied)
    _finish(slot, storage, data, size, type, dims, rank)


def _strides(slot: Slot, type: V, dims: V, rank: V) -> V:
    """Of a view whose layout says in which order its dimensions are, a table of i64."""
    b = slot.b
    layout = Args(b, "MemoryLayout", slot["layout"])
    order, is_tiled = layout["minor_to_major"], b.icmp("eq", layout["type"], V("i32", str(interface.TILED)))
    table = b.emit("ptr", f"alloca i64, i64 {b.max_(rank, 1).text}, align 16")
    with b.loop_carry(0, b.select(is_tiled, rank, i64(0)), [_itemsize(b, type)]) as carry:
        dimension = b.load("i64", b.element(order, "i64", carry.index))
        b.store(carry.values[0], b.element(table, "i64", dimension))
        carry.next(b.mul(carry.values[0], b.load("i64", b.element(dims, "i64", dimension))))
    return b.select(is_tiled, table, order)


def _is_row_major(slot: Slot, type: V, dims: V, rank: V) -> V:
    b = slot.b

    def look() -> list[V]:
        strides = _strides(slot, type, dims, rank)
        return [b.call("i1", "shlo_pjrt_is_dense", [_itemsize(b, type), dims, strides, rank], declare=False)]

    (found,) = b.if_else(b.icmp("eq", slot["layout"], NULL), lambda: [V("i1", "true")], look)
    return found


def _write_reordered(slot: Slot, to: V, source: V, type: V, dims: V, rank: V) -> None:
    b = slot.b
    arguments = [to, source, dims, _strides(slot, type, dims, rank), rank, _itemsize(b, type)]
    b.call("ptr", "shlo_pjrt_gather", arguments, declare=False)


def _write_view(module: ModuleText) -> None:
    """Of memory that somebody else has, DLPack for example, and who is told when it is no longer needed."""
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
    size = _size(module, slot, type, dims, rank)
    address = b.cast("ptrtoint", data, "i64")
    is_odd = b.icmp("ne", b.and_(address, b.sub(b.load("i64", VIEW_ALIGNMENT), 1)), 0)
    with b.if_(b.and_(is_odd, b.icmp("ne", size, 0)), "odd"):
        text = "the memory is not aligned to 16 bytes"
        b.ret_early(error(module, b, interface.INVALID_ARGUMENT, text))
    with b.if_(b.xor(_is_row_major(slot, type, dims, rank), V("i1", "true")), "ordered"):
        home = _take(module, slot, size)
        _write_reordered(slot, home, data, type, dims, rank)
        with b.if_(b.icmp("ne", slot["on_delete_callback"], NULL), "wanted"):
            b.call_pointer("void", slot["on_delete_callback"], [data, slot["on_delete_callback_arg"]])
        copy = b.call("ptr", "shlo_pjrt_storage", [home, size, NULL, NULL, i64(1)], declare=False)
        _give(slot, copy, home, size, type, dims, rank)
        b.ret_early(NULL)
    call = b.call("ptr", "malloc", [i64(16)])
    b.store(slot["on_delete_callback"], call)
    b.store(slot["on_delete_callback_arg"], b.offset(call, 8))
    release = V("ptr", "@shlo_pjrt_release_view")
    storage = b.call("ptr", "shlo_pjrt_storage", [data, size, release, call, i64(0)], declare=False)
    _finish(slot, storage, data, size, type, dims, rank)


def _write_uninitialized(module: ModuleText) -> None:
    slot = Slot(module, "Client_CreateUninitializedBuffer")
    b = slot.b
    type, dims, rank = slot["shape_element_type"], slot["shape_dims"], slot["shape_num_dims"]
    size = _size(module, slot, type, dims, rank)
    data = _take(module, slot, size)
    storage = b.call("ptr", "shlo_pjrt_storage", [data, size, NULL, NULL, i64(1)], declare=False)
    _finish(slot, storage, data, size, type, dims, rank)
