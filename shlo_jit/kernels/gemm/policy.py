"""Decisions about a product from its extents and strides: packing, tasks and blocking. All of them are made here.

The machine code of the routine decides at run time, since it serves all shapes. Users and the memory planner need the
decisions at compile time. So a policy is written once over `Numbers`, which are Python ints (`Ints`) or registers
(`Registers`). `override` distinguishes one case after the other: each has a reason, which `Ints` keeps.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.kernels.gemm.micro import SUMS
from shlo_jit.kernels.gemm.precision import GemmPlan, itemsize
from shlo_jit.kernels.gemm.staged_numbers import N, Numbers
from shlo_jit.reasons import Reason
from shlo_jit.sizes import surely

SKINNY_TILE, SKINNY_PANELS = 6, 2
"""Register tile of a skinny product that reads B in place: rows, and panels taken together. That is as many sums as
leave registers for B. A tile has one row more if that is all of the product's rows."""
PAIR_PANELS = 4
"""The same number of panels for a product of two rows."""
IN_PLACE, SHARED, PRIVATE, PREPACKED = 0, 1, 2, 3
"""Modes of reading an operand; see `blocks.py`."""


class Extents(NamedTuple):
    """Extents and strides of a product. Strides are in bytes: of A along m and k, of B along n and k."""

    batch: N
    m: N
    n: N
    k: N
    a_rs: N
    a_cs: N
    b_cs: N
    b_rs: N
    prepacked: N
    """B consists of panels (see `prepacked.py`)."""


class Blocking(NamedTuple):
    """The decisions about a product on tiles, as a caller may give them: ints with reasons, or registers."""

    mode_a: N
    mode_b: N
    kc: N
    """Elements of k per pass over C."""
    mc: N
    """Rows of a task: whole stripes, or all rows."""
    nc: N
    """Columns of a task: whole panels, or all columns."""
    group: N
    """Products for which a task computes its rectangle."""


class Cut(NamedTuple):
    """Tasks of a product: rectangles of `mc` x `nc` elements of C, `rows` x `columns` of them, `group` products per
    task."""

    mc: N
    nc: N
    rows: N
    columns: N
    group: N
    grid: N
    phased: N
    """An operand is packed for all tasks, `kc` elements of k at a time; the tasks of a phase belong to one product."""


def k_block(a: Numbers, plan: GemmPlan, k: N, prepacked: N) -> N:
    """Returns the elements of k per pass over C: equal parts of k, so that the last has as much work as the others."""
    longest = a.select(prepacked, a.number(plan.prepacked_kc), a.number(plan.kc))
    each = a.ceil_div(k, a.most(a.ceil_div(k, longest), 1))
    return a.mul(a.most(a.ceil_div(each, plan.k_unit), 1), plan.k_unit)


def columns_of(plan: GemmPlan, about: int) -> int:
    """Returns about that many columns, rounded down to whole panels."""
    return about // plan.nr * plan.nr


def ends_whole(a: Numbers, plan: GemmPlan, n: N) -> N:
    """Whether the remaining columns fill a tile or exactly one vector. Without masks, tiles read whole vectors."""
    left = a.rem(n, plan.nr)
    return a.either(a.compare("eq", left, 0), a.compare("eq", left, plan.lanes))


def packing(a: Numbers, plan: GemmPlan, s: Extents, product: N) -> tuple[N, N]:
    """Returns the modes of B and A. `product`: the multiply-adds of one product."""
    mode = mode_of_b(a, plan, s, product)
    return mode, mode_of_a(a, plan, s, mode)


def mode_of_b(a: Numbers, plan: GemmPlan, s: Extents, product: N) -> N:
    """Returns how B is read. `product`: the multiply-adds of one product."""
    few_rows = a.compare("le", s.m, tuning.GEMM_PRIVATE_ROWS)
    many = a.both(a.compare("ge", s.batch, tuning.GEMM_BATCH), a.compare("le", product, tuning.GEMM_PRIVATE_PRODUCT))
    mode = a.decided(
        SHARED, Reason("many-rows-reuse", f"{s.m} rows use each element, more than {tuning.GEMM_PRIVATE_ROWS}")
    )
    why = a.because(
        (few_rows, Reason("few-rows-reuse", f"{s.m} rows use it, at most {tuning.GEMM_PRIVATE_ROWS}")),
        (
            many,
            Reason(
                "many-small-products", f"{s.batch} products of at most {tuning.GEMM_PRIVATE_PRODUCT:,} multiply-adds"
            ),
        ),
    )
    mode = a.override(mode, a.either(few_rows, many), a.number(PRIVATE), why)
    if not plan.convert[1]:
        size = itemsize(plan.types.b)
        rare = a.compare("le", s.m, plan.mr)
        resident = a.compare("le", a.mul(a.mul(s.k, s.n), size), tuning.GEMM_B_RESIDENT)
        # Rows that are a multiple of half a page apart map to few sets of the first level cache.
        resident = a.both(resident, a.compare("ne", a.bits(s.b_rs, 2047), 0))
        adjacent = is_adjacent(a, plan, s)
        why = a.because(
            (rare, Reason("few-rows-contiguous", f"its rows are contiguous, and {s.m} rows use it, at most {plan.mr}")),
            (
                resident,
                Reason(
                    "fits-in-cache",
                    f"its rows are contiguous, and up to {tuning.GEMM_B_RESIDENT:,} bytes stay in the cache",
                ),
            ),
        )
        mode = a.override(mode, a.both(adjacent, a.either(rare, resident)), a.number(IN_PLACE), why)
    return a.override(mode, s.prepacked, a.number(PREPACKED), Reason("constant-operand", "it is a constant"))


