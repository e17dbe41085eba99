"""Stripes of convolutions with a few output features, which would fill few lanes: here lanes go along k, over the input
features of a line of the window.

    y[p, f] = sum over k of x[p, k] * w[f, k]

Every sum is a vector of sums of every so manieth k, which are added up in halves.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText, V, const, i64, vector
from shlo_jit.kernels.gemm.micro import attributes, fold, lane_masks, multiply_add
from shlo_jit.kernels.gemm.types import GemmPlan
from shlo_jit.kernels.target import Target

PIXELS = 4
"""Done together: so many sums keep the units for multiply-adds busy, and a vector of weights is loaded for all."""
FEW_PARAMS = [
    ("ptr", "x"),
    ("i64", "x_stride"),
    ("i64", "pixels"),
    ("ptr", "w"),
    ("i64", "w_stride"),
    ("ptr", "y"),
    ("i64", "y_stride"),
    ("i64", "run"),
    ("i64", "accumulate"),
    ("i64", "runs"),
    ("i64", "run_stride"),
]
"""k is `runs` stretches of `run`, a `run_stride` apart from each other in x, and adjacent in w. Strides in bytes, of x
and y from pixel to pixel, of w from feature to feature; the features of y are adjacent."""


def emit_few(module: ModuleText, plan: GemmPlan, target: Target, features: int) -> str:
    """`void few(FEW_PARAMS)` for so many output features. Returns its name."""
    name = f"{plan.symbol}_few{features}"
    b = module.function(name, FEW_PARAMS, attributes=attributes(target))
    x, x_stride, pixels, *_, y, y_stride = b.params[:7]
    whole = b.and_(pixels, i64(-PIXELS))
    for first, end, step in ((i64(0), whole, PIXELS), (whole, pixels, 1)):
        with b.loop(first, end, step, "pixel") as p:
            _some(b, plan, target, features, step, b.offset(x, b.mul(p, x_stride)), b.offset(y, b.mul(p, y_stride)))
    b.ret()
    return name


def _some(b: Builder, plan: GemmPlan, target: Target, features: int, pixels: int, x: V, y: V) -> None:
    """All features of some pixels."""
    (_, x_stride, _, w, w_stride, _, y_stride, run, accumulate, runs, run_stride) = b.params
    unit, acc = vector(plan.unit, plan.lanes), vector(plan.acc, plan.lanes)
    whole = b.and_(run, i64(-plan.lanes))

    def add(sums: list[V], at: V, start: tuple[V, V], mask: V | None) -> list[V]:
        """A vector of k, `at` of a run that starts there in x and w."""

        def load(p: V, stride: V, i: int) -> V:
            p = b.offset(b.offset(p, b.mul(at, plan.unit_bytes)), b.mul(stride, i))
            return b.load(unit, p) if mask is None else b.masked_load(unit, p, mask)

        weights = [load(start[1], w_stride, f) for f in range(features)]
        new: list[V] = []
        for p in range(pixels):
            here = load(start[0], x_stride, p)
            before = sums[p * features : (p + 1) * features]
            new += [multiply_add(b, plan, target, here, v, s) for v, s in zip(weights, before, strict=True)]
        return new

    with b.loop_carry(0, runs, [*([const(acc, 0)] * (pixels * features)), x, w], hint="run") as each:
        *sums, x_at, w_at = each.values
        with b.loop_carry(0, whole, sums, plan.lanes) as carry:
            carry.next(*add(carry.values, carry.index, (x_at, w_at), None))
        sums = carry.values
        if plan.masks:
            with b.loop_carry(whole, run, sums, plan.lanes, "rest") as carry:
                mask = lane_masks(b, plan, b.sub(run, whole), 1)[0]
                carry.next(*add(carry.values, carry.index, (x_at, w_at), mask))
            sums = carry.values
        each.next(*sums, b.offset(x_at, run_stride), b.offset(w_at, b.mul(run, plan.unit_bytes)))
    totals = [fold(b, s) for s in each.values[: pixels * features]]
    more = b.icmp("ne", accumulate, 0)
    rows = [b.offset(y, b.mul(y_stride, p)) for p in range(pixels)]
    places = [b.offset(row, f * plan.out_bytes) for row in rows for f in range(features)]
    plus = b.fadd if plan.acc in ("float", "double") else b.add

    narrow = plan.out != plan.acc

    def going_on() -> list[V]:
        before = [b.load(plan.out, place) for place in places]
        before = [b.cast("sext", v, plan.acc) for v in before] if narrow else before
        return [plus(v, total) for v, total in zip(before, totals, strict=True)]

    for total, place in zip(b.if_else(more, going_on, lambda: totals), places, strict=True):
        b.store(b.cast("trunc", total, plan.out) if narrow else total, place)
