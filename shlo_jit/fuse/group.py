"""Fusion: a block of core ops to the steps of a PlanBlock.

Ops are visited last to first, so that the consumers of a value have found their nests when its producer is decided.
A value is *pending* in every nest that wants it. Its producer then either moves into those nests (one nest, or so cheap
that computing it twice costs less than writing and reading it), or it is written to memory: by a nest that computes it
anyway at each of its elements once, else by a nest of its own.
"""

from __future__ import annotations

from shlo_jit.fuse.costs import cost, longest_row
from shlo_jit.fuse.epilogue import attach_epilogues
from shlo_jit.fuse.maps import operand_places
from shlo_jit.fuse.nest import Nest, Node, Store, covers, space_of
from shlo_jit.fuse.order import depends, ordered, step_acts
from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, PlanBlock, Step, ViewStep
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.index import ORIGIN, At, Expr, NotAffine, Split
from shlo_jit.ops import OPS, is_elementwise

MAX_NODES = 400
"""Nodes of one nest; more would cost more to compile than they save."""
MOST_HOMES = 50
"""Of the nests that read a value, so many are asked whether they can also write it."""
CONTROL = {"stablehlo.while", "stablehlo.if", "stablehlo.case"}
TERMINATORS = {"stablehlo.return", "func.return"}


def is_fusible(op: Op) -> bool:
    """Can be computed an element at a time, wherever it is wanted."""
    if op.name == "stablehlo.pad":
        return not any(op.ints("interior_padding"))
    if op.name == "stablehlo.constant":
        return is_inline_constant(op.result)
    return OPS[op.name].index_map is not None or is_elementwise(op)


def is_inline_constant(value: Value) -> bool:
    """A constant whose elements are all the same: it needs no memory and may be used in any block."""
    op = value.op
    return op is not None and op.name == "stablehlo.constant" and op.constant.is_splat


def has_plain_body(op: Op) -> bool:
    """The reducer consists of elementwise ops and constants."""
    ops = op.block().ops
    return all(is_elementwise(o) or is_inline_constant_op(o) or o.name in TERMINATORS for o in ops)


def is_inline_constant_op(op: Op) -> bool:
    return op.name == "stablehlo.constant" and op.constant.is_splat


