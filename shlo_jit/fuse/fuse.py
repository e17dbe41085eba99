"""Fusion: group the core ops of a block into the steps of a PlanBlock.

Ops are visited last to first, so the consumers of a value are already in nests when its producer is decided. A value is
*pending* in every nest that reads it. Its producer is either inlined into those nests (if there is one, or if
recomputing costs less than writing and reading), or the value is written to memory. It is written by a nest that visits
each of its elements once anyway, else by a separate nest. Each decision records the reason against the alternative
(`Refusal`).
"""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.computed_operands import form_computed_operands
from shlo_jit.fuse.epilogue import attach_epilogues
from shlo_jit.fuse.grouping import TERMINATORS, Grouping, has_plain_body, is_fusible, is_inline_constant, is_packed_view
from shlo_jit.fuse.independent_products import gather_products
from shlo_jit.fuse.line_tiles import form_line_tiles
from shlo_jit.fuse.loop_interchange import interchange_loop
from shlo_jit.fuse.maps import part_of
from shlo_jit.fuse.materialize import sibling_of, store_beside, store_in
from shlo_jit.fuse.nest import Nest, is_wide, space_of
from shlo_jit.fuse.order import ordered, step_acts
from shlo_jit.fuse.partial_writes import fuse_concatenate, fuse_interior_pad, fuse_update
from shlo_jit.fuse.plan import ControlStep, KeyRange, OpStep, PlanBlock, Segments, SegmentsStep, Step, ViewStep
from shlo_jit.fuse.recompute import too_expensive_to_recompute
from shlo_jit.fuse.reductions import fuse_reduce
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.fuse.row_blocks import form_row_blocks
from shlo_jit.fuse.row_ranges import drop_ranges, mark_scores
from shlo_jit.fuse.segments import segments_in
from shlo_jit.fuse.state_reads import values_before_updates
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.index import NotAffine
from shlo_jit.ops.bodies import CONTROL
from shlo_jit.ops.ranged import adds_zeros, is_ranged, whole_product
from shlo_jit.reasons import Reason
from shlo_jit.sizes import equal
from shlo_jit.traits import PLAIN_TRAITS, Traits


def fuse(function: Op, traits: Traits = PLAIN_TRAITS) -> PlanBlock:
    """Returns the steps of a function of core ops, for a CPU with these traits."""
    return fuse_block(function.block(), traits)


def fuse_block(block: Block, traits: Traits) -> PlanBlock:
    """Returns the steps of a block, including those of the blocks inside its control flow."""
    return _Fusion(block, traits).run()


def fuse_control(op: Op, position: int, traits: Traits) -> ControlStep:
    """Returns the step of a control-flow op, with the steps of its blocks."""
    if op.name != "stablehlo.while":
        return ControlStep(position=position, op=op, blocks=[fuse_block(r.block, traits) for r in op.regions])
    found = interchange_loop(op)
    if isinstance(found, Refusal):
        blocks = [fuse_block(op.block(0), traits), _Fusion(op.block(1), traits, in_loop=True).run()]
        return ControlStep(position=position, op=op, blocks=blocks, refused={"interchange": found})
    return ControlStep(position=position, op=op, blocks=[fuse_block(op.block(0), traits), found])


