"""Schedule of a reduce_window: as windows or, if each window covers all elements before it, as a scan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from shlo_jit import tuning
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.grouping import has_plain_body
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Op, Value
from shlo_jit.kernels.target import Target
from shlo_jit.ops.window import padding_pairs
from shlo_jit.reasons import Reason
from shlo_jit.schedule.bodies import body_cost, choose_lanes
from shlo_jit.schedule.choice import Note, count
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.reducers import simple_op
from shlo_jit.schedule.tasks import Tasks, cut
from shlo_jit.sizes import Size, equal, hint_of, surely


@dataclass(frozen=True)
class Dim:
    """A dimension: extents of the input and of the result, and the window over it.

    Output o and window position w read input (o * stride + w * dilation - low) / base, if that is an integer and inside
    the
    input.
    """

    extent: int
    out: int
    size: int
    stride: int
    low: int
    high: int
    base: int
    dilation: int

    @property
    def is_plain(self) -> bool:
        """Whether output o reads input o."""
        return self.size == 1 and self.stride == 1 and self.low == self.high == 0 and self.base == 1

    @property
    def interior(self) -> tuple[int, int]:
        """The range of outputs whose window lies inside the input."""
        if self.base != 1 and self.extent > 1:
            return 0, 0
        first = max(0, -(-self.low // self.stride))
        last = (self.extent - 1 + self.low - (self.size - 1) * self.dilation) // self.stride + 1
        if isinstance(self.extent, Size):
            end = last if surely(lambda: last <= self.out) else self.out if surely(lambda: self.out <= last) else 0
            return (first, end) if surely(lambda: first <= end) else (0, 0)
        return (first, min(last, self.out)) if first < min(last, self.out) else (0, 0)

    @property
    def meets(self) -> int:
        """Maximum number of elements of the input under a window."""
        return min(self.size, self.extent) if isinstance(self.extent, int) else self.size

    @property
    def is_sparse(self) -> bool:
        """Whether nearly all positions of a window are padding or holes: these are counted then, not visited."""
        return self.size >= max(tuning.WINDOW_WIDE, tuning.WINDOW_SPARSE * self.meets)


def dims_of_window(op: Op) -> list[Dim]:
    """The dimensions of a reduce_window or select_and_scatter; adjacent plain dimensions are merged into one."""
    operand = op.operands[0].tensor.extents
    result = op.operands[1] if op.name == "stablehlo.select_and_scatter" else op.result
    rank = len(operand)
    ones = (1,) * rank
    columns = zip(
        operand,
        result.tensor.extents,
        op.ints("window_dimensions", ones),
        op.ints("window_strides", ones),
        padding_pairs(op.attributes.get("padding"), rank, ""),
        op.ints("base_dilations", ones),
        op.ints("window_dilations", ones),
        strict=True,
    )
    dims: list[Dim] = []
    for n, out, size, stride, (low, high), base, dilation in columns:
        dim = Dim(n, out, size, stride, low, high, base, dilation)
        if dims and dim.is_plain and dims[-1].is_plain:
            dims[-1] = replace(dims[-1], extent=dims[-1].extent * n, out=dims[-1].out * n)
        else:
            dims.append(dim)
    return dims or [Dim(1, 1, 1, 1, 0, 0, 1, 1)]  # a scalar is one element


@dataclass(frozen=True)
class Windows:
    """Schedule of windows: each output folds the elements under its window."""

    outer: tuple[Dim, ...]
    last: Dim
    width: int
    """Lanes: neighbouring outputs of the last dimension."""
    unroll: int
    """Vectors of outputs per iteration."""
    split: int
    """Number of outer dimensions that the units count."""
    blocks: int
    """Blocks of the last dimension, one unit each."""
    block: int
    """Outputs of a block."""
    tasks: Tasks

    @property
    def dims(self) -> tuple[Dim, ...]:
        return (*self.outer, self.last)

    @property
    def positions(self) -> int:
        """Number of window positions."""
        return prod(d.size for d in self.dims)

    @property
    def is_unrolled(self) -> bool:
        return self.positions <= tuning.WINDOW_UNROLLED

    @property
    def is_sparse(self) -> bool:
        return any(d.is_sparse for d in self.dims)

    @property
    def _padding(self) -> list[Note]:
        if not self.is_sparse:
            return []
        meets = " x ".join(str(d.meets) for d in self.dims)
        why = Reason("mostly-padding", f"a window has at most {meets} elements of the input")
        return [Note("padding", "counted, not visited", why)]

    @property
    def notes(self) -> list[Note]:
        inside = " x ".join(f"{d.interior[1] - d.interior[0]} of {d.out}" for d in self.dims if not d.is_plain)
        how = "unrolled" if self.is_unrolled else "a loop"
        return [
            Note(
                "windows",
                f"{count(self.positions, 'element')} each, {how}",
                Reason("window-size", f"up to {tuning.WINDOW_UNROLLED} are unrolled"),
            ),
            *self._padding,
            Note("interior", f"outputs without bounds checks: {inside or 'all'}"),
            Note("lanes", f"{self.width}, along the last dimension ({count(self.last.out, 'output')})"),
            Note(
                "unroll",
                count(self.unroll, "vector"),
                Reason("window-size", f"{self.positions} window positions; up to {tuning.WINDOW_SMALL} allow several"),
            ),
            self.tasks.note("row of outputs" if equal(self.blocks, 1) else f"block of {self.block}"),
        ]


@dataclass(frozen=True)
class Scan:
    """Schedule of a scan: every output folds all elements up to it, or from it on. One pass writes every prefix."""

    n: int
    rows: int
    columns: int
    """The scanned dimension has `n` elements in a tensor of rows x n x columns."""
    reverse: bool
    width: int
    side: int
    """Rows that are scanned side by side."""
    block: int
    """Columns per unit, if there are several columns."""
    blocks: int
    levels: int
    """Levels of blocks along the scan that are folded apart; 0 is one chain from the first element to the last."""
    tasks: Tasks

    @property
    def radix(self) -> int:
        """Blocks in a block of the level above, and steps in a block of the lowest level."""
        return tuning.SCAN_RADIX

    @property
    def _blocks(self) -> list[Note]:
        if not self.levels:
            return []
        radices = " x ".join([str(self.radix)] * self.levels)
        why = Reason("short-chains", "rounding errors grow with the longest chain of operations")
        return [Note("blocks", f"of {radices} steps, each folded from its own beginning", why)]

    @property
    def notes(self) -> list[Note]:
        lanes = "elements of a row" if self.columns == 1 else "columns"
        return [
            Note("scan", f"{self.rows} x {self.n} x {self.columns}{' from the end' if self.reverse else ''}"),
            *self._blocks,
            Note("lanes", f"{self.width}, {lanes}"),
            Note("unroll", f"{self.side if self.columns == 1 else self.block // self.width} side by side"),
            self.tasks.note("row" if self.columns == 1 else f"block of {self.block} columns"),
        ]


@dataclass(frozen=True, kw_only=True)
class WindowSchedule(KernelSchedule):
    """Schedule of a reduce_window: windows, a scan, or both with a test at run time."""

    windows: Windows | None
    scan: Scan | None
    why: Reason

    @property
    def notes(self) -> list[Note]:
        strategies = [w for w in (self.scan, self.windows) if w is not None]
        return [
            Note(
                "strategy",
                "a scan or windows, chosen at run time" if len(strategies) == 2 else _STRATEGIES[type(strategies[0])],
                self.why,
            ),
            *(n for w in strategies for n in w.notes),
        ]


_STRATEGIES = {Windows: "windows", Scan: "a scan"}


def schedule_window(step: OpStep, context: Context) -> KernelSchedule:
    """Schedules a reduce_window. Raises UnsupportedError for a body with ops that are not elementwise."""
    op, target = step.op, context.target
    if not has_plain_body(op):
        raise UnsupportedError(
            diagnose("reduce_window: the region must consist of elementwise ops", op.span, label="region-op")
        )
    if op.result.tensor.size == 0:
        return NOTHING
    dims = dims_of_window(op)
    k = scan_dim(dims)
    if k is None:
        return WindowSchedule(
            windows=_windows(op, dims, target),
            scan=None,
            why=Reason("not-cumulative", "the windows do not cover all elements before or after an output"),
        )
    absorbed = absorbs_initial(op)
    if absorbed is None:
        why = Reason("initial-value-unknown", "only at run time is it known if the initial value may be reduced twice")
        return WindowSchedule(windows=_windows(op, dims, target), scan=_scan(op, dims, k, target), why=why)
    if absorbed:
        why = Reason(
            "cumulative", "windows cover all elements up to an output, and the initial value may be reduced twice"
        )
        return WindowSchedule(windows=None, scan=_scan(op, dims, k, target), why=why)
    why = Reason("padding-changes-result", "padding counts as initial values, which change the result")
    return WindowSchedule(windows=_windows(op, dims, target), scan=None, why=why)


def _windows(op: Op, dims: list[Dim], target: Target) -> Windows:
    *outer, last = dims
    positions = prod(d.size for d in dims)
    types = [v.tensor.storage for v in (*op.operands, *op.results, *op.block().arguments)]
    split, rows = 0, hint_of(prod(d.out for d in outer))
    while split < len(outer) and hint_of(prod(d.out for d in outer[:split])) < tuning.MAX_TASKS:
        split += 1
    blocks = -(-last.out // tuning.WINDOW_BLOCK) if rows < tuning.MAX_TASKS else 1
    visited = prod(d.meets if d.is_sparse else d.size for d in dims)
    work = prod(d.out for d in dims) * visited * (body_cost(op.block()) + len(op.results))
    return Windows(
        outer=tuple(outer),
        last=last,
        # Each output along the last dimension would have padding of its own.
        width=1 if last.is_sparse else choose_lanes(target, types, last.out),
        unroll=tuning.WINDOW_VECTORS if positions <= tuning.WINDOW_SMALL and len(op.results) == 1 else 1,
        split=split,
        blocks=blocks,
        block=tuning.WINDOW_BLOCK,
        tasks=cut(prod(d.out for d in outer[:split]) * blocks, work),
    )


def scan_dim(dims: list[Dim]) -> int | None:
    """The dimension along which a window is cumulative, if it is plain along the others; otherwise None."""
    busy = [k for k, d in enumerate(dims) if not d.is_plain]
    if len(busy) != 1:
        return None
    d = dims[busy[0]]
    steps = d.stride == d.base == d.dilation == 1
    one_sided = sorted((d.low, d.high)) == [0, d.extent - 1]
    return busy[0] if steps and one_sided and d.size == d.extent == d.out else None


def _scan(op: Op, dims: list[Dim], k: int, target: Target) -> Scan:
    n, rows, columns = dims[k].extent, prod(d.extent for d in dims[:k]), prod(d.extent for d in dims[k + 1 :])
    types = [v.tensor.storage for v in (*op.operands, *op.results, *op.block().arguments)]
    width = choose_lanes(target.of_sums, types, n if columns == 1 else columns)
    small = body_cost(op.block()) <= tuning.SCAN_SIMPLE_COST and len(op.results) == 1
    block = width * (tuning.SCAN_ROWS if small else 1)
    blocks = -(-columns // block)
    work = rows * columns * n * (body_cost(op.block()) + 1)
    return Scan(
        n=n,
        rows=rows,
        columns=columns,
        reverse=dims[k].low == 0,
        width=width,
        side=tuning.SCAN_ROWS if small else 1,
        block=block,
        blocks=blocks,
        levels=_levels(op, n // width if columns == 1 else n),
        tasks=cut(rows if columns == 1 else rows * blocks, work),
    )


def _levels(op: Op, steps: int) -> int:
    """Levels of blocks for a scan of `steps` vectors: as many as keep each chain at most SCAN_RADIX operations long.

    One chain rounds as often as it has steps, so the error of a sum of n elements grows with n; with blocks it grows
    with log(n) (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). Exact folds need no blocks.
    """
    simple = simple_op(op)
    dtype = op.results[0].tensor.storage
    if simple is None or simple.has("idempotent") or not (dtype.is_float or dtype.is_complex):
        return 0
    levels, chain = 0, hint_of(steps)
    while chain > tuning.SCAN_RADIX:
        levels, chain = levels + 1, -(-chain // tuning.SCAN_RADIX)
    return levels


def absorbs_initial(op: Op) -> bool | None:
    """Whether combine(init, init) is init; None if that depends on the value at run time."""
    simple = simple_op(op)
    if simple is None:
        return None
    if simple.has("idempotent"):
        return True
    known = known_scalar(op.operands[len(op.results)])
    return known is not None and bool(known == simple.neutral_on(op.results[0].tensor.storage))


def known_scalar(value: Value) -> object | None:
    """The element of a scalar constant, even one that was broadcast or reshaped; otherwise None."""
    op = value.op
    while op is not None and op.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
        op = op.operands[0].op
    if op is None or op.name != "stablehlo.constant":
        return None
    return op.constant.array.reshape(-1)[0]
