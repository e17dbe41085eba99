"""Products of a block of rows with one B, which may be packed before: for callers that iterate over blocks of rows.

    void <symbol>_panels(B, b_row_stride, b_col_stride, n, k, panels)
    void <symbol>_block(A, a_row_stride, a_col_stride, B, b_row_stride, b_col_stride, C, c_row_stride, m, n, k, k0,
                        panels, memory)

The first packs all of B, one block of k after the other. The second computes C[m, n] = A[m, k] @ B, with the packed B
or with B in place. Both run on the caller. Sums are those of the general routine, since the blocks of k are the same,
for any m. `k0` is 0, or C holds the sums of the first `k0` steps of k, to which these steps are added.
"""

from __future__ import annotations

from functools import cache, partial

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.gemm.blocks import FIELDS, Frame, a_panel_bytes, ceil_div, emit_rectangle, panel_bytes_of
from shlo_jit.kernels.gemm.gemm import tile_routine
from shlo_jit.kernels.gemm.micro import attributes
from shlo_jit.kernels.gemm.pack import pack_plans
from shlo_jit.kernels.gemm.policy import IN_PLACE, PRIVATE, SHARED, are_joined, ends_whole, k_block
from shlo_jit.kernels.gemm.precision import GemmPlan, GemmTypes, gemm_plan, itemsize
from shlo_jit.kernels.gemm.staged_numbers import Ints, Registers
from shlo_jit.kernels.llvm_values import V, const, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target

PANELS_PARAMS = (
    ("ptr", "B"),
    ("i64", "b_row_stride"),
    ("i64", "b_col_stride"),
    ("i64", "n"),
    ("i64", "k"),
    ("ptr", "panels"),
)
"""Parameters of the packing function. Strides are in elements. `panels` has `panels_bytes(...)` bytes aligned to 64."""
BLOCK_PARAMS = (
    ("ptr", "A"),
    ("i64", "a_row_stride"),
    ("i64", "a_col_stride"),
    ("ptr", "B"),
    ("i64", "b_row_stride"),
    ("i64", "b_col_stride"),
    ("ptr", "C"),
    ("i64", "c_row_stride"),
    ("i64", "m"),
    ("i64", "n"),
    ("i64", "k"),
    ("i64", "k0"),
    ("ptr", "panels"),
    ("ptr", "memory"),
)
"""Parameters of the product. Strides are in elements; C's columns are adjacent. n and k are at least 1. `panels` is
null if B is read in place, which `reads_in_place` permits; `memory` has `block_bytes(...)` bytes aligned to 64."""


def panels_symbol(types: GemmTypes) -> str:
    return f"shlo_gemm_{types.name}_panels"


def block_symbol(types: GemmTypes) -> str:
    return f"shlo_gemm_{types.name}_block"


