"""Stripes of convolutions with a few output features, which would fill few lanes of a register tile. Here lanes run
along k, over the input features of a line of the window.

    y[p, f] = sum over k of x[p, k] * w[f, k]

Each sum is a vector. With n lanes, each lane sums every n-th k; the lanes are added up at the end, halves first.
"""

from __future__ import annotations

from functools import partial

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.gemm.micro import attributes, lane_masks, multiply_add
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.kernels.lane_sums import fold, fold_together
from shlo_jit.kernels.llvm_values import V, const, i64, is_float, lanes, vector
from shlo_jit.kernels.target import Target

PIXELS = {1: (16, 4, 1), 2: (8, 1), 3: (4, 1), 4: (4, 1), 5: (3, 1), **dict.fromkeys(range(6, 13), (2, 1))}
"""Pixels computed together, by the count of features; smaller numbers are for the remainder. The sums are as many as
keep the multiply-add units busy and fill a vector, and each loaded vector of weights serves all of these pixels."""
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
"""k consists of `runs` runs of `run` elements, which are `run_stride` apart in x and adjacent in w. Strides are in
bytes: those of x and y from pixel to pixel, that of w from feature to feature. The features of y are adjacent."""


def pixels_together(features: int, target: Target) -> list[int]:
    """Returns the numbers of pixels that are computed together, largest first. The weights that several pixels share
    occupy registers beside the sums."""
    return [n for n in PIXELS[features] if n == 1 or (n + 1) * features < target.vector_registers]


def emit_few(module: ModuleText, plan: GemmPlan, target: Target, features: int) -> str:
    """Emits `void few(FEW_PARAMS)` for so many output features. Returns its name."""
    name = f"{plan.symbol}_few{features}"
    b = module.function(name, FEW_PARAMS, attributes=attributes(target))
    x, x_stride, pixels, *_, y, y_stride = b.params[:7]
    done: V = i64(0)
    for step in pixels_together(features, target):
        end = b.sub(pixels, b.urem(b.sub(pixels, done), step))
        with b.loop(done, end, step, "pixel") as p:
            _some(b, plan, target, features, step, b.offset(x, b.mul(p, x_stride)), b.offset(y, b.mul(p, y_stride)))
        done = end
    b.ret()
    return name


def _some(b: Builder, plan: GemmPlan, target: Target, features: int, pixels: int, x: V, y: V) -> None:
    """Emits all features of some pixels."""
    (_, x_stride, _, w, w_stride, _, y_stride, run, accumulate, runs, run_stride) = b.params
    unit, acc = vector(plan.unit, plan.lanes), vector(plan.acc, plan.lanes)
    whole = b.and_(run, i64(-plan.lanes))

    def add(sums: list[V], at: V, start: tuple[V, V], mask: V | None) -> list[V]:
        """Returns the sums with one more vector of k added, `at` of a run that starts at `start` in x and w."""

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
    _store(b, plan, each.values[: pixels * features], features, y, y_stride, accumulate)


def _store(b: Builder, plan: GemmPlan, sums: list[V], features: int, y: V, y_stride: V, accumulate: V) -> None:
    """Adds up the lanes of each sum, pixel after pixel, and stores them to y or adds them to y."""
    more = b.icmp("ne", accumulate, 0)
    dense = b.icmp("eq", y_stride, features * plan.out_bytes)
    for first in range(0, len(sums), plan.lanes):
        some = range(first, min(first + plan.lanes, len(sums)))
        places = [b.offset(b.offset(y, b.mul(y_stride, i // features)), i % features * plan.out_bytes) for i in some]
        if len(some) == 1:
            _apart(b, plan, more, [fold(b, sums[first])], places)
            continue
        totals = fold_together(b, [sums[i] for i in some])
        place = b.offset(y, first * plan.out_bytes)
        apart = partial(_apart, b, plan, more, [b.extract(totals, i) for i in range(len(some))], places)
        if plan.masks:
            b.if_else(dense, partial(_whole, b, plan, more, totals, len(some), place), apart)
        else:
            apart()


def _whole(b: Builder, plan: GemmPlan, more: V, totals: V, count: int, place: V) -> list[V]:
    """Stores the totals to adjacent places, with a mask."""
    n = lanes(totals.type)
    mask = V(f"<{n} x i1>", "<" + ", ".join(f"i1 {str(i < count).lower()}" for i in range(n)) + ">")
    type = vector(plan.out, n)
    before = b.select(more, b.masked_load(type, place, mask), const(type, 0))
    b.masked_store(_sum(b, plan, before, totals), place, mask)
    return []


def _apart(b: Builder, plan: GemmPlan, more: V, totals: list[V], places: list[V]) -> list[V]:
    for total, place in zip(totals, places, strict=True):
        before = b.select(more, b.load(plan.out, place), const(plan.out, 0))
        b.store(_sum(b, plan, before, total), place)
    return []


def _sum(b: Builder, plan: GemmPlan, before: V, total: V) -> V:
    """Returns the value of y, in its own type, plus the sum of this call."""
    if plan.out == plan.acc:
        return (b.fadd if is_float(plan.acc) else b.add)(before, total)
    return b.add(before, b.cast("trunc", total, before.type))
