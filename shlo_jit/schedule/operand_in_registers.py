"""Schedule of a product of a few vectors with a matrix that is computed in registers: each element of the matrix is
computed once, and multiplied by all vectors while it is in a register.

    y[r, o] = sum over k of x[r, k] * M[k, o]

The product is the loop that computes M with another loop over r in it. Lanes run along the variable along which the
arrays that M is computed from are contiguous. If it numbers outputs o, a task keeps the sums of some outputs in the
first-level cache, and adds some steps of k at a time to them. If it numbers terms k, a task computes some outputs
together, and adds up the lanes of their sums at the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.nest import Key, Nest, is_wide
from shlo_jit.fuse.plan import ComputedOperand, ComputedOperandStep
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import DType
from shlo_jit.kernels.gemm.known_sizes import Layout
from shlo_jit.kernels.target import Target
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.epilogue import WithEpilogue, Written, finish
from shlo_jit.schedule.product_layout import Placed, ProductLayout
from shlo_jit.schedule.register_dots import RegisterDots, register_dots
from shlo_jit.schedule.register_lanes import are_wide, lanes_of, outputs_together, places_in_registers
from shlo_jit.schedule.register_units import Blocks, blocks_of, divide, steps_of
from shlo_jit.schedule.register_vectors import Vectors, lay_out
from shlo_jit.schedule.run_time_offsets import Offsets, is_run, take_offsets
from shlo_jit.schedule.scratch import Field, Scratch
from shlo_jit.schedule.shared_units import MOST_IN_UNIT, in_words, short_of, split_units
from shlo_jit.schedule.space import Space, linear
from shlo_jit.schedule.sum_order import is_chain
from shlo_jit.schedule.summed_products import Totals, schedule_totals
from shlo_jit.schedule.tasks import Tasks, cut

SUMMED = 2048
"""Outputs of a unit that adds up the parts of the terms."""
ONE = cut(1, 0)
"""The only task, until units are cut into tasks."""
SIXTEEN = Reason("sixteen-elements", "two or four bits are all that differs between the terms of a group")
"""Why elements are looked up (`InRegistersSchedule.tabulated`)."""


class Outputs(NamedTuple):
    """The places of results."""

    row: int
    """Elements from the results of one vector to those of the next."""
    free: int
    """Elements from one output to the next."""
    batch: int


@dataclass(frozen=True, kw_only=True)
class InRegistersSchedule(WithEpilogue):
    """Schedule of a product with a matrix that is computed in registers."""

    side: int
    """The operand that is M: 0 if the outputs are rows of the product, 1 if they are its columns."""
    nest: Nest
    """The loop that computes M, without the offsets."""
    offsets: Offsets
    target: Target
    space: Space
    key: Key
    """The element of M."""
    batch: dict[int, int]
    """The variables that number products, with their coefficients, outermost first."""
    along: dict[int, int]
    """Likewise those that number terms."""
    free: dict[int, int]
    """Likewise those that number outputs."""
    lanes: int
    """The variable that runs along lanes."""
    rows: int
    """Number of vectors."""
    count: int
    """Number of vectors that an element is multiplied by while it is in a register. If there are more, a unit computes
    its part of the matrix again for those that follow; the last ones may have been among those before."""
    strides: Layout
    vectors: Vectors
    outputs: Outputs
    source: DType
    """The element type of the vectors in memory."""
    acc: DType
    dots: RegisterDots | None
    """The instructions that multiply several terms at a time."""
    together: int
    """Outputs that a task computes together if lanes run along k."""
    chunk: int
    """Iterations of the innermost variable that numbers outputs, in a task."""
    parts: int
    """Parts of the terms that are summed separately, and added up in order."""
    split: int
    """The variable that numbers terms and is cut into these parts."""
    tasks: Tasks = ONE
    sum_tasks: Tasks = ONE
    """The tasks that add up the parts; a unit has SUMMED outputs of a product."""
    written: Written | None = None
    """The place that the results are written to, if it is not that of the product."""
    totals: Totals | None = None
    """The sum over the products, if only that is wanted: a unit has some outputs of all of them."""

    @property
    def passes(self) -> int:
        """How often a unit computes its part of the matrix, for `count` vectors each."""
        return -(-self.rows // self.count)

    @property
    def steps(self) -> int:
        """Elements of M in each lane that are added to the sums together."""
        return steps_of(self.target, self.acc, self.space.width, self.places_in_registers > 0, self.dots)

    @property
    def places_in_registers(self) -> int:
        """Number of iterations of the inner variables whose sums, of all vectors, are in registers together, if lanes
        are outputs: all of them, or one, or 0 if not even these fit."""
        if self.dots is not None:
            return 0
        return places_in_registers(
            self.target, self.acc, self.space.width, self.nest, self.free, self.lanes, self.count
        )

    @property
    def are_bytes(self) -> bool:
        """Whether instructions multiply bytes, or what they are widened to."""
        return self.dots is not None and not self.dots.is_float

    @property
    def factor(self) -> DType:
        """The element type of the vectors as the loops read them."""
        return self.acc if self.dots is None else self.dots.factor

    @property
    def blocks(self) -> Blocks:
        return blocks_of(self.nest, self.along, self.steps)

    @property
    def arranged(self) -> list[Key]:
        """Arrays whose elements for the lanes are apart, and are the same for all steps of the innermost loop along k:
        they are copied in the order of the lanes before that loop. Scales of columns whose weights share words are."""
        blocks, space = self.blocks, self.space
        if blocks.loop is None or not self.are_outputs or self.are_bytes:
            return []
        steps = {blocks.loop, *blocks.unrolled}

        def is_apart(key: Key) -> bool:
            offset = linear(key)
            moves = space.collapse(offset).coefficient(self.lanes)
            return moves != 0 and not is_run(key[0], moves) and not key[0].tensor.storage.is_complex

        return [k for k in self.nest.loads if is_apart(k) and not space.depends(k[1], steps)]

    @property
    def words(self) -> set[Key]:
        """Loads of bytes of which each word is in a lane."""
        found = (k for k in in_words(self.nest, self.target) if k[0].tensor.size % 4 == 0 and not self.are_bytes)
        return {k for k in found if self.space.collapse(linear(k)).coefficient(self.lanes) == 4}

    @property
    def short(self) -> list[int]:
        """The variables whose terms are computed for the lanes one after the other, if lanes are terms."""
        return short_of(self.nest, self.along, self.lanes)

    @property
    def tabulated(self) -> Key | None:
        """The load of numbers of 2 or 4 bits of which an element of M is a function, with other values that are the
        same in all lanes, if lanes are terms: the function of all numbers is computed once for several vectors of
        terms, and looked up. Arithmetic with scales and zero points then takes the same time whatever it is."""
        nest, space = self.nest, self.space
        if not self.target.looks_up_words or self.are_outputs or self.dots is not None or self.acc.name != "f32":
            return None
        places = [at for _, at in (*nest.nodes, *nest.loads)]
        inner = {self.lanes, *self.short}
        moving = [key for key in nest.loads if space.depends(key[1], inner)]
        if len(moving) != 1 or math.prod(nest.extents[v] for v in inner) < 2 * self.target.lanes(self.acc.bits):
            return None
        dtype = moving[0][0].tensor.storage
        ops = [n.op for key, n in nest.nodes.items() if space.depends(key[1], inner)]
        is_plain = not any(at.conditions for at in places) and all(op.name != "stablehlo.iota" for op in ops)
        least = {2: 1, 4: 2}.get(dtype.bits)
        computes = least is not None and sum(cost(op) > 0 for op in ops) >= least
        return moving[0] if dtype.is_integer and is_plain and computes else None

    @property
    def unrolled(self) -> set[int]:
        """Variables of short loops that decide which of several values an element is computed from."""
        conditions = (c for _, at in (*self.nest.nodes, *self.nest.loads) for c in at.conditions)
        deciding = {v for c in conditions for v, _ in c.expr.terms}
        return {v for v in deciding if self.nest.extents[v] <= tuning.UNPACKED_SEGMENTS}

    @property
    def terms_block(self) -> tuple[int, int] | None:
        """The variable of the outermost loop along k, and so many of its iterations that their part of all vectors
        stays in the first-level cache while a task reads it for each of its outputs: blocks of about the same size.
        None if that holds for all iterations. A single vector, and those that wide elements are multiplied by, may come
        from the second level: the matrix is then read in the order of its addresses, from memory."""
        if self.are_outputs or self.dots is not None:
            return None
        v = next(v for v in self.along if v not in self.short)
        apart = (self.nest.extents[u] for u in self.short if self.vectors.along[u] > self.vectors.along[v])
        n, each = self.nest.extents[v], self.vectors.along[v] * self.factor.itemsize * self.count * math.prod(apart)
        is_far = self.count == 1 or are_wide(self.nest, self.lanes)
        cache = self.target.caches.l2 if is_far else self.target.caches.l1
        step = self.space.width if v == self.lanes else 1
        if v != self.lanes and self.nest.extents[self.lanes] % self.space.width:
            return None  # the terms that fill no vector have sums of their own
        most = int(cache * tuning.COMPUTED_VECTORS_SHARE) // each // step * step
        if not 0 < most < n or v in self.unrolled:
            return None
        blocks = -(-n // most)
        return v, -(-n // (blocks * step)) * step

    @property
    def are_outputs(self) -> bool:
        """Whether lanes are outputs."""
        return self.lanes in self.free

    @property
    def cut(self) -> int:
        """The variable that numbers outputs and is cut into chunks."""
        return self.lanes if self.are_outputs else next(reversed(self.free))

    @property
    def output_count(self) -> int:
        """Number of outputs of a product for each vector."""
        return math.prod(self.nest.extents[v] for v in self.free)

    @property
    def sums_of_part(self) -> int:
        """Number of sums for a part of the terms of a product."""
        return self.count * self.output_count

    @property
    def own_outputs(self) -> Outputs:
        """The places that a unit writes to: those of the results, or of a part of the terms."""
        return self.outputs if self.parts == 1 else Outputs(self.output_count, 1, 0)

    @property
    def products(self) -> int:
        """Number of products."""
        return math.prod(self.nest.extents[v] for v in self.batch)

    @property
    def chunks(self) -> int:
        return -(-self.nest.extents[self.cut] // self.chunk)

    @property
    def outer(self) -> list[int]:
        """The variables that number units, outside of the chunks."""
        batch = self.batch if self.totals is None else {}
        return [*batch, *(v for v in self.free if self.free[v] > self.free[self.cut])]

    @property
    def inner(self) -> list[int]:
        """The variables that number outputs between two iterations of the one that is cut."""
        return [v for v in self.free if self.free[v] < self.free[self.cut]]

    @property
    def is_tasks(self) -> bool:
        return self.parts == 1 and (self.epilogue is None or not self.epilogue.is_late)

    @property
    def notes(self) -> list[Note]:
        m = "outputs" if self.are_outputs else "terms"
        why = Reason("operand-contiguous", f"the arrays that the operand is computed from are contiguous along its {m}")
        sums = [self.totals.note] if self.totals is not None else []
        dots = [self.dots.note] if self.dots is not None else []
        head = Note("operand", "computed in registers", Reason("few-rows-reuse", f"{self.rows} vectors use it"))
        looked_up = [] if self.tabulated is None else [Note("elements", "looked up in a register", SIXTEEN)]
        after = self.epilogue.notes if self.epilogue else [self.written.note] if self.written else []
        lanes = Note("lanes", f"{self.space.width} {m}", why)
        return [head, lanes, *looked_up, *dots, self.tasks.note("unit"), *after, *sums]


def schedule_in_registers(
    step: ComputedOperandStep, layout: ProductLayout, context: Context
) -> InRegistersSchedule | None:
    """Returns the schedule; None if the product is not computed so."""
    op, target, totals = step.product.op, context.target, schedule_totals(step, layout, context.target)
    found = of_matrix(op, step.producer.nest, step.operand, layout, target, is_whole=totals is not None, copies=True)
    if found is None:
        return None
    epilogue, written = (None, None) if totals is not None else finish(step.product, target, layout, None)
    result = layout.result if written is None else written.result
    outputs = _places(found.side, result if totals is None else result._replace(matrix=0))
    found = replace(found, totals=totals, epilogue=epilogue, written=written, outputs=outputs)
    return _with_tasks(found, layout.result.batch)


def of_matrix(
    op: Op, nest: Nest, operand: ComputedOperand, layout: ProductLayout, target: Target, *, is_whole: bool, copies: bool
) -> InRegistersSchedule | None:
    """Returns the schedule of the units alone, without tasks; None if the product is not computed so. `nest` computes
    the operand. `is_whole`: the terms are not summed in parts. `copies`: whether vectors may be copied where they could
    be read in place."""
    dots = register_dots(op, operand.side, target)
    found = _of_matrix(op, nest, operand, layout, target, dots, is_whole=is_whole, copies=copies)
    if found is None and dots is not None and dots.is_float:
        return _of_matrix(op, nest, operand, layout, target, None, is_whole=is_whole, copies=copies)
    return found


def _of_matrix(
    op: Op,
    nest: Nest,
    operand: ComputedOperand,
    layout: ProductLayout,
    target: Target,
    dots: RegisterDots | None,
    *,
    is_whole: bool,
    copies: bool,
) -> InRegistersSchedule | None:
    """Returns it with these instructions."""
    side, acc = operand.side, op.result.tensor.storage
    if acc.name not in ("f32", "f64", "i32", "i64", "ui32", "ui64"):
        return None
    nest, offsets = take_offsets(nest)
    nest, operand = split_units(nest, operand, target, are_bytes=dots is not None and not dots.is_float)
    batch, along, free = (ordered(nest, part) for part in operand.parts)
    rows = layout.result.m if side else layout.result.n
    passes = -(-rows // tuning.COMPUTED_OPERAND_ROWS)
    if passes > 1 and dots is not None:
        return None
    count = -(-rows // passes)
    lanes, space = lanes_of(nest, along, free, count, acc, target, dots)
    if space is None:
        return None
    factor = acc if dots is None else dots.factor
    outputs, source = math.prod(nest.extents[v] for v in free), op.operands[1 - side].tensor.storage
    outputs = outputs if copies else 0
    vectors = lay_out(source, factor, nest, along, lanes, layout, side, rows, outputs, dots)
    inner = short_of(nest, along, lanes) if lanes in along else [v for v in free if free[v] < free[lanes]]
    if math.prod(nest.extents[v] for v in inner) > MOST_IN_UNIT or not free:
        return None
    found = InRegistersSchedule(
        side=side,
        nest=nest,
        offsets=offsets,
        target=target,
        space=space,
        key=(nest.stores[0].value, nest.stores[0].at),
        batch=batch,
        along=along,
        free=free,
        lanes=lanes,
        rows=rows,
        count=count,
        strides=layout.operands,
        vectors=vectors,
        outputs=_places(side, layout.result),
        source=source,
        acc=acc,
        dots=dots,
        together=1,
        chunk=1,
        parts=1,
        split=lanes,
        epilogue=None,
    )
    return _with_units(found, is_whole=is_whole)


def _with_units(s: InRegistersSchedule, *, is_whole: bool) -> InRegistersSchedule:
    """Returns the schedule, whose units of work are single outputs, with units of the right size: outputs that are
    computed together, chunks, and parts of the terms, unless `is_whole`: the terms are not summed in parts."""
    nest, width, free = s.nest, s.space.width, s.free
    together = 1
    if s.lanes not in free:
        registers = width // s.target.lanes(s.acc.bits) // (1 if s.dots is None else s.dots.per_lane)
        vector_bytes = math.prod(nest.extents[v] for v in s.along) * s.factor.itemsize
        together = outputs_together(s.target, nest, s.space, s.lanes, s.count, vector_bytes, registers, s.dots)
    products = math.prod(nest.extents[v] for v in s.batch)
    is_whole = is_whole or s.passes > 1 or is_chain(s.acc, s.target)
    most = 1 if is_whole else -(-tuning.COMPUTED_OPERAND_UNITS // products)
    chunk, parts, split = divide(nest, s.along, free, s.lanes, s.count, s.acc, width, together, s.blocks, most)
    return replace(s, together=together, chunk=chunk, parts=parts, split=split)


def _places(side: int, result: Placed) -> Outputs:
    """The places of results."""
    return Outputs(result.row, 1, result.matrix) if side else Outputs(1, result.row, result.matrix)


def _with_tasks(s: InRegistersSchedule, products: int) -> InRegistersSchedule:
    """Returns the schedule with its tasks and its scratch. `products`: number of products in the result."""
    extents = s.nest.extents
    units = math.prod(extents[v] for v in s.outer) * s.chunks * s.parts
    each = sum(cost(n.op) for n in s.nest.nodes.values())
    sums = products * s.parts * s.rows * s.output_count
    fields = {
        "vectors": products * s.vectors.batch * s.factor.itemsize if s.vectors.is_copied else 0,
        "parts": sums * s.acc.itemsize if s.parts > 1 else 0,
        "product": s.totals.nbytes if s.totals is not None else 0,
    }
    return replace(
        s,
        tasks=cut(units, math.prod(extents) * (s.rows + each * s.passes)),
        sum_tasks=cut(products * -(-s.output_count // SUMMED), sums),
        scratch=Scratch(shared=tuple(Field(name, nbytes) for name, nbytes in fields.items() if nbytes)),
    )


def ordered(nest: Nest, part: Mapping[int, int]) -> dict[int, int]:
    """The variables with several iterations, the greatest coefficient first."""
    wide = [(v, c) for v, c in part.items() if is_wide(nest.extents[v])]
    return dict(sorted(wide, key=lambda pair: -pair[1]))