def panels_bytes(types: GemmTypes, target: Target, n: int, k: int) -> int:
    """Returns the bytes of a packed B."""
    plan = gemm_plan(types, target)
    each = k_block(Ints(), plan, k, False)
    return -(-k // each) * -(-n // plan.nr) * plan.panel_bytes(min(k, each))


def reads_in_place(types: GemmTypes, target: Target, n: int, b_row_stride: int, b_col_stride: int) -> bool:
    """Whether B can be read in place, and its rows do not map to few sets of the first level cache."""
    plan, size = gemm_plan(types, target), itemsize(types.b)
    adjacent = b_col_stride == 1 and (plan.masks or ends_whole(Ints(), plan, n))
    return adjacent and not plan.convert[1] and b_row_stride * size % 2048 != 0


def block_bytes(types: GemmTypes, target: Target) -> int:
    """Returns the bytes of working memory of the product of a block."""
    return a_panel_bytes(gemm_plan(types, target))


def _panel_sizes(b: Builder, plan: GemmPlan, n: V, k: V) -> tuple[V, V, V]:
    """Returns the k of a block, the bytes of a panel of the block, and the bytes of all its panels."""
    of_k = k_block(Registers(b), plan, k, const("i1", False))
    panel = panel_bytes_of(b, plan, b.min_(k, of_k))
    return of_k, panel, b.mul(ceil_div(b, n, plan.nr), panel)


@cache
def block_routine(types: GemmTypes, target: Target) -> Routine:
    """Returns the routine with the two functions."""
    symbols = (panels_symbol(types), block_symbol(types))
    return Routine(symbols[1], symbols, partial(_build, types), (tile_routine(types, target),))


def _build(types: GemmTypes, module: ModuleText, target: Target) -> None:
    plan = gemm_plan(types, target)
    emit_rectangle(module, plan, target)
    _emit_panels(module, plan, target)
    _emit_block(module, plan, target)


def _emit_panels(module: ModuleText, plan: GemmPlan, target: Target) -> None:
    b = module.function(f"{plan.symbol}_panels", PANELS_PARAMS, linkage="", attributes=attributes(target))
    source, row_stride, column_stride, n, k, panels = b.params
    size = itemsize(plan.types.b)
    b_rs, b_cs = b.mul(row_stride, size), b.mul(column_stride, size)
    of_k, panel, each = _panel_sizes(b, plan, n, k)
    with b.loop_carry(0, k, [panels], of_k, "kblock") as block:
        rows = b.offset(source, b.mul(block.index, b_rs))
        kc = b.min_(b.sub(k, block.index), of_k)
        args = [rows, b_cs, b_rs, block.values[0], i64(plan.nr), n, kc, panel]
        b.call("void", pack_plans(plan)[1].name, args)
        block.next(b.offset(block.values[0], each))
    b.ret()


def _emit_block(module: ModuleText, plan: GemmPlan, target: Target) -> None:
    b = module.function(f"{plan.symbol}_block", BLOCK_PARAMS, linkage="", attributes=attributes(target))
    a, a_rs, a_cs, right, b_rs, b_cs, c, c_rs, m, n, k, k0, panels, memory = b.params
    of_k, panel, each = _panel_sizes(b, plan, n, k)
    stop = b.add(k0, k)
    f = Frame(b, b.alloca("i64", len(FIELDS)))
    null, size_a, size_b = V("ptr", "null"), itemsize(plan.types.a), itemsize(plan.types.b)
    a_rs, a_cs, b_rs, b_cs = b.mul(a_rs, size_a), b.mul(a_cs, size_a), b.mul(b_rs, size_b), b.mul(b_cs, size_b)
    a, right = b.offset(a, b.mul(k0, b.sub(0, a_cs))), b.offset(right, b.mul(k0, b.sub(0, b_rs)))
    f.set(a=a, a_rs=a_rs, a_cs=a_cs, a_bs=0, b=right, b_rs=b_rs, b_cs=b_cs, b_bs=0)
    f.set(c=c, c_rs=b.mul(c_rs, plan.out_bytes), c_bs=0, m=m, n=n, k=stop, kc=of_k, batch=1, epilogue=null, frame=null)
    pack_a: V | int = PRIVATE if plan.convert[0] else IN_PLACE
    if plan.joins_a:
        joined = are_joined(Registers(b), plan, a_cs, k)
        pack_a = b.select(joined, i64(IN_PLACE), i64(PRIVATE))
    mode = b.select(b.icmp("eq", panels, null), i64(IN_PLACE), i64(SHARED))
    f.set(mode_b=mode, pack_a=pack_a, shared_a=null, a_panel=0, panel_bytes=panel)
    with b.loop_carry(k0, stop, [panels], of_k, "kblock") as block:
        f.set(k0=block.index, k1=b.min_(b.add(block.index, of_k), stop), shared=block.values[0])
        b.call("void", f"{plan.symbol}_rectangle", [f.pointer, i64(0), i64(0), m, i64(0), n, memory, c, i64(0)])
        block.next(b.offset(block.values[0], each))
    b.ret()
