"""Loop interchange: the body of a `while` as one nest that runs many iterations on each tile before the next tile.

Needs: tensor states of one shape, besides scalars. The scalars and the condition depend only on scalars, or there are
no scalars, and the loop ends when all elements are done (`active.py`). The body is elementwise. Then elements are
independent, and a tile's states stay in registers.

    while i < n { x = x * x + c; i = i + 1 }   ->   while i < n { for each tile of x: while i < n { ... } }

The outer loop remains. It stops by the condition, and keeps long loops interruptible, since the nest runs a bounded
number of iterations. The body may read loop-invariant tensors at any index.
"""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.active import active_predicate
from shlo_jit.fuse.grouping import TERMINATORS, Grouping, is_fusible
from shlo_jit.fuse.nest import Interchange, Key, Nest, Node, Store, space_of
from shlo_jit.fuse.plan import PlanBlock
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.index import ORIGIN
from shlo_jit.ir.types import TensorType
from shlo_jit.passes.regions.unroll import trip_count_of
from shlo_jit.reasons import Reason
from shlo_jit.sizes import surely


def interchange_loop(op: Op) -> PlanBlock | Refusal:
    """Returns the body of a while as such a nest, or the refusal."""
    refusal = unfit(op)
    if refusal is not None:
        return refusal
    return _Body(op).run()


def changing(op: Op) -> list[int]:
    """Returns the indices of the states that the body changes."""
    arguments, results = op.block(1).arguments, op.block(1).terminator.operands
    return [i for i, (a, r) in enumerate(zip(arguments, results, strict=True)) if a is not r]


def unfit(op: Op) -> Refusal | None:
    """Checks conditions that need no nest."""
    cond, body = op.block(0), op.block(1)
    if len(body.ops) > tuning.NEST_OPS:
        return Refusal("body-too-large", f"its body has {len(body.ops)} ops, more than {tuning.NEST_OPS}")
    for inner in body.ops:
        if inner.name not in TERMINATORS and inner.name != "stablehlo.constant" and not is_fusible(inner):
            return Refusal(
                "body-not-elementwise",
                f"its body has a {inner.name.partition('.')[2]}, which is not computed element by element",
            )
    types = [op.operands[i].type for i in changing(op)]
    if not types or not all(isinstance(t, TensorType) for t in types):
        return Refusal("no-tensor-states", "it changes no state, or one that is not a tensor")
    shapes = dict.fromkeys(t.extents for t in types if isinstance(t, TensorType) and t.rank)
    if len(shapes) > 1:
        return Refusal("states-differ-in-shape", "its states differ in shape")
    if any(not surely(lambda n=n: n >= 1) for shape in shapes for n in shape):
        return Refusal("states-may-be-empty", "its states may have no elements")
    numbers = any(isinstance(t, TensorType) and not t.rank for t in types)
    if any(inner.operands and not _of_numbers(inner) for inner in cond.ops) and (
        numbers or active_predicate(op) is None
    ):
        return Refusal("condition-reads-tensor", "its condition depends on more than scalars")
    return None


def _of_numbers(op: Op) -> bool:
    values = [*op.operands, *op.results]
    plain = op.name in TERMINATORS or (is_fusible(op) and op.name != "stablehlo.pad")
    return plain and all(isinstance(v.type, TensorType) and not v.type.rank for v in values)


class _Body(Grouping):
    """The sweep over the body of a while."""

    def __init__(self, op: Op):
        super().__init__(op.block(1))
        self.op = op
        states = changing(op)
        self.states = [i for i in states if op.operands[i].tensor.rank]
        self.numbers = [i for i in states if not op.operands[i].tensor.rank]

    def run(self) -> PlanBlock | Refusal:
        block, nest = self.block, self.new_nest(0)
        results = list(block.arguments)
        place = space_of(nest, self.op.operands[self.states[0]].tensor.extents) if self.states else ORIGIN
        for i in [*self.states, *self.numbers]:
            value, at = block.terminator.operands[i], place if i in self.states else ORIGIN
            self.request(nest, value, at)
            self.request(nest, block.arguments[i], at)
            results[i] = Value(value.type, None, i, "next")
            nest.stores.append(Store(value, at, results[i], at.index))
            self.write(self.step_of[nest], results[i], Reason("next-state", "the loop's next state"))
        states = [block.arguments[i] for i in (*self.states, *self.numbers)]
        each = active_predicate(self.op) if not self.numbers else None
        again = self.condition(nest, self.op.block(0)) if each is None else (each, place)
        refusal = self.sweep(nest) or misplaced(nest, states) or reads_on(nest, len(self.states))
        if refusal is not None:
            return refusal
        nest.interchange = Interchange(states, again, trip_count_of(self.op))
        return PlanBlock(block, [self.step_of[nest]], results, self.outside(nest), acts=False)

    def sweep(self, nest: Nest) -> Refusal | None:
        """Inlines everything that the nest reads."""
        for op in reversed(self.block.ops):
            if not op.results or op.result not in nest.pending:
                continue
            if op.name == "stablehlo.constant":
                self.load(nest, op.result)
                continue
            refusal = self.inline(op, nest)
            if refusal is not None:
                return refusal
        return None

    def condition(self, nest: Nest, cond: Block) -> Key:
        """Makes the nest compute the condition, from the scalars of the body."""
        body = dict(zip(cond.arguments, self.block.arguments, strict=True))
        self.here |= {id(op): len(self.here) + i for i, op in enumerate(cond.ops)}

        def key(value: Value) -> Key:
            value = body.get(value, value)
            self.request(nest, value, ORIGIN)
            return value, ORIGIN

        again = key(cond.terminator.operands[0])
        for op in reversed(cond.ops):
            if op.results and nest.pending.pop(op.result, None) is not None:
                nest.nodes[op.result, ORIGIN] = Node(op, [key(o) for o in op.operands])
        return again

    def outside(self, nest: Nest) -> list[Value]:
        """Returns the values that the nest reads from outside of the loop's body."""
        own = {*self.block.arguments}
        here = {op.result for op in self.block.ops if op.results}
        return [v for v in self.step_of[nest].reads if v not in own and v not in here]


def reads_on(nest: Nest, states: int) -> Refusal | None:
    """Returns why the loop is not interchanged: iterations read at least as many different parts of operands as there
    are states. Keeping a tile's states in registers then saves less than it costs to read a few scattered elements of
    each part."""
    parts = [at for _, at in nest.loads if any(e.terms for e in at.index) and any(e.syms for e in at.index)]
    return (
        Refusal("reads-part-per-iteration", "each iteration reads another part of an operand")
        if states and len(parts) >= states
        else None
    )


def misplaced(nest: Nest, states: list[Value]) -> Refusal | None:
    """Returns why a state is not read only at the index where it is written, or a scalar depends on tensors."""
    place = dict(zip(states, (s.at for s in nest.stores), strict=True))
    if any(place.get(value, at) != at for value, at in nest.loads):
        return Refusal("state-read-elsewhere", "a state is read at other indices than it is written")
    todo: list[Key] = [(s.value, s.at) for s in nest.stores if not s.target.tensor.rank]
    seen: set[Key] = set()
    while todo:
        key = todo.pop()
        if key in seen:
            continue
        seen.add(key)
        if key[0] in place and key[0].tensor.rank:
            return Refusal("scalar-from-state", "a scalar is computed from a tensor state")
        todo += nest.nodes[key].operands if key in nest.nodes else []
    return None
