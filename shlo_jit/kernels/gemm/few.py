"""Products of few rows with a B whose rows are contiguous: it is read where it lies, once.

As many rows as a tile has meet B in place, and up to six meet several panels at a time, so that long pieces of a row of
B come together and there are sums enough for the units. Of more, the first tile of a panel writes what it reads into
memory of its worker, where the tiles of the other rows find it: packing costs no pass of its own, and the panel is near
when they come. Sums are those of `blocks.py`: block of k after block of k.
"""

from __future__ import annotations

from collections.abc import Mapping

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.gemm import policy
from shlo_jit.kernels.gemm.blocks import Frame, ceil_div, panel_bytes_of
from shlo_jit.kernels.gemm.micro import (
    SUMS,
    attributes,
    emit_kernel,
    first_height,
    next_height,
    panels_at_once,
    stripe_symbol,
    tile_attributes,
)
from shlo_jit.kernels.gemm.policy import Extents, Registers
from shlo_jit.kernels.gemm.types import GemmPlan
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.values import V, i64

PACKING_HEIGHT = 8
"""Rows of the first tile of a panel where the tallest would leave rows that fill no tile well."""


def emit_few_task(module: ModuleText, plan: GemmPlan, target: Target) -> str:
    """`void task(frame, index, worker)`: `nc` columns of all rows of a product."""
    at_once = {rows: panels_at_once(plan, rows) for rows in range(2, SUMS)}
    wide = {
        rows: (emit_kernel(module, plan, target, rows, plan.nv, panels), panels)
        for rows, panels in at_once.items()
        if panels > 1
    }
    heights = sorted({min(PACKING_HEIGHT, plan.mr), plan.mr})
    packing = {rows: emit_kernel(module, plan, target, rows, plan.nv, packs=True) for rows in heights}
    zeros = f"{plan.symbol}_few_zeros"
    zero_bytes = SUMS * plan.lanes * plan.out_bytes
    module.define_global(zeros, f"internal constant [{zero_bytes} x i8] zeroinitializer, align 64")
    name = f"{plan.symbol}_few_task"
    b = module.function(
        name, [("ptr", "frame"), ("i64", "index"), ("i64", "worker")], attributes=tile_attributes(target)
    )
    pointer, index, worker = b.params
    f = Frame(b, pointer)
    m, n, nc, columns, k0, k1, of_k, b_rs = f.ints("m", "n", "nc", "columns", "k0", "k1", "kc", "b_rs")
    batch, j0 = b.udiv(index, columns), b.mul(b.urem(index, columns), nc)
    j1 = b.min_(b.add(j0, nc), n)
    a, right, c = (b.offset(f.get(x, "ptr"), b.mul(batch, f.get(f"{x}_bs"))) for x in "abc")
    right, c = b.offset(right, b.mul(j0, f.get("b_cs"))), b.offset(c, b.mul(j0, plan.out_bytes))
    memory = b.offset(f.get("worker", "ptr"), b.mul(worker, f.get("worker_bytes")))
    with b.loop(k0, k1, of_k, "kblock") as kb:
        rows = _Rows(b, plan, f, a, c, kb, b.min_(b.sub(k1, kb), of_k), zeros)
        first, width = b.offset(right, b.mul(kb, b_rs)), b.sub(j1, j0)

        def in_place(rows: _Rows = rows, first: V = first, width: V = width) -> list[V]:
            rows.in_place(first, width, wide)
            return []

        def packed(rows: _Rows = rows, first: V = first, width: V = width) -> list[V]:
            rows.packed(first, width, memory, packing)
            return []

        b.if_else(b.icmp("sle", m, plan.mr), in_place, packed)
    epilogue = f.get("epilogue", "ptr")
    with b.if_(b.icmp("ne", epilogue, V("ptr", "null"))):
        b.call_pointer("void", epilogue, [f.get("frame", "ptr"), batch, i64(0), m, j0, j1])
    b.ret()
    return name


