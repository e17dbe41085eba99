"""Types and shapes: the size of an array, and whether it is what a program expects.

i64 @shlo_pjrt_size(i32 type, ptr dims, i64 rank)                   bytes; -1 if that is not a valid size
void @shlo_pjrt_write_shape(ptr to, i64 type, i64 rank, ptr dims)   a text such as 4x4xf32, of SHAPE_BYTES at most
ptr @shlo_pjrt_mismatch(ptr argument, ptr buffer, i64 index)        an error, or null
"""

from __future__ import annotations

from collections.abc import Iterable

from shlo_jit.ir.types import DTYPES, MAX_RANK
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.code.function_writer import NULL, Record, Slot, error, print_to, text
from shlo_jit.pjrt.host_records import ARGUMENT, BUFFER

ITEMSIZES, NAMES = V("ptr", "@shlo_pjrt_itemsizes"), V("ptr", "@shlo_pjrt_type_names")
"""Tables by type: bytes of an element (an i8, 0 for an unknown type), and name."""
TYPES = 64
SHAPE_BYTES = 160


def write_shapes(module: ModuleText) -> None:
    sizes, names = [0] * TYPES, ["ptr null"] * TYPES
    b = module.function("shlo_pjrt_write_shape", [("ptr", "to"), ("i64", "type"), ("i64", "rank"), ("ptr", "dims")])
    for name, number in interface.ELEMENT_TYPES.items():
        sizes[number] = DTYPES[name].itemsize if name in DTYPES else 1
        names[number] = f"ptr {text(module, b, name)[0].text}"
    module.define_global(ITEMSIZES.text[1:], f"internal constant [{TYPES} x i8] [{_row(f'i8 {n}' for n in sizes)}]")
    module.define_global(NAMES.text[1:], f"internal constant [{TYPES} x ptr] [{_row(names)}]")
    _write_shape(module, b)
    _write_size(module)
    _write_mismatch(module)


def _row(entries: Iterable[str]) -> str:
    return ", ".join(entries)


def itemsize(b: Builder, type: V) -> V:
    """Returns the size of an element; 0 for an unknown type."""
    known = b.and_(b.cast("zext", type, "i64"), i64(TYPES - 1))
    size = b.cast("zext", b.load("i8", b.offset(ITEMSIZES, known)), "i64")
    return b.select(b.icmp("ult", type, V("i32", str(TYPES))), size, i64(0))


def checked_size(module: ModuleText, slot: Slot, type: V, dims: V, rank: V) -> V:
    """Returns the size of an array that the host describes. Returns an error if no such array can exist."""
    b = slot.b
    size = b.call("i64", "shlo_pjrt_size", [type, dims, rank], declare=False)
    with b.if_(b.icmp("slt", size, 0), "absurd"):
        message = "invalid array: type %ld, %ld dimensions, the first of size %ld"
        none = b.or_(b.icmp("eq", dims, NULL), b.icmp("eq", rank, 0))
        first = b.if_else(none, lambda: [i64(0)], lambda: [b.load("i64", dims)])
        b.ret_early(error(module, b, interface.INVALID_ARGUMENT, message, b.cast("sext", type, "i64"), rank, *first))
    return size


def _write_shape(module: ModuleText, b: Builder) -> None:
    to, type, rank, dims = b.params
    with b.loop_carry(0, rank, [i64(0)]) as carry:
        at, extent = carry.values[0], b.load("i64", b.element(dims, "i64", carry.index))
        size = print_to(b, b.offset(to, at), b.sub(i64(SHAPE_BYTES), at), text(module, b, "%ldx")[0], extent)
        carry.next(b.add(at, size))
    at = carry.values[0]
    name = b.load("ptr", b.element(NAMES, "ptr", type))
    print_to(b, b.offset(to, at), b.sub(i64(SHAPE_BYTES), at), text(module, b, "%s")[0], name)
    b.ret()


def _write_size(module: ModuleText) -> None:
    params = [("i32", "type"), ("ptr", "dims"), ("i64", "rank")]
    b = module.function("shlo_pjrt_size", params, "i64", attributes="nounwind")
    type, dims, rank = b.params
    item = itemsize(b, type)
    no_dims = b.and_(b.icmp("eq", dims, NULL), b.icmp("ne", rank, 0))
    with b.if_(b.or_(b.or_(b.icmp("eq", item, 0), b.icmp("ugt", rank, i64(MAX_RANK))), no_dims), "unknown"):
        b.ret_early(i64(-1))
    with b.loop_carry(0, rank, [item]) as carry:
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


def _write_mismatch(module: ModuleText) -> None:
    params = [("ptr", "argument"), ("ptr", "buffer"), ("i64", "index")]
    b = module.function("shlo_pjrt_mismatch", params, "ptr", attributes="nounwind")
    argument, buffer = Record(b, ARGUMENT, b.params[0]), Record(b, BUFFER, b.params[1])
    wrong = b.label("wrong")

    def leave_if(condition: V) -> None:
        on = b.label("on")
        b.branch_if(condition, wrong, on)
        b.start(on)

    differ = [b.icmp("ne", argument[field], buffer[field]) for field in ("nbytes", "type", "rank")]
    leave_if(b.or_(b.or_(differ[0], differ[1]), differ[2]))
    expected, given = argument.pointer("dims"), buffer.pointer("dims")
    with b.loop(0, argument["rank"]) as i:
        leave_if(b.icmp("ne", *(b.load("i64", b.element(dims, "i64", i)) for dims in (expected, given))))
    b.line("ret ptr null")
    b.start(wrong)
    shapes = [b.alloca("i8", SHAPE_BYTES, 16) for _ in range(2)]
    for record, shape in zip((argument, buffer), shapes, strict=True):
        facts = [shape, record["type"], record["rank"], record.pointer("dims")]
        b.call("void", "shlo_pjrt_write_shape", facts, declare=False)
    message = "argument %ld: the program expects %s, got %s"
    b.ret(error(module, b, interface.INVALID_ARGUMENT, message, b.params[2], *shapes))
