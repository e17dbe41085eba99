"""Skinny products: few rows of A, with a B whose rows are contiguous. B is read in place, and nothing is packed.

Few rows are multiplied by two panels together, or more. So each load of B's rows covers runs that are long enough for
the hardware to prefetch the next ones; a tall tile reads the shorter runs of one panel. If the product has more rows
than the first tile, the others find B in the second level cache. Sums are added as in `blocks.py`, one block of k after
the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.gemm import policy
from shlo_jit.kernels.gemm.blocks import Frame, ceil_div
from shlo_jit.kernels.gemm.micro import (
    SUMS,
    emit_kernel,
    stripe_symbol,
    tile_attributes,
)
from shlo_jit.kernels.gemm.policy import PAIR_PANELS, SKINNY_PANELS, SKINNY_TILE, Blocking, Extents
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.kernels.gemm.staged_numbers import Registers
from shlo_jit.kernels.llvm_values import V, const, i64
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads import jobs


def emit_skinny_task(module: ModuleText, plan: GemmPlan, target: Target, symbol: str) -> str:
    """Emits `void task(frame, index, worker)`: `nc` columns of all rows of a product. Returns its name. `symbol`: the
    routine's, with which the names of its task and constant begin."""
    wide = [emit_kernel(module, plan, target, rows, plan.nv, SKINNY_PANELS) for rows in range(1, SKINNY_TILE + 2)]
    pair = emit_kernel(module, plan, target, 2, plan.nv, PAIR_PANELS)
    zeros = f"{symbol}_zeros"
    zero_bytes = SUMS * plan.lanes * plan.out_bytes
    module.define_global(zeros, f"internal constant [{zero_bytes} x i8] zeroinitializer, align 64")
    name = f"{symbol}_task"
    b = module.function(
        name, [("ptr", "frame"), ("i64", "index"), ("i64", "worker")], attributes=tile_attributes(target)
    )
    pointer, index, _ = b.params
    f = Frame(b, pointer)
    n, nc, columns, k0, k1, of_k, b_rs = f.ints("n", "nc", "columns", "k0", "k1", "kc", "b_rs")
    batch, j0 = b.udiv(index, columns), b.mul(b.urem(index, columns), nc)
    j1 = b.min_(b.add(j0, nc), n)
    a, right, c = (b.offset(f.get(x, "ptr"), b.mul(batch, f.get(f"{x}_bs"))) for x in "abc")
    right, c = b.offset(right, b.mul(j0, f.get("b_cs"))), b.offset(c, b.mul(j0, plan.out_bytes))
    with b.loop(k0, k1, of_k, "kblock") as kb:
        rows = _Rows(b, plan, f, a, c, kb, b.min_(b.sub(k1, kb), of_k), zeros)
        first, width = b.offset(right, b.mul(kb, b_rs)), b.sub(j1, j0)
        rows.multiply(first, width, wide, pair)
    epilogue = f.get("epilogue", "ptr")
    with b.if_(b.icmp("ne", epilogue, V("ptr", "null"))):
        b.call_pointer("void", epilogue, [f.get("frame", "ptr"), batch, i64(0), f.get("m"), j0, j1])
    b.ret()
    return name


