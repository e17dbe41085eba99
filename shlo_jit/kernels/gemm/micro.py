"""The register-tile micro-kernel and the stripe above it.

Strides of A and the row stride of B are arguments, so one kernel serves packed panels and operands read in place.
A stripe is up to `mr` rows of A by any number of columns. Fewer than `mr` rows are computed by shorter kernels, and the
last columns by a kernel one vector wide, so at most one vector of products per row is wasted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from shlo_jit import tuning
from shlo_jit.kernels.attributes import attributes
from shlo_jit.kernels.builder import Builder, Carry, ModuleText
from shlo_jit.kernels.function_text import hidden
from shlo_jit.kernels.gemm.dot_instructions import dot_bf16, dot_bytes, multiply_bytes, multiply_pairs
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.kernels.gemm.terms import Window, all_terms, blocks_of_terms
from shlo_jit.kernels.llvm_values import V, const, i64, is_float, vector
from shlo_jit.kernels.routine import FINAL
from shlo_jit.kernels.target import Target

KERNEL_PARAMS = [
    ("ptr", "a"),
    ("i64", "a_rs"),
    ("i64", "a_cs"),
    ("ptr", "b"),
    ("i64", "b_rs"),
    ("ptr", "c"),
    ("i64", "c_rs"),
    ("ptr", "start"),
    ("i64", "start_rs"),
    ("i64", "k"),
    ("i64", "n"),
    ("i64", "runs"),
    ("i64", "run_stride"),
    ("ptr", "later"),
    ("i64", "later_step"),
    ("i64", "b_panel"),
    ("i64", "skipped"),
    ("i64", "before"),
]
"""Parameters of a micro-kernel. Strides are in bytes, k in units.

