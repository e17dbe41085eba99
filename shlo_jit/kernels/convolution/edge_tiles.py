"""Edge tiles: pixels at the ends of lines leave out the window columns that read only padding.

A window column reads the image for some pixels of a line, and only padding for the others. For a stripe at the end of a
line, the columns that all of its pixels need are multiplied first, by a tile for all pixels. Each of the other columns
follows, with a tile for the pixels that need it. If a tile of a few more pixels costs the same, these pixels are
included and multiply padding.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.convolution.input import Arguments
from shlo_jit.kernels.convolution.task import Steps, Stripe
from shlo_jit.kernels.gemm.blocks import ceil_div
from shlo_jit.kernels.gemm.micro import row_cost
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.kernels.llvm_values import V, i64


def edge_heights(plan: GemmPlan, own: int, edge: int, tile: int) -> int:
    """Returns a bit for each number of rows that gets a tile of its own, for lines that are cut into stripes of `tile`
    pixels. `own`, `edge`: the heights of dedicated tiles, if they are more than 1."""
    return row_heights(plan, {height for height in (own, edge) if height > 1}, tile)


def edge_row_cost(plan: GemmPlan, tiles: set[int], rows: int) -> int:
    return rows if rows in tiles else row_cost(plan, rows)


def row_heights(plan: GemmPlan, tiles: set[int], stripe: int) -> int:
    """Returns the numbers of rows that cost less than all greater ones, as bits."""
    least, bits = edge_row_cost(plan, tiles, stripe) + 1, 0
    for rows in range(stripe, 0, -1):
        if (taken := edge_row_cost(plan, tiles, rows)) < least:
            least, bits = taken, bits | 1 << rows
    return bits


def lifted(heights: int, rows: int) -> int:
    """Returns the smallest number of rows in `heights` that is at least `rows`."""
    while not heights >> rows & 1:
        rows += 1
    return rows


# ---------------------------------------------------------------------- machine code
def each_call_of_columns(
    b: Builder, g: Arguments, row: V, stripe: Stripe, steps: Steps, multiply: Callable[[Stripe, Steps, V], None]
) -> None:
    """Emits `multiply` for the window columns that all pixels of a stripe need, then for each of the others. Its last
    argument is the index of the call. `row`: bytes of a row of a panel."""
    by_lines = b.icmp("ne", g.get("margin_lines"), 0)
    ci, kw, heights = g.ints("ci kw column_heights")
    columns = b.select(by_lines, kw, steps.runs)
    column_bytes = b.select(by_lines, b.mul(g.get("rdil_w"), g.get("a_w")), steps.run_stride)
    end = b.add(stripe.w, stripe.height)
    low = _first_column(b, g, stripe.w, i64(0), columns)
    high = _first_column(b, g, b.sub(end, 1), g.get("in_w"), columns)
    together = b.icmp("sge", low, high)
    low, high = b.select(together, i64(0), low), b.select(together, columns, high)
    common = b.sub(high, low)
    with b.loop(0, b.add(b.sub(columns, common), 1), hint="taps") as call:
        alone = b.icmp("ne", call, 0)
        nth = b.sub(call, 1)
        nth = b.add(nth, b.select(b.icmp("slt", nth, low), i64(0), common))
        first, count = b.select(alone, nth, low), b.select(alone, i64(1), common)
        begin, rows = _rows(b, g, stripe, nth, heights)
        begin, rows = b.select(alone, begin, i64(0)), b.select(alone, rows, stripe.height)
        place = b.add(b.mul(first, column_bytes), b.mul(begin, stripe.a_rs))
        some = stripe._replace(first=b.add(stripe.first, begin), height=rows, a=b.offset(stripe.a, place))
        part = Steps(
            before=b.add(steps.before, b.mul(first, ci)),
            k=b.select(by_lines, b.mul(ci, count), steps.k),
            runs=b.select(by_lines, steps.runs, count),
            run_stride=steps.run_stride,
            skipped=b.select(by_lines, b.mul(b.mul(b.sub(kw, count), ci), row), i64(0)),
            more=b.select(alone, i64(1), steps.more),
        )
        with b.if_(b.icmp("sgt", rows, 0)):
            multiply(some, part, call)


def _first_column(b: Builder, g: Arguments, pixel: V, bound: V, columns: V) -> V:
    """Returns the first column of a pixel's window that is at `bound` of the input or after it."""
    stride, pad, dilation = g.ints("stride_w pad_w rdil_w")
    corner = b.sub(b.mul(pixel, stride), pad)
    return b.min_(ceil_div(b, b.max_(b.sub(bound, corner), 0), dilation), columns)


def _rows(b: Builder, g: Arguments, stripe: Stripe, column: V, heights: V) -> tuple[V, V]:
    """Returns the first of a stripe's pixels that are multiplied for a window column, and their number."""
    stride, pad, dilation, extent = g.ints("stride_w pad_w rdil_w in_w")
    corner, height = b.sub(pad, b.mul(column, dilation)), stripe.height

    def pixel(bound: V) -> V:
        at = ceil_div(b, b.max_(b.add(bound, corner), 0), stride)
        return b.min_(b.max_(b.sub(at, stripe.w), 0), height)

    begin, end = pixel(i64(0)), pixel(extent)
    wanted = b.max_(b.sub(end, begin), 0)
    above = b.or_(b.lshr(heights, wanted), i64(1 << 32))
    rows = b.min_(b.add(wanted, b.intrinsic_with_flag("cttz", above, False)), height)
    return b.min_(begin, b.sub(height, rows)), b.select(b.icmp("eq", wanted, 0), i64(0), rows)
