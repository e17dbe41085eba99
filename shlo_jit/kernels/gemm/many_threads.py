"""Divides the tasks of a product further if a call has many threads. The sums, and so the bits, stay the same."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.kernels.gemm.policy import PRIVATE, Cut, Extents
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.kernels.gemm.staged_numbers import N, Numbers

MOST_HALVINGS = 7
"""Maximum number of times that tasks are halved."""


def spread(a: Numbers, plan: GemmPlan, s: Extents, modes: tuple[N, N], cut: Cut, product: N, threads: N) -> Cut:
    """Returns smaller rectangles of equal size if there are fewer than TASKS_OF_THREAD tasks for each thread, or if the
    last round of tasks would leave many threads without one. Tasks are halved until there are enough of them, or they
    have only LEAST_TASK_OF_MANY multiply-adds: first products, then the longer side of the rectangle. If every task
    packs B, its rows stay together. `modes`: of B and A; `product`: the multiply-adds of one product."""
    mc, nc = _equal(a, s.m, cut.rows, plan.mr), _equal(a, s.n, cut.columns, plan.nr)
    group = a.least(cut.group, s.batch)
    batch = a.select(cut.phased, a.number(1), s.batch)
    row_chunks, column_chunks = a.ceil_div(s.m, mc), a.ceil_div(s.n, nc)
    grid = a.mul(row_chunks, column_chunks)
    tasks = a.mul(grid, a.ceil_div(batch, group))
    each = a.div(a.mul(product, batch), a.most(tasks, 1))
    wanted = a.mul(threads, tuning.TASKS_OF_THREAD)
    together = a.compare("eq", modes[0], PRIVATE)
    for _ in range(MOST_HALVINGS):
        are_few = a.either(a.compare("lt", tasks, wanted), _is_uneven(a, tasks, threads))
        halves = a.both(are_few, a.compare("ge", each, 2 * tuning.LEAST_TASK_OF_MANY))
        products = a.both(halves, a.compare("gt", group, 1))
        few = a.both(halves, a.compare("le", group, 1))
        wide = a.both(a.compare("gt", nc, plan.nr), a.either(together, a.compare("ge", nc, mc)))
        tall = a.both(a.compare("gt", mc, plan.mr), a.compare("ne", modes[0], PRIVATE))
        columns = a.both(few, wide)
        rows = a.both(a.both(few, tall), a.compare("eq", a.select(wide, a.number(1), a.number(0)), 0))
        group = a.select(products, a.ceil_div(group, 2), group)
        nc = a.select(columns, a.mul(a.ceil_div(a.ceil_div(nc, plan.nr), 2), plan.nr), nc)
        mc = a.select(rows, a.mul(a.ceil_div(a.ceil_div(mc, plan.mr), 2), plan.mr), mc)
        row_chunks, column_chunks = a.ceil_div(s.m, mc), a.ceil_div(s.n, nc)
        grid = a.mul(row_chunks, column_chunks)
        tasks = a.mul(grid, a.ceil_div(batch, group))
        each = a.div(a.mul(product, batch), a.most(tasks, 1))
    return Cut(mc, nc, row_chunks, column_chunks, group, grid, cut.phased)


def _equal(a: Numbers, extent: N, chunks: N, unit: int) -> N:
    """Returns the rows or columns of a task if so many chunks have about equal numbers of whole units."""
    return a.least(a.mul(a.ceil_div(a.ceil_div(extent, unit), chunks), unit), extent)


def _is_uneven(a: Numbers, tasks: N, threads: N) -> N:
    """Whether threads wait for more than one part in UNEVEN_TASKS of the time if all tasks take equal times."""
    places = a.mul(a.ceil_div(tasks, threads), threads)
    return a.compare("gt", a.mul(places, tuning.UNEVEN_TASKS - 1), a.mul(tasks, tuning.UNEVEN_TASKS))


def pack_panels(a: Numbers, width: int, extent: N, threads: N) -> N:
    """Returns the panels, `width` wide, that a task of the packing phase packs: as many as GEMM_PACK_WIDTH has, or
    fewer if there would be fewer tasks than many threads."""
    usual = tuning.GEMM_PACK_WIDTH // width
    fewer = a.least(a.most(a.ceil_div(a.ceil_div(extent, width), threads), 1), usual)
    return a.select(a.compare("gt", threads, tuning.MANY_THREADS), fewer, a.number(usual))
