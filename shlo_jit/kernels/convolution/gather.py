"""Gathering of pixels, given by their addresses, into a panel."""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.convolution.shape import conv_plan
from shlo_jit.kernels.gemm.micro import attributes
from shlo_jit.kernels.gemm.pack import transpose
from shlo_jit.kernels.gemm.precision import GemmPlan, GemmTypes
from shlo_jit.kernels.llvm_values import V, i64, vector
from shlo_jit.kernels.target import Target

GATHER_PARAMS = [
    ("ptr", "pointers"),
    ("i64", "count"),
    ("i64", "width"),
    ("ptr", "to"),
    ("i64", "run"),
    ("i64", "runs"),
    ("i64", "run_stride"),
]


def emit_gather(module: ModuleText, types: GemmTypes, target: Target) -> None:
    """Emits the function that writes a panel of `width` from the addresses of `count` pixels: `runs` runs of `run`
    adjacent units of each."""
    plan = conv_plan(types, target)
    b = module.function(f"shlo_conv_{types.name}_gather", GATHER_PARAMS, attributes=attributes(target))
    pointers, count, width, to, run, runs, run_stride = b.params
    n, unit = plan.lanes, plan.unit_bytes
    step = b.mul(width, unit)
    last = b.sub(count, 1)
    whole = b.mul(b.udiv(run, n), n)

    def pixel(j: V) -> V:
        return b.load("ptr", b.element(pointers, "ptr", j), align=8)

    with b.loop_carry(0, runs, [to, i64(0)], hint="run") as at:
        panel, offset = at.values
        some = b.select(b.icmp("sgt", whole, 0), count, i64(0))
        with b.loop(0, some, n, "jblock") as j:
            rows = [b.offset(pixel(b.min_(b.add(j, r), last)), offset) for r in range(n)]
            place = b.offset(panel, b.mul(j, unit))
            with b.loop(0, whole, n, "kblock") as k:
                block = [b.load(vector(plan.unit, n), b.offset(row, b.mul(k, unit))) for row in rows]
                _store_block(b, plan, transpose(b, block), b.offset(place, b.mul(k, step)), step, b.sub(width, j))
        with b.loop(0, count, hint="rest") as j:
            row = b.offset(pixel(j), offset)
            place = b.offset(panel, b.mul(j, unit))
            with b.loop(whole, run) as k:
                b.store(b.load(plan.unit, b.offset(row, b.mul(k, unit))), b.offset(place, b.mul(k, step)))
        at.next(b.offset(panel, b.mul(run, step)), b.add(offset, run_stride))
    b.ret()


def _store_block(b: Builder, plan: GemmPlan, block: list[V], place: V, step: V, left: V) -> None:
    """Stores the vectors of a block. Lanes beyond the panel's width are masked, or the next step overwrites them."""
    n = plan.lanes
    mask: V | None = None
    if plan.masks:
        short = b.cast("trunc", b.sub(n, b.min_(left, n)), f"i{n}")
        word = b.lshr(V(f"i{n}", "-1"), short)
        mask = b.emit(f"<{n} x i1>", f"bitcast i{n} {word.text} to <{n} x i1>")
    for x in block:
        if mask is None:
            b.store(x, place)
        else:
            b.masked_store(x, place, mask)
        place = b.offset(place, step)