class _Fusion(Grouping):
    """The backward sweep over a block. `in_loop`: the block is the body of a while."""

    def __init__(self, block: Block, traits: Traits, in_loop: bool = False):
        super().__init__(block)
        self.traits = traits
        self.states = {*block.terminator.operands} if in_loop else set[Value]()
        self.inner: dict[int, list[Value]] = {}
        """Id of a block inside control flow -> the values that it reads from outside."""
        self.acting: Step | None = None
        """The first step with an effect found so far, in program order."""
        self.segments = segments_in(block)
        self.early = values_before_updates(block, self.choices)

    def run(self) -> PlanBlock:
        results: list[Value] = []
        for position in range(len(self.block.ops) - 1, -1, -1):
            op = self.block.ops[position]
            if op.name in TERMINATORS:
                results = list(op.operands)
                self.memory.update(dict.fromkeys(results, Reason("returned", "the program or region returns it")))
            elif op.name == "stablehlo.constant":
                self.constant(op, position)
            elif op.name == "stablehlo.reduce" and has_plain_body(op):
                fuse_reduce(self, op, position)
            elif op.name == "stablehlo.dynamic_update_slice":
                self.update(op, position)
            elif op.name == "stablehlo.concatenate":
                self.concatenate(op, position)
            elif op.name == "stablehlo.pad" and not is_fusible(op):
                fuse_interior_pad(self, op, position)
            elif is_packed_view(op) or (is_view(op) and op.result in self.memory):
                self.view(op, position)
            elif is_fusible(op):
                self.fusible(op, position)
            else:
                self.kernel(op, position)
        mark_scores(self.steps, self.readers, results, self.here)
        for step in self.steps:
            if isinstance(step, OpStep) and step.key_range is not None and not step.key_range.are_terms:
                for value in step.key_range.bounds:
                    self.read(step, value)
        steps = ordered(self.steps, self.producers, self.readers)
        outside, acts = outside_values(self.block, self.inner), any(map(step_acts, steps))
        block = PlanBlock(self.block, steps, results, outside, acts)
        form_row_blocks(block, self.traits)
        drop_ranges(block)
        attach_epilogues(block)
        form_line_tiles(block, self.traits.caches)
        form_computed_operands(block, self.traits)
        gather_products(block)
        return block

    def constant(self, op: Op, position: int) -> None:
        """Writes a splat constant to memory if memory is required; other constants are in memory already."""
        value = op.result
        if is_inline_constant(value):
            if value in self.memory:
                self.materialize(op, position, [], self.memory[value])
            return
        for nest in self.nests_wanting(value):
            self.load(nest, value)

    def kernel(self, op: Op, position: int) -> None:
        """Adds the step of an op that has a dedicated kernel, or of control flow."""
        if op.name in CONTROL:
            step: Step = fuse_control(op, position, self.traits)
            for block in step.blocks:
                self.inner[id(block.block)] = block.outside
                for value in block.outside:
                    self.read(step, value)
        else:
            found = [self.segments.get(o) for o in op.operands]
            segments = next((s for s in found if isinstance(s, Segments)), None)
            terms = KeyRange(op.operands[2], op.operands[3], True, adds_zeros(op)) if is_ranged(op) else None
            own = whole_product(op) if terms is not None else op
            if segments is not None:
                step = SegmentsStep(position=position, op=own, key_range=terms, segments=segments)
            else:
                step = OpStep(position=position, op=own, key_range=terms)
        self.steps.append(step)
        self.keep_order(step)
        for r in op.results:
            for nest in self.nests_wanting(r):
                self.load(nest, r)
            self.write(step, r, Reason("kernel-result", f"a {step.title} writes its result to memory"))
        for o in op.operands:
            for part in step.parts_of(o) if isinstance(step, OpStep) else [o]:
                self.read(step, part)

    def concatenate(self, op: Op, position: int) -> None:
        """Materializes a concatenation, unless every reading index falls into one of its operands, as for components of
        indices, or nests read its segments directly. A concatenation that products read in segments is dead here."""
        nests = self.nests_wanting(op.result)
        wanted = nests and op.result not in self.memory
        if wanted and all(self.has_places(op, nest) for nest in nests):
            if not any([self.inline(op, nest) for nest in nests]):
                return
            nests = self.nests_wanting(op.result)
        if wanted and self.choices.chooses(op) and self.inline_everywhere(op, nests) is None:
            return
        found = self.segments.get(op.result)
        why = Reason("not-in-segments", "products read it as a whole", found) if isinstance(found, Refusal) else None
        fuse_concatenate(self, op, position, why)

    def has_places(self, op: Op, nest: Nest) -> bool:
        """Whether everything that a nest reads from a concatenation comes from one operand."""
        try:
            return all(part_of(op, at, nest.extents) for at in nest.pending[op.result])
        except NotAffine:
            return False

    def update(self, op: Op, position: int) -> None:
        """Adds an update in place, or fuses it into the nests that choose between it and the operand."""
        if self.choices.chooses(op):
            self.fusible(op, position)
        else:
            fuse_update(self, op, position)

    def keep_order(self, step: Step) -> None:
        """Keeps steps with effects in program order; the sweep visits the last ones first."""
        if step_acts(step):
            if self.acting is not None:
                self.acting.after.append(step)
            self.acting = step

    def view(self, op: Op, position: int) -> None:
        step = ViewStep(position=position, op=op)
        self.steps.append(step)
        for nest in self.nests_wanting(op.result):
            self.load(nest, op.result)
        self.write(step, op.result, None)
        self.read(step, op.operands[0])

    # ------------------------------------------------------------------ ops that can be computed anywhere
    def fusible(self, op: Op, position: int) -> None:
        value = op.result
        nests = self.nests_wanting(value)
        if not nests and value not in self.memory:
            return  # dead
        before = self.early.why.get(value)
        if before is not None:
            for nest in nests:
                self.load(nest, value)
            return self.materialize(op, position, [], before)
        why = self.memory.get(value)
        if why is None:
            refusal = self.inline_everywhere(op, nests)
            if refusal is None:
                return
            why = refusal
        self.materialize(op, position, self.nests_wanting(value), why)

    def inline_everywhere(self, op: Op, nests: list[Nest]) -> Refusal | None:
        """Inlines an op into each nest that reads it, unless that is impossible or too expensive."""
        refusal = too_expensive_to_recompute(self, op, nests)
        for nest in nests:
            refusal = refusal or self.inline(op, nest)
        return refusal

    # ------------------------------------------------------------------ values in memory
    def materialize(self, op: Op, position: int, nests: list[Nest], why: Reason) -> None:
        """Writes the value to memory, by a nest that visits each of its elements once, or by a new one. `why` is the
        reason that it must be in memory."""
        value = op.result
        if is_view(op):
            return self.view(op, position)
        writer, refusal = None, None
        # A reader that repeats elements in lanes would not have lanes across them.
        for nest in [] if why.code == "repeated-in-lanes" else nests[: tuning.MATERIALIZE_CANDIDATES]:
            if writer is None:
                refused = store_in(self, nest, op, nests, why)
                writer = nest if refused is None else None
                refusal = refusal or refused
        for nest in nests:
            if nest is not writer:
                self.load(nest, value)
        if writer is None and not nests and store_beside(self, op, why):
            return
        sibling = sibling_of(self, value, self.states) if writer is None and value in self.states else None
        if sibling is not None:
            sibling.pending[value] = [sibling.stores[0].at]
            writer = sibling if store_in(self, sibling, op, nests, why) is None else None
        if writer is None:
            nest = self.new_nest(position)
            at = space_of(nest, value.tensor.extents)
            nest.pending[value] = [at]
            own = Reason("separate-loop", "computed by a separate loop", refusal) if refusal is not None else None
            self.store(nest, value, at, why.then(own))
            refused = self.inline(op, nest)
            assert refused is None, f"{op.name} has no index map over its own elements"


def is_view(op: Op) -> bool:
    """Whether an op's result has the same memory layout as its operand: a reshape, a broadcast that repeats nothing,
    with which frontends make an index from a scalar, or packed elements."""
    if op.name != "stablehlo.broadcast_in_dim":
        return op.name == "stablehlo.reshape" or is_packed_view(op)
    dims, source = op.ints("broadcast_dimensions"), op.operands[0].tensor
    wide = [d for d, n in zip(dims, source.extents, strict=True) if is_wide(n)]
    return wide == sorted(wide) and equal(source.size, op.result.tensor.size)


def outside_values(block: Block, inner: dict[int, list[Value]]) -> list[Value]:
    """Returns the values from outside of a block that its ops and their regions read, without inline constants. `inner`
    has the known ones of nested blocks, by id."""
    found: dict[Value, None] = {}
    here = {id(op) for op in block.ops}
    for op in block.ops:
        found.update(dict.fromkeys(op.operands))
        for b in (b for r in op.regions for b in r.blocks):
            found.update(dict.fromkeys(inner[id(b)] if id(b) in inner else outside_values(b, inner)))
    return [v for v in found if v.owner is not block and id(v.op) not in here and not is_inline_constant(v)]
