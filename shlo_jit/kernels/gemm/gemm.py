"""Matrix products of any layout, batch, shape and element type: C[b] = A[b] @ B[b].

`gemm_routine(a, b, acc, target, way)` is one object with the external symbol `shlo_gemm_<a>_<b>_<acc>`, which takes
extents and strides as arguments (GEMM_PARAMS), so it is compiled once per types and target. See `blocks.py` for the
blocking, `micro.py` for the register tile, `pack.py` for the layouts, `vector.py` for products with a vector. Each of
them is a separate object, so code that a program cannot use is not compiled.
"""

from __future__ import annotations

from functools import cache, partial

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.gemm import many_threads, policy
from shlo_jit.kernels.gemm.amx import emit_amx
from shlo_jit.kernels.gemm.blocks import (
    FIELDS,
    Frame,
    a_panel_bytes,
    ceil_div,
    emit_pack_task,
    emit_rectangle,
    emit_task,
    names_of,
    panel_bytes_of,
    scratch_bytes,
)
from shlo_jit.kernels.gemm.computed import COMPUTED_PARAMS, box_bytes, emit_compute
from shlo_jit.kernels.gemm.forms import Form
from shlo_jit.kernels.gemm.given import GIVEN_PARAMS
from shlo_jit.kernels.gemm.micro import attributes, emit_stripe, stripe_symbol, tile_attributes
from shlo_jit.kernels.gemm.pack import emit_pack, pack_plans
from shlo_jit.kernels.gemm.policy import PRIVATE, SHARED, Blocking, Cut, Extents, has_vector_path
from shlo_jit.kernels.gemm.precision import GemmPlan, GemmTypes, gemm_plan, itemsize
from shlo_jit.kernels.gemm.skinny import emit_skinny_entry, emit_skinny_task
from shlo_jit.kernels.gemm.staged_numbers import Registers
from shlo_jit.kernels.gemm.strategy import GemmStrategy
from shlo_jit.kernels.gemm.vector import emit_takes_vectors, emit_vector_entry, emit_vector_tasks
from shlo_jit.kernels.llvm_values import V, const, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads import jobs

__all__ = ["GEMM_PARAMS", "GemmStrategy", "GemmTypes", "gemm_routine", "gemm_symbol", "scratch_bytes", "tile_routine"]

GEMM_PARAMS = (
    ("ptr", "A"),
    ("i64", "a_row_stride"),
    ("i64", "a_col_stride"),
    ("i64", "a_batch_stride"),
    ("ptr", "B"),
    ("i64", "b_row_stride"),
    ("i64", "b_col_stride"),
    ("i64", "b_batch_stride"),
    ("i64", "b_prepacked"),
    ("ptr", "C"),
    ("i64", "c_row_stride"),
    ("i64", "c_batch_stride"),
    ("i64", "batch"),
    ("i64", "m"),
    ("i64", "n"),
    ("i64", "k"),
    ("i64", "k0"),
    ("ptr", "scratch"),
    ("ptr", "epilogue"),
    ("ptr", "frame"),
    ("ptr", "following"),
    ("i64", "following_bytes"),
    ("ptr", "job"),
    ("i64", "threads"),
)
"""Parameters of the routine. Strides are in elements, of any size and sign, 0 broadcasts; C's columns are adjacent.

If `b_prepacked` is 1, B consists of the panels of `prepacked.py`, and only its batch stride is used. Only tiles read
these panels.

`k0` is 0, or C holds the sums of the first `k0` steps of k, and the routine adds to them. So A and B may be given in
parts, a call for each. Prepacked operands may not.

`following` is the address of data that is read after this product, `following_bytes` its size. If B is prepacked, the
data is prefetched beside the last tiles.

`job` is null, or the record of `threads/jobs.py` in which the routine describes its last tasks instead of running them.

`scratch` has `scratch_bytes(...)` bytes aligned to 64, or `given_scratch_bytes(...)` if decisions are given. `epilogue`
is null or `void (ptr frame, i64 batch, i64 i0, i64 i1, i64 j0, i64 j1)`, called once for every rectangle of C when it
is final, by the thread that computed it; the rectangles partition C.
"""