A consists of `runs` runs of k, `run_stride` apart: one row of the window of a convolution each, a single one for a
product. B is contiguous, or leaves out `skipped` bytes after each run. `before` units of k were left out before them,
which matters for where blocks of terms end (`terms.py`). `start` is added to the sums at the end (C, or
zeros with stride 0). C is prefetched while k runs, and in each step `later_step` bytes from `later` on, into the second
level cache. `b_panel` is the distance between panels of B, for kernels that take several."""

STRIPE_PARAMS = [
    ("ptr", "a"),
    ("i64", "a_rs"),
    ("i64", "a_cs"),
    ("i64", "rows"),
    ("ptr", "b"),
    ("i64", "b_rs"),
    ("i64", "b_panel"),
    ("ptr", "c"),
    ("i64", "c_rs"),
    ("i64", "n"),
    ("i64", "k"),
    ("i64", "accumulate"),
    ("i64", "runs"),
    ("i64", "run_stride"),
    ("ptr", "later"),
    ("i64", "later_tile"),
    ("i64", "skipped"),
    ("i64", "before"),
]
"""Parameters of `<symbol>_stripe`: C[rows, n] = (accumulate ? C : 0) + A @ B. Strides are in bytes, k in units.
`b_panel` is the distance between panels of `nr` columns of B. Beside each tile, `later_tile` bytes from `later` on are
prefetched, so that data for later work is loaded meanwhile."""

SUMS = 8
"""Vectors of sums that keep the multiply-add units busy: one or two rows are multiplied by several panels together."""
ROW_GROUP = 3
"""Rows addressed from one pointer: p, p + rs, p + 2 rs are x86 addressing modes."""


def row_counts(plan: GemmPlan) -> list[int]:
    """Returns the heights of the kernels, tallest first. Any number of rows above the tallest is a sum of the tallest,
    9, 8, 7 and 4."""
    return [plan.mr, *(r for r in (9, 8, 7, 4, 2, 1) if r < plan.mr)]


def _tile_cost(height: int) -> int:
    """Returns the cost of a tile, in rows of the tallest tile: short tiles wait for sums and for B."""
    return max(height, SUMS // 2)


@cache
def row_cost(plan: GemmPlan, rows: int) -> int:
    """Returns the cost of `rows` rows, in rows of the tallest tile. A tile that follows another has a start-up cost of
    one row."""
    whole = max(rows // plan.mr - 1, 0)
    left = rows - whole * plan.mr
    return whole * plan.mr + (_row_cost_of(plan, left, first_height(plan, left)) if left else 0)


@cache
def first_height(plan: GemmPlan, rows: int) -> int:
    """Returns the height of the first tile for so many rows: 16 are two tiles of 8, since 14 and 2 cost as much as
    18."""
    if rows >= 2 * plan.mr:
        return plan.mr
    fitting = [h for h in row_counts(plan) if h <= rows]
    return min(fitting, key=lambda h: (_row_cost_of(plan, rows, h), 2 * h != rows, -h))


def _row_cost_of(plan: GemmPlan, rows: int, first: int) -> int:
    return _tile_cost(first) + (1 + row_cost(plan, rows - first) if rows > first else 0)


def tile_attributes(target: Target) -> str:
    """Returns the attributes of the functions of the register-tile routine."""
    return f"{attributes(target)} {FINAL}"


def lane_masks(b: Builder, plan: GemmPlan, n: V, nv: int) -> list[V]:
    """Returns a mask for each of nv vectors: the lanes below n (n <= 32)."""
    all_ = b.sub(b.shl(i64(1), n), 1)
    masks: list[V] = []
    for v in range(nv):
        word = b.cast("trunc", b.lshr(all_, v * plan.lanes), f"i{plan.lanes}")
        masks.append(b.emit(f"<{plan.lanes} x i1>", f"bitcast {word.type} {word.text} to <{plan.lanes} x i1>"))
    return masks


def multiply_add(b: Builder, plan: GemmPlan, target: Target, x: V, y: V, acc: V) -> V:
    """Returns acc + x * y, one k step of a vector of sums; x is the broadcast of A, y a row of B."""
    if plan.kind == "bf16":
        return dot_bf16(b, x, y, acc)
    if plan.kind == "vnni":
        # The first operand is unsigned, the second signed. B is used as it is, and A is converted to the other sign.
        return multiply_bytes(b, *((y, x) if plan.types.b == "ui8" else (x, y)), acc)
    if plan.kind == "dot":
        return dot_bytes(b, x, plan.types.a, y, plan.types.b, acc)
    if plan.kind == "pairs":
        return multiply_pairs(b, x, y, acc)
    if plan.unit in ("float", "double"):
        return b.fma(x, y, acc) if target.has_fma else b.fadd(b.fmul(x, y), acc)
    return b.add(b.mul(x, y), acc)


def hidden_flip(b: Builder, unit: str) -> V:
    """Returns the vector whose exclusive or adds 128 to every byte. LLVM must not know its value: it would make a
    scalar of it, and three instructions of a load that broadcasts and flips."""
    known = const(unit, 0x80808080 - (1 << 32))
    return b.emit(unit, f'call {unit} asm "", "=v,0"({unit} {known.text}) nounwind memory(none)')


def _prefetch_results(b: Builder, rows: Sequence[V], nv: int, plan: GemmPlan) -> None:
    """Fetches `nv` vectors of C in each of the rows, which the tile will write."""
    for row in rows:
        for v in range(nv):
            b.prefetch(b.offset(row, v * plan.lanes * plan.out_bytes), write=True)


def row_pointers(b: Builder, first: V, stride: V, rows: int) -> list[V]:
    """Returns the first pointer of every group of `ROW_GROUP` rows.

    `freeze` hides how they follow from each other, here and in the loop. Otherwise LLVM 22 keeps one pointer and
    reaches the rows by a chain of additions, as long as the whole step, or keeps a pointer for every row and spills.
    """
    pointers = [first]
    for _ in range(ROW_GROUP, rows, ROW_GROUP):
        following = b.offset(pointers[-1], b.mul(stride, ROW_GROUP))
        pointers.append(b.emit("ptr", f"freeze ptr {following.text}"))
    return pointers


def row_pointer(b: Builder, groups: Sequence[V], stride: V, r: int) -> V:
    base, i = groups[r // ROW_GROUP], r % ROW_GROUP
    return b.offset(base, b.mul(stride, i)) if i else base


class _Tile:
    """The C side of a kernel: loads the sums it starts from and stores them at the end."""

    def __init__(self, b: Builder, plan: GemmPlan, nv: int, n: V | None):
        """`n`: the number of columns; None: all of the tile's."""
        self.b, self.plan, self.nv = b, plan, nv
        self.masks = lane_masks(b, plan, n, nv) if plan.masks and n is not None else []

    def _move(self, pointer: V, v: int) -> V:
        return self.b.offset(pointer, v * self.plan.lanes * self.plan.out_bytes)

    def load(self, pointer: V, v: int, type: str) -> V:
        at = self._move(pointer, v)
        if self.masks:
            return self.b.masked_load(type, at, self.masks[v])
        return self.b.load(type, at)

    def load_sums(self, row: V) -> list[V]:
        b, plan = self.b, self.plan
        loaded = [self.load(row, v, vector(plan.out, plan.lanes)) for v in range(self.nv)]
        return loaded if plan.out == plan.acc else [b.cast("sext", x, plan.acc) for x in loaded]

    def load_rows(self, first: V, stride: V, rows: int) -> list[V]:
        """Returns the sums of all rows, one row after the other."""
        groups = row_pointers(self.b, first, stride, rows)
        return [x for r in range(rows) for x in self.load_sums(row_pointer(self.b, groups, stride, r))]

    def store_rows(self, ends: Sequence[V], stride: V, start: tuple[V, V], sums: Sequence[Sequence[V]]) -> None:
        """Stores the sums of each row. They are added to those at `start` (address, stride), unless they began with
        them. `ends`: the pointers of the rows of C."""
        b, plan = self.b, self.plan
        starts = [] if plan.in_order else row_pointers(b, *start, len(sums))
        add = b.fadd if plan.acc in ("float", "double") else b.add
        for r, found in enumerate(sums):
            before = self.load_sums(row_pointer(b, starts, start[1], r)) if starts else []
            row = row_pointer(b, ends, stride, r)
            self.store_sums(row, list(map(add, before, found)) if starts else found)

    def store_sums(self, row: V, sums: Sequence[V]) -> None:
        b, plan = self.b, self.plan
        for v, x in enumerate(sums):
            x = x if plan.out == plan.acc else b.cast("trunc", x, plan.out)
            if self.masks:
                b.masked_store(x, self._move(row, v), self.masks[v])
            else:
                b.store(x, self._move(row, v))


