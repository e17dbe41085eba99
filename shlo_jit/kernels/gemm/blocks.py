"""Blocking of a product above the stripes: how it is cut into tasks, what is packed where, and in which order.

C is cut into rectangles of `mc` x `nc` elements, a task each; the cut depends on the shapes alone. A task iterates over
its rows in stripes of `mr`, each by the task's columns of B. Each operand is read in one of these modes:

    in place    it is small, or its elements are used so rarely that packing costs more
    shared      a parallel phase packs kc steps of the whole operand, then the tasks run; repeated for each kc steps
    private     the task packs what it needs: a stripe of A at a time, all its columns of B
    prepacked   B is a constant that was packed when the program was compiled (see `prepacked.py`)

Shared packing is for large products. A stripe of A that every task packs again is loaded from far away each time; with
four chunks of columns that was 10 % of a 2048 x 2048 x 2048 product.

k is cut into equal blocks of at most `kc` (`prepacked_kc`), and these by the tiles into chains of at most
`GEMM_SUM_TERMS` steps (`terms.py`). An element is the serial sum of each chain, with one rounding per multiply-add,
added to those before it in order: the same bits for any number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.gemm.forms import Form
from shlo_jit.kernels.gemm.micro import attributes, next_height
from shlo_jit.kernels.gemm.pack import pack_plans
from shlo_jit.kernels.gemm.policy import IN_PLACE, PREPACKED, PRIVATE, SHARED, may_collide
from shlo_jit.kernels.gemm.precision import GemmPlan, GemmTypes, gemm_plan, itemsize
from shlo_jit.kernels.llvm_values import V, const, i64
from shlo_jit.kernels.target import Target
from shlo_jit.sizes import at_most, surely

_FIELDS = (
    "a a_rs a_cs a_bs b b_rs b_cs b_bs c c_rs c_bs batch m n k mc nc rows columns group pack_a mode_b k0 k1 "
    "kc pack_b shared panel_bytes shared_a a_panel worker worker_bytes epilogue frame batch0 x_rs y_rs following share "
    "compute computing box_j box_k box pack_panels_a pack_panels_b"
)
FIELDS = tuple(_FIELDS.split())
"""Slots of the frame a task reads; strides in bytes. There are `rows` x `columns` chunks per product and `group`
products per task. k0 to k1 is the part of k to compute, `kc` of it at a time. `pack_a` and `mode_b` are the modes of A
and B; `pack_b` tasks pack B, `pack_panels_b` panels each; `shared` has the panels of B that are packed already. Each
task prefetches its `share`, in bytes, of `following`. `x_rs` and `y_rs`: see `vector.py`. `compute` to `box_k`: see
`computed.py`; `box` is the offset of the box in a worker's memory."""
FETCHED_A_STEP = 64
"""Maximum number of bytes prefetched for later in a step of k: a cache line."""


class Frame:
    """An array of 8-byte slots that are accessed by name."""

    def __init__(self, b: Builder, pointer: V):
        self.b, self.pointer = b, pointer

    def set(self, **values: V | int) -> None:
        for name, value in values.items():
            v = value if isinstance(value, V) else i64(value)
            self.b.store(v, self._slot(name), align=8)

    def get(self, name: str, type: str = "i64") -> V:
        return self.b.load(type, self._slot(name), align=8)

    def pointers(self, *names: str) -> list[V]:
        return [self.get(n, "ptr") for n in names]

    def ints(self, *names: str) -> list[V]:
        return [self.get(n) for n in names]

    def _slot(self, name: str) -> V:
        return self.b.offset(self.pointer, 8 * FIELDS.index(name))


def ceil_div(b: Builder, a: V, c: V | int) -> V:
    return b.udiv(b.add(a, b.sub(c, 1)), c)


def should_notify_epilogue(b: Builder, nbytes: V, last: V) -> V:
    """Returns whether to notify the epilogue of the stripes since its last call, which are `nbytes` of C. It is called
    for several at a time, since a call costs as much as a short stripe, and while they are in the first level cache."""
    return b.or_(last, b.icmp("sge", nbytes, tuning.EPILOGUE_BYTES))


def panel_bytes_of(b: Builder, plan: GemmPlan, k: V) -> V:
    """Emits `GemmPlan.panel_bytes` for a k in a register."""
    steps = b.mul(ceil_div(b, k, plan.group * plan.whole), plan.whole)
    return b.add(b.mul(steps, plan.b_step), plan.header)