def gemm_symbol(types: GemmTypes, way: GemmStrategy = GemmStrategy.ANY, form: Form = Form.USUAL) -> str:
    """Returns the external symbol for these types."""
    return f"shlo_gemm_{types.name}{way.value}{form.value}"


@cache
def gemm_routine(
    a_dtype: str,
    b_dtype: str,
    acc_dtype: str,
    target: Target,
    way: GemmStrategy = GemmStrategy.ANY,
    form: Form = Form.USUAL,
) -> Routine:
    """Returns the routine for these element types (StableHLO names). Tiles exist in all forms, skinny tiles in those
    without a computed operand, the others in the usual one."""
    types = GemmTypes(a_dtype, b_dtype, acc_dtype)
    symbol = gemm_symbol(types, way, form)
    if way is GemmStrategy.TILES:
        return Routine(symbol, (symbol,), partial(_build_entry, types, form), (tile_routine(types, target),))
    if way is GemmStrategy.VECTORS:
        return Routine(symbol, (symbol,), partial(_build_vectors, types))
    if way is GemmStrategy.FEW:
        return Routine(symbol, (symbol,), partial(_build_few, types, form), (tile_routine(types, target),))
    ways = (
        (GemmStrategy.TILES, GemmStrategy.VECTORS)
        if has_vector_path(gemm_plan(types, target))
        else (GemmStrategy.TILES,)
    )
    needs = tuple(gemm_routine(a_dtype, b_dtype, acc_dtype, target, way) for way in ways)
    return Routine(symbol, (symbol,), partial(_build_any, types), needs)


@cache
def tile_routine(types: GemmTypes, target: Target) -> Routine:
    """Returns the routine of the register tile and the packing of operands."""
    plan = gemm_plan(types, target)
    a, b = pack_plans(plan)
    symbols = (stripe_symbol(plan), *dict.fromkeys((a.name, b.name)))
    return Routine(f"{plan.symbol}_tile", symbols, partial(_build_tile, types))


@cache
def stripe_routine(types: GemmTypes, target: Target, height: int) -> Routine:
    """Returns the routine of a register tile with a height that `tile_routine` lacks, for stripes of this height."""
    symbol = stripe_symbol(gemm_plan(types, target), height)
    return Routine(symbol, (symbol,), partial(_build_stripe, types, height))


def _build_stripe(types: GemmTypes, height: int, module: ModuleText, target: Target) -> None:
    emit_stripe(module, gemm_plan(types, target), target, height)


def _build_tile(types: GemmTypes, module: ModuleText, target: Target) -> None:
    plan = gemm_plan(types, target)
    packs = pack_plans(plan)
    if plan.kind == "amx":
        emit_amx(module, plan, target)
        packs = packs[1:]
    else:
        emit_stripe(module, plan, target)
    for pack in dict.fromkeys(packs):
        emit_pack(module, pack, target, tile_attributes(target))


def _build_entry(types: GemmTypes, form: Form, module: ModuleText, target: Target) -> None:
    plan = gemm_plan(types, target)
    if form.computed is not None:
        emit_compute(module, plan, target, form.computed, f"{names_of(plan, form)}_compute")
    emit_rectangle(module, plan, target, form)
    task = emit_task(module, plan, target, form)
    pack_task = emit_pack_task(module, plan, target, form)
    emit_entry(module, plan, target, task, pack_task, form)


def _build_vectors(types: GemmTypes, module: ModuleText, target: Target) -> None:
    plan = gemm_plan(types, target)
    tasks = emit_vector_tasks(module, plan, target)
    b = module.function(
        gemm_symbol(types, GemmStrategy.VECTORS), GEMM_PARAMS, linkage="", attributes=attributes(target)
    )
    s = _Shape(b, plan)
    emit_vector_entry(b, plan, _frame(b, s), tasks, s.job, s.threads)
    b.ret()


