"""Schedules dot_general as calls of the shared GEMM routine: C[batch, m, n] = A[batch, m, k] @ B[batch, k, n].

Dimension numbers become strides; operands are read in place. Batch dimensions that do not form one run of equal stride
are looped over. Other dimensions that do not form runs were transposed before (see `canonical_dots`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shlo_jit import tuning
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.aligned import zeros
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.digests import record_derived, sealed
from shlo_jit.kernels.gemm.gemm import GemmStrategy, GemmTypes, gemm_routine, gemm_symbol, scratch_bytes
from shlo_jit.kernels.gemm.policy import Layout, describe, k_block
from shlo_jit.kernels.gemm.precision import GemmPlan, gemm_plan, itemsize
from shlo_jit.kernels.gemm.prepacked import prepack, prepacked_bytes
from shlo_jit.kernels.gemm.staged_numbers import Ints
from shlo_jit.kernels.gemm.strategy import strategy_of
from shlo_jit.ops.runs import Roles, roles_of
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.epilogue import WithEpilogue, Written, schedule_epilogue, written_by_product
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.panels import Matrices, PanelsSchedule
from shlo_jit.schedule.product_layout import Placed, layout_of
from shlo_jit.schedule.scratch import Scratch
from shlo_jit.sizes import Size, equal, hint_of


@dataclass(frozen=True, kw_only=True)
class ProductSchedule(WithEpilogue, PanelsSchedule):
    """Schedule of a dot_general."""

    types: GemmTypes
    roles: Roles
    looped: int
    """Leading batch dimensions that are looped over, with one call per index."""
    k: int
    strides: Layout
    result: Placed
    """The products of one call."""
    way: GemmStrategy
    written: Written | None
    """The place that the routine writes the product to, if it replaces the epilogue."""
    blocking: tuple[Note, ...]
    """The routine's decisions for these extents and strides."""

    @property
    def kernel_notes(self) -> list[Note]:
        """Decisions about the product itself, without an epilogue."""
        r = self.result
        size = f"{r.batch} x " if r.batch > 1 else ""
        head = Note("product", f"{size}{r.m} x {r.n} x {self.k} by {gemm_symbol(self.types, self.way)}")
        if not self.looped:
            return [head, *self.blocking]
        why = Reason("batch-not-strided", "the batch dimensions are not a constant stride apart")
        return [head, Note("calls", "one per index of the outer batch dimensions", why), *self.blocking]

    @property
    def notes(self) -> list[Note]:
        after = self.epilogue.notes if self.epilogue else [self.written.note] if self.written else []
        return [*self.kernel_notes, *after]


def gemm_types(op: Op) -> GemmTypes:
    """Element types of a product or convolution: those of both operands, and that of the result, which is the
    accumulator."""
    a, b = (o.tensor.storage.name for o in op.operands)
    return GemmTypes(a, b, op.result.tensor.storage.name)


