"""Schedules dot_general as calls of the shared GEMM routine: C[batch, m, n] = A[batch, m, k] @ B[batch, k, n].

Dimension numbers become strides; operands are read in place. Batch dimensions that do not form one run of equal stride
are looped over. Other dimensions that do not form runs were transposed before (see `canonical_dots`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shlo_jit import tuning
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.aligned import zeros
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.digests import derived
from shlo_jit.kernels.gemm.forms import Form
from shlo_jit.kernels.gemm.gemm import GemmStrategy, GemmTypes, gemm_routine, gemm_symbol, scratch_bytes
from shlo_jit.kernels.gemm.given import given_scratch_bytes
from shlo_jit.kernels.gemm.known_sizes import Layout, describe
from shlo_jit.kernels.gemm.policy import Blocking, k_block
from shlo_jit.kernels.gemm.precision import GemmPlan, gemm_plan, itemsize
from shlo_jit.kernels.gemm.prepacked import prepack, prepacked_bytes
from shlo_jit.kernels.gemm.staged_numbers import Ints
from shlo_jit.kernels.target import Target
from shlo_jit.ops.runs import Roles, roles_of
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.epilogue import WithEpilogue, Written, finish, move_of_epilogue
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.keys_in_registers import KeysInRegisters, keys_in_registers
from shlo_jit.schedule.moves import ComputeAt, Move, of_kind
from shlo_jit.schedule.panels import Matrices, PanelsSchedule
from shlo_jit.schedule.product_decisions import (
    WHY_PANELS,
    Decisions,
    Product,
    check_used,
    decide,
    moves_of,
    strategy_for,
)
from shlo_jit.schedule.product_layout import READ_IN_PLACE, Placed, ProductLayout, Viewed, gemm_types, layout_of
from shlo_jit.schedule.scratch import Field, Scratch
from shlo_jit.schedule.space import OMITTED
from shlo_jit.sizes import Size, equal, hint_of

MASKED = Reason("masked-keys", "a mask leaves no others to the rows of a product")


class InRange(NamedTuple):
    """Ranges of the terms or columns of products, as arrays with a number for each row."""

    starts: Value
    ends: Value
    is_terms: bool
    keys: KeysInRegisters | None
    """How the right operand is read in registers; None if the routine multiplies it."""


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
    """The decisions for these extents and strides, as notes."""
    product: Product
    decisions: Decisions
    moves: tuple[Move, ...]
    """The same decisions as moves, and where the epilogue runs."""
    viewed: Viewed | None = None
    """An operand that is read where it lies in another array."""
    ranged: InRange | None = None
    """The ranges of terms or columns that each product needs."""

    @property
    def given(self) -> Blocking | None:
        """The decisions that are passed to the routine, since it would decide otherwise."""
        return self.decisions.blocking if self.decisions.is_given else None

    @property
    def symbol(self) -> str:
        """The routine's symbol."""
        return gemm_symbol(self.types, self.way, Form.USUAL if self.given is None else Form.GIVEN)

    @property
    def is_tasks(self) -> bool:
        one_call = self.ranged is None and not self.looped and not self.decisions.is_alone
        return one_call and (self.epilogue is None or not self.epilogue.is_late)

    @property
    def kernel_notes(self) -> list[Note]:
        """Decisions about the product itself, without an epilogue."""
        r = self.result
        size = f"{r.batch} x " if r.batch > 1 else ""
        head = Note("product", f"{size}{r.m} x {r.n} x {self.k} by {self.symbol}")
        alone = [Note("threads", "one", OMITTED)] if self.decisions.is_alone else []
        if not self.looped:
            return [head, *self.blocking, *alone]
        why = Reason("batch-not-strided", "the batch dimensions are not a constant stride apart")
        return [head, Note("calls", "one per index of the outer batch dimensions", why), *self.blocking, *alone]

    @property
    def notes(self) -> list[Note]:
        after = self.epilogue.notes if self.epilogue else [self.written.note] if self.written else []
        view = [Note("operand", "read where it lies", READ_IN_PLACE)] if self.viewed is not None else []
        if self.ranged is not None:
            r, what = self.result, "terms" if self.ranged.is_terms else "columns"
            keys = self.ranged.keys
            how = f"by {self.symbol}" if keys is None else f"read in registers, lanes {keys.lanes}"
            head = Note("product", f"{r.batch} x {r.m} x {r.n} x {self.k} {how}")
            return [*view, head, Note("keys", f"a range of the {what} for each product", MASKED)]
        return [*view, *self.kernel_notes, *after]


