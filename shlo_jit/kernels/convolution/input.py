"""Preparation of a convolution's operands: the padded copy of the input, and the packers of input and kernel."""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.convolution.shape import FIELDS, conv_plan
from shlo_jit.kernels.gemm.micro import attributes
from shlo_jit.kernels.gemm.pack import PackPlan, convert, emit_pack, pack_plans
from shlo_jit.kernels.gemm.precision import GemmPlan, GemmTypes, itemsize, storage
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.kernels.target import Target

FRAME = ("table", "input", "kernel", "output", "scratch", "epilogue", "frame", "following", "following_bytes")
"""Slots of the tasks' frame."""
TASK_PARAMS = [("ptr", "frame"), ("i64", "index"), ("i64", "worker")]


class Arguments:
    """The frame of a task and the parameter table it points to."""

    def __init__(self, b: Builder, frame: V):
        self.b, self.frame = b, frame
        self.table = self.pointer("table")

    def pointer(self, name: str) -> V:
        return self._slot(name, "ptr")

    def _slot(self, name: str, type: str) -> V:
        return self.b.load(type, self.b.offset(self.frame, 8 * FRAME.index(name)), align=8)

    @property
    def following_bytes(self) -> V:
        return self._slot("following_bytes", "i64")

    def get(self, name: str) -> V:
        return self.b.load("i64", self.b.offset(self.table, 8 * FIELDS.index(name)), align=8)

    def ints(self, names: str) -> list[V]:
        return [self.get(name) for name in names.split()]


def split(b: Builder, index: V, *extents: V) -> list[V]:
    """Splits a row-major index into its components; the first one is not bounded by an extent."""
    parts: list[V] = []
    for extent in reversed(extents):
        parts.append(b.urem(index, extent))
        index = b.udiv(index, extent)
    return [index, *reversed(parts)]


def dot(b: Builder, *pairs: tuple[V, V]) -> V:
    """Returns a sum of products: an offset from indices and strides."""
    total: V = i64(0)
    for x, y in pairs:
        total = b.add(total, b.mul(x, y))
    return total


def copy_symbols(types: GemmTypes) -> tuple[str, str]:
    """Returns the symbols of the tasks that copy the input and pack the weights."""
    return f"shlo_conv_{types.name}_copy", f"shlo_conv_{types.name}_weights"


def packers(types: GemmTypes, target: Target) -> tuple[PackPlan, PackPlan]:
    """Returns the packers of input and kernel: the product's own packer if elements need no conversion."""
    plan = conv_plan(types, target)
    own = pack_plans(plan)[0]

    def of(dtype: str) -> PackPlan:
        if storage(dtype) == plan.unit:
            return own
        name = f"shlo_conv_{types.name}_pack_{dtype}"
        return PackPlan(name, dtype, plan.unit, 1, 1, plan.lanes, plan.masks)

    return of(types.a), of(types.b)


def own_packers(types: GemmTypes, target: Target) -> dict[str, PackPlan]:
    """Returns the packers of input and kernel that are not the product's, by their symbols."""
    own = pack_plans(conv_plan(types, target))[0]
    return {pack.name: pack for pack in packers(types, target) if pack != own}


def emit_packers(module: ModuleText, types: GemmTypes, target: Target) -> None:
    for pack in own_packers(types, target).values():
        emit_pack(module, pack, target, attributes(target))