def is_adjacent(a: Numbers, plan: GemmPlan, s: Extents) -> N:
    """Whether the rows of B are contiguous, and tiles that read them in place read nothing beyond them."""
    adjacent = a.either(a.compare("eq", s.b_cs, itemsize(plan.types.b)), a.compare("eq", s.n, 1))
    return adjacent if plan.masks else a.both(adjacent, ends_whole(a, plan, s.n))


def mode_of_a(a: Numbers, plan: GemmPlan, s: Extents, mode: N) -> N:
    """Returns how A is read. `mode`: how B is read."""
    columns = plan.widest
    wide = a.compare("gt", s.n, columns)
    many_rows = a.both(s.prepacked, a.compare("gt", s.m, tuning.GEMM_PREPACKED_ROWS))
    far = a.both(wide, a.either(a.compare("eq", mode, SHARED), many_rows))
    collide = _rows_collide(a, plan, s)
    mode_a = a.decided(
        IN_PLACE, Reason("packing-does-not-pay", "A is packed only if B is packed, shared, and wider than a task")
    )
    why = a.because(
        (
            wide,
            Reason(
                "many-columns-reuse", f"all tasks share a packed B, and {s.n} columns are more than a task's {columns}"
            ),
        ),
        (
            collide,
            Reason(
                "rows-collide-in-cache",
                f"{s.n} columns use A, and its rows, {s.a_rs} bytes apart, map to one cache set",
            ),
        ),
    )
    mode_a = a.override(mode_a, a.either(far, collide), a.number(SHARED), why)
    if plan.kind == "amx":
        return a.decided(PRIVATE, Reason("tile-registers-layout", "the tile registers need their own layout"))
    if plan.convert[0]:
        here = a.compare("eq", mode_a, IN_PLACE)
        mode_a = a.override(
            mode_a, here, a.number(PRIVATE), Reason("elements-converted", "its elements are converted to another type")
        )
        if plan.joins_a:
            joined = a.both(here, are_joined(a, plan, s.a_cs, s.k))
            mode_a = a.override(
                mode_a,
                joined,
                a.number(IN_PLACE),
                Reason("row-steps-contiguous", "the elements of a row that one step multiplies are adjacent"),
            )
    return mode_a


def may_collide(plan: GemmPlan, m: int, n: int, k: int) -> bool:
    """Whether `_rows_collide` may hold for sizes that may be known at run time only."""
    few = surely(lambda: m < plan.mr) or surely(lambda: n < tuning.GEMM_COLLIDING_COLUMNS)
    small = surely(lambda: m * n * k < tuning.GEMM_TASK)
    return plan.mr > tuning.GEMM_COLLIDING_ROWS and not few and not small


def _rows_collide(a: Numbers, plan: GemmPlan, s: Extents) -> N:
    """Whether the rows of a whole tile map to one set of the first level cache, which evicts lines before all of their
    elements are used, and packing A costs less than that."""
    if plan.mr <= tuning.GEMM_COLLIDING_ROWS:
        return a.compare("ne", a.number(0), 0)
    same_set = a.both(a.compare("eq", a.bits(s.a_rs, 4095), 0), a.compare("ne", s.a_rs, 0))
    # Between mr and twice as many rows, two lower tiles of equal height are taken, whose rows fit. If tasks pack B, k
    # is cut into several passes, each with a packing of A that all threads wait for.
    few = a.both(s.prepacked, a.either(a.compare("eq", s.m, plan.mr), a.compare("ge", s.m, 2 * plan.mr - 1)))
    whole = a.either(few, a.compare("ge", s.m, 3 * plan.mr))
    product = a.mul(a.mul(s.m, s.n), s.k)
    pays = a.both(
        a.compare("ge", s.n, tuning.GEMM_COLLIDING_COLUMNS),
        a.both(a.compare("ge", product, tuning.GEMM_TASK), a.compare("lt", s.batch, tuning.GEMM_BATCH)),
    )
    return a.both(a.both(same_set, whole), pays)