def _build_few(types: GemmTypes, form: Form, module: ModuleText, target: Target) -> None:
    plan, symbol = gemm_plan(types, target), gemm_symbol(types, GemmStrategy.FEW, form)
    task = emit_skinny_task(module, plan, target, symbol)
    b = module.function(symbol, _params(form), linkage="", attributes=attributes(target))
    s = _Shape(b, plan)
    f = _frame(b, s)
    _count_from_k0(b, s, f)
    emit_skinny_entry(b, plan, f, task, s.extents, s.job, s.threads, s.given)
    b.ret()


def _params(form: Form) -> tuple[tuple[str, str], ...]:
    decisions = GIVEN_PARAMS if form.takes_decisions else ()
    return (*GEMM_PARAMS, *decisions, *(COMPUTED_PARAMS if form.computed is not None else ()))


def _build_any(types: GemmTypes, module: ModuleText, target: Target) -> None:
    plan = gemm_plan(types, target)
    b = module.function(gemm_symbol(types), GEMM_PARAMS, linkage="", attributes=attributes(target))

    def call(way: GemmStrategy) -> list[V]:
        b.call("void", gemm_symbol(types, way), b.params)
        return []

    if has_vector_path(plan):
        s = _Shape(b, plan)
        fits = b.and_(emit_takes_vectors(b, plan, _frame(b, s)), b.xor(s.prepacked, const("i1", True)))
        b.if_else(fits, lambda: call(GemmStrategy.VECTORS), lambda: call(GemmStrategy.TILES))
    else:
        call(GemmStrategy.TILES)
    b.ret()


def _frame(b: Builder, s: _Shape) -> Frame:
    """Returns a frame that holds the arguments."""
    f = Frame(b, jobs.frame_memory(b, s.job, len(FIELDS)))
    f.set(a=s.a, a_rs=s.a_rs, a_cs=s.a_cs, a_bs=s.a_bs, b=s.b, b_rs=s.b_rs, b_cs=s.b_cs, b_bs=s.b_bs)
    f.set(c=s.c, c_rs=s.c_rs, c_bs=s.c_bs, batch=s.batch, m=s.m, n=s.n, k=s.k, k0=s.k0, k1=s.k, batch0=0)
    f.set(epilogue=s.epilogue, frame=s.frame)
    return f


class _Shape:
    """The arguments, with strides in bytes."""

    def __init__(self, b: Builder, plan: GemmPlan):
        p = {v.text[1:]: v for v in b.params}
        sizes = {"a": itemsize(plan.types.a), "b": itemsize(plan.types.b), "c": itemsize(plan.types.acc)}
        self.a, self.b, self.c = p["A"], p["B"], p["C"]
        self.a_rs, self.a_cs, self.a_bs = (b.mul(p[f"a_{x}_stride"], sizes["a"]) for x in ("row", "col", "batch"))
        self.b_rs, self.b_cs, self.b_bs = (b.mul(p[f"b_{x}_stride"], sizes["b"]) for x in ("row", "col", "batch"))
        self.c_rs, self.c_bs = (b.mul(p[f"c_{x}_stride"], sizes["c"]) for x in ("row", "batch"))
        self.batch, self.m, self.n, self.k, self.k0 = p["batch"], p["m"], p["n"], p["k"], p["k0"]
        self.prepacked = b.icmp("ne", p["b_prepacked"], 0)
        self.scratch, self.epilogue, self.frame, self.threads = (
            p[x] for x in ("scratch", "epilogue", "frame", "threads")
        )
        self.following, self.following_bytes, self.job = p["following"], p["following_bytes"], p["job"]
        self.given = Blocking(**{x: p[x] for x in Blocking._fields}) if Blocking._fields[0] in p else None
        """The caller's decisions, if this form of the routine takes them."""

    @property
    def extents(self) -> Extents:
        return Extents(self.batch, self.m, self.n, self.k, self.a_rs, self.a_cs, self.b_cs, self.b_rs, self.prepacked)


