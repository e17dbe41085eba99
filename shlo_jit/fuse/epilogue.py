"""Epilogues: a loop over the result of a matrix product or convolution runs on each tile while it is in the cache.

Needs: the ordered steps of a block. A nest that reads a dot's result element by element in memory order, and reads
nothing else that depends on the dot, moves into the dot's step as its epilogue. It may write a segment of a
concatenation.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest, Node, Store, covers, is_wide
from shlo_jit.fuse.plan import NestStep, OpStep, PlanBlock, Step
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import At, Expr, variables
from shlo_jit.sizes import surely

HOSTS = {"stablehlo.dot_general", "stablehlo.convolution"}


def attach_epilogues(block: PlanBlock) -> None:
    """Moves nests into the steps whose results they finish. The block's steps stay in a valid order."""
    if any(isinstance(step, OpStep) and step.op.name in HOSTS for step in block.steps):
        _Attaching(block).run()


class _Attaching:
    def __init__(self, block: PlanBlock):
        self.block = block
        self.steps: list[Step | None] = list(block.steps)
        """Steps in order; None for a step that has become part of another."""
        self.place = {id(step): i for i, step in enumerate(block.steps)}
        self.returned = set(block.results)
        self.readers: dict[Value, dict[Step, None]] = {}
        for step in block.steps:
            for value in step.reads:
                self.readers.setdefault(value, {})[step] = None

    def run(self) -> None:
        for step in self.block.steps:
            if isinstance(step, OpStep) and step.op.name in HOSTS and step.epilogue is None:
                step.refuse("epilogue", self.attach(step))
        self.block.steps = [step for step in self.steps if step is not None]
        hosts = {id(s.epilogue): s for s in self.block.steps if isinstance(s, OpStep) and s.epilogue is not None}
        for step in self.block.steps:
            after = [hosts.get(id(s), s) for s in step.after]
            step.after = [s for s in dict.fromkeys(after) if s is not step]

    def attach(self, host: OpStep) -> Refusal | None:
        """Moves the loop that reads a product into its step. Returns the refusal if that is impossible."""
        (value,) = host.op.results
        readers = self.readers.get(value, {})
        if value in self.returned:
            return Refusal("product-returned", "the product itself is returned")
        if len(readers) != 1:
            return Refusal("product-readers", f"{len(readers)} steps read the product, not one")
        (step,) = readers
        if not isinstance(step, NestStep):
            return Refusal("reader-is-kernel", f"a {step.title} reads the product, not a loop")
        nest = unrolled_copies(step.nest)
        refusal = unfit(nest, value)
        if refusal is not None:
            return refusal
        index, at = self.place[id(host)], self.place[id(step)]
        if at - index > tuning.EPILOGUE_DISTANCE:
            return Refusal(
                "reader-too-far", f"the loop that reads it is more than {tuning.EPILOGUE_DISTANCE} steps later"
            )
        between = [s for s in self.steps[index + 1 : at] if s is not None]
        wanted = needed(step, between)
        if any(value in s.reads or depends(s, host, between) for s in wanted):
            return Refusal(
                "reader-depends-on-product", "the loop that reads it also needs a value computed from the whole product"
            )
        step.nest = nest
        host.epilogue = step
        for v in step.reads:
            del self.readers[v][step]
            if v is not value and v not in host.reads:
                host.reads.append(v)
                self.readers[v][host] = None
        host.writes += step.writes
        host.after += step.after
        inside = {id(s) for s in wanted}
        rest = [s for s in between if id(s) not in inside]
        order = [*wanted, host, *rest]
        self.steps[index : at + 1] = [*order, *[None] * (at + 1 - index - len(order))]
        host.why |= step.why
        for i, s in enumerate(order, index):
            self.place[id(s)] = i
        return None


def unrolled_copies(nest: Nest) -> Nest:
    """Returns the nest with a store for each iteration of its short loops that only determine where elements are
    stored, as in an image that is enlarged by repeating pixels. Each element of the value is then visited once. Returns
    the nest itself if there are no such loops, or too many iterations."""
    read = {v for k in nest.loads for v in variables(k[1])}
    short = [v for v, n in enumerate(nest.extents) if is_wide(n) and v not in read and v not in nest.reduce_vars]
    copies = 1
    for v in short:
        copies *= nest.extents[v]
    if not short or nest.interchange is not None or not surely(lambda: copies <= tuning.EPILOGUE_COPIES):
        return nest
    extents = [1 if v in short else n for v, n in enumerate(nest.extents)]
    out = replace(nest, extents=extents, nodes={}, loads=dict(nest.loads), stores=[])
    for iteration in product(*(range(nest.extents[v]) for v in short)):
        table = {v: Expr(i) for v, i in zip(short, iteration, strict=True)}
        keys = {(w, at): (w, ix.substitute(at, table)) for w, at in [*nest.nodes, *nest.loads]}
        out.nodes |= {keys[k]: Node(n.op, [keys[o] for o in n.operands]) for k, n in nest.nodes.items()}
        out.stores += [
            Store(s.value, ix.substitute(s.at, table), s.target, ix.substitute(At(s.index), table).index)
            for s in nest.stores
        ]
    return out


def unfit(nest: Nest, value: Value) -> Refusal | None:
    """Returns why a nest is not a plain loop that reads each element of the value once, in memory order."""
    if nest.reduce_vars:
        return Refusal(
            "reader-reduces", "the loop that reads it reduces over rows, of which an epilogue sees only a part"
        )
    if nest.overwrites is not None or nest.after is not None:
        return Refusal("writes-part", "the loop that reads it writes only a part of a buffer")
    places = [at for v, at in nest.loads if v is value]
    if len(places) != 1 or value.tensor.size == 0:
        return Refusal("read-at-several-indices", "the loop reads it at more than one index")
    seen = covers(nest, places[0], value.tensor.extents)
    wide = {v for v, e in enumerate(nest.extents) if is_wide(e)}
    stores = [covers(nest, ix.At(s.index), s.target.tensor.extents, of_part=True) for s in nest.stores]
    if seen is None or seen != wide or any(s != wide for s in stores):
        return Refusal(
            "not-each-element-once", "the loop that reads it does not visit each of its elements exactly once"
        )
    return None


def needed(step: Step, among: list[Step]) -> list[Step]:
    """Returns the steps in `among` (in order) that must run before the step."""
    inside = {id(s) for s in among}
    found: set[int] = set()
    todo = [step]
    while todo:
        for before in todo.pop().after:
            if id(before) in inside and id(before) not in found:
                found.add(id(before))
                todo.append(before)
    return [s for s in among if id(s) in found]


def depends(step: Step, host: Step, among: list[Step]) -> bool:
    """Whether a step in between depends on the host."""
    inside = {id(s) for s in among}
    seen, todo = {id(step)}, [step]
    while todo:
        for before in todo.pop().after:
            if before is host:
                return True
            if id(before) in inside and id(before) not in seen:
                seen.add(id(before))
                todo.append(before)
    return False