def are_joined(a: Numbers, plan: GemmPlan, a_cs: N, k: N) -> N:
    """Whether the elements of A that a step takes are contiguous, in every step. For plans that join elements."""
    return a.both(a.compare("eq", a_cs, itemsize(plan.types.a)), a.compare("eq", a.rem(k, plan.group), 0))


def cut(a: Numbers, plan: GemmPlan, s: Extents, modes: tuple[N, N], product: N) -> Cut:
    """Returns the rectangles: about GEMM_TASK multiply-adds per task, whole stripes and whole panels. `modes`: of B and
    A."""
    widest = plan.widest
    phased = a.either(*(a.compare("eq", mode, SHARED) for mode in modes))
    per_element = a.most(a.select(phased, k_block(a, plan, s.k, s.prepacked), s.k), 1)
    # Few rows: one chunk of rows, and as many columns as fill a task. Otherwise wide chunks, and rows to fill a task.
    columns = a.div(a.number(tuning.GEMM_TASK), a.mul(s.m, per_element))
    columns = a.least(a.most(a.mul(a.div(columns, plan.nr), plan.nr), columns_of(plan, 128)), widest)
    private = a.compare("eq", modes[0], PRIVATE)
    parts = a.most(a.ceil_div(s.n, widest), 1)  # of equal widths, so that tasks take about the same time
    wide = a.mul(a.ceil_div(a.ceil_div(s.n, plan.nr), parts), plan.nr)
    nc = a.select(private, _evenly(a, s.n, plan.nr, columns), a.most(wide, plan.nr))
    rows = a.div(a.number(tuning.GEMM_TASK), a.mul(a.most(a.least(s.n, wide), 1), per_element))
    rows = _evenly(a, s.m, plan.mr, a.mul(a.most(a.div(rows, plan.mr), 2), plan.mr))
    mc = a.select(private, s.m, rows)
    few_rows = a.compare("le", s.m, tuning.GEMM_PREPACKED_ROWS)
    of_panels = a.both(s.prepacked, a.either(a.compare("ne", modes[1], SHARED), few_rows))
    mc, nc = (a.select(of_panels, x, y) for x, y in zip(_cut_of_panels(a, plan, s, modes[1]), (mc, nc), strict=True))
    row_chunks, column_chunks = a.ceil_div(s.m, mc), a.ceil_div(s.n, nc)
    grid = a.mul(row_chunks, column_chunks)
    # A shared operand belongs to one product, and so do the tasks that use it.
    group = a.select(phased, a.number(1), a.most(a.div(a.number(tuning.GEMM_GROUP), product), 1))
    return Cut(mc, nc, row_chunks, column_chunks, group, grid, phased)


def _evenly(a: Numbers, extent: N, unit: int, most: N) -> N:
    """Returns the rows or columns of a task, at most `most`, so that few tasks are even in number, and of about equal
    size: two threads have equal work. `unit`: rows of a stripe, or columns of a panel."""
    units, each = a.ceil_div(extent, unit), a.most(a.div(most, unit), 1)
    tasks = a.ceil_div(units, each)
    even = a.mul(a.ceil_div(units, a.most(a.mul(a.ceil_div(tasks, 2), 2), 1)), unit)
    few = a.both(a.compare("gt", tasks, 1), a.compare("lt", tasks, tuning.GEMM_TASKS))
    return a.select(few, even, most)


def _cut_of_panels(a: Numbers, plan: GemmPlan, s: Extents, mode_a: N) -> tuple[N, N]:
    """Returns rows and columns of a task if B is prepacked. Rows come in equal chunks that stay in the cache."""
    chunks = a.most(a.ceil_div(s.m, _rows_of_panels(a, plan, s, mode_a)), 1)
    stripes = a.ceil_div(a.ceil_div(s.m, plan.mr), chunks)
    height = a.select(a.compare("gt", chunks, 1), a.mul(stripes, plan.mr), s.m)
    of_phase = a.select(a.compare("eq", mode_a, SHARED), k_block(a, plan, s.k, s.prepacked), s.k)
    panel = a.mul(a.most(height, tuning.GEMM_TASK_ROWS), a.mul(a.most(of_phase, 1), plan.nr))
    long = a.either(a.compare("lt", s.m, tuning.GEMM_LEAST_ROWS), a.compare("eq", mode_a, PRIVATE))
    each = a.select(long, _panels_of_long(a, plan, s, panel), _panels_of_short(a, plan, s, panel, chunks))
    tasks = a.mul(chunks, a.ceil_div(a.ceil_div(s.n, plan.nr), a.most(each, 1)))
    return _halved(a, plan, height, tasks), a.mul(each, plan.nr)


