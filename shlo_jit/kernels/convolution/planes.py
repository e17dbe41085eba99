"""Depthwise convolution with features first: an output plane depends on one input plane; vectors run along a line.

Vectors whose windows lie inside the line are loaded without masks. At the ends of the line lanes are masked. With a
stride along the line lanes are gathered.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.convolution.depthwise import lines_inside
from shlo_jit.kernels.convolution.input import TASK_PARAMS, Arguments, dot, split
from shlo_jit.kernels.convolution.padding_terms import Line, PaddingTerms
from shlo_jit.kernels.convolution.shape import conv_plan
from shlo_jit.kernels.convolution.windows import multiply_add
from shlo_jit.kernels.gemm.micro import attributes
from shlo_jit.kernels.gemm.pack import convert
from shlo_jit.kernels.gemm.precision import GemmTypes, itemsize, storage
from shlo_jit.kernels.llvm_values import V, const, i64, vector
from shlo_jit.kernels.target import Target

Load = Callable[[V, V], V]
"""(address of the first lane, its position in the line) -> elements as stored."""


class _PlaneLine:
    """One line of one output plane."""

    def __init__(
        self, b: Builder, g: Arguments, types: GemmTypes, target: Target, index: V, terms: PaddingTerms | None = None
    ):
        self.b, self.g, self.types, self.target, self.terms = b, g, types, target, terms
        self.plan = conv_plan(types, target)
        od, oh, self.ow = g.ints("od oh ow")
        image, self.feature, d, h = split(b, index, b.mul(g.get("groups"), g.get("co")), od, oh)
        self.image, self.place = image, (d, h)
        group, f = b.udiv(self.feature, g.get("co")), b.urem(self.feature, g.get("co"))
        self.pixel = b.mul(b.add(b.mul(d, oh), h), self.ow)
        places = (
            (image, g.get("o_image")),
            (group, g.get("o_group")),
            (f, g.get("o_feature")),
            (self.pixel, i64(self.plan.out_bytes)),
        )
        self.output = b.offset(g.pointer("output"), dot(b, *places))
        kernel = b.offset(g.pointer("kernel"), g.get("w_offset"))
        self.kernel = b.offset(kernel, dot(b, (group, g.get("w_group")), (f, g.get("w_out"))))
        tops = [b.sub(b.mul(x, g.get(f"stride_{a}")), g.get(f"pad_{a}")) for x, a in ((d, "d"), (h, "h"))]
        self.ranges = [lines_inside(b, g, top, a) for top, a in zip(tops, "dh", strict=True)]
        strides = g.ints("in_batch in_group in_sd in_sh")
        base = dot(b, *zip((image, group, *tops), strides, strict=True))
        self.input = b.offset(g.pointer("input"), base)

    def vector(self, w: V, load: Load, store: Callable[[V, V], None]) -> None:
        """Emits the pixels w .. w + lanes - 1."""
        b, g, n = self.b, self.g, self.plan.lanes
        left = b.sub(b.mul(w, g.get("stride_w")), g.get("pad_w"))
        rd, rh = (b.mul(r, s) for r, s in zip(g.ints("rdil_d rdil_h"), g.ints("in_sd in_sh"), strict=True))
        rw = g.get("rdil_w")
        w_sd, w_sh, w_sw = g.ints("w_sd w_sh w_sw")
        zero = const(vector(self.plan.acc, n), 0)
        with b.loop_carry(*self.ranges[0], [zero], hint="kd") as kd:
            with b.loop_carry(*self.ranges[1], kd.values, hint="kh") as kh:
                line = b.offset(self.input, dot(b, (kd.index, rd), (kh.index, rh)))
                weights = b.offset(self.kernel, dot(b, (kd.index, w_sd), (kh.index, w_sh)))
                with b.loop_carry(0, g.get("kw"), kh.values, hint="kw") as kw:
                    at = b.add(left, b.mul(kw.index, rw))
                    x = load(b.offset(line, b.mul(at, itemsize(self.types.a))), at)
                    x = convert(b, self.element(x), self.types.a, self.plan.unit)
                    y = b.load(storage(self.types.b), b.offset(weights, b.mul(kw.index, w_sw)))
                    y = b.splat(convert(b, y, self.types.b, self.plan.unit), n)
                    kw.next(self.multiply_add(x, y, kw.values[0]))
                kh.next(*kw.values)
            kd.next(*kh.values)
        total = kd.values[0]
        total = total if self.plan.out == self.plan.acc else b.cast("trunc", total, self.plan.out)
        store(total, b.offset(self.output, b.mul(w, self.plan.out_bytes)))

    def multiply_add(self, x: V, y: V, z: V) -> V:
        """Returns x * y + z with a rounded product: results equal the plain sum in the window's order on every target.
        Each sum waits for its last addition anyway; contractions would be 4 % faster. Reproducible sums are contracted,
        as those of register tiles are."""
        b = self.b
        if self.target.reproducible:
            return multiply_add(b, self.plan, self.target, x, y, z)
        if self.plan.acc not in ("float", "double"):
            return b.add(b.mul(x, y), z)
        return b.fadd(b.fmul(x, y), z)

    def element(self, x: V) -> V:
        """Returns a loaded vector as the input's type."""
        return self.b.bitcast(x, vector("half", self.plan.lanes)) if self.types.a == "f16" else x

    def run(self) -> None:
        b, g, n = self.b, self.g, self.plan.lanes
        kept = storage(self.types.a)
        # LLVM splits masked halves into library calls where halves are not a native type.
        element = vector("i16" if kept in ("half", "bfloat") else kept, n)
        lane = b.iota("i64", n)
        first, end, stride, extent = g.ints("inside0 inside1 stride_w in_w")
        adjacent = b.icmp("eq", stride, 1)
        with b.loop(0, self.ow, n, "vector") as w:
            exists = b.icmp("slt", lane, b.splat(b.sub(self.ow, w), n))

            def valid(at: V, exists: V = exists) -> tuple[V, V]:
                places = b.add(b.splat(at, n), b.mul(lane, b.splat(stride, n)))
                inside = b.icmp("ult", places, b.splat(extent, n))
                return b.and_(inside, exists), places

            def plain(p: V, _: V) -> V:
                return b.load(element, p)

            def masked(p: V, at: V) -> V:
                return b.masked_load(element, p, valid(at)[0])

            def gathered(p: V, at: V) -> V:
                mask, _ = valid(at)
                pointers = b.pointers(p, element, b.mul(lane, b.splat(stride, n)))
                return b.gather(element, pointers, mask)

            def store(x: V, p: V, exists: V = exists) -> None:
                b.masked_store(x, p, exists)

            inner = b.and_(b.icmp("sge", w, first), b.icmp("sle", b.add(w, n), end))

            def ends(w: V = w) -> list[V]:
                def along() -> list[V]:
                    self.vector(w, masked, store)
                    return []

                def apart() -> list[V]:
                    self.vector(w, gathered, store)
                    return []

                return b.if_else(adjacent, along, apart)

            def middle(w: V = w) -> list[V]:
                self.vector(w, plain, b.store)
                return []

            b.if_else(b.and_(inner, adjacent), middle, ends)
        if self.terms is not None:
            out = i64(self.plan.out_bytes)
            self.terms.add(b, g.frame, Line(*self.place, self.kernel, self.output, i64(1), out, out))
        epilogue = g.pointer("epilogue")
        with b.if_(b.icmp("ne", epilogue, V("ptr", "null"))):
            rectangle = [self.feature, b.add(self.feature, 1), self.pixel, b.add(self.pixel, self.ow)]
            b.call_pointer("void", epilogue, [g.pointer("frame"), self.image, *rectangle])


def emit_planes_task(module: ModuleText, types: GemmTypes, target: Target, *, terms: PaddingTerms | None = None) -> str:
    """Emits the task that computes `row_chunk` lines of the output planes, in order. `terms`: the correction for
    products with padding, if the kernel may contain NaN or infinities. Returns the task's name."""
    name = f"shlo_conv_{types.name}_planes_task"
    b = module.function(name, TASK_PARAMS, attributes=attributes(target))
    frame, index, _ = b.params
    g = Arguments(b, frame)
    chunk = g.get("row_chunk")
    lines = b.mul(b.mul(g.get("batch"), b.mul(g.get("groups"), g.get("co"))), b.mul(g.get("od"), g.get("oh")))
    first = b.mul(index, chunk)
    with b.loop(first, b.min_(b.add(first, chunk), lines), hint="line") as line:
        _PlaneLine(b, g, types, target, line, terms).run()
    b.ret()
    return name