def schedule_dot(step: OpStep, context: Context) -> KernelSchedule:
    op = step.op
    if op.result.tensor.size == 0:
        return NOTHING
    roles, types, target = roles_of(op), gemm_types(op), context.target
    layout = layout_of(op)
    strides, looped, result = layout.operands, layout.looped, layout.result
    batch, m, n, k = layout.extents
    why_late = Reason("several-calls", "the product is several calls") if looped else None
    plan = gemm_plan(types, target)
    numbers, near = (m, n, k, *strides), context.matrices <= tuning.GEMM_SKINNY_BYTES
    way, prepacked, first_block = _way(plan, numbers, is_near=near), None, 0
    # Panels hold one matrix after the other, each with all of its columns.
    of_rows, of_columns = layout.is_split
    can_be_panels = not looped and not of_columns
    loop = context.loops.get(id(step)) if can_be_panels else None
    matrices = Matrices(op.operands[1], types, 1 if of_rows else batch, n, k, strides[3:])
    if can_be_panels and _is_prepacked(op.operands[1], _way(plan, numbers, is_near=False), n, context):
        prepacked = _panels(op.operands[1], roles, plan, context)
        # Skinny products finish a block before the next one arrives: they have no work to overlap the fetch with.
        few = not isinstance(m, Size) and m < tuning.GEMM_LEAST_ROWS
        first_block = prepacked_bytes(plan, n, k if few else min(k, k_block(Ints(), plan, k, True)))
    packed = prepacked is not None or loop is not None
    if packed:
        each = 0 if of_rows else prepacked_bytes(plan, n, k) // itemsize(types.b)
        way, strides = GemmStrategy.TILES, strides._replace(b_bs=each)
    written = None if looped else written_by_product(step, result)
    epilogue = None if written is not None else schedule_epilogue(step, target, result, why_late)
    return ProductSchedule(
        types=types,
        roles=roles,
        looped=looped,
        k=k,
        strides=strides,
        result=result if written is None else written.result,
        written=written,
        prepacked=prepacked,
        first_block=first_block,
        loop=(loop, matrices) if loop is not None else None,
        epilogue=epilogue,
        blocking=_blocking(plan, (batch, m, n, k), strides, packed, way is GemmStrategy.FEW),
        scratch=_scratch(way, lambda threads: scratch_bytes(types, target, batch, m, n, k, threads, packed)),
        way=way,
        routines=(gemm_routine(types.a, types.b, types.acc, target, way),),
    )


def _scratch(way: GemmStrategy, nbytes: Callable[[int], int]) -> Scratch:
    """Scratch memory for packing; none for skinny products, which pack nothing."""
    return Scratch() if way is GemmStrategy.FEW else Scratch.of(nbytes)


def _way(plan: GemmPlan, numbers: tuple[int, ...], *, is_near: bool) -> GemmStrategy:
    """The algorithm of the product. If sizes are known only at the call, the call decides."""
    if any(isinstance(number, Size) for number in numbers):
        return GemmStrategy.ANY
    m, n, k, *strides = numbers
    return strategy_of(plan, m, n, k, Layout(*strides), is_near=is_near)


def _is_prepacked(rhs: Value, way: GemmStrategy, n: int, context: Context) -> bool:
    """Whether the second operand is a constant that is read as panels. A constant is not kept twice if others read it
    in place and a product with a vector reads it well. The vector itself is always read in place."""
    if rhs.op is None or rhs.op.name != "stablehlo.constant" or rhs.tensor.size == 0:
        return False
    return way is not GemmStrategy.VECTORS or (context.read[rhs] == 1 and not equal(n, 1))


def prepacked_constant(op: Op, context: Context) -> np.ndarray | None:
    """Returns the right operand of a product without batch dimensions as panels; None if it is not a constant."""
    rhs, roles, plan = op.operands[1], roles_of(op), gemm_plan(gemm_types(op), context.target)
    if rhs.op is None or rhs.op.name != "stablehlo.constant" or rhs.tensor.size == 0:
        return None
    return _panels(rhs, roles, plan, context)


def _panels(rhs: Value, roles: Roles, plan: GemmPlan, context: Context) -> np.ndarray:
    """Returns the constant as panels. Releases the constant if the product is its only reader."""
    assert rhs.op is not None
    dims = (roles.rhs_batch, roles.rhs_contracting, roles.rhs_free)
    extents = [math.prod(rhs.tensor.extents[d] for d in some) for some in dims]
    constant, order = rhs.op.constant, sum(dims, ())

    key = (plan, order, *extents)

    def make(array: np.ndarray) -> np.ndarray:
        panels = sealed(prepack(plan, array.transpose(order).reshape(extents), zeros))
        record_derived(
            panels, array, f"product {array.dtype} {array.shape} {key} {k_block(Ints(), plan, extents[1], True)}"
        )
        return panels

    panels = constant.derived(key, make)
    if context.read[rhs] == 1:
        constant.release()
    return panels


def _blocking(
    plan: GemmPlan, extents: tuple[int, int, int, int], strides: Sequence[int], prepacked: bool, few: bool
) -> tuple[Note, ...]:
    batch, m, n, k = map(hint_of, extents)
    lines = describe(plan, batch, m, n, k, Layout(*map(hint_of, strides)), prepacked, few)
    return tuple(Note(*line) for line in lines)