def _rows_of_panels(a: Numbers, plan: GemmPlan, s: Extents, mode_a: N) -> N:
    """Returns the approximate rows of a task if B is prepacked. They are few if the second level cache keeps all panels
    and there are rows for many tasks: then tasks have whole rows of C, instead of some of its columns."""
    most = tuning.GEMM_PRIVATE_ROWS // plan.mr * plan.mr
    of_row = a.most(a.mul(a.most(s.k, 1), s.n), 1)
    each = a.most(a.ceil_div(a.number(tuning.GEMM_LEAST_TASK), of_row), tuning.GEMM_NEAR_ROWS)
    each = a.least(a.mul(a.ceil_div(each, plan.mr), plan.mr), most)
    panels = a.mul(a.mul(a.ceil_div(s.n, plan.nr), a.most(s.k, 1)), plan.b_step // plan.group)
    near = a.compare("le", panels, plan.bytes_of(tuning.GEMM_NEAR_PANELS))
    near = a.both(near, a.compare("eq", mode_a, IN_PLACE))
    enough = a.compare("ge", a.ceil_div(s.m, each), tuning.GEMM_CHUNKS)
    return a.select(a.both(near, enough), each, a.number(most))


def _halved(a: Numbers, plan: GemmPlan, height: N, tasks: N) -> N:
    """Returns the rows of a task: half of `height` if tasks are few and odd in number, so that two threads have equal
    work."""
    odd = a.both(a.compare("lt", tasks, tuning.GEMM_FEW_TASKS), a.compare("eq", a.bits(tasks, 1), 1))
    stripes = a.ceil_div(height, plan.mr)
    half = a.mul(a.ceil_div(stripes, 2), plan.mr)
    return a.select(a.both(odd, a.compare("ge", stripes, 4)), half, height)


def _panels_of_short(a: Numbers, plan: GemmPlan, s: Extents, panel: N, chunks: N) -> N:
    """Returns the panels of a task that does not get slower with few panels. There are so many tasks that threads end
    at about the same time, unless tasks become too short. `panel`: the multiply-adds of a panel; `chunks`: chunks of
    rows. With many rows, whole rows of C are written if their panels stay in the second level cache."""
    panels, widest = a.ceil_div(s.n, plan.nr), plan.widest // plan.nr
    many = a.most(a.ceil_div(panels, tuning.GEMM_TASKS), a.ceil_div(a.number(tuning.GEMM_LEAST_TASK), panel))
    each = a.least(many, a.most(a.div(a.number(tuning.GEMM_TASK), panel), 1))
    near_bytes = plan.bytes_of(tuning.GEMM_NEAR_PANELS)
    near = a.div(a.number(near_bytes), a.mul(a.most(s.k, 1), plan.b_step // plan.group))
    each = a.least(a.select(a.compare("ge", chunks, tuning.GEMM_CHUNKS), a.most(near, 1), each), widest)
    return a.ceil_div(panels, a.most(a.ceil_div(panels, each), 1))


def _panels_of_long(a: Numbers, plan: GemmPlan, s: Extents, panel: N) -> N:
    """Returns the panels of a task that has to pack A, or has few rows and is bound by reading B: a multiple of four
    tasks. One or two rows are multiplied by several panels together, so a task has a multiple of these if possible."""
    panels, widest = a.ceil_div(s.n, plan.nr), plan.widest // plan.nr
    tasks = a.ceil_div(panels, a.least(a.most(a.div(a.number(tuning.GEMM_TASK), panel), 2), widest))
    tasks = a.select(a.compare("gt", tasks, 1), a.mul(a.ceil_div(tasks, 4), 4), tasks)
    each = a.ceil_div(panels, a.most(tasks, 1))
    together = a.most(a.div(a.number(SUMS // plan.nv), a.most(s.m, 1)), 1)
    together = a.select(a.compare("le", s.m, 2), together, a.number(1))
    # Two threads read twice as much as one, even if each multiplies by fewer panels together.
    together = a.select(a.compare("le", panels, together), a.ceil_div(panels, 2), together)
    return a.mul(a.ceil_div(each, together), together)


def is_serial(a: Numbers, s: Extents, product: N) -> N:
    """Whether the caller computes all tasks alone. A tile of one row takes as long as a tile of several."""
    work = a.select(
        a.compare("lt", s.m, tuning.GEMM_LEAST_ROWS), a.mul(a.mul(s.n, s.k), tuning.GEMM_LEAST_ROWS), product
    )
    return a.compare("le", a.mul(work, s.batch), tuning.GEMM_SERIAL)


def task_count(a: Numbers, cut: Cut, batch: N) -> N:
    """Returns the tasks of a phase, which belong to one product, or else of all products."""
    return a.select(cut.phased, cut.grid, a.mul(cut.grid, a.ceil_div(batch, cut.group)))


class VectorShape(NamedTuple):
    """A product of a matrix with vectors. `row`: the vectors are rows of A (else the column of B)."""

    row: N
    outputs: N
    count: N
    """Number of vectors."""


def has_skinny_path(plan: GemmPlan) -> bool:
    """Whether there is code for skinny products with B in place."""
    return plan.kind == "plain" and plan.masks and not any(plan.convert) and plan.out == plan.acc


def is_skinny(a: Numbers, plan: GemmPlan, s: Extents) -> N:
    """Whether that code computes a product: it has too few rows to pay for packing B, and no cache holds B."""
    rows = a.both(a.compare("gt", s.m, 1), a.compare("le", s.m, tuning.GEMM_SKINNY_ROWS))
    adjacent = a.compare("eq", s.b_cs, itemsize(plan.types.b))
    far = a.compare("gt", a.mul(a.mul(s.k, s.n), itemsize(plan.types.b)), tuning.GEMM_B_RESIDENT)
    wide = a.both(a.compare("ge", s.n, plan.nr * PAIR_PANELS), a.compare("ge", s.k, plan.lanes))
    return a.both(a.both(rows, adjacent), a.both(far, wide))


def skinny_columns(a: Numbers, plan: GemmPlan, s: Extents) -> N:
    """Returns the columns of a task of a skinny product: tasks for at least two threads, and long runs of B's rows."""
    panels = a.ceil_div(s.n, plan.nr)
    some = a.mul(a.least(a.ceil_div(panels, 2 * SKINNY_PANELS), PAIR_PANELS // SKINNY_PANELS), SKINNY_PANELS)
    many = a.mul(a.ceil_div(panels, tuning.GEMM_TASKS * PAIR_PANELS), PAIR_PANELS)
    return a.mul(a.select(a.compare("gt", panels, tuning.GEMM_TASKS * PAIR_PANELS), many, some), plan.nr)


def has_vector_path(plan: GemmPlan) -> bool:
    return plan.kind != "complex" and plan.types.a == plan.types.b and plan.out == plan.acc


def vector_shape(a: Numbers, plan: GemmPlan, m: N, n: N, k: N) -> VectorShape:
    """Returns the product as a matrix with one vector, or with a few if the matrix is larger than the caches."""
    size = itemsize(plan.types.a)
    thin = a.compare("le", m, tuning.GEMM_THIN if plan.kind == "plain" else 1)
    thin = a.both(thin, a.compare("ge", a.mul(a.mul(n, k), size), tuning.GEMM_THIN_BYTES))
    row = a.either(a.compare("eq", m, 1), a.both(thin, a.compare("gt", n, 1)))
    return VectorShape(row, a.select(row, n, m), a.select(row, m, a.number(1)))


def vector_layout(a: Numbers, plan: GemmPlan, v: VectorShape, n: N, k: N, strides: tuple[N, N, N]) -> tuple[N, N]:
    """Returns whether the matrix is read along its outputs (`axpy`), and whether the vector path fits at all. `strides`
    in bytes: of the matrix along the outputs and along k, of the vector along k."""
    size = itemsize(plan.types.a)
    stride, k_stride, x_stride = strides
    axpy = a.compare("eq", stride, size)
    dot = a.both(a.compare("eq", k_stride, size), a.compare("eq", x_stride, size))
    dot = a.both(dot, a.compare("eq", v.count, 1))
    fits = a.both(a.either(v.row, a.compare("eq", n, 1)), a.compare("ge", v.outputs, 4 * plan.lanes))
    fits = a.both(fits, a.compare("ge", k, plan.lanes))
    if plan.in_order:  # `dot` adds up lanes
        return axpy, a.both(fits, axpy)
    return axpy, a.both(fits, a.either(axpy, dot))


def is_serial_matrix(a: Numbers, outputs: N, k: N, batch: N) -> N:
    """Whether the caller computes a product of a matrix with vectors alone."""
    return a.compare("le", a.mul(a.mul(outputs, k), batch), tuning.PARALLEL_WORK)