class _Rows:
    """All rows of A and C against a block of k of some columns."""

    def __init__(self, b: Builder, plan: GemmPlan, f: Frame, a: V, c: V, kb: V, k: V, zeros: str):
        self.b, self.plan, self.c, self.k = b, plan, c, k
        self.m, self.a_rs, self.a_cs, self.b_rs, self.c_rs = f.ints("m", "a_rs", "a_cs", "b_rs", "c_rs")
        self.a = b.offset(a, b.mul(kb, self.a_cs))
        self.more = b.icmp("ne", kb, 0)
        self.zeros = V("ptr", f"@{zeros}")
        self.start_rs = b.select(self.more, self.c_rs, i64(0))

    def in_place(self, right: V, n: V, wide: Mapping[int, tuple[str, int]]) -> None:
        """Up to six rows take several panels at a time as far as these go."""
        b, plan = self.b, self.plan
        kernel, width = V("ptr", f"@{wide[2][0]}"), i64(plan.nr * wide[2][1])
        for rows, (name, panels) in wide.items():
            here = b.icmp("eq", self.m, rows)
            kernel = b.select(here, V("ptr", f"@{name}"), kernel)
            width = b.select(here, i64(plan.nr * panels), width)
        whole = b.select(b.icmp("sle", self.m, max(wide)), b.mul(b.udiv(n, width), width), i64(0))
        panel = i64(plan.b_step)
        with b.loop(0, whole, width, "panels") as j:
            self._kernel(kernel, right, j, width, panel)
        c = b.offset(self.c, b.mul(whole, plan.out_bytes))
        rest = b.sub(n, whole)
        first = b.offset(right, b.mul(whole, plan.unit_bytes))
        self._stripe(self.a, self.m, first, self.b_rs, i64(plan.b_step), c, rest)

    def packed(self, right: V, n: V, memory: V, packing: Mapping[int, str]) -> None:
        """The first rows pack panel after panel, then the others go over all of them."""
        b, plan = self.b, self.plan
        low, high = min(packing), max(packing)
        kernel, height = V("ptr", f"@{packing[high]}"), i64(high)
        for rows in range(plan.mr + 1, 2 * plan.mr):
            if first_height(plan, rows) != high:
                here = b.icmp("eq", self.m, rows)
                kernel, height = b.select(here, V("ptr", f"@{packing[low]}"), kernel), b.select(here, i64(low), height)
        each = panel_bytes_of(b, plan, self.k)
        with b.loop_carry(0, n, [memory], plan.nr, "panel") as panel:
            to = panel.values[0]
            self._kernel(kernel, right, panel.index, b.min_(b.sub(n, panel.index), plan.nr), i64(0), to)
            panel.next(b.offset(to, each))
        with b.repeat([height], "stripe") as stripe:
            done = stripe.values[0]
            left = b.sub(self.m, done)
            level = b.min_(next_height(b, plan, left, 2 * plan.mr - 1), left)
            rows = b.select(b.icmp("sle", left, plan.mr), left, level)
            a, c = b.offset(self.a, b.mul(done, self.a_rs)), b.offset(self.c, b.mul(done, self.c_rs))
            self._stripe(a, rows, memory, i64(plan.b_step), each, c, n)
            stripe.next(b.add(done, rows))
            stripe.again = b.icmp("slt", stripe.values[0], self.m)

    def _kernel(self, kernel: V, right: V, j: V, width: V, panel: V, to: V | None = None) -> None:
        """A tile of the first rows and the columns from j on."""
        b, plan = self.b, self.plan
        at, c = b.offset(right, b.mul(j, plan.unit_bytes)), b.offset(self.c, b.mul(j, plan.out_bytes))
        args = [self.a, self.a_rs, self.a_cs, at, self.b_rs, c, self.c_rs, b.select(self.more, c, self.zeros)]
        args += [self.start_rs, self.k, width, i64(1), i64(0), at, i64(0), panel]
        b.call_pointer("void", kernel, [*args, *([] if to is None else [to])])

    def _stripe(self, a: V, rows: V, right: V, b_rs: V, panel: V, c: V, n: V) -> None:
        b, plan = self.b, self.plan
        args = [a, self.a_rs, self.a_cs, rows, right, b_rs, panel, c, self.c_rs, n, self.k]
        b.call("void", stripe_symbol(plan), [*args, b.cast("zext", self.more, "i64"), i64(1), i64(0), right, i64(0)])


def emit_few_entry(b: Builder, plan: GemmPlan, f: Frame, task: str, s: Extents, scratch: V, threads: V) -> None:
    """Runs the tasks. The frame has the arguments."""
    numbers = Registers(b)
    nc = policy.few_columns(numbers, plan, s)
    chunks, each = ceil_div(b, s.n, nc), policy.k_block(numbers, plan, s.k, s.prepacked)
    panels = b.mul(ceil_div(b, b.min_(s.n, nc), plan.nr), panel_bytes_of(b, plan, b.min_(s.k, each)))
    f.set(nc=nc, columns=chunks, kc=each, worker=scratch, worker_bytes=panels)
    tasks, at = b.mul(chunks, s.batch), V("ptr", f"@{task}")

    def here() -> list[V]:
        with b.loop(0, tasks, hint="task") as i:
            b.call("void", task, [f.pointer, i, i64(0)])
        return []

    def spread() -> list[V]:
        b.call("void", "shlo_parallel", [at, f.pointer, tasks, threads])
        return []

    product = b.mul(b.mul(s.m, s.n), s.k)
    serial = b.or_(policy.is_serial(numbers, s, product), b.icmp("eq", tasks, 1))
    b.if_else(serial, here, spread)
