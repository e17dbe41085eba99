"""Order of the elements of arrays: ours are row-major, a host's order is given by its layout.

i1 @shlo_pjrt_is_dense(i64 itemsize, ptr dims, ptr strides, i64 rank)           row-major, without gaps
ptr @shlo_pjrt_strides(ptr layout, i64 itemsize, ptr dims, i64 rank, ptr to)    strides of a MemoryLayout; an error,
                                                                                or null
ptr @shlo_pjrt_gather(ptr to, ptr from, ptr dims, ptr strides, i64 rank, i64 itemsize)
                                 elements in row-major order; returns the address after the last one written
"""

from __future__ import annotations

from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.code.function_writer import NULL, Args, Slot, error

STRIDES_TYPE = V("i32", str(interface.STRIDES))


def write_layouts(module: ModuleText) -> None:
    _write_is_dense(module)
    _write_strides(module)
    _write_gather(module)


def layout_strides(slot: Slot, layout: V, item: V, dims: V, rank: V) -> V:
    """Returns a table of the strides of a layout. Returns an error if the layout does not fit these dimensions."""
    b = slot.b
    table = b.emit("ptr", f"alloca i64, i64 {b.max_(rank, 1).text}, align 16")
    failure = b.call("ptr", "shlo_pjrt_strides", [layout, item, dims, rank, table], declare=False)
    with b.if_(b.icmp("ne", failure, NULL), "no_layout"):
        b.ret_early(failure)
    return table


def refuse_order(module: ModuleText, slot: Slot, field: str, item: V, dims: V, rank: V, size: V) -> None:
    """Returns an error if the host requests an order other than row-major."""
    b = slot.b
    with b.if_(b.and_(b.icmp("ne", slot[field], NULL), b.icmp("ne", size, 0)), "layout"):
        strides = layout_strides(slot, slot[field], item, dims, rank)
        dense = b.call("i1", "shlo_pjrt_is_dense", [item, dims, strides, rank], declare=False)
        with b.if_(b.not_(dense), "other"):
            message = f"{field}: arrays are in row-major order, other layouts are not supported"
            b.ret_early(error(module, b, interface.UNIMPLEMENTED, message))


def _write_is_dense(module: ModuleText) -> None:
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


def _write_strides(module: ModuleText) -> None:
    """Writes shlo_pjrt_strides. The array has elements, so a stride of 0 is one that is not yet known. The layout's own
    size is ignored: jaxlib 0.10.2 passes 1 there."""
    params = [("ptr", "layout"), ("i64", "itemsize"), ("ptr", "dims"), ("i64", "rank"), ("ptr", "to")]
    b = module.function("shlo_pjrt_strides", params, "ptr", attributes="nounwind")
    address, itemsize, dims, rank, to = b.params
    layout = Args(b, "MemoryLayout", address)
    type, given, count = layout["type"], layout["minor_to_major"], layout["minor_to_major_size"]
    with b.if_(b.icmp("ugt", type, STRIDES_TYPE), "unknown"):
        message = "the layout has the unknown type %ld"
        b.ret_early(error(module, b, interface.INVALID_ARGUMENT, message, b.cast("sext", type, "i64")))
    with b.if_(b.icmp("ne", count, rank), "rank"):
        message = "the layout has %ld dimensions, but the array has %ld"
        b.ret_early(error(module, b, interface.INVALID_ARGUMENT, message, count, rank))
    with b.if_(b.icmp("eq", type, STRIDES_TYPE), "strides"):
        b.memcpy(to, given, b.mul(rank, 8))
        b.ret_early(NULL)
    with b.if_(b.icmp("ne", layout["num_tiles"], 0), "tiles"):
        b.ret_early(error(module, b, interface.UNIMPLEMENTED, "layouts with tiles are not supported"))
    b.memset(to, 0, b.mul(rank, 8))
    with b.loop_carry(0, rank, [itemsize]) as carry:
        dimension = b.load("i64", b.element(given, "i64", carry.index))
        inside = b.icmp("ult", dimension, rank)
        before = b.load("i64", b.element(to, "i64", b.select(inside, dimension, i64(0))))
        with b.if_(b.or_(b.not_(inside), b.icmp("ne", before, 0)), "twice"):
            message = "minor_to_major: expected each dimension of %ld once, got %ld"
            b.ret_early(error(module, b, interface.INVALID_ARGUMENT, message, rank, dimension))
        b.store(carry.values[0], b.element(to, "i64", dimension))
        carry.next(b.mul(carry.values[0], b.load("i64", b.element(dims, "i64", dimension))))
    b.ret(NULL)


def _write_gather(module: ModuleText) -> None:
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
