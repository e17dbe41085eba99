"""Products of a matrix with one vector or a few: bound by memory, so the matrix is read once, front to back.

    y[r, o] = sum over k of M[o, k] * x[r, k]

With o adjacent in memory (`axpy`) a task keeps some hundred sums in the first level cache and adds eight steps of k at
a time to them. With k adjacent (`dot`, one vector only) it computes eight rows together and adds up the lanes of their
sums, halves first. Both orders depend on the shape alone. If the product adds to previous sums in y, `axpy` starts with
them, and `dot` adds them to the final sum. If the vectors are rows of A, rows of M are columns of B. Other layouts,
short vectors and complex numbers take the general path.
"""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.gemm import policy
from shlo_jit.kernels.gemm.blocks import Frame, ceil_div
from shlo_jit.kernels.gemm.micro import attributes, lane_masks
from shlo_jit.kernels.gemm.pack import convert
from shlo_jit.kernels.gemm.precision import GemmPlan, itemsize, storage
from shlo_jit.kernels.gemm.staged_numbers import Registers
from shlo_jit.kernels.lane_sums import fold
from shlo_jit.kernels.llvm_values import V, const, i64, vector
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads import jobs

STEPS = 8
"""Steps of k, or rows, computed together."""


class _Vector:
    """Base of both emitters: loads that convert, and a multiply-add."""

    def __init__(self, b: Builder, plan: GemmPlan, target: Target):
        self.b, self.plan, self.target = b, plan, target
        self.element, self.size = storage(plan.types.a), itemsize(plan.types.a)
        self.float = plan.acc in ("float", "double")

    def load(self, at: V, n: int, mask: V | None = None) -> V:
        """Loads n elements and converts them to the type of the sums."""
        t = vector(self.element, n)
        x = self.b.load(t, at) if mask is None else self.b.masked_load(t, at, mask)
        return convert(self.b, x, self.plan.types.a, self.plan.acc)

    def fma(self, x: V, y: V, z: V) -> V:
        b = self.b
        if not self.float:
            return b.add(b.mul(x, y), z)
        return b.fma(x, y, z) if self.target.has_fma else b.fadd(b.fmul(x, y), z)

    def add(self, x: V, y: V) -> V:
        return self.b.fadd(x, y) if self.float else self.b.add(x, y)

    def bytes_ahead(self, row: V, stride: V, vectors: V) -> V:
        """Returns the prefetch distance in bytes for rows of `row` bytes, `stride` bytes apart: along a long row that
        one vector is multiplied by, which the hardware follows late, else to the next rows."""
        b = self.b
        is_along = b.and_(b.icmp("eq", vectors, 1), b.icmp("sgt", row, tuning.GEMM_VECTOR_LONG))
        return b.select(is_along, i64(tuning.GEMM_VECTOR_ALONG), b.mul(stride, self.steps_ahead(row)))

    def steps_ahead(self, row: V) -> V:
        """Returns the prefetch distance, in steps, for rows of `row` bytes: the next steps, or more, to keep enough
        loads in flight."""
        b = self.b
        return b.mul(b.max_(b.udiv(i64(tuning.GEMM_VECTOR_PREFETCH), b.mul(row, STEPS)), 1), STEPS)


TASK_PARAMS = [("ptr", "frame"), ("i64", "index"), ("i64", "worker")]


def emit_vector_tasks(module: ModuleText, plan: GemmPlan, target: Target) -> tuple[str, str]:
    """Emits the tasks `axpy` and `dot`; returns their names.

    Slots of the frame: a = M (a_rs to the next output, a_cs to the next k), b = x (b_rs), c = y (c_rs), n outputs, nc
    of them per task, mode_b = 1 if the vectors are rows of A; m vectors, x_rs and y_rs from one to the next."""
    return _emit(module, plan, target, "axpy"), _emit(module, plan, target, "dot")


