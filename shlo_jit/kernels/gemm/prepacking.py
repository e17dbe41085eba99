"""Packing of B at run time for later products, in the layout that `prepacked.py` makes of constants.

    void <symbol>_prepack(B, b_row_stride, b_col_stride, b_batch_stride, batch, n, k, panels)

The function runs on the caller.
"""

from __future__ import annotations

from functools import cache, partial

from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.gemm.blocks import ceil_div, panel_bytes_of
from shlo_jit.kernels.gemm.gemm import tile_routine
from shlo_jit.kernels.gemm.micro import attributes
from shlo_jit.kernels.gemm.pack import pack_plans
from shlo_jit.kernels.gemm.policy import k_block
from shlo_jit.kernels.gemm.precision import GemmTypes, gemm_plan, itemsize
from shlo_jit.kernels.gemm.staged_numbers import Registers
from shlo_jit.kernels.llvm_values import const, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target

PREPACK_PARAMS = (
    ("ptr", "B"),
    ("i64", "b_row_stride"),
    ("i64", "b_col_stride"),
    ("i64", "b_batch_stride"),
    ("i64", "batch"),
    ("i64", "n"),
    ("i64", "k"),
    ("ptr", "panels"),
)
"""Strides are in elements. `panels` is aligned to 64 and has `prepacked_bytes(...)` bytes for each product of the
batch, and `SPARE` bytes after the last."""
SPARE = 256
"""Bytes after the panels into which stores may extend."""


def prepack_symbol(types: GemmTypes) -> str:
    return f"shlo_gemm_{types.name}_prepack"


@cache
def prepack_routine(types: GemmTypes, target: Target) -> Routine:
    """Returns the routine that packs B into panels."""
    symbol = prepack_symbol(types)
    return Routine(symbol, (symbol,), partial(_build, types), (tile_routine(types, target),))


def _build(types: GemmTypes, module: ModuleText, target: Target) -> None:
    plan = gemm_plan(types, target)
    b = module.function(prepack_symbol(types), PREPACK_PARAMS, linkage="", attributes=attributes(target))
    source, b_rs, b_cs, b_bs, batch, n, k, panels = b.params
    size, pack = itemsize(types.b), pack_plans(plan)[1]
    b_rs, b_cs, b_bs = (b.mul(stride, size) for stride in (b_rs, b_cs, b_bs))
    of_k = k_block(Registers(b), plan, k, const("i1", True))
    count = ceil_div(b, n, plan.nr)
    with b.loop_carry(0, batch, [panels], 1, "product") as product:
        matrix = b.offset(source, b.mul(product.index, b_bs))
        with b.loop_carry(0, k, [product.values[0]], of_k, "kblock") as block:
            kc = b.min_(b.sub(k, block.index), of_k)
            panel = panel_bytes_of(b, plan, kc)
            rows = b.offset(matrix, b.mul(block.index, b_rs))
            b.call("void", pack.name, [rows, b_cs, b_rs, block.values[0], i64(plan.nr), n, kc, panel])
            block.next(b.offset(block.values[0], b.mul(count, panel)))
        product.next(block.values[0])
    b.ret()