def emit_entry(module: ModuleText, plan: GemmPlan, target: Target, task: str, pack_task: str, form: Form) -> None:
    """Emits the external symbol: it decides on blocking and packing by the shape, or takes the caller's decisions, and
    runs the tasks."""
    symbol = gemm_symbol(plan.types, GemmStrategy.TILES, form)
    b = module.function(symbol, _params(form), linkage="", attributes=attributes(target))
    s = _Shape(b, plan)
    run, end = b.label("run"), b.label("empty")
    b.branch_if(b.icmp("sgt", b.mul(b.mul(s.batch, s.m), s.n), 0), run, end)
    b.start(run)
    f = _frame(b, s)
    stop = _count_from_k0(b, s, f)
    product = b.mul(b.mul(s.m, s.n), b.max_(s.k, 1))
    numbers, extents = Registers(b), s.extents
    mode, each = _modes(numbers, plan, s, product)
    f.set(mode_b=mode[0], pack_a=mode[1], kc=each)
    rectangles = _for_threads(b, plan, s, mode, _rectangles(numbers, plan, s, mode, product), product)
    f.set(mc=rectangles.mc, nc=rectangles.nc, rows=rectangles.rows, columns=rectangles.columns, group=rectangles.group)
    tasks = policy.task_count(numbers, rectangles, s.batch)
    # A prefetch of an invalid address would walk the page tables each time.
    following = b.select(b.icmp("eq", s.following_bytes, 0), s.c, s.following)
    f.set(following=following, share=b.udiv(s.following_bytes, tasks))
    shared, far = (b.icmp("eq", x, SHARED) for x in mode)
    _lay_out(b, plan, s, f, each, shared, far, form)
    task_at, pack_at = V("ptr", f"@{task}"), V("ptr", f"@{pack_task}")

    def phases() -> list[V]:
        """Packs all of B, kc rows at a time; after each packing, all of C advances by kc steps."""
        panels_b = many_threads.pack_panels(numbers, plan.nr, s.n, s.threads)
        panels_a = many_threads.pack_panels(numbers, plan.mr, s.m, s.threads)
        for_b = b.select(shared, ceil_div(b, s.n, b.mul(panels_b, plan.nr)), i64(0))
        for_a = ceil_div(b, s.m, b.mul(panels_a, plan.mr))
        pack_tasks = b.add(for_b, b.select(far, for_a, i64(0)))
        f.set(pack_b=for_b, pack_panels_b=panels_b, pack_panels_a=panels_a)
        with b.loop(0, s.batch, hint="batch") as at, b.loop(s.k0, b.max_(stop, 1), each, "phase") as kb:
            f.set(batch0=at, k0=kb, k1=b.min_(b.add(kb, each), stop))
            b.call("void", "shlo_parallel", [pack_at, f.pointer, pack_tasks, s.threads])
            is_last = b.and_(b.icmp("eq", at, b.sub(s.batch, 1)), b.icmp("sge", b.add(kb, each), stop))
            jobs.spread(b, b.select(is_last, s.job, jobs.NULL), task_at, f.pointer, tasks, s.threads)
        return []

    def once() -> list[V]:
        small = policy.is_serial(numbers, extents, product) if s.given is None else const("i1", False)
        serial = b.and_(b.or_(small, b.icmp("eq", tasks, 1)), b.not_(jobs.is_wanted(b, s.job)))

        def here() -> list[V]:
            with b.loop(0, tasks, hint="task") as i:
                b.call("void", task, [f.pointer, i, i64(0)])
            return []

        def spread() -> list[V]:
            jobs.spread(b, s.job, task_at, f.pointer, tasks, s.threads)
            return []

        b.if_else(serial, here, spread)
        return []

    b.if_else(rectangles.phased, phases, once)
    b.branch(end)
    b.start(end)
    b.ret()


def _modes(a: Registers, plan: GemmPlan, s: _Shape, product: V) -> tuple[tuple[V, V], V]:
    """Returns the modes of B and A, and the elements of k of a pass."""
    if s.given is not None:
        return (s.given.mode_b, s.given.mode_a), s.given.kc
    mode = policy.packing(a, plan, s.extents, product)
    return mode, policy.k_block(a, plan, s.k, s.prepacked)