def emit_copy_task(module: ModuleText, types: GemmTypes, target: Target) -> str:
    """Emits the task that writes some lines (group, image, d, h) of the padded input: zeros, and the pixels of the
    input's line if it has one. Returns its name."""
    plan = conv_plan(types, target)
    name = copy_symbols(types)[0]
    b = module.function(name, TASK_PARAMS, linkage="", attributes=attributes(target))
    frame, index, _ = b.params
    g = Arguments(b, frame)
    lines, chunk, pixel, pw, images, pd, ph = g.ints("copy_lines copy_chunk a_w pw batch pd ph")
    line_bytes = b.mul(pixel, pw)
    first = b.mul(index, chunk)
    with b.loop(first, b.min_(b.add(first, chunk), lines), hint="line") as line:
        to = b.offset(g.pointer("scratch"), b.mul(line, line_bytes))
        group, image, d, h = split(b, line, images, pd, ph)
        inside, source = source_line(b, g, group, image, d, h)
        start, count = g.ints("copy_w0 copy_count")
        # Zeros where there is no pixel: at the ends of a line or, with dilation, in the whole line.
        dense = b.and_(inside, b.and_(b.icmp("eq", g.get("ldil_w"), 1), b.icmp("sgt", count, 0)))
        end = b.select(dense, b.add(start, b.mul(count, pixel)), line_bytes)
        b.memset(to, 0, b.select(dense, start, line_bytes))
        b.memset(b.offset(to, end), 0, b.sub(line_bytes, end))
        with b.if_(inside):
            source = b.offset(source, b.mul(g.get("copy_iw0"), g.get("in_sw")))
            _copy_line(b, g, types, plan, target, source, b.offset(to, start))
    b.ret()
    return name


def source_line(b: Builder, g: Arguments, group: V, image: V, d: V, h: V) -> tuple[V, V]:
    """Returns whether a line of the padded input is one of the input, and the address of that."""
    extents, pads, dilations = (g.ints(f"{p}d {p}h") for p in ("in_", "pad_", "ldil_"))
    inside: V | None = None
    at: list[V] = []
    for x, pad, dilation, extent in zip((d, h), pads, dilations, extents, strict=True):
        moved = b.sub(x, pad)
        safe = b.max_(moved, 0)
        i = b.udiv(safe, dilation)
        at.append(i)
        tests = (b.icmp("sge", moved, 0), b.icmp("eq", b.urem(safe, dilation), 0), b.icmp("slt", i, extent))
        for test in tests:
            inside = test if inside is None else b.and_(inside, test)
    assert inside is not None
    places = zip((group, image, *at), g.ints("in_group in_batch in_sd in_sh"), strict=True)
    return inside, b.offset(g.pointer("input"), dot(b, *places))


def _copy_line(b: Builder, g: Arguments, types: GemmTypes, plan: GemmPlan, target: Target, source: V, to: V) -> None:
    """Copies `copy_count` pixels of `ci` features, to pixels `ldil_w` apart: for the packer, a panel of width
    ci * ldil_w."""
    ci, pixel, feature, dilation, count = g.ints("ci in_sw in_feature ldil_w copy_count")
    width = b.mul(ci, dilation)
    size = itemsize(types.a)

    def by_packer() -> list[V]:
        b.call("void", packers(types, target)[0].name, [source, feature, pixel, to, width, ci, count, i64(0)])
        return []

    def one_by_one() -> list[V]:
        """Copies single elements: without masked stores the packer may write beyond `ci` of a pixel."""
        with b.loop(0, count) as w, b.loop(0, ci) as c:
            x = b.load(storage(types.a), b.offset(source, dot(b, (w, pixel), (c, feature))))
            place = b.mul(b.add(b.mul(w, width), c), plan.unit_bytes)
            b.store(convert(b, x, types.a, plan.unit), b.offset(to, place))
        return []

    def dense() -> list[V]:
        b.memcpy(to, source, b.mul(b.mul(count, ci), size))
        return []

    def other() -> list[V]:
        if plan.masks:
            return by_packer()
        whole = b.and_(b.icmp("eq", b.urem(ci, plan.lanes), 0), b.icmp("eq", dilation, 1))
        return b.if_else(b.or_(whole, b.icmp("eq", feature, size)), by_packer, one_by_one)

    if storage(types.a) != plan.unit:
        other()
        return
    plain = b.and_(b.icmp("eq", feature, size), b.icmp("eq", pixel, b.mul(ci, size)))
    b.if_else(b.and_(plain, b.icmp("eq", dilation, 1)), dense, other)
