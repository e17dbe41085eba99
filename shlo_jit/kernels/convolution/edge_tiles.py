"""Edge tiles: pixels at the ends of lines leave out the window columns that read only padding.

A window column reads the image for some pixels of a line, and only padding for the others. For a stripe at the end of a
line, the columns that all of its pixels need are multiplied first, by a tile for all pixels. Each of the other columns
follows, with a tile for the pixels that need it. If a tile of a few more pixels costs the same, these pixels are
included and multiply padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.convolution.input import Arguments
from shlo_jit.kernels.convolution.shape import ConvShape, three
from shlo_jit.kernels.convolution.task import Steps, Stripe
from shlo_jit.kernels.gemm.blocks import ceil_div
from shlo_jit.kernels.gemm.micro import SUMS, row_cost, row_counts
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.sizes import Size


class Line(NamedTuple):
    """The output and its windows along one dimension; the names are those of the width."""

    width: int
    extent: int
    """Extent of the input."""
    columns: int
    stride: int
    pad: int
    dilation: int

    def meets(self, column: int) -> tuple[int, int]:
        """Returns the pixels [begin, end) whose window reads the image at this column."""
        begin = -(-max(0, self.pad - column * self.dilation) // self.stride)
        end = -(-max(0, self.extent + self.pad - column * self.dilation) // self.stride)
        return min(begin, self.width), min(end, self.width)


def line_of(shape: ConvShape, axis: int) -> Line | None:
    """Returns the line along dimension `axis` of three. None if some extents are known only at the call, or if the
    input is dilated."""
    n = len(shape.window)
    width = shape.lines if axis == 1 and shape.lines else three(shape.output, 1)[axis]
    extent, columns, pad = (
        three(x, fill)[axis] for x, fill in ((shape.input, 1), (shape.window, 1), (shape.pad_low, 0))
    )
    stride, dilation, holes = (
        three(x or (1,) * n, 1)[axis] for x in (shape.strides, shape.rhs_dilation, shape.lhs_dilation)
    )
    if holes != 1 or isinstance(extent, Size) or isinstance(width, Size):
        return None
    return Line(width, extent, columns, stride, pad, dilation)


def has_idle_positions(shape: ConvShape, axis: int) -> bool:
    """Whether some pixels have window positions along a dimension that read only padding, and all pixels have
    others."""
    line = line_of(shape, axis)
    if line is None or line.columns == 1:
        return False
    met, end = sorted(line.meets(column) for column in range(line.columns)), 0
    for first, stop in met:
        end = max(end, stop) if first <= end else end
    return end == line.width and any(pixels != (0, line.width) for pixels in met)


class EdgeTiles(NamedTuple):
    """Treatment of the ends of lines."""

    tile: int
    """Height of the dedicated edge tile; 1: there is none; 0: every pixel multiplies all window columns."""
    heights: int
    """A bit for each number of rows that gets a tile of its own."""


def edge_tiles_of_lines(plan: GemmPlan, line: Line, stripe: int, own: int, steps: int, work: int) -> EdgeTiles:
    """Returns the treatment of the ends of lines, which are cut into stripes of `stripe` pixels. `own`: the height of a
    dedicated tile, or 0. `steps`: steps of k that a column has in a call. `work`: multiply-adds of all calls."""
    met = [line.meets(column) for column in range(line.columns)]
    low, high = max(begin for begin, _ in met), min(end for _, end in met)
    # The interior stripes, possibly many, read the image in all columns.
    places = {*range(0, low, stripe), *range(high // stripe * stripe, line.width, stripe)}
    found = [_Stripe.of(met, w, min(w + stripe, line.width)) for w in sorted(places)]
    singles = {rows for s in found for rows in s.rows if rows * plan.nv >= SUMS} - {own, *row_counts(plan)}
    if plan.kind != "plain":
        singles = set[int]()
    own_tiles = {own} - {0}
    middle = (-(-line.width // stripe) - len(found)) * _row_cost(plan, own_tiles, stripe)
    whole = (sum(_row_cost(plan, own_tiles, s.height) for s in found) + middle) * line.columns

    def saved(tile: int) -> float:
        """Returns the share of the work that is saved with an edge tile of this height."""
        tiles = own_tiles | {tile} - {0}
        heights = _heights(plan, tiles, stripe)
        rows_saved = 0.0
        for s in found:
            for rows in s.rows:
                taken = _row_cost(plan, tiles, min(_lifted(heights, rows), s.height)) if rows else 0
                rows_saved += _row_cost(plan, own_tiles, s.height) - taken - tuning.CONV_COLUMN_CALL / steps
        return rows_saved / whole

    plain = saved(0)
    tile = max(singles, key=saved, default=0)
    if not tile or (saved(tile) - max(plain, 0)) * work < tuning.CONV_EDGE_TILE:
        tile = 0
    gain = saved(tile)
    return (
        EdgeTiles(tile or 1, _heights(plan, own_tiles | {tile} - {0}, stripe))
        if gain > tuning.CONV_EDGE_SHARE
        else EdgeTiles(0, 0)
    )


class _Stripe(NamedTuple):
    height: int
    rows: Sequence[int]
    """The number of pixels that need a column, for each column that not all pixels need."""

    @classmethod
    def of(cls, met: Sequence[tuple[int, int]], begin: int, end: int) -> _Stripe:
        """Returns the stripe of pixels [begin, end). `met`: the pixels whose windows read the image, for each
        column."""
        rows = [max(0, min(high, end) - max(low, begin)) for low, high in met]
        height = end - begin
        return cls(height, [n for n in rows if n < height] if height in rows else [])


def _row_cost(plan: GemmPlan, tiles: set[int], rows: int) -> int:
    return rows if rows in tiles else row_cost(plan, rows)


def _heights(plan: GemmPlan, tiles: set[int], stripe: int) -> int:
    """Returns the numbers of rows that cost less than all greater ones, as bits."""
    least, bits = _row_cost(plan, tiles, stripe) + 1, 0
    for rows in range(stripe, 0, -1):
        if (taken := _row_cost(plan, tiles, rows)) < least:
            least, bits = taken, bits | 1 << rows
    return bits


def _lifted(heights: int, rows: int) -> int:
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