class _Grouper:
    def __init__(self, block: Block):
        self.block = block
        self.here = {id(op) for op in block.ops}
        self.steps: list[Step] = []
        self.inner: dict[int, list[Value]] = {}
        """What the blocks of control flow read from outside, by id of the block."""
        self.of_nest: dict[Nest, NestStep] = {}
        self.memory: set[Value] = set()
        """Values that must be in memory."""
        self.producers: dict[Value, list[Step]] = {}
        self.readers: dict[Value, list[Step]] = {}
        self.reading: set[tuple[Step, Value]] = set()
        """What stands in a step's `reads`."""
        self.wanting: dict[Value, list[Nest]] = {}
        """Nests that have the value pending (a nest may be listed after it no longer has)."""

    # ------------------------------------------------------------------ bookkeeping
    def new_nest(self, position: int, why: str) -> Nest:
        nest = Nest([], why=why)
        step = NestStep(position=position, nest=nest)
        self.of_nest[nest] = step
        self.steps.append(step)
        return nest

    def request(self, nest: Nest, value: Value, at: At) -> None:
        if is_inline_constant(value):
            nest.nodes.setdefault((value, at), Node(value.op, []))  # type: ignore[arg-type]
            return
        nest.request(value, at)
        if value.op is None or id(value.op) not in self.here:
            self.load(nest, value)
        else:
            self.wanting.setdefault(value, []).append(nest)

    def load(self, nest: Nest, value: Value) -> None:
        """Settle the pending places of a value as reads from memory."""
        for at in nest.pending.pop(value, []):
            nest.loads[(value, at)] = None
        step = self.of_nest[nest]
        if (step, value) not in self.reading:
            self.read(step, value)
            step.after.extend(self.producers.get(value, []))

    def read(self, step: Step, value: Value) -> None:
        if (step, value) not in self.reading:
            self.reading.add((step, value))
            step.reads.append(value)
            self.readers.setdefault(value, []).append(step)
        self.memory.add(value)

    def write(self, step: Step, value: Value) -> None:
        step.writes.append(value)
        self.producers.setdefault(value, []).append(step)
        for reader in self.readers.get(value, []):
            if reader is not step:
                reader.after.append(step)

    def nests_wanting(self, value: Value) -> list[Nest]:
        return list(dict.fromkeys(nest for nest in self.wanting.get(value, ()) if value in nest.pending))

    # ------------------------------------------------------------------ the sweep
    def run(self) -> PlanBlock:
        results: list[Value] = []
        for position in range(len(self.block.ops) - 1, -1, -1):
            op = self.block.ops[position]
            if op.name in TERMINATORS:
                results = list(op.operands)
                self.memory.update(results)
            elif op.name == "stablehlo.constant":
                self.constant(op, position)
            elif op.name == "stablehlo.reduce" and has_plain_body(op):
                self.reduce(op, position)
            elif op.name == "stablehlo.dynamic_update_slice":
                self.update(op, position)
            elif op.name == "stablehlo.concatenate":
                self.concatenate(op, position)
            elif op.name == "stablehlo.pad" and not is_fusible(op):
                self.spread(op, position)
            elif op.name == "stablehlo.reshape" and op.result in self.memory:
                self.view(op, position)
            elif is_fusible(op):
                self.fusible(op, position)
            else:
                self.kernel(op, position)
        steps = ordered(self.steps, self.producers, self.readers)
        outside, acts = outside_values(self.block, self.inner), any(map(step_acts, steps))
        block = PlanBlock(self.block, steps, results, outside, acts)
        attach_epilogues(block)
        return block

    def constant(self, op: Op, position: int) -> None:
        """A constant of equal elements is written where memory is wanted; the others are in memory already."""
        if is_inline_constant(op.result):
            if op.result in self.memory:
                self.materialize(op, position, [])
            return
        for nest in self.nests_wanting(op.result):
            self.load(nest, op.result)

    def kernel(self, op: Op, position: int) -> None:
        """An op that has a kernel of its own, or control flow."""
        if op.name in CONTROL:
            blocks = [group_block(r.block) for r in op.regions]
            step: Step = ControlStep(position=position, op=op, blocks=blocks)
            for block in blocks:
                self.inner[id(block.block)] = block.outside
                for value in block.outside:
                    self.read(step, value)
        else:
            step = OpStep(position=position, op=op)
        self.steps.append(step)
        for r in op.results:
            for nest in self.nests_wanting(r):
                self.load(nest, r)
            self.write(step, r)
        for o in op.operands:
            self.read(step, o)

    def view(self, op: Op, position: int) -> None:
        step = ViewStep(position=position, op=op)
        self.steps.append(step)
        for nest in self.nests_wanting(op.result):
            self.load(nest, op.result)
        self.write(step, op.result)
        self.read(step, op.operands[0])

    def fusible(self, op: Op, position: int) -> None:
        value = op.result
        nests = self.nests_wanting(value)
        if not nests and value not in self.memory:
            return  # dead
        if value not in self.memory and self.may_inline(op, nests) and all(self.inline(op, n) for n in nests):
            return
        self.materialize(op, position, self.nests_wanting(value))

    def may_inline(self, op: Op, nests: list[Nest]) -> bool:
        price = cost(op)
        places = max(len(n.pending[op.result]) for n in nests)
        if any(len(n.nodes) > MAX_NODES for n in nests) and not self.is_leaf(op):
            return False
        if op.name == "stablehlo.gather" and self.visits(op.result, nests) > 2 * op.result.tensor.size:
            return False  # a load a lane
        if price == 0 and op.name != "stablehlo.pad":
            return places <= 8 or not op.operands
        if len(nests) > 1 and self.visits(op.result, nests) <= op.result.tensor.size:
            return places == 1  # each reads a part of its own: nothing is computed twice
        if places > 1 and (price > 1 or places > 2 or any(len(n.nodes) > 64 for n in nests)):
            return False
        return len(nests) == 1 or (price <= 1 and len(op.operands) == 1)

    def is_leaf(self, op: Op) -> bool:
        """The op reads only what is in memory in any case: a full nest that takes it in asks for nothing more."""
        return all(o.op is None or id(o.op) not in self.here or is_inline_constant(o) for o in op.operands)

    def visits(self, value: Value, nests: list[Nest]) -> int:
        """How many elements would be computed, all readers together."""
        return sum(n.rows * n.reduced * len(n.pending[value]) for n in nests)

    def inline(self, op: Op, nest: Nest) -> bool:
        """Compute the op inside a nest at every place it is pending there; False when no index map says how."""
        value = op.result
        while True:
            try:
                found = [(at, operand_places(op, at, nest.extents)) for at in nest.pending[value]]
                break
            except Split as split:
                nest.split(split.var, split.factor)
            except NotAffine:
                return False
        del nest.pending[value]
        for at, operands in found:
            nest.nodes[(value, at)] = Node(op, list(operands))
            for o, place in operands:
                self.request(nest, o, place)
        return True

    def materialize(self, op: Op, position: int, nests: list[Nest]) -> None:
        """Write the value to memory, from a nest that visits each of its elements once, or from a new one."""
        value = op.result
        if op.name == "stablehlo.reshape":
            return self.view(op, position)
        shape = value.tensor.extents
        why = self.reason(op, nests)
        home = None
        for nest in nests[:MOST_HOMES]:
            if home is None and self.can_store(nest, value, nests) and self.store_in(nest, op):
                home = nest
        for nest in nests:
            if nest is not home:
                self.load(nest, value)
        if home is None:
            nest = self.new_nest(position, why)
            at = space_of(nest, shape)
            nest.stores.append(Store(value, at, value, at.index))
            nest.pending[value] = [at]
            self.write(self.of_nest[nest], value)
            inlined = self.inline(op, nest)
            assert inlined, f"{op.name} has no index map over its own elements"

    def reason(self, op: Op, nests: list[Nest]) -> str:
        """Why a value is written to memory rather than computed where it is read."""
        value = op.result
        readers = {r.title for r in self.readers.get(value, []) if not isinstance(r, NestStep)}
        if readers:
            return f"read by {', '.join(sorted(readers))}"
        if value in self.memory:
            return "returned"
        if any(len(n.nodes) > MAX_NODES for n in nests):
            return f"its reader has {MAX_NODES} ops"
        if len(nests) > 1:
            return f"{len(nests)} kernels read it, and computing it again costs {cost(op)}"
        if any(len(n.pending[value]) > 1 for n in nests):
            return "read at several places"
        return "no affine index map"

    def can_store(self, nest: Nest, value: Value, nests: list[Nest]) -> bool:
        """The nest has the value at each of its elements once, and may run before the other readers."""
        places = nest.pending[value]
        if len(nest.nodes) > MAX_NODES or len(places) != 1 or value in self.of_nest[nest].reads or 0 in nest.extents:
            return False
        seen = covers(nest, places[0], value.tensor.extents)
        wide = {v for v, e in enumerate(nest.extents) if e > 1}
        if seen is None or (wide - seen and wide - seen != wide & set(nest.reduce_vars)):
            return False
        step = self.of_nest[nest]
        others = [self.of_nest[n] for n in nests] + self.readers.get(value, [])
        return not depends(step, *(o for o in others if o is not step))

    def store_in(self, nest: Nest, op: Op) -> bool:
        value = op.result
        at = nest.pending[value][0]
        if not self.inline(op, nest):
            return False
        at = next(k[1] for k in nest.nodes if k[0] is value)
        nest.stores.append(Store(value, at, value, at.index))
        self.write(self.of_nest[nest], value)
        return True

    # ------------------------------------------------------------------ reduce
    def reduce(self, op: Op, position: int) -> None:
        results = op.results
        nests: list[Nest] = []
        for r in results:
            nests = list(dict.fromkeys([*nests, *self.nests_wanting(r)]))
        if not nests and not any(r in self.memory for r in results):
            return
        home = None
        for nest in nests[:MOST_HOMES]:
            if self.reduce_in(op, nest, nests):
                home = nest
                break
        if home is None:
            home = self.new_nest(position, "its readers could not take the reduction in")
            self.reduce_alone(op, home)
        for r in results:
            for nest in self.nests_wanting(r):
                self.load(nest, r)
            if r in self.memory and home not in [p.nest for p in self.producers.get(r, []) if isinstance(p, NestStep)]:
                at = next(k[1] for k in home.nodes if k[0] is r)
                home.stores.append(Store(r, at, r, at.index))
                self.write(self.of_nest[home], r)

    def reduce_alone(self, op: Op, nest: Nest) -> None:
        first = op.results[0].tensor.extents
        at = space_of(nest, first)
        source = op.operands[0].tensor.extents
        reduced = At(tuple(ix.variable(nest.add_var(source[d]), source[d]) for d in sorted(op.ints("dimensions"))))
        nest.reduce_vars = tuple(range(len(first), len(nest.extents)))
        for r in op.results:
            self.memory.add(r)
        self.reduce_nodes(op, nest, at, reduced.index)
        nest.stores.append(Store(op.results[0], at, op.results[0], at.index))
        self.write(self.of_nest[nest], op.results[0])

    def reduce_nodes(self, op: Op, nest: Nest, at: At, reduced: tuple[Expr, ...]) -> None:
        """Put the reduce into a nest: its results at `at`, its operands at `at` with `reduced` in the dimensions, which
        it is for in ascending order."""
        dims = op.ints("dimensions")
        kept, inner = iter(at.index), iter(reduced)
        rank = op.operands[0].tensor.rank
        index = tuple(next(inner) if d in dims else next(kept) for d in range(rank))
        n = len(op.results)
        operands = [(o, At(index)) for o in op.operands[:n]] + [(o, ORIGIN) for o in op.operands[n:]]
        for r in op.results:
            nest.nodes[(r, at)] = Node(op, operands)
            nest.pending.pop(r, None)
        for o, place in operands:
            self.request(nest, o, place)

    def reduce_in(self, op: Op, nest: Nest, nests: list[Nest]) -> bool:
        """Take the reduce into a nest that reads its results: an epilogue, or a row program."""
        results = op.results
        places = {at for r in results for at in nest.pending.get(r, [])}
        if len(places) != 1 or nest.overwrites is not None or nest.after is not None:
            return False
        (at,) = places
        shape = results[0].tensor.extents
        rows = covers(nest, at, shape)
        if rows is None or len(nest.nodes) > MAX_NODES:
            return False
        step = self.of_nest[nest]
        others = [self.of_nest[n] for n in nests if n is not nest]
        for r in results:
            others += [s for s in self.readers.get(r, []) if s is not step]
        if depends(step, *others):
            return False
        dims = sorted(op.ints("dimensions"))
        source = op.operands[0].tensor.extents
        extents = [source[d] for d in dims]
        free = [v for v, e in enumerate(nest.extents) if e > 1 and v not in rows]
        if nest.reduce_vars and set(free) != {v for v in nest.reduce_vars if nest.extents[v] > 1}:
            return False
        total = 1
        for e in extents:
            total *= e
        if total == 0:
            return False
        if not free:
            if total != 1 and nest.reduce_vars:
                return False
            reduced = tuple(ix.variable(nest.add_var(e), e) for e in extents)
            nest.reduce_vars = tuple(v for e in reduced for v, _ in e.terms)
        else:
            many = 1
            for v in free:
                many *= nest.extents[v]
            rows = nest.rows if nest.reduce_vars else nest.rows // total
            if many != total or total > longest_row(op) or (rows < 16 and total > 4096):
                return False
            found = self.match_row(nest, free, extents, at)
            if found is None:
                return False
            reduced = found
        at = next(a for r in results for a in nest.pending.get(r, []))
        self.reduce_nodes(op, nest, at, reduced)
        return True

    def match_row(self, nest: Nest, free: list[int], extents: list[int], at: At) -> tuple[Expr, ...] | None:
        """The reduced dimensions over the nest's free variables, in order; None when they do not line up."""
        if nest.reduce_vars:
            free = [v for v in nest.reduce_vars if nest.extents[v] > 1]
        else:
            ordered = [v for v in nest.order() if v in free]
            if sorted(ordered) != sorted(free):
                return None
            free = ordered
        while True:
            offset, size = ix.ZERO, 1
            for v in reversed(free):
                offset = ix.add(offset, Expr(0, ((v, size),)))
                size *= nest.extents[v]
            try:
                found = ix.delinearize(offset, tuple(extents), nest.extents)
                break
            except Split as split:
                before = len(nest.extents)
                nest.split(split.var, split.factor)
                k = free.index(split.var)
                free[k + 1 : k + 1] = [before]
            except NotAffine:
                return None
        if not nest.reduce_vars:
            nest.reduce_vars = tuple(v for v in free if nest.extents[v] > 1)
        return found

    # ------------------------------------------------------------------ nests that write a part of their target
    def partial(self, position: int, target: Value, why: str) -> Nest:
        for nest in self.nests_wanting(target):
            self.load(nest, target)
        nest = self.new_nest(position, why)
        self.memory.add(target)
        self.write(self.of_nest[nest], target)
        return nest

    def update(self, op: Op, position: int) -> None:
        """dynamic_update_slice: a nest over the update that writes into the operand's buffer."""
        target = op.result
        if not self.nests_wanting(target) and target not in self.memory:
            return
        operand, update, *starts = op.operands
        nest = self.partial(position, target, "writes a part of a buffer in place")
        nest.overwrites = operand
        self.read(self.of_nest[nest], operand)
        for p in self.producers.get(operand, []):
            self.of_nest[nest].after.append(p)
        sizes, shape = update.tensor.extents, operand.tensor.extents
        at = space_of(nest, sizes)
        index = []
        for e, s, n, k in zip(at.index, starts, shape, sizes, strict=True):
            index.append(ix.add(e, Expr(0, (), (ix.Sym(1, s, ORIGIN, n - k),))) if n > k else e)
            if n > k:
                self.request(nest, s, ORIGIN)
        nest.stores.append(Store(update, at, target, tuple(index)))
        self.request(nest, update, at)

    def concatenate(self, op: Op, position: int) -> None:
        """A nest an operand, each writing its part of the result."""
        target = op.result
        if not self.nests_wanting(target) and target not in self.memory:
            return
        dim, offset = op.int("dimension"), 0
        for o in op.operands:
            n = o.tensor.extents[dim]
            if o.tensor.size or (target.tensor.size == 0 and offset == 0):
                nest = self.partial(position, target, "writes a part of a concatenation")
                at = space_of(nest, o.tensor.extents)
                index = tuple(ix.shift(e, offset) if d == dim else e for d, e in enumerate(at.index))
                nest.stores.append(Store(o, at, target, index))
                self.request(nest, o, at)
            offset += n

    def spread(self, op: Op, position: int) -> None:
        """pad with interior padding: a nest fills, another writes the operand's elements in between."""
        target = op.result
        if not self.nests_wanting(target) and target not in self.memory:
            return
        operand, value = op.operands
        low, interior = op.ints("edge_padding_low"), op.ints("interior_padding")
        put = self.partial(position, target, "spreads a tensor over a padded one")
        fill = self.partial(position, target, "fills what a pad leaves free")
        put.after = target
        self.of_nest[put].after.append(self.of_nest[fill])
        self.of_nest[fill].after = [s for s in self.of_nest[fill].after if s is not self.of_nest[put]]
        at = space_of(fill, target.tensor.extents)
        fill.stores.append(Store(value, ORIGIN, target, at.index))
        self.request(fill, value, ORIGIN)
        place, index = [], []
        for n, m, lo, gap in zip(operand.tensor.extents, target.tensor.extents, low, interior, strict=True):
            first = max(0, -(lo // (gap + 1)))  # first operand index that lands at 0 or later
            last = (m - 1 - lo) // (gap + 1)
            count = max(0, min(n - 1, last) - first + 1)
            e = ix.shift(ix.variable(put.add_var(count), count), first)
            place.append(e)
            index.append(ix.shift(ix.scale(e, gap + 1), lo))
        put.stores.append(Store(operand, At(tuple(place)), target, tuple(index)))
        self.request(put, operand, At(tuple(place)))


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


def group_block(block: Block) -> PlanBlock:
    """Fuse the ops of a block (and of the blocks inside its control flow) into steps."""
    return _Grouper(block).run()