def _elements(b: Builder, plan: GemmPlan, groups: Sequence[V], a_rs: V, r: int, nv: int, flip: V | None) -> list[V]:
    """Returns the element of A in row r, repeated, for each of the vectors of B that it is multiplied by."""
    target = b.module.target
    x = b.splat(b.load(plan.unit, row_pointer(b, groups, a_rs, r)), plan.lanes)
    if flip is not None:
        return [b.xor(x, flip)] * nv
    reads_again = plan.masks and is_float(plan.unit) and target is not None and target.is_x86 and nv == 2
    if not reads_again or r % tuning.GEMM_READ_AGAIN:
        return [x] * nv
    again = [b.emit("ptr", hidden(p, "r")) for p in groups]  # LLVM would load once
    return [x, b.splat(b.load(plan.unit, row_pointer(b, again, a_rs, r)), plan.lanes)]


def _in_panels(b: Builder, first: V, v: int, per_panel: int, b_panel: V, nbytes: int) -> V:
    """Returns the address of vector v in the row (or header) of B at `first`; a vector has `nbytes` bytes, and panels
    of `per_panel` vectors are `b_panel` bytes apart."""
    panel, nth = divmod(v, per_panel)
    return b.offset(first, b.add(b.mul(b_panel, panel), nth * nbytes) if panel else nth * nbytes)