def worker_bytes(plan: GemmPlan, n: int, k: int, prepacked: bool) -> int:
    """Returns the packing memory per worker: an A panel (with room for a store beyond its end) and a chunk of B."""
    if prepacked:
        return a_panel_bytes(plan, prepacked)
    panels = at_most(-(-n // plan.nr), plan.widest // plan.nr)
    return a_panel_bytes(plan) + panels * plan.panel_bytes(at_most(k, plan.kc))


def a_panel_bytes(plan: GemmPlan, prepacked: bool = False) -> int:
    """Returns the bytes of an A panel for a block of k; blocks are longer if B is prepacked."""
    size = (plan.prepacked_kc if prepacked else plan.kc) // plan.group * plan.mr * plan.unit_bytes * plan.parts + 256
    return -(-size // 64) * 64


def shared_a_panel_bytes(plan: GemmPlan, k: int) -> int:
    """Returns the bytes of a panel of an A that is packed for all tasks, `k` steps at a time: no more than needed."""
    return -(-k // plan.k_unit) * plan.k_unit // plan.group * plan.mr * plan.unit_bytes * plan.parts + 256


def scratch_bytes(
    types: GemmTypes, target: Target, batch: int, m: int, n: int, k: int, threads: int, prepacked: bool = False
) -> int:
    """Returns the bytes of scratch (aligned to 64) that a product needs for any strides.

    Large products need one packed block of B, all columns and kc rows; each worker needs an A panel and a chunk of B.
    """
    plan = gemm_plan(types, target)
    block, of_b, shared = at_most(k, plan.prepacked_kc if prepacked else plan.kc), at_most(k, plan.kc), 0
    many_rows = not surely(lambda: m <= (tuning.GEMM_PREPACKED_ROWS if prepacked else tuning.GEMM_PRIVATE_ROWS))
    if many_rows or may_collide(plan, m, n, k):
        shared = -(-m // plan.mr) * shared_a_panel_bytes(plan, block)
    if many_rows and not prepacked:
        shared += -(-n // plan.nr) * plan.panel_bytes(of_b)
    return shared + max(threads, 1) * worker_bytes(plan, n, of_b, prepacked) + 64


def names_of(plan: GemmPlan, form: Form) -> str:
    """Returns the beginning of the names of the functions of a routine of this form."""
    return f"{plan.symbol}{form.value}"


def emit_task(module: ModuleText, plan: GemmPlan, target: Target, form: Form) -> str:
    """Emits `void task(ptr frame, i64 index, i64 worker)`, which computes one rectangle of C for `group` products.
    Returns its name."""
    symbol = names_of(plan, form)
    name = f"{symbol}_task"
    b = module.function(name, [("ptr", "frame"), ("i64", "index"), ("i64", "worker")], attributes=attributes(target))
    pointer, index, worker = b.params
    f = Frame(b, pointer)
    m, n, mc, nc, rows, columns, group = f.ints("m", "n", "mc", "nc", "rows", "columns", "group")
    grid = b.mul(rows, columns)
    first = b.add(b.mul(b.udiv(index, grid), group), f.get("batch0"))
    place = b.urem(index, grid)
    # The loop over chunks of rows is innermost: consecutive tasks share the chunk of B.
    i0, j0 = b.mul(b.urem(place, rows), mc), b.mul(b.udiv(place, rows), nc)
    i1, j1 = b.min_(b.add(i0, mc), m), b.min_(b.add(j0, nc), n)
    memory = b.offset(f.get("worker", "ptr"), b.mul(worker, f.get("worker_bytes")))
    last = b.min_(b.add(first, group), f.get("batch"))
    share = f.get("share")
    soon = b.offset(f.get("following", "ptr"), b.mul(index, share))
    with b.loop(first, last, hint="batch") as at:
        fetched = b.select(b.icmp("eq", at, first), share, i64(0))
        b.call("void", f"{symbol}_rectangle", [pointer, at, i0, i1, j0, j1, memory, soon, fetched])
    b.ret()
    return name


def emit_rectangle(module: ModuleText, plan: GemmPlan, target: Target, form: Form = Form.USUAL) -> None:
    """Emits `void rectangle(frame, batch, i0, i1, j0, j1, memory, soon, soon_bytes)`: the k loop and the stripes of a
    rectangle of C. With prepacked panels, `soon` is prefetched beside the last block; it is used after the rectangle.
    Blocks of k that a caller decides may be as long as those of prepacked panels."""
    params = [("ptr", "frame"), *(("i64", x) for x in ("batch", "i0", "i1", "j0", "j1")), ("ptr", "memory")]
    params += [("ptr", "soon"), ("i64", "soon_bytes")]
    b = module.function(f"{names_of(plan, form)}_rectangle", params, attributes=attributes(target))
    pointer, batch, i0, i1, j0, j1, memory, soon, soon_bytes = b.params
    f = Frame(b, pointer)
    a, b_first, c = f.pointers("a", "b", "c")
    a_rs, a_cs, b_rs, b_cs, c_rs, k0, k1, k = f.ints("a_rs", "a_cs", "b_rs", "b_cs", "c_rs", "k0", "k1", "k")
    a = b.offset(a, b.mul(batch, f.get("a_bs")))
    b_first = b.offset(b.offset(b_first, b.mul(batch, f.get("b_bs"))), b.mul(j0, b_cs))
    c = b.offset(b.offset(c, b.mul(batch, f.get("c_bs"))), b.mul(j0, plan.out_bytes))
    n = b.sub(j1, j0)
    chunk = b.offset(memory, a_panel_bytes(plan, form.takes_decisions))
    box = b.offset(memory, f.get("box")) if form.computed is not None else None
    block_bytes = b.mul(f.get("panel_bytes"), ceil_div(b, f.get("n"), plan.nr))
    # k == 0 still takes one iteration: C becomes zero.
    with b.loop(k0, b.max_(k1, 1), f.get("kc"), "kblock") as kb:
        kc = b.min_(b.sub(k1, kb), f.get("kc"))
        rows_b = b.offset(b_first, b.mul(kb, b_rs))
        mode = f.get("mode_b")
        in_place = b.icmp("eq", mode, IN_PLACE)
        _pack_columns(b, plan, f, form, (rows_b, b_cs, b_rs), (batch, j0, kb), (chunk, n, kc), box)
        prepacked = b.icmp("eq", mode, PREPACKED)
        panel_bytes = b.select(prepacked, panel_bytes_of(b, plan, kc), f.get("panel_bytes"))
        shared = b.offset(f.get("shared", "ptr"), b.mul(b.udiv(j0, plan.nr), panel_bytes))
        before = b.add(b.mul(batch, f.get("b_bs")), b.mul(b.udiv(kb, f.get("kc")), block_bytes))
        shared = b.offset(shared, b.select(prepacked, before, i64(0)))
        packed = b.select(b.or_(b.icmp("eq", mode, SHARED), prepacked), shared, chunk)
        operand = (
            b.select(in_place, rows_b, packed),
            b.select(in_place, b_rs, i64(plan.b_step)),
            b.select(in_place, b.mul(b_cs, plan.nr), panel_bytes),
        )
        final = b.icmp("sge", b.add(kb, kc), k)
        report = b.and_(final, b.icmp("ne", f.get("epilogue", "ptr"), V("ptr", "null")))
        # The next block of panels is prefetched while this one is multiplied, some bytes beside every tile.
        panels, stripes = ceil_div(b, n, plan.nr), ceil_div(b, b.sub(i1, i0), plan.mr)
        block = b.mul(panels, panel_bytes_of(b, plan, b.min_(b.max_(b.sub(b.sub(k1, kb), kc), 0), kc)))
        after = b.select(final, soon, b.offset(shared, block_bytes))
        fetched = b.select(prepacked, b.select(final, soon_bytes, block), i64(0))
        per_tile = b.min_(b.udiv(fetched, b.mul(panels, stripes)), b.mul(kc, FETCHED_A_STEP // plan.group))
        with b.if_(b.icmp("slt", i0, i1)), b.repeat([i0, after, i0], "stripe") as stripe:
            i, later, reported = stripe.values
            height = _height_of_stripe(b, plan, f, b.sub(i1, i))
            end = b.add(i, height)
            at = b.offset(b.offset(a, b.mul(i, a_rs)), b.mul(kb, a_cs))
            row = b.offset(c, b.mul(i, c_rs))
            source = _Rows(at, (a_rs, a_cs), (batch, i, kb), form, box)
            _stripe(b, plan, f, source, i, height, operand, row, c_rs, n, kc, kb, memory, (later, per_tile))
            full = should_notify_epilogue(
                b, b.mul(b.sub(end, reported), b.mul(n, plan.out_bytes)), b.icmp("eq", end, i1)
            )
            with b.if_(b.and_(report, full)):
                b.call_pointer("void", f.get("epilogue", "ptr"), [f.get("frame", "ptr"), batch, reported, end, j0, j1])
            stripe.next(end, b.offset(later, b.mul(per_tile, panels)), b.select(full, end, reported))
            stripe.again = b.icmp("slt", end, i1)
    b.ret()


class _Rows(NamedTuple):
    """Rows of A that a stripe multiplies: where they lie, or how they are computed."""

    address: V
    strides: tuple[V, V]
    place: tuple[V, V, V]
    """Number of the product, of the first row, and of the first term."""
    form: Form
    box: V | None

    def pack(self, b: Builder, plan: GemmPlan, f: Frame, to: V, width: V, rows: V, kc: V, panel_bytes: V) -> None:
        """Packs the rows into a panel."""
        if self.form.computed == 0:
            assert self.box is not None
            _compute(b, plan, f, self.form, self.place, to, width, rows, kc, panel_bytes, self.box)
            return
        args = [self.address, *self.strides, to, width, rows, kc, panel_bytes]
        b.call("void", pack_plans(plan)[0].name, args)


def _compute(
    b: Builder,
    plan: GemmPlan,
    f: Frame,
    form: Form,
    place: tuple[V, V, V],
    panels: V,
    width: V,
    count: V,
    k: V,
    panel_bytes: V,
    box: V,
) -> None:
    """Computes and packs `count` rows or columns, from a place on: number of the product, row or column, term."""
    batch, j0, k0 = place
    head = [*f.pointers("compute", "computing"), *f.ints("box_j", "box_k"), batch, j0, count, k0, k]
    b.call("void", f"{names_of(plan, form)}_compute", [*head, panels, width, panel_bytes, box], declare=False)


def _pack_columns(
    b: Builder,
    plan: GemmPlan,
    f: Frame,
    form: Form,
    source: tuple[V, V, V],
    place: tuple[V, V, V],
    to: tuple[V, V, V],
    box: V | None,
) -> None:
    """Packs columns of B if each task packs its own. `source`: address and strides; `place`: number of the product, of
    the first column and term; `to`: the panels, columns, and terms."""
    with b.if_(b.icmp("eq", f.get("mode_b"), PRIVATE)):
        panels, n, kc = to
        if form.computed == 1:
            assert box is not None
            _compute(b, plan, f, form, place, panels, i64(plan.nr), n, kc, f.get("panel_bytes"), box)
        else:
            args = [*source, panels, i64(plan.nr), n, kc, f.get("panel_bytes")]
            b.call("void", pack_plans(plan)[1].name, args)


def _height_of_stripe(b: Builder, plan: GemmPlan, f: Frame, left: V) -> V:
    """Returns the height of a stripe, for `left` rows, such that all tiles have a good height. If A is packed for all
    tasks, its panels have whole stripes."""
    height = b.min_(left, plan.mr)
    if plan.kind == "amx":
        return height
    whole = b.or_(b.icmp("eq", f.get("pack_a"), SHARED), b.icmp("sle", left, plan.mr))
    return b.select(whole, height, next_height(b, plan, left, 2 * plan.mr - 1))


def _stripe(
    b: Builder,
    plan: GemmPlan,
    f: Frame,
    source: _Rows,
    i: V,
    height: V,
    operand: tuple[V, V, V],
    c: V,
    c_rs: V,
    n: V,
    kc: V,
    kb: V,
    memory: V,
    later: tuple[V, V],
) -> None:
    """Packs the rows of A if required and calls the stripe."""
    a, a_strides = source.address, source.strides
    if plan.kind == "amx":
        _amx_stripe(b, plan, f, source, height, operand, (c, c_rs), n, kc, kb, memory, later)
        return
    width = height if plan.masks else i64(plan.mr)
    with b.if_(b.icmp("eq", f.get("pack_a"), PRIVATE)):
        source.pack(b, plan, f, memory, width, height, kc, i64(0))
    shared = b.offset(f.get("shared_a", "ptr"), b.mul(b.udiv(i, plan.mr), f.get("a_panel")))
    in_place, far = (b.icmp("eq", f.get("pack_a"), mode) for mode in (IN_PLACE, SHARED))
    unit = plan.unit_bytes
    a_at = b.select(in_place, a, b.select(far, shared, memory))
    a_rs = b.select(in_place, a_strides[0], i64(unit))
    packed_step = b.mul(b.select(far, i64(plan.mr), width), unit * plan.parts)
    a_cs = b.select(in_place, b.mul(a_strides[1], plan.group), packed_step)
    steps = b.udiv(b.add(kc, plan.group - 1), plan.group)
    more = b.cast("zext", b.icmp("ne", kb, 0), "i64")
    b_at, b_rs, b_panel = operand
    args = [a_at, a_rs, a_cs, height, b_at, b_rs, b_panel, c, c_rs, n, steps, more, i64(1), i64(0), *later]
    args += [i64(0), i64(0)]
    b.call("void", f"{plan.symbol}_stripe", args)


def _amx_stripe(
    b: Builder,
    plan: GemmPlan,
    f: Frame,
    source: _Rows,
    height: V,
    operand: tuple[V, V, V],
    c: tuple[V, V],
    n: V,
    kc: V,
    kb: V,
    memory: V,
    later: tuple[V, V],
) -> None:
    """Calls the stripe of AMX. A is read in place if its rows are contiguous, fill whole tiles and are multiplied by
    few columns; else it is packed tile by tile."""
    a, a_strides = source.address, source.strides
    block = plan.group * plan.whole
    tiles = b.udiv(b.add(kc, block - 1), block)
    row_bytes = b.mul(tiles, block * itemsize(plan.types.a))
    whole = b.and_(b.icmp("eq", b.mul(tiles, block), kc), b.icmp("eq", height, plan.mr))
    in_place = b.and_(whole, b.icmp("eq", a_strides[1], itemsize(plan.types.a)))
    in_place = b.and_(in_place, b.icmp("sle", n, tuning.GEMM_AMX_IN_PLACE))
    if source.form.computed == 0:
        in_place = const("i1", False)
    with b.if_(b.not_(in_place)):
        source.pack(b, plan, f, memory, i64(plan.mr), height, kc, row_bytes)
    row = block * itemsize(plan.types.a)
    a_at, a_rs = b.select(in_place, a, memory), b.select(in_place, a_strides[0], i64(row))
    a_step = b.select(in_place, i64(row), i64(row * plan.mr))
    more = b.cast("zext", b.icmp("ne", kb, 0), "i64")
    args = [a_at, a_rs, a_step, height, *operand, *c, n, b.mul(tiles, plan.whole), more, i64(1), i64(0), *later]
    args += [i64(0), i64(0)]
    b.call("void", f"{plan.symbol}_stripe", args)


def emit_pack_task(module: ModuleText, plan: GemmPlan, target: Target, form: Form) -> str:
    """Emits `void task(ptr frame, i64 index, i64 worker)`, which packs steps k0 to k1 of some columns of B, or of some
    rows of A. Returns its name."""
    name = f"{names_of(plan, form)}_pack_task"
    b = module.function(name, [("ptr", "frame"), ("i64", "index"), ("i64", "worker")], attributes=attributes(target))
    pointer, index, worker = b.params
    f = Frame(b, pointer)
    batch, k0, k1 = f.ints("batch0", "k0", "k1")
    for_b = f.get("pack_b")

    def pack(operand: int, nth: V) -> list[V]:
        of, j_stride, k_stride = ("a", "a_rs", "a_cs") if operand == 0 else ("b", "b_cs", "b_rs")
        width, extent, to, each = (
            (plan.mr, "m", "shared_a", "a_panel") if operand == 0 else (plan.nr, "n", "shared", "panel_bytes")
        )
        panels = f.get(f"pack_panels_{of}")
        many = b.mul(panels, width)
        first = b.mul(nth, many)
        strides = f.ints(j_stride, k_stride)
        source = b.offset(f.get(of, "ptr"), b.mul(batch, f.get(f"{of}_bs")))
        source = b.offset(b.offset(source, b.mul(first, strides[0])), b.mul(k0, strides[1]))
        panel = f.get(each)
        place = b.offset(f.get(to, "ptr"), b.mul(nth, b.mul(panel, panels)))
        count = b.min_(b.sub(f.get(extent), first), many)
        if form.computed == operand:
            memory = b.offset(f.get("worker", "ptr"), b.mul(worker, f.get("worker_bytes")))
            box = b.offset(memory, f.get("box"))
            _compute(b, plan, f, form, (batch, first, k0), place, i64(width), count, b.sub(k1, k0), panel, box)
            return []
        args = [source, *strides, place, i64(width), count, b.sub(k1, k0), panel]
        b.call("void", pack_plans(plan)[operand].name, args)
        return []

    b.if_else(b.icmp("slt", index, for_b), lambda: pack(1, index), lambda: pack(0, b.sub(index, for_b)))
    b.ret()
    return name