def _emit(module: ModuleText, plan: GemmPlan, target: Target, which: str) -> str:
    name = f"{plan.symbol}_{which}"
    b = module.function(name, TASK_PARAMS, attributes=attributes(target))
    pointer, index, _ = b.params
    f = Frame(b, pointer)
    n, chunk, chunks = f.ints("n", "nc", "columns")
    batch = b.udiv(index, chunks)
    o0 = b.mul(b.urem(index, chunks), chunk)
    o1 = b.min_(b.add(o0, chunk), n)
    matrix, x, y = (b.offset(f.get(p, "ptr"), b.mul(batch, f.get(f"{p}_bs"))) for p in "abc")
    v = _Vector(b, plan, target)
    (_axpy if which == "axpy" else _dot)(v, f, matrix, x, y, o0, o1)
    epilogue = f.get("epilogue", "ptr")
    with b.if_(b.icmp("ne", epilogue, V("ptr", "null"))):
        row = b.icmp("ne", f.get("mode_b"), 0)
        zero, one = i64(0), i64(1)
        ends = [b.select(row, p, q) for p, q in ((zero, o0), (f.get("m"), o1), (o0, zero), (o1, one))]
        b.call_pointer("void", epilogue, [f.get("frame", "ptr"), batch, *ends])
    b.ret()
    return name


def _axpy(v: _Vector, f: Frame, matrix: V, x: V, y: V, o0: V, o1: V) -> None:
    """Emits the task for adjacent outputs. Sums are stored row after row, whole vectors each. A vector of each of STEPS
    rows of M is held in registers, and multiplied by all vectors x."""
    b, plan = v.b, v.plan
    bytes_, n = plan.out_bytes, plan.lanes
    k, k_stride, x_stride, y_stride, m, x_rs, y_rs = f.ints("k", "a_cs", "b_rs", "c_rs", "m", "x_rs", "y_rs")
    sums = b.alloca("i8", plan.bytes_of(tuning.GEMM_VECTOR_CHUNK))
    factors = b.alloca("i8", tuning.GEMM_THIN * STEPS * bytes_)
    count = b.sub(o1, o0)
    vectors = b.mul(b.udiv(count, n), n)
    row_bytes = b.mul(b.mul(ceil_div(b, count, n), n), bytes_)
    b.memset(sums, 0, b.mul(row_bytes, m))
    results = b.offset(y, b.mul(o0, y_stride)), y_rs, y_stride
    with b.if_(b.icmp("ne", f.get("k0"), 0)):
        _copy(v, results, (sums, row_bytes, i64(bytes_)), m, count)
    matrix = b.offset(matrix, b.mul(o0, v.size))

    def columns(rows: list[V], ahead: V | None, o: V, width: int, mask: V | None) -> None:
        """Multiplies some columns of some rows of M by all vectors."""
        here = [b.offset(r, b.mul(o, v.size)) for r in rows]
        if ahead is not None:
            for p in here:
                b.prefetch(b.offset(p, ahead), locality=2)
        parts = [v.load(p, width, mask) for p in here]
        with b.loop_carry(0, m, [b.offset(sums, b.mul(o, bytes_)), factors], hint="row") as carry:
            place, c = carry.values
            total = b.load(vector(plan.acc, width), place)
            for t, part in enumerate(parts):
                total = v.fma(b.splat(b.load(plan.acc, b.offset(c, t * bytes_)), width), part, total)
            b.store(total, place)
            carry.next(b.offset(place, row_bytes), b.offset(c, STEPS * bytes_))

    def some(first: V, steps: int) -> None:
        at = b.offset(x, b.mul(first, x_stride))
        with b.loop(0, m, hint="vector") as r:
            of, to = b.offset(at, b.mul(r, x_rs)), b.offset(factors, b.mul(r, STEPS * bytes_))
            for t in range(steps):
                b.store(v.load(b.offset(of, b.mul(x_stride, t)), 1), b.offset(to, t * bytes_))
        row = b.offset(matrix, b.mul(first, k_stride))
        rows = [b.offset(row, b.mul(k_stride, t)) for t in range(steps)]
        ahead = distance if steps > 1 else None
        if plan.masks:
            with b.loop(0, count, n) as o:
                columns(rows, ahead, o, n, lane_masks(b, plan, b.min_(b.sub(count, o), n), 1)[0])
            return
        with b.loop(0, vectors, n) as o:
            columns(rows, ahead, o, n, None)
        with b.loop(vectors, count) as o:
            columns(rows, None, o, 1, None)

    distance = v.bytes_ahead(b.mul(count, v.size), k_stride, m)
    whole = b.mul(b.udiv(k, STEPS), STEPS)
    with b.loop(0, whole, STEPS) as t:
        some(t, STEPS)
    with b.loop(whole, k) as t:
        some(t, 1)
    _copy(v, (sums, row_bytes, i64(bytes_)), results, m, count)