def emit_kernel(module: ModuleText, plan: GemmPlan, target: Target, rows: int, nv: int, panels: int = 1) -> str:
    """Emits `void kernel(KERNEL_PARAMS)`: a tile of `rows` x `nv` vectors. With several `panels` it takes that many
    whole panels, `nv` vectors of each. Returns its name."""
    name = f"{plan.symbol}_tile{rows}x{nv}" + (f"x{panels}" if panels > 1 else "")
    b = module.function(name, KERNEL_PARAMS, attributes=tile_attributes(target))
    a, a_rs, a_cs, bp, b_rs, c, c_rs, start, start_rs, k, n, runs, run_stride, *others = b.params
    later, later_step, b_panel, skipped, before = others
    per_panel, nv = nv, nv * panels
    tile = _Tile(b, plan, nv, n if panels == 1 else None)

    ends = row_pointers(b, c, c_rs, rows)
    _prefetch_results(b, [row_pointer(b, ends, c_rs, r) for r in range(rows)], nv, plan)
    acc_type = vector(plan.acc, plan.lanes)
    sums = tile.load_rows(start, start_rs, rows) if plan.in_order else [const(acc_type, 0)] * (rows * nv)
    if plan.header:
        heads = [b.load(acc_type, _in_panels(b, bp, v, per_panel, b_panel, plan.lanes * 4)) for v in range(nv)]
        sums, bp = heads * rows, b.offset(bp, plan.header)
    unit = vector(plan.unit, plan.lanes)
    flip = hidden_flip(b, unit) if plan.flips_a else None
    in_place = plan.kind == "plain" and len(tile.masks) > 0
    total, ahead = rows * nv, b.mul(b_rs, tuning.GEMM_PANEL_PREFETCH)
    # Short tiles have no loads to spare, and they are rare. With several panels, the hardware prefetches.
    fetches = 2 * rows >= plan.mr and panels == 1

    def step(carry: Carry) -> None:
        acc, at, (row_b, soon) = carry.values[:total], carry.values[total:-2], carry.values[-2:]
        if fetches:
            b.prefetch(soon, locality=2)
        ys: list[V] = []
        for v in range(nv):
            if fetches:
                b.prefetch(b.offset(row_b, b.add(ahead, v * plan.lanes * plan.unit_bytes)))
            p = _in_panels(b, row_b, v, per_panel, b_panel, plan.lanes * plan.unit_bytes)
            ys.append(b.masked_load(unit, p, tile.masks[v]) if in_place else b.load(unit, p))
        new: list[V] = []
        here = [b.emit("ptr", f"freeze ptr {p.text}") for p in at]
        for r in range(rows):
            xs = _elements(b, plan, here, a_rs, r, nv, flip)
            new += [multiply_add(b, plan, target, xs[v], ys[v], acc[r * nv + v]) for v in range(nv)]
        carry.next(*new, *(b.offset(p, a_cs) for p in at), b.offset(row_b, b_rs), b.offset(soon, later_step))

    def part(sums: Sequence[V], first: V, count: V, row_b: V, soon: V) -> list[V]:
        """Emits `count` steps. Returns the sums, the row of B after them, and `soon`."""
        with b.loop_carry(0, count, [*sums, *row_pointers(b, first, a_rs, rows), row_b, soon]) as carry:
            step(carry)
        return [*carry.values[:total], *carry.values[-2:]]

    def store(sums: Sequence[V], start: tuple[V, V]) -> None:
        tile.store_rows(ends, c_rs, start, [sums[r * nv : (r + 1) * nv] for r in range(rows)])

    window = Window(a, a_cs, bp, later, k, runs, run_stride, skipped, before)
    if plan.sums_in_blocks:
        blocks_of_terms(b, window, sums, part, store, (start, start_rs), (c, c_rs))
    else:
        store(all_terms(b, window, sums, part), (start, start_rs))
    b.ret()
    return name


