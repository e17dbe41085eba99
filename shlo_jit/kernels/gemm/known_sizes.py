"""Decisions about a product whose sizes are known, each with its reason: what `policy.py` decides, for the schedule and
its text."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.kernels.gemm.policy import (
    IN_PLACE,
    SHARED,
    SKINNY_PANELS,
    SKINNY_TILE,
    Blocking,
    Extents,
    VectorShape,
    cut,
    has_vector_path,
    is_serial,
    k_block,
    mode_of_a,
    mode_of_b,
    skinny_columns,
    vector_layout,
    vector_shape,
)
from shlo_jit.kernels.gemm.precision import GemmPlan, itemsize
from shlo_jit.kernels.gemm.staged_numbers import Ints, Reasoned
from shlo_jit.reasons import Reason

WORDS = (
    "read in place",
    "packed once, shared by all tasks",
    "packed by each task",
    "packed when the program was compiled",
)


Line = tuple[str, str, Reason | None]
"""A decision to print: what, how, why."""


class Layout(NamedTuple):
    """Strides in elements: of A along m, k and the batch, of B along k, n and the batch."""

    a_rs: int
    a_cs: int
    a_bs: int
    b_rs: int
    b_cs: int
    b_bs: int


def vectors_of(plan: GemmPlan, m: int, n: int, k: int, layout: Layout) -> tuple[VectorShape, bool] | None:
    """Returns the product as a matrix with vectors, and whether the matrix is read along its outputs. None if the tiles
    compute it."""
    if not has_vector_path(plan):
        return None
    a, size_a, size_b = Ints(), itemsize(plan.types.a), itemsize(plan.types.b)
    v = vector_shape(a, plan, m, n, k)
    of_a, of_b = (layout.a_rs * size_a, layout.a_cs * size_a), (layout.b_cs * size_b, layout.b_rs * size_b)
    axpy, fits = vector_layout(a, plan, v, n, k, (*of_b, of_a[1]) if v.row else (*of_a, of_b[1]))
    return (v, axpy) if fits else None


def extents_of(plan: GemmPlan, batch: int, m: int, n: int, k: int, layout: Layout, prepacked: bool = False) -> Extents:
    """Returns the extents of a product whose sizes are known."""
    size_a, size = itemsize(plan.types.a), itemsize(plan.types.b)
    strides = layout.a_rs * size_a, layout.a_cs * size_a, layout.b_cs * size, layout.b_rs * size
    return Extents(batch, m, n, k, *strides, prepacked)


def blocking_of(plan: GemmPlan, s: Extents, mode_b: int | None = None, mode_a: int | None = None) -> Blocking:
    """Returns the routine's decisions about a product on tiles, each with its reason. `mode_b`, `mode_a`: how B and A
    are read, if that is not the routine's decision."""
    a, product = Ints(), product_of(s)
    mode_b = _reasoned(mode_of_b(a, plan, s, product) if mode_b is None else mode_b)
    mode_a = _reasoned(mode_of_a(a, plan, s, mode_b) if mode_a is None else mode_a)
    c = cut(a, plan, s, (mode_b, mode_a), product)
    work = product * s.batch
    why = Reason("tasks-by-work", f"{work:,} multiply-adds; about {tuning.GEMM_TASK:,} a task")
    if not c.phased and is_serial(a, s, product):
        why = Reason("too-little-work", f"{work:,} multiply-adds; the caller does up to {tuning.GEMM_SERIAL:,} alone")
    rows, columns = (Reasoned.of(x, why) for x in (min(c.mc, s.m), min(c.nc, s.n)))
    return Blocking(mode_a, mode_b, _k_of_pass(plan, s), rows, columns, Reasoned.of(min(c.group, s.batch), why))


def skinny_blocking(plan: GemmPlan, s: Extents) -> Blocking:
    """Returns the routine's decisions about a skinny product, which reads both operands in place."""
    rows = Reason(
        "few-rows-contiguous", f"its rows are contiguous, and {s.m} rows use it, at most {tuning.GEMM_SKINNY_ROWS}"
    )
    work = s.m * s.n * s.k * s.batch
    why = Reason("tasks-by-columns", f"{work:,} multiply-adds; a task takes some of the columns")
    columns = Reasoned.of(min(skinny_columns(Ints(), plan, s), s.n), why)
    a = Reasoned.of(IN_PLACE, Reason("packing-does-not-pay", "few rows of A stay in a cache"))
    b = Reasoned.of(IN_PLACE, rows)
    return Blocking(a, b, _k_of_pass(plan, s), Reasoned.of(s.m, why), columns, Reasoned.of(1, why))


