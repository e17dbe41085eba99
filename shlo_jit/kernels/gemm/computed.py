"""Packing an operand that a function of the caller computes.

The function writes a box of the operand, some rows or columns j by some terms k, into memory of the worker. The box is
packed into panels while it is in the first level cache. So the operand as a whole is never in memory.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.gemm.micro import attributes
from shlo_jit.kernels.gemm.pack import pack_plans
from shlo_jit.kernels.gemm.precision import GemmPlan, itemsize
from shlo_jit.kernels.target import Target

COMPUTED_PARAMS = (("ptr", "compute"), ("ptr", "computing"), ("i64", "box_j"), ("i64", "box_k"))
"""Parameters after those of given decisions. `compute` is `void (ptr computing, i64 batch, i64 j0, i64 j1, i64 k0, i64
k1, ptr box)`, which writes the elements of the operand for these rows or columns j and terms k into the box. `box_j`
and `box_k` are its strides in elements, of which one is 1."""
BOX_WIDTH, BOX_TERMS = 64, 64
"""About how many rows or columns, and how many terms, a box has: 16 KiB of f32, half of a first-level cache."""
COMPUTE_PARAMS = [
    ("ptr", "compute"),
    ("ptr", "computing"),
    ("i64", "box_j"),
    ("i64", "box_k"),
    ("i64", "batch"),
    ("i64", "j0"),
    ("i64", "count"),
    ("i64", "k0"),
    ("i64", "k"),
    ("ptr", "panels"),
    ("i64", "width"),
    ("i64", "panel_bytes"),
    ("ptr", "box"),
]


def box_of(plan: GemmPlan, operand: int) -> tuple[int, int]:
    """Returns the rows or columns, and the terms, of a box. If the sums over a panel's terms are packed with it, or its
    terms are rounded up, a box has all terms of a pass."""
    width = plan.nr if operand else plan.mr
    if operand and (plan.header or plan.whole > 1):
        return width, plan.kc
    unit = plan.group * plan.whole
    return max(width, BOX_WIDTH // width * width), -(-BOX_TERMS // unit) * unit


def box_bytes(plan: GemmPlan, operand: int) -> int:
    """Returns the bytes of a worker's box, aligned to 64."""
    j, k = box_of(plan, operand)
    return -(-j * k * itemsize(plan.types.b if operand else plan.types.a) // 64) * 64


def emit_compute(module: ModuleText, plan: GemmPlan, target: Target, operand: int, name: str) -> None:
    """Emits `void name(COMPUTE_PARAMS)`, which computes and packs some rows of A or columns of B, for some terms."""
    b = module.function(name, COMPUTE_PARAMS, attributes=attributes(target))
    compute, computing, box_j, box_k, batch, j0, count, k0, k, panels, width, panel_bytes, box = b.params
    columns, terms = box_of(plan, operand)
    size = itemsize(plan.types.b if operand else plan.types.a)
    strides = [b.mul(box_j, size), b.mul(box_k, size)]
    step = b.mul(width, plan.unit_bytes * plan.parts)
    with b.loop(0, count, columns, "columns") as j:
        some = b.min_(b.sub(count, j), columns)
        first = b.offset(panels, b.mul(b.udiv(j, width), panel_bytes))
        with b.loop(0, k, terms, "terms") as at:
            here = b.min_(b.sub(k, at), terms)
            start, place = b.add(k0, at), b.add(j0, j)
            ends = [place, b.add(place, some), start, b.add(start, here)]
            b.call_pointer("void", compute, [computing, batch, *ends, box])
            to = b.offset(first, b.mul(b.udiv(at, plan.group), step))
            b.call("void", pack_plans(plan)[operand].name, [box, *strides, to, width, some, here, panel_bytes])
    b.ret()