def schedule_dot(step: OpStep, context: Context, viewed: Viewed | None = None) -> KernelSchedule:
    """Returns the schedule of a product. `viewed`: an operand that is read where it lies in another array."""
    op, moves = step.op, context.given.get(id(step))
    if op.result.tensor.size == 0:
        check_used(moves or (), ())
        return NOTHING
    roles, types, target = roles_of(op), gemm_types(op), context.target
    layout = layout_of(op)
    if viewed is not None:
        layout = layout._replace(operands=viewed.strides(layout.operands))
    product = _product(step, layout, context)
    d, plan = decide(product, moves), product.plan
    place = next(iter(of_kind(moves or (), ComputeAt)), None)
    epilogue, written = finish(step, target, layout, place)
    made = (*moves_of(d), *move_of_epilogue(epilogue, written, place))
    check_used(moves or (), made)
    batch, m, n, k = layout.extents
    given, kc = d.blocking if d.is_given else None, _given_pass(d)
    # Panels hold one matrix after the other, each with all of its columns.
    of_rows = layout.is_split[0]
    matrices = Matrices(op.operands[1], types, 1 if of_rows else batch, n, k, layout.operands[3:])
    strides = layout.operands
    if d.panels:
        strides = strides._replace(b_bs=0 if of_rows else prepacked_bytes(plan, n, k, kc) // itemsize(types.b))
    few = d.leaf is GemmStrategy.FEW
    ranged = _in_range(step, layout, d, target) if epilogue is None and written is None and moves is None else None
    if ranged is not None:
        d = d._replace(leaf=GemmStrategy.ANY, blocking=None, is_given=False)
    return ProductSchedule(
        types=types,
        roles=roles,
        looped=layout.looped,
        k=k,
        strides=strides,
        result=layout.result if written is None else written.result,
        written=written,
        prepacked=_panels(op.operands[1], roles, plan, context, kc) if d.panels == "ahead" else None,
        first_block=_first_block(plan, m, n, k, kc) if d.panels == "ahead" else 0,
        loop=(context.loops[id(step)], matrices) if d.panels == "loop" else None,
        epilogue=epilogue,
        blocking=_notes(plan, layout.extents, strides, d.panels, few, given),
        scratch=_scratch(product, d, types) if ranged is None else _scratch_in_range(layout, types, ranged, target),
        way=d.leaf,
        routines=()
        if ranged is not None and ranged.keys is not None
        else (gemm_routine(types.a, types.b, types.acc, target, d.leaf, Form.USUAL if given is None else Form.GIVEN),),
        product=product,
        decisions=d,
        moves=made,
        viewed=viewed,
        ranged=ranged,
    )


def _in_range(step: OpStep, layout: ProductLayout, d: Decisions, target: Target) -> InRange | None:
    """The ranges of a product, if tasks of one of its products each compute them: there are several products, with
    few rows each."""
    found = step.key_range
    batch, *extents = layout.extents
    is_fixed = not any(isinstance(x, Size) for x in (batch, *extents))
    if found is None or not is_fixed or d.panels or layout.looped or any(layout.is_split):
        return None
    if batch < tuning.RANGED_LEAST_PRODUCTS or extents[0] > tuning.RANGED_MOST_ROWS:
        return None
    is_terms, keys = found.are_terms, None
    if extents[0] <= tuning.COMPUTED_OPERAND_ROWS:
        strides, placed = layout.operands, layout.result
        keys = keys_in_registers(step.op, layout.k, placed, strides, target, is_terms=is_terms, adds_zeros=False)
    return InRange(*found.bounds, is_terms, keys)


def _scratch_in_range(layout: ProductLayout, types: GemmTypes, ranged: InRange, target: Target) -> Scratch:
    if ranged.keys is not None:
        return Scratch()
    _, m, n, k = layout.extents
    return Scratch(worker=(Field("work", scratch_bytes(types, target, 1, m, n, k, 1)),))


def _product(step: OpStep, layout: ProductLayout, context: Context) -> Product:
    """The facts that decisions depend on."""
    plan = gemm_plan(gemm_types(step.op), context.target)
    extents, strides, rhs = layout.extents, layout.operands, step.op.operands[1]
    can_be_panels = not layout.looped and not layout.is_split[1]
    is_constant = rhs.op is not None and rhs.op.name == "stablehlo.constant" and rhs.tensor.size != 0
    can_pack, packs = [], ""
    if can_be_panels and id(step) in context.loops:
        can_pack.append("loop")
        packs = "loop"
    if can_be_panels and is_constant:
        can_pack.append("ahead")
        way = strategy_for(plan, extents, strides, is_near=False)
        packs = "ahead" if _is_prepacked(rhs, way, extents[2], context) else packs
    near = context.matrices <= tuning.GEMM_SKINNY_BYTES
    return Product(plan, context.target, extents, strides, near, tuple(can_pack), packs)


def _given_pass(d: Decisions) -> int | None:
    """Elements of k per pass, if they are given."""
    return int(d.blocking.kc) if d.blocking is not None and d.is_given else None


def _first_block(plan: GemmPlan, m: int, n: int, k: int, kc: int | None) -> int:
    """Bytes of the panels that are read first. Products of few rows finish a block before the next one arrives: they
    have no work to overlap the fetch with."""
    few = not isinstance(m, Size) and m < tuning.GEMM_LEAST_ROWS
    each = k_block(Ints(), plan, k, True) if kc is None else kc
    return prepacked_bytes(plan, n, k if few else min(k, each), kc)


def _scratch(p: Product, d: Decisions, types: GemmTypes) -> Scratch:
    """Scratch memory for packing; none for products of few rows or with a vector, which pack nothing."""
    if d.leaf in (GemmStrategy.FEW, GemmStrategy.VECTORS):
        return Scratch()
    given, s, packed = d.blocking, p.shape(d.panels), bool(d.panels)
    if given is not None and d.is_given:
        return Scratch.of(lambda threads: given_scratch_bytes(p.plan, s, given, threads))
    return Scratch.of(lambda threads: scratch_bytes(types, p.target, *p.extents, threads, packed))


def _is_prepacked(rhs: Value, way: GemmStrategy, n: int, context: Context) -> bool:
    """Whether the second operand, a constant, is read as panels. A constant is not kept twice if others read it in
    place and a product with a vector reads it well. The vector itself is always read in place."""
    return way is not GemmStrategy.VECTORS or (context.read[rhs] == 1 and not equal(n, 1))


def prepacked_constant(op: Op, context: Context) -> np.ndarray | None:
    """Returns the right operand of a product without batch dimensions as panels; None if it is not a constant."""
    rhs, roles, plan = op.operands[1], roles_of(op), gemm_plan(gemm_types(op), context.target)
    if rhs.op is None or rhs.op.name != "stablehlo.constant" or rhs.tensor.size == 0:
        return None
    return _panels(rhs, roles, plan, context, None)


def _panels(rhs: Value, roles: Roles, plan: GemmPlan, context: Context, kc: int | None) -> np.ndarray:
    """Returns the constant as panels. Releases the constant if the product is its only reader. `kc`: elements of k per
    pass, if they are given."""
    assert rhs.op is not None
    dims = (roles.rhs_batch, roles.rhs_contracting, roles.rhs_free)
    extents = [math.prod(rhs.tensor.extents[d] for d in some) for some in dims]
    constant, order = rhs.op.constant, sum(dims, ())
    each = k_block(Ints(), plan, extents[1], True) if kc is None else kc
    key = (plan, order, *extents)

    def make(array: np.ndarray) -> np.ndarray:
        how = f"product {array.dtype} {array.shape} {key} {each}"
        return derived(array, how, lambda: prepack(plan, array.transpose(order).reshape(extents), zeros, each))

    panels = constant.derived((*key, each), make)
    if context.read[rhs] == 1:
        constant.release()
    return panels


def _notes(
    plan: GemmPlan,
    extents: tuple[int, int, int, int],
    strides: Layout,
    panels: str,
    few: bool,
    given: Blocking | None,
) -> tuple[Note, ...]:
    """The decisions about packing and tasks, as notes."""
    batch, m, n, k = map(hint_of, extents)
    lines = describe(plan, batch, m, n, k, Layout(*map(hint_of, strides)), bool(panels), few, given)
    if panels == "loop":
        packed = ("B", "packed before the loop", WHY_PANELS["loop"])
        lines = [packed if line[0] == "B" else line for line in lines]
    return tuple(Note(*line) for line in lines)
