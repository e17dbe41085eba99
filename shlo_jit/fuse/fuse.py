"""Fusion: a block of core ops to the steps of a PlanBlock.

Ops are visited last to first, so that the consumers of a value have found their nests when its producer is decided.
A value is *pending* in every nest that wants it. Its producer then either moves into those nests (one nest, or so cheap
that computing it twice costs less than writing and reading it), or it is written to memory: by a nest that computes it
anyway at each of its elements once, else by a nest of its own. Whoever decides says why not (`Refusal`).
"""

from __future__ import annotations

import math

from shlo_jit import tuning
from shlo_jit.fuse.attention import form_attention
from shlo_jit.fuse.bands import form_bands
from shlo_jit.fuse.choices import NEAR, chooses, source_of
from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.epilogue import attach_epilogues
from shlo_jit.fuse.gradient import form_gradients
from shlo_jit.fuse.grouping import TERMINATORS, Grouping, has_plain_body, is_fusible, is_inline_constant
from shlo_jit.fuse.maps import part_of
from shlo_jit.fuse.nest import Nest, covers, is_wide, space_of
from shlo_jit.fuse.order import depends, ordered, step_acts
from shlo_jit.fuse.partial import fuse_concatenate, fuse_spread, fuse_update
from shlo_jit.fuse.pieces import pieces_in
from shlo_jit.fuse.plan import ControlStep, OpStep, Pieces, PlanBlock, Step, ViewStep
from shlo_jit.fuse.reductions import fuse_reduce
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.fuse.turns import fuse_turns
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.index import NotAffine, variables
from shlo_jit.ops import OPS, is_elementwise
from shlo_jit.ops.bodies import CONTROL
from shlo_jit.sizes import equal, hint_of


def fuse(function: Op) -> PlanBlock:
    """A function of core ops as steps."""
    return fuse_block(function.block())


def fuse_block(block: Block) -> PlanBlock:
    """The ops of a block, and of the blocks inside its control flow, as steps."""
    return _Fusion(block).run()


def fuse_control(op: Op, position: int) -> ControlStep:
    """Control flow with the steps of its blocks."""
    if op.name != "stablehlo.while":
        return ControlStep(position=position, op=op, blocks=[fuse_block(r.block) for r in op.regions])
    found = fuse_turns(op)
    if isinstance(found, Refusal):
        blocks = [fuse_block(op.block(0)), _Fusion(op.block(1), in_loop=True).run()]
        return ControlStep(position=position, op=op, blocks=blocks, no_turns=found)
    return ControlStep(position=position, op=op, blocks=[fuse_block(op.block(0)), found])