def _copy(v: _Vector, source: tuple[V, V, V], target: tuple[V, V, V], rows: V, count: V) -> None:
    """Copies sums. `source` and `target`: address, bytes from row to row and from sum to sum."""
    b = v.b
    with b.loop(0, rows, hint="row") as r:
        of, to = (b.offset(at, b.mul(r, row)) for at, row, _ in (source, target))
        with b.loop(0, count) as o:
            value = b.load(v.plan.out, b.offset(of, b.mul(o, source[2])))
            b.store(value, b.offset(to, b.mul(o, target[2])))


def _dot(v: _Vector, f: Frame, matrix: V, x: V, y: V, o0: V, o1: V) -> None:
    """Emits the task for adjacent k. x is adjacent here; if it had to be copied, it has the type of the sums (see
    `emit_vector_entry`)."""
    b, plan = v.b, v.plan
    k, stride, y_stride = f.ints("k", "a_rs", "c_rs")
    n = plan.lanes
    whole = b.mul(b.udiv(k, n), n)
    last = b.sub(o1, 1)
    acc = vector(plan.acc, n)
    out = b.alloca("i8", STEPS * plan.out_bytes)
    goes_on = b.icmp("ne", f.get("k0"), 0)
    row = b.mul(k, v.size)
    ahead = b.mul(stride, v.steps_ahead(row))
    is_short = b.icmp("sle", row, tuning.GEMM_VECTOR_ROW)

    def sums_of(rows: list[V], *, prefetches: bool) -> list[V]:
        """Returns the sums of whole vectors of each row."""
        with b.loop_carry(0, whole, [const(acc, 0)] * STEPS, n) as c:
            at = b.mul(c.index, v.size)
            part = v.load(b.offset(x, at), n)
            here = [b.offset(r, at) for r in rows]
            if prefetches:
                for p in here:
                    b.prefetch(b.offset(p, ahead), locality=2)
            c.next(*(v.fma(v.load(p, n), part, s) for p, s in zip(here, c.values, strict=True)))
        return c.values

    with b.loop(o0, o1, STEPS) as o:
        rows = [b.offset(matrix, b.mul(b.min_(b.add(o, r), last), stride)) for r in range(STEPS)]
        sums = b.if_else(is_short, lambda: sums_of(rows, prefetches=True), lambda: sums_of(rows, prefetches=False))
        with b.loop_carry(whole, k, [fold(b, s) for s in sums]) as rest:
            at = b.mul(rest.index, v.size)
            part = v.load(b.offset(x, at), 1)
            rest.next(*(v.fma(v.load(b.offset(r, at), 1), part, s) for r, s in zip(rows, rest.values, strict=True)))
        for r, s in enumerate(rest.values):
            b.store(s, b.offset(out, r * plan.out_bytes))
        with b.loop(0, b.min_(b.sub(o1, o), STEPS)) as r:
            value = b.load(plan.out, b.offset(out, b.mul(r, plan.out_bytes)))
            place = b.offset(y, b.mul(b.add(o, r), y_stride))
            [value] = b.if_else(goes_on, lambda: [v.add(b.load(plan.out, place), value)], lambda: [value])
            b.store(value, place)