def emit_complex_kernel(module: ModuleText, plan: GemmPlan, target: Target, rows: int, nv: int) -> str:
    """Emits the kernel for complex numbers: panels hold real and imaginary planes, C holds interleaved pairs.

    (x + iy)(u + iv) = (xu - yv) + i(xv + yu): four multiply-adds on two sets of sums. `a_rs` is the distance between
    rows; the imaginary plane of A is half of `a_cs` after the real one. Returns its name.
    """
    name = f"{plan.symbol}_tile{rows}x{nv}"
    b = module.function(name, KERNEL_PARAMS, attributes=tile_attributes(target))
    a, a_rs, a_cs, bp, b_rs, c, c_rs, start, start_rs, k, _, runs, run_stride, *_ = b.params
    lanes, unit = plan.lanes, vector(plan.unit, plan.lanes)
    pair = vector(plan.unit, 2 * lanes)
    sums: list[V] = []
    for r in range(rows):
        row = b.offset(start, b.mul(start_rs, r))
        for v in range(nv):
            x = b.load(pair, b.offset(row, v * lanes * plan.out_bytes))
            sums += [b.shuffle(x, None, range(0, 2 * lanes, 2)), b.shuffle(x, None, range(1, 2 * lanes, 2))]
    half = b.lshr(a_cs, 1)
    assert runs.type == run_stride.type  # only products use this kernel, and they have one run
    with b.loop_carry(0, k, [*sums, a, bp]) as carry:
        *acc, at, row_b = carry.values
        planes = [
            [b.load(unit, b.offset(row_b, (p * nv + v) * lanes * plan.unit_bytes)) for v in range(nv)] for p in (0, 1)
        ]
        new: list[V] = []
        for r in range(rows):
            p = b.offset(at, b.mul(a_rs, r))
            x = b.splat(b.load(plan.unit, p), lanes)
            y = b.splat(b.load(plan.unit, b.offset(p, half)), lanes)
            minus_y = b.fneg(y)
            for v in range(nv):
                re, im = acc[2 * (r * nv + v) : 2 * (r * nv + v) + 2]
                re = multiply_add(
                    b, plan, target, minus_y, planes[1][v], multiply_add(b, plan, target, x, planes[0][v], re)
                )
                im = multiply_add(b, plan, target, y, planes[0][v], multiply_add(b, plan, target, x, planes[1][v], im))
                new += [re, im]
        carry.next(*new, b.offset(at, a_cs), b.offset(row_b, b_rs))
    zip_ = [i // 2 + (i % 2) * lanes for i in range(2 * lanes)]
    for r in range(rows):
        row = b.offset(c, b.mul(c_rs, r))
        for v in range(nv):
            re, im = carry.values[2 * (r * nv + v) : 2 * (r * nv + v) + 2]
            b.store(b.shuffle(re, im, zip_), b.offset(row, v * lanes * plan.out_bytes))
    b.ret()
    return name


def stripe_symbol(plan: GemmPlan, height: int | None = None) -> str:
    """Returns the symbol of the stripe for any height, or for one height."""
    return f"{plan.symbol}_stripe{height or ''}"


def emit_stripe(module: ModuleText, plan: GemmPlan, target: Target, only: int | None = None) -> None:
    """Emits `stripe_symbol(STRIPE_PARAMS)`, which cuts a stripe of at most `mr` rows into tiles and calls the kernels.
    `only`: the height of the stripe, if it is always the same."""
    emit = emit_complex_kernel if plan.kind == "complex" else emit_kernel
    widths = [plan.nv] if plan.kind == "complex" else [plan.nv, 1]
    heights = row_counts(plan) if only is None else [only]
    kernels = [[emit(module, plan, target, r, plan.nv) for r in heights]]
    if len(widths) > 1:
        # One vector wide kernels for the last rows do not pay if there are masks: these tiles are rare.
        narrow = [emit(module, plan, target, r, 1) for r in (heights[:1] if plan.masks else heights)]
        kernels.append(narrow + kernels[0][len(narrow) :])
    zeros = f"{plan.symbol}_zeros{only or ''}"
    zero_bytes = SUMS * plan.lanes * plan.out_bytes
    module.define_global(zeros, f"internal constant [{zero_bytes} x i8] zeroinitializer, align 64")
    b = module.function(stripe_symbol(plan, only), STRIPE_PARAMS, linkage="", attributes=tile_attributes(target))
    a, a_rs, a_cs, rows, b_first, b_rs, b_panel, c, c_rs, n, k, accumulate, runs, run_stride, *later = b.params
    later_first, later_tile, skipped, before = later
    steps = b.max_(b.mul(k, runs), 1)
    later_step = b.udiv(b.add(later_tile, b.sub(steps, 1)), steps)
    more = b.icmp("ne", accumulate, 0)
    start_rs = b.select(more, c_rs, i64(0))
    start_step = b.select(more, i64(plan.nr * plan.out_bytes), i64(0))
    tile = None if plan.masks and plan.parts == 1 else b.alloca("i8", plan.mr * plan.nr * plan.out_bytes)
    start = b.select(more, c, V("ptr", f"@{zeros}"))
    done: V = i64(0)
    for height in (1, 2) if plan.kind != "complex" and only is None else ():
        args = [a, a_rs, a_cs, b_first, b_rs, c, c_rs, start, start_rs, k, n, runs, run_stride, skipped, before]
        whole = b.select(b.icmp("eq", rows, height), n, i64(0))
        count, b_first, c, start = _across(b, module, plan, target, height, args, whole, b_panel, start_step)
        done = b.add(done, count)
    with b.loop_carry(done, n, [b_first, c, start, later_first], plan.nr) as column:
        b_at, c_column, start_column, soon = column.values
        width = b.min_(b.sub(n, column.index), plan.nr)
        one = b.icmp("sle", width, plan.lanes)
        # Full height, or heights that add up to it. The column loop is outermost, so B is loaded from far only once.
        with b.repeat([rows, a, c_column, start_column], "piece") as rows_loop:
            left, a_row, c_at, start_at = rows_loop.values
            size, functions = _choose(b, plan, heights, kernels, left)
            kernel = b.select(one, functions[-1], functions[0])
            args = [a_row, a_rs, a_cs, b_at, b_rs, c_at, c_rs, start_at, start_rs, k, width, runs, run_stride]
            args += [soon, later_step, b_panel, skipped, before]
            if tile is None:
                b.call_pointer("void", kernel, args)
            else:
                full = b.icmp("eq", width, plan.nr)
                if len(widths) > 1:
                    full = b.or_(full, b.icmp("eq", width, plan.lanes))
                _call_or_copy(b, plan, kernel, args, full, size, tile)
            places = [(a_row, a_rs), (c_at, c_rs), (start_at, start_rs)]
            rest = b.sub(left, size)
            rows_loop.next(rest, *(b.offset(at, b.mul(size, stride)) for at, stride in places))
            rows_loop.again = b.icmp("sgt", rest, 0)
        column.next(
            b.offset(b_at, b_panel),
            b.offset(c_column, plan.nr * plan.out_bytes),
            b.offset(start_column, start_step),
            b.offset(soon, later_tile),
        )
    b.ret()


def _across(
    b: Builder,
    module: ModuleText,
    plan: GemmPlan,
    target: Target,
    rows: int,
    args: list[V],
    n: V,
    b_panel: V,
    start_step: V,
) -> tuple[V, V, V, V]:
    """Emits one or two rows by several whole panels together, as far as the `n` columns allow. Returns the number of
    columns that are done, and the addresses in B, C and the start where the rest begins."""
    panels = SUMS // (rows * plan.nv)
    width = plan.nr * panels
    kernel = emit_kernel(module, plan, target, rows, plan.nv, panels)
    whole = b.mul(b.udiv(n, width), width)
    with b.loop_carry(0, whole, [args[3], args[5], args[7]], width, "panels") as column:
        b_at, c_at, start_at = column.values
        here = [*args[:3], b_at, args[4], c_at, args[6], start_at, *args[8:-2]]
        b.call("void", kernel, [*here, b_at, i64(0), b_panel, *args[-2:]])
        steps = b.mul(b_panel, panels), i64(width * plan.out_bytes), b.mul(start_step, panels)
        column.next(*(b.offset(at, by) for at, by in zip(column.values, steps, strict=True)))
    b_at, c_at, start_at = column.values
    return whole, b_at, c_at, start_at


def next_height(b: Builder, plan: GemmPlan, left: V, most: int) -> V:
    """Returns `first_height` of `left` rows if they are at most `most`, else the tallest height."""
    size: V = i64(plan.mr)
    for rows in range(most, 0, -1):
        size = b.select(b.icmp("eq", left, rows), i64(first_height(plan, rows)), size)
    return size


def _choose(b: Builder, plan: GemmPlan, heights: list[int], kernels: list[list[str]], left: V) -> tuple[V, list[V]]:
    """Returns the height of the next tile for `left` rows and, for each width, its function."""
    size = next_height(b, plan, left, plan.mr - 1) if len(heights) > 1 else i64(heights[0])
    functions = [V("ptr", f"@{names[-1]}") for names in kernels]
    for i in range(len(heights) - 2, -1, -1):
        fits = b.icmp("eq", size, heights[i])
        functions = [b.select(fits, V("ptr", f"@{names[i]}"), f) for names, f in zip(kernels, functions, strict=True)]
    return size, functions


def _call_or_copy(b: Builder, plan: GemmPlan, kernel: V, args: list[V], full: V, rows: V, tile: V) -> None:
    """Calls the kernel. Without masked stores, a tile that extends beyond C is computed on the stack, and its columns
    are copied."""
    c, c_rs, start, start_rs, _, width = args[5:11]
    tile_rs = i64(plan.nr * plan.out_bytes)

    def direct() -> list[V]:
        b.call_pointer("void", kernel, args)
        return []

    def through_stack() -> list[V]:
        nbytes = b.mul(width, plan.out_bytes)
        with b.loop(0, rows) as r:
            b.memcpy(b.offset(tile, b.mul(r, tile_rs)), b.offset(start, b.mul(r, start_rs)), nbytes)
        b.call_pointer("void", kernel, [*args[:5], tile, tile_rs, tile, tile_rs, *args[9:]])
        with b.loop(0, rows) as r:
            b.memcpy(b.offset(c, b.mul(r, c_rs)), b.offset(tile, b.mul(r, tile_rs)), nbytes)
        return []

    b.if_else(full, direct, through_stack)