def product_of(s: Extents) -> int:
    """Returns the multiply-adds of one product."""
    return s.m * s.n * max(s.k, 1)


def _reasoned(value: int) -> Reasoned:
    return value if isinstance(value, Reasoned) else Reasoned(value)


def _k_of_pass(plan: GemmPlan, s: Extents) -> Reasoned:
    """Returns the elements of k per pass, with the reason."""
    longest = plan.prepacked_kc if s.prepacked else plan.kc
    why = Reason("equal-passes", f"equal parts of {s.k:,}, at most {longest:,} each, and a multiple of {plan.k_unit}")
    return Reasoned.of(k_block(Ints(), plan, s.k, s.prepacked), why)


def is_phased(blocking: Blocking) -> bool:
    """Whether an operand is packed for all tasks, a pass over k at a time."""
    return SHARED in (blocking.mode_a, blocking.mode_b)


def tasks_of(s: Extents, blocking: Blocking) -> int:
    """Returns the tasks of a phase, or of the product if there are no phases."""
    grid = -(-s.m // blocking.mc) * -(-s.n // blocking.nc)
    return grid if is_phased(blocking) else grid * -(-s.batch // blocking.group)


def is_parallel(s: Extents, blocking: Blocking) -> bool:
    """Whether threads share the work of a product with these decisions, unless the caller computes small products
    alone."""
    return is_phased(blocking) or tasks_of(s, blocking) > 1


def register_tile(plan: GemmPlan) -> Reason | None:
    """The reason for the size of the tile; None for AMX, which has tile registers."""
    if plan.kind == "amx":
        return None
    sums = plan.mr * plan.nv * plan.parts
    text = f"{sums} vectors of sums; with a row of B and an element of A they fit the registers"
    return Reason("register-tile", text)


def describe(
    plan: GemmPlan,
    batch: int,
    m: int,
    n: int,
    k: int,
    layout: Layout,
    prepacked: bool,
    few: bool = False,
    given: Blocking | None = None,
) -> list[Line]:
    """Returns the decisions of the routine for these extents and strides. `few`: those of skinny products; `given`:
    decisions of the caller, not of the routine."""
    s = extents_of(plan, batch, m, n, k, layout, prepacked)
    if few:
        c = skinny_blocking(plan, s) if given is None else given
        tile = f"up to {SKINNY_TILE} x {SKINNY_PANELS * plan.nr} in registers"
        return [("tile", tile, None), ("B", WORDS[IN_PLACE], c.mode_b.why), ("tasks", _tasks_text(s, c), c.nc.why)]
    as_vectors = None if prepacked or given is not None else vectors_of(plan, m, n, k, layout)
    if as_vectors is not None:
        v, axpy = as_vectors
        vectors = f"{v.count} vector{'' if v.count == 1 else 's'}"
        how = "all outputs accumulate together" if axpy else "one output after the other"
        why = Reason("memory-bound", "bound by memory: the matrix is read once")
        return [("blocking", f"matrix times {vectors}, {how}", why)]
    c = blocking_of(plan, s) if given is None else given
    return [
        ("tile", f"{plan.mr} x {plan.nr} in registers", register_tile(plan)),
        ("A", WORDS[c.mode_a], c.mode_a.why),
        ("B", WORDS[c.mode_b], c.mode_b.why),
        ("tasks", _tasks_text(s, c), c.mc.why),
    ]


def _tasks_text(s: Extents, c: Blocking) -> str:
    """Returns the number and the size of tasks, in words."""
    tasks, again = tasks_of(s, c), ""
    if is_phased(c):
        blocks = -(-max(s.k, 1) // c.kc) * s.batch
        again = f", {blocks:,} times: once for each {c.kc} of k" if blocks > s.batch else ""
        again += ", product by product" if s.batch > 1 else ""
    grouped = f", {c.group:,} products each" if c.group > 1 else ""
    return f"{tasks:,} task{'' if tasks == 1 else 's'} of {c.mc:,} x {c.nc:,}{grouped}{again}"