class _Rows:
    """All rows of A and C by a block of k of some columns."""

    def __init__(self, b: Builder, plan: GemmPlan, f: Frame, a: V, c: V, kb: V, k: V, zeros: str):
        self.b, self.plan, self.c, self.k = b, plan, c, k
        self.m, self.a_rs, self.a_cs, self.b_rs, self.c_rs = f.ints("m", "a_rs", "a_cs", "b_rs", "c_rs")
        self.a = b.offset(a, b.mul(kb, self.a_cs))
        self.more = b.icmp("ne", kb, 0)
        self.zeros = V("ptr", f"@{zeros}")
        self.start_rs = b.select(self.more, self.c_rs, i64(0))

    def multiply(self, right: V, n: V, wide: Sequence[str], pair: str) -> None:
        """Emits all rows of a group of panels, group after group; the remaining columns take the usual tiles. The first
        tile is the tallest, since it has the most work to overlap with the loads of B."""
        b, plan = self.b, self.plan
        two = b.icmp("eq", self.m, 2)
        width = b.select(two, i64(plan.nr * PAIR_PANELS), i64(plan.nr * SKINNY_PANELS))
        whole = b.mul(b.udiv(n, width), width)
        first = b.select(b.icmp("sle", self.m, SKINNY_TILE + 1), self.m, i64(SKINNY_TILE))
        stripes = ceil_div(b, b.sub(self.m, first), SKINNY_TILE)
        with b.loop(0, whole, width, "panels") as j, b.repeat([i64(0), first, stripes], "stripe") as stripe:
            done, rows, left = stripe.values
            kernel = V("ptr", f"@{pair}")
            for height, name in enumerate(wide, 1):
                here = b.icmp("eq", rows, height)
                kernel = b.select(b.and_(here, b.not_(two)) if height == 2 else here, V("ptr", f"@{name}"), kernel)
            self._kernel(kernel, done, right, j, width)
            done = b.add(done, rows)
            stripe.next(done, ceil_div(b, b.sub(self.m, done), b.max_(left, 1)), b.sub(left, 1))
            stripe.again = b.icmp("slt", done, self.m)
        c = b.offset(self.c, b.mul(whole, plan.out_bytes))
        first, rest = b.offset(right, b.mul(whole, plan.unit_bytes)), b.sub(n, whole)
        with b.loop(0, self.m, plan.mr, "stripe") as i:
            rows = b.min_(b.sub(self.m, i), plan.mr)
            a, row = b.offset(self.a, b.mul(i, self.a_rs)), b.offset(c, b.mul(i, self.c_rs))
            args = [a, self.a_rs, self.a_cs, rows, first, self.b_rs, i64(plan.b_step), row, self.c_rs, rest, self.k]
            more = b.cast("zext", self.more, "i64")
            b.call("void", stripe_symbol(plan), [*args, more, i64(1), i64(0), row, i64(0), i64(0), i64(0)])

    def _kernel(self, kernel: V, i: V, right: V, j: V, width: V) -> None:
        """Calls the tile of the rows from i on and the columns from j on."""
        b, plan = self.b, self.plan
        at, a = b.offset(right, b.mul(j, plan.unit_bytes)), b.offset(self.a, b.mul(i, self.a_rs))
        c = b.offset(b.offset(self.c, b.mul(j, plan.out_bytes)), b.mul(i, self.c_rs))
        args = [a, self.a_rs, self.a_cs, at, self.b_rs, c, self.c_rs, b.select(self.more, c, self.zeros)]
        args += [self.start_rs, self.k, width, i64(1), i64(0), at, i64(0), i64(plan.b_step), i64(0), i64(0)]
        b.call_pointer("void", kernel, args)


def emit_skinny_entry(
    b: Builder, plan: GemmPlan, f: Frame, task: str, s: Extents, job: V, threads: V, given: Blocking | None
) -> None:
    """Emits the calls of the tasks, or their description in `job`. The frame holds the arguments. `given`: the caller's
    decisions."""
    numbers = Registers(b)
    nc = policy.skinny_columns(numbers, plan, s) if given is None else given.nc
    chunks = ceil_div(b, s.n, nc)
    each = policy.k_block(numbers, plan, s.k, s.prepacked) if given is None else given.kc
    f.set(nc=nc, columns=chunks, kc=each)
    tasks, at = b.mul(chunks, s.batch), V("ptr", f"@{task}")

    def here() -> list[V]:
        with b.loop(0, tasks, hint="task") as i:
            b.call("void", task, [f.pointer, i, i64(0)])
        return []

    def spread() -> list[V]:
        jobs.spread(b, job, at, f.pointer, tasks, threads)
        return []

    product = b.mul(b.mul(s.m, s.n), s.k)
    small = policy.is_serial(numbers, s, product) if given is None else const("i1", False)
    alone = b.and_(b.or_(small, b.icmp("eq", tasks, 1)), b.not_(jobs.is_wanted(b, job)))
    b.if_else(alone, here, spread)