class _Fusion(Grouping):
    """The sweep over a block. `in_loop`: the body of a while."""

    def __init__(self, block: Block, in_loop: bool = False):
        super().__init__(block)
        self.in_loop = in_loop
        self.results = {*block.terminator.operands}
        self.inner: dict[int, list[Value]] = {}
        """What the blocks of control flow read from outside, by id of the block."""
        self.acting: Step | None = None
        """The first step with an effect, of those there are."""
        self.pieces = pieces_in(block)

    def run(self) -> PlanBlock:
        results: list[Value] = []
        for position in range(len(self.block.ops) - 1, -1, -1):
            op = self.block.ops[position]
            if op.name in TERMINATORS:
                results = list(op.operands)
                self.memory.update(dict.fromkeys(results, "returned"))
            elif op.name == "stablehlo.constant":
                self.constant(op, position)
            elif op.name == "stablehlo.reduce" and has_plain_body(op):
                fuse_reduce(self, op, position)
            elif op.name == "stablehlo.dynamic_update_slice":
                self.update(op, position)
            elif op.name == "stablehlo.concatenate":
                self.concatenate(op, position)
            elif op.name == "stablehlo.pad" and not is_fusible(op):
                fuse_spread(self, op, position)
            elif is_view(op) and op.result in self.memory:
                self.view(op, position)
            elif is_fusible(op):
                self.fusible(op, position)
            else:
                self.kernel(op, position)
        steps = ordered(self.steps, self.producers, self.readers)
        outside, acts = outside_values(self.block, self.inner), any(map(step_acts, steps))
        block = PlanBlock(self.block, steps, results, outside, acts)
        attach_epilogues(block)
        form_attention(block)
        form_gradients(block)
        form_bands(block)
        return block

    def constant(self, op: Op, position: int) -> None:
        """A constant of equal elements is written where memory is wanted; the others are in memory already."""
        value = op.result
        if is_inline_constant(value):
            if value in self.memory:
                self.materialize(op, position, [], self.memory[value])
            return
        for nest in self.nests_wanting(value):
            self.load(nest, value)

    def kernel(self, op: Op, position: int) -> None:
        """An op that has a kernel of its own, or control flow."""
        if op.name in CONTROL:
            step: Step = fuse_control(op, position)
            for block in step.blocks:
                self.inner[id(block.block)] = block.outside
                for value in block.outside:
                    self.read(step, value)
        else:
            found = [self.pieces.get(o) for o in op.operands]
            step = OpStep(position=position, op=op, pieces=next((p for p in found if isinstance(p, Pieces)), None))
        self.steps.append(step)
        self.keep_order(step)
        for r in op.results:
            for nest in self.nests_wanting(r):
                self.load(nest, r)
            self.write(step, r, f"a {step.title} writes memory")
        for o in op.operands:
            for part in step.parts_of(o) if isinstance(step, OpStep) else [o]:
                self.read(step, part)

    def concatenate(self, op: Op, position: int) -> None:
        """A concatenation in memory, unless each place where it is read is in one of its operands, as components of
        indices are, or nests read its parts; one that products read in pieces is dead here."""
        nests = self.nests_wanting(op.result)
        wanted = nests and op.result not in self.memory
        if wanted and all(self.has_places(op, nest) for nest in nests):
            for nest in nests:
                self.inline(op, nest)
            return
        if wanted and chooses(op) and self.inline_everywhere(op, nests) is None:
            return
        found = self.pieces.get(op.result)
        why = f", not read in pieces: {found.reason}" if isinstance(found, Refusal) else ""
        fuse_concatenate(self, op, position, why)

    def has_places(self, op: Op, nest: Nest) -> bool:
        """Whether operands have what a nest wants of an op."""
        try:
            return all(part_of(op, at, nest.extents) for at in nest.pending[op.result])
        except NotAffine:
            return False

    def update(self, op: Op, position: int) -> None:
        """An update in place, or where nests choose between it and what it leaves, another value."""
        if chooses(op):
            self.fusible(op, position)
        else:
            fuse_update(self, op, position)

    def keep_order(self, step: Step) -> None:
        """Steps with effects run in the program's order, whose last ones come first here."""
        if step_acts(step):
            if self.acting is not None:
                self.acting.after.append(step)
            self.acting = step

    def view(self, op: Op, position: int) -> None:
        step = ViewStep(position=position, op=op)
        self.steps.append(step)
        for nest in self.nests_wanting(op.result):
            self.load(nest, op.result)
        self.write(step, op.result, "")
        self.read(step, op.operands[0])

    # ------------------------------------------------------------------ ops that can be computed anywhere
    def fusible(self, op: Op, position: int) -> None:
        value = op.result
        nests = self.nests_wanting(value)
        if not nests and value not in self.memory:
            return  # dead
        why = self.memory.get(value)
        if why is None:
            refusal = self.inline_everywhere(op, nests)
            if refusal is None:
                return
            why = refusal.reason
        self.materialize(op, position, self.nests_wanting(value), why)

    def inline_everywhere(self, op: Op, nests: list[Nest]) -> Refusal | None:
        """Compute an op in each nest that wants it, unless that is dear or cannot be."""
        refusal = self.dear(op, nests)
        for nest in nests:
            refusal = refusal or self.inline(op, nest)
        return refusal

    def dear(self, op: Op, nests: list[Nest]) -> Refusal | None:
        """Why computing an op where it is read costs more than writing it."""
        price = cost(op)
        places = max(len(n.pending[op.result]) for n in nests)
        if any(len(n.nodes) > tuning.NEST_OPS for n in nests) and not self.is_leaf(op):
            return Refusal(f"its reader has {tuning.NEST_OPS} ops already")
        visits, size = hint_of(self.visits(op.result, nests)), hint_of(op.result.tensor.size)
        if op.name == "stablehlo.gather" and visits > 2 * size:
            return Refusal(f"its readers want {visits:,} elements of {size:,}, a load a lane")
        near = op.name in NEAR and self.moves_memory(op)
        if price == 0 and (op.name != "stablehlo.pad" or near):
            most = tuning.NEAR_PLACES if near else tuning.FREE_PLACES
            return None if places <= most or not op.operands else Refusal(f"read at {places} places")
        if len(nests) > 1 and visits <= size:  # each reads a part of its own: nothing is computed twice
            return None if places == 1 else Refusal(f"read at {places} places")
        if places > 1 and price > 1:
            return Refusal(f"read at {places} places, and computing it again costs {price}")
        if price >= tuning.DEAR_COST and (times := max(self.repeats(op.result, n) for n in nests)) > 1:
            return Refusal(f"its reader would compute it {times} times over, for {price} each")
        if places > 2:
            return Refusal(f"read at {places} places")
        if places > 1 and any(len(n.nodes) > tuning.NEST_TWICE_OPS for n in nests):
            return Refusal(f"read at {places} places of a loop with more than {tuning.NEST_TWICE_OPS} ops")
        if len(nests) > 1 and (price > 1 or len(op.operands) > 1) and not self.is_made_of_little(op):
            return Refusal(f"{len(nests)} kernels read it, and computing it again costs {price}")
        return None

    def repeats(self, value: Value, nest: Nest) -> int:
        """How many times over a nest would compute the value: in the loops that it depends on and those around them."""
        order = nest.order() if nest.stores else []
        most = 0
        for at in nest.pending[value]:
            inner = max((k for k, v in enumerate(order) if v in variables(at)), default=-1)
            turns = math.prod(hint_of(nest.extents[v]) for v in order[: inner + 1])
            most = max(most, turns // max(1, hint_of(value.tensor.size)))
        return most

    def is_made_of_little(self, op: Op) -> bool:
        """Computing a cheap op in each of its readers is less than writing it: what it is broadcast from is small."""
        read = 0
        for o in op.operands:
            while o.op is not None and id(o.op) in self.here and OPS[o.op.name].index_map is not None and o.op.operands:
                o = o.op.operands[0]
            read += hint_of(o.tensor.size) if o.op is None or o.op.operands else 0  # an iota or a constant is nothing
        return cost(op) <= tuning.CHEAP_COST and read * tuning.LITTLE <= hint_of(op.result.tensor.size)

    def is_leaf(self, op: Op) -> bool:
        """The op reads only what is in memory in any case: a full nest that takes it in asks for nothing more."""
        return all(self.is_there(o) for o in op.operands)

    def moves_memory(self, op: Op) -> bool:
        """The op says where elements are of what is in memory in any case, through other such ops."""
        return all(self.is_there(source_of(o)) for o in op.operands)

    def is_there(self, value: Value) -> bool:
        """In memory when the block begins, or needing none."""
        return value.op is None or id(value.op) not in self.here or is_inline_constant(value)

    def visits(self, value: Value, nests: list[Nest]) -> int:
        """How many elements would be computed, all readers together."""
        return sum(n.rows * n.reduced * len(n.pending[value]) for n in nests)

    # ------------------------------------------------------------------ values in memory
    def materialize(self, op: Op, position: int, nests: list[Nest], why: str) -> None:
        """Write the value to memory, from a nest that visits each of its elements once, or from a new one. `why` it has
        to be in memory."""
        value = op.result
        if is_view(op):
            return self.view(op, position)
        home, refusal = None, None
        for nest in nests[: tuning.HOMES_ASKED]:
            if home is None:
                refused = self.store_in(nest, op, nests, why)
                home = nest if refused is None else None
                refusal = refusal or refused
        for nest in nests:
            if nest is not home:
                self.load(nest, value)
        if home is None and not nests and self.store_beside(op, why):
            return
        if home is None and (sibling := self.sibling(value)) is not None:
            sibling.pending[value] = [sibling.stores[0].at]
            home = sibling if self.store_in(sibling, op, nests, why) is None else None
        if home is None:
            nest = self.new_nest(position)
            at = space_of(nest, value.tensor.extents)
            nest.pending[value] = [at]
            own = f"; a loop of its own, since its reader {refusal.reason}" if refusal is not None else ""
            self.store(nest, value, at, why + own)
            refused = self.inline(op, nest)
            assert refused is None, f"{op.name} has no index map over its own elements"

    def store_beside(self, op: Op, why: str) -> bool:
        """Let a row program that reads what an elementwise op is made of, at each of its elements, compute and write
        that, where products alone read it: the weights of attention beside their gradient."""
        value = op.result
        readers = self.readers.get(value, [])
        if not is_elementwise(op) or any(s.title != "dot_general" for s in readers):
            return False
        for operand in self.made_of(op):
            for nest in self.nests_wanting(operand):
                places = nest.pending[operand]
                if nest.reduce_vars and len(places) == 1 and not self.is_made_of(op, self.of_nest[nest].writes):
                    self.request(nest, value, places[0])
                    if self.store_in(nest, op, [nest], why) is None:
                        return True
                    del nest.pending[value]
        return False

    def made_of(self, op: Op) -> list[Value]:
        """What an elementwise op is computed from element by element, by a few ops."""
        found: list[Value] = []
        todo = [op]
        while todo and len(found) <= tuning.NEST_TWICE_OPS:
            for o in todo.pop(0).operands:
                if equal(o.tensor.extents, op.result.tensor.extents) and o not in found:
                    found.append(o)
                    todo += [o.op] if o.op is not None and id(o.op) in self.here and is_elementwise(o.op) else []
        return found

    def is_made_of(self, op: Op, values: list[Value]) -> bool:
        """The op needs one of the values. Taken to be so where that would be a long search."""
        wanted = {v.op for v in values}
        seen, todo = {op}, [op]
        while todo:
            for before in (o.op for o in todo.pop().operands):
                if before in wanted or len(seen) > tuning.ORDER_SEARCH:
                    return True
                if before is not None and id(before) in self.here and before not in seen:
                    seen.add(before)
                    todo.append(before)
        return False

    def sibling(self, value: Value) -> Nest | None:
        """Of a loop's states: a nest that computes another one from what this one is computed from."""
        if not self.in_loop or value not in self.results:
            return None
        for nest in self.of_nest:
            if is_whole(nest, value.tensor.extents) and nest.stores[0].target in self.results:
                targets = {s.target for s in nest.stores}
                if self.sources(value, targets) & self.sources(nest.stores[0].target, {value}):
                    return nest
        return None

    def sources(self, value: Value, never: set[Value]) -> set[Value]:
        """The arguments of the block that a value is computed from, if that is little work to find out; none where one
        of `never` is on the way."""
        found, seen, todo = set[Value](), set[Value](), [value]
        while todo:
            v = todo.pop()
            if v in seen:
                continue
            seen.add(v)
            if v in never or len(seen) > tuning.NEST_OPS or (v.op is not None and v.op.regions):
                return set()
            if v.op is None and v.owner is self.block:
                found.add(v)
            elif v.op is not None and id(v.op) in self.here:
                todo += v.op.operands
        return found

    def store_in(self, nest: Nest, op: Op, nests: list[Nest], why: str) -> Refusal | None:
        """Let a nest that reads a value compute and write it."""
        value = op.result
        refusal = self.cannot_store(nest, value, nests) or self.inline(op, nest)
        if refusal is None:
            self.store(nest, value, next(k[1] for k in nest.nodes if k[0] is value), why)
        return refusal

    def cannot_store(self, nest: Nest, value: Value, nests: list[Nest]) -> Refusal | None:
        """Why the nest does not have the value at each of its elements once, or may not run before other readers."""
        places = nest.pending[value]
        if len(nest.nodes) > tuning.NEST_OPS:
            return Refusal(f"has {tuning.NEST_OPS} ops already")
        if len(places) != 1 or value in self.of_nest[nest].reads:
            return Refusal("reads it at several places")
        seen = covers(nest, places[0], value.tensor.extents)
        wide = {v for v, e in enumerate(nest.extents) if is_wide(e)}
        if 0 in nest.extents or seen is None or (wide - seen and wide - seen != wide & set(nest.reduce_vars)):
            return Refusal("does not go over each of its elements once")
        step = self.of_nest[nest]
        others = [self.of_nest[n] for n in nests] + self.readers.get(value, [])
        if depends(step, *(o for o in others if o is not step)):
            return Refusal("has to wait for another one")
        return None


def is_view(op: Op) -> bool:
    """Whether an op's result lies in memory as its operand does: a reshape, or a broadcast that repeats nothing, as
    frontends make indices of one number of."""
    if op.name != "stablehlo.broadcast_in_dim":
        return op.name == "stablehlo.reshape"
    dims, source = op.ints("broadcast_dimensions"), op.operands[0].tensor
    wide = [d for d, n in zip(dims, source.extents, strict=True) if is_wide(n)]
    return wide == sorted(wide) and equal(source.size, op.result.tensor.size)


def is_whole(nest: Nest, shape: tuple[int, ...]) -> bool:
    """Whether a nest is a plain loop over the elements of a tensor of that shape, which it writes."""
    if nest.reduce_vars or nest.overwrites is not None or nest.after is not None or not nest.stores:
        return False
    lead = nest.stores[0]
    whole = lead.at.index == lead.index and not lead.at.conditions and lead.target.tensor.extents == shape
    return whole and covers(nest, lead.at, shape) == {v for v, e in enumerate(nest.extents) if is_wide(e)}


def outside_values(block: Block, inner: dict[int, list[Value]]) -> list[Value]:
    """Values from outside of a block that its ops read, those in its regions too, inline constants left out. `inner`
    has, by id, those of blocks inside that are known."""
    found: dict[Value, None] = {}
    here = {id(op) for op in block.ops}
    for op in block.ops:
        found.update(dict.fromkeys(op.operands))
        for b in (b for r in op.regions for b in r.blocks):
            found.update(dict.fromkeys(inner[id(b)] if id(b) in inner else outside_values(b, inner)))
    return [v for v in found if v.owner is not block and id(v.op) not in here and not is_inline_constant(v)]