class _Picked:
    """A product as a matrix with vectors: registers computed from the general fields of a frame."""

    def __init__(self, b: Builder, plan: GemmPlan, f: Frame):
        self.b, self.f = b, f
        m, n, k = f.ints("m", "n", "k")
        numbers = Registers(b)
        shape = policy.vector_shape(numbers, plan, m, n, k)
        self.row, self.outputs, self.count = shape
        self.stride, self.k_stride = self.pick("b_cs", "a_rs"), self.pick("b_rs", "a_cs")
        self.x_stride = self.pick("a_cs", "b_rs")
        strides = (self.stride, self.k_stride, self.x_stride)
        self.axpy, self.fits = policy.vector_layout(numbers, plan, shape, n, k, strides)

    def pick(self, if_row: str, otherwise: str, type: str = "i64") -> V:
        return self.b.select(self.row, self.f.get(if_row, type), self.f.get(otherwise, type))


def emit_takes_vectors(b: Builder, plan: GemmPlan, f: Frame) -> V:
    """Returns whether the product takes the vector path: `strategy_of` in registers, for any batch, rows, columns."""
    batch, m, n = f.ints("batch", "m", "n")
    return b.and_(_Picked(b, plan, f).fits, b.icmp("sgt", b.mul(b.mul(batch, m), n), 0))


def emit_vector_entry(b: Builder, plan: GemmPlan, f: Frame, tasks: tuple[str, str], job: V, threads: V) -> None:
    """Emits the calls of the tasks, or their description in `job`. The frame holds the general fields and is rewritten
    for the tasks."""
    v = _Picked(b, plan, f)
    k = f.get("k")
    matrix, x = v.pick("b", "a", "ptr"), v.pick("a", "b", "ptr")
    m_bs, x_bs = v.pick("b_bs", "a_bs"), v.pick("a_bs", "b_bs")
    y_stride = b.select(v.row, i64(plan.out_bytes), f.get("c_rs"))
    f.set(x_rs=f.get("a_rs"), y_rs=f.get("c_rs"), m=v.count)
    f.set(a=matrix, a_rs=v.stride, a_cs=v.k_stride, a_bs=m_bs, b=x, b_rs=v.x_stride, b_bs=x_bs)
    f.set(c_rs=y_stride, n=v.outputs, mode_b=b.cast("zext", v.row, "i64"))
    batch = f.get("batch")
    most = plan.bytes_of(tuning.GEMM_VECTOR_CHUNK) // plan.out_bytes // 64
    most = b.max_(b.mul(b.udiv(i64(most), v.count), 64), 64)
    # If the matrix is large, each thread reads long parts of its rows. The cut does not change the sums.
    nbytes = b.mul(b.mul(v.outputs, k), itemsize(plan.types.a))
    is_far = b.icmp("sge", nbytes, plan.bytes_of(tuning.GEMM_VECTOR_FAR))
    parts = b.select(is_far, b.max_(threads, 1), b.max_(threads, 8))
    least = b.select(b.icmp("sgt", threads, tuning.MANY_THREADS), i64(64), i64(256))
    sums = b.min_(b.max_(b.mul(ceil_div(b, v.outputs, b.mul(parts, 64)), 64), least), most)
    rows = b.mul(b.max_(b.udiv(i64(tuning.TASK_WORK), b.mul(k, STEPS)), 1), STEPS)
    chunk = b.select(v.axpy, sums, rows)
    chunks = ceil_div(b, v.outputs, chunk)
    f.set(nc=chunk, columns=chunks)
    tasks_ = b.mul(chunks, batch)
    task = b.select(v.axpy, V("ptr", f"@{tasks[0]}"), V("ptr", f"@{tasks[1]}"))

    def here() -> list[V]:
        with b.loop(0, tasks_) as i:
            b.call_pointer("void", task, [f.pointer, i, i64(0)])
        return []

    def spread() -> list[V]:
        jobs.spread(b, job, task, f.pointer, tasks_, threads)
        return []

    alone = policy.is_serial_matrix(Registers(b), v.outputs, k, batch)
    b.if_else(b.and_(alone, b.not_(jobs.is_wanted(b, job))), here, spread)