def _rectangles(a: Registers, plan: GemmPlan, s: _Shape, mode: tuple[V, V], product: V) -> Cut:
    """Returns the rectangles of C that tasks compute."""
    if s.given is None:
        return policy.cut(a, plan, s.extents, mode, product)
    mc, nc = s.given.mc, s.given.nc
    rows, columns = a.ceil_div(s.m, mc), a.ceil_div(s.n, nc)
    phased = a.either(*(a.compare("eq", x, SHARED) for x in mode))
    return Cut(mc, nc, rows, columns, s.given.group, a.mul(rows, columns), phased)


def _for_threads(b: Builder, plan: GemmPlan, s: _Shape, mode: tuple[V, V], cut: Cut, product: V) -> Cut:
    """Returns the rectangles, or smaller ones for many threads, unless the caller has decided."""
    if s.given is not None:
        return cut
    parts = cut.mc, cut.nc, cut.rows, cut.columns, cut.group, cut.grid

    def spread() -> list[V]:
        return list(many_threads.spread(Registers(b), plan, s.extents, mode, cut, product, s.threads)[:-1])

    mc, nc, rows, columns, group, grid = b.if_else(
        b.icmp("sgt", s.threads, tuning.MANY_THREADS), spread, lambda: list(parts)
    )
    return Cut(mc, nc, rows, columns, group, grid, cut.phased)


def _count_from_k0(b: Builder, s: _Shape, f: Frame) -> V:
    """Limits the tasks to k0 <= k < k0 + K of a longer product. Returns k0 + K."""
    stop = b.add(s.k0, s.k)
    f.set(a=b.offset(s.a, b.mul(s.k0, b.sub(0, s.a_cs))), b=b.offset(s.b, b.mul(s.k0, b.sub(0, s.b_rs))))
    f.set(k=stop, k1=stop)
    return stop


def _lay_out(b: Builder, plan: GemmPlan, s: _Shape, f: Frame, each: V, shared: V, far: V, form: Form) -> None:
    """Divides the scratch memory: all of B and all of A (kc steps) if they are shared, then a part per worker."""
    panels = ceil_div(b, s.n, plan.nr)
    panel_bytes = panel_bytes_of(b, plan, b.min_(s.k, each))
    if s.given is None:
        chunk = b.mul(b.min_(panels, plan.widest // plan.nr), panel_bytes)
        a_panel = b.select(s.prepacked, i64(a_panel_bytes(plan, True)), i64(a_panel_bytes(plan)))
    else:
        private = b.icmp("eq", s.given.mode_b, PRIVATE)
        most = b.select(private, ceil_div(b, s.given.nc, plan.nr), i64(0))
        chunk, a_panel = b.mul(b.min_(panels, most), panel_bytes), i64(a_panel_bytes(plan, True))
    units = b.mul(ceil_div(b, b.min_(s.k, each), plan.k_unit), plan.k_unit // plan.group)
    shared_a_panel = b.add(b.mul(units, plan.mr * plan.unit_bytes * plan.parts), 256)
    shared_a = b.offset(s.scratch, b.select(shared, b.mul(panels, panel_bytes), i64(0)))
    workers = b.offset(shared_a, b.select(far, b.mul(ceil_div(b, s.m, plan.mr), shared_a_panel), i64(0)))
    f.set(shared=b.select(s.prepacked, s.b, s.scratch), shared_a=shared_a, worker=workers)
    chunk = b.select(s.prepacked, i64(0), chunk)
    own = b.add(chunk, a_panel)
    if form.computed is not None:
        names = [name for _, name in COMPUTED_PARAMS]
        f.set(**dict(zip(names, b.params[-len(names) :], strict=True)), box=own)
        own = b.add(own, box_bytes(plan, form.computed))
    f.set(panel_bytes=panel_bytes, a_panel=shared_a_panel, worker_bytes=own)
