"""One forward sweep over a function: old ops in, new ops out, with a map from old values to new ones.

A pass does not subclass anything. It passes a visitor to `rewrite`. The visitor returns the values that replace an op's
results, or None to keep the op (with its operands mapped and its regions swept).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shlo_jit.errors import Source
from shlo_jit.ir.attributes import TypeAttr
from shlo_jit.ir.core import Block, Op, Region, Value, place_text
from shlo_jit.ir.types import FunctionType, Type
from shlo_jit.sizes import NotSymbolic

Visitor = Callable[["Rewriter", Op, list[Value]], "Sequence[Value] | None"]


class Rewriter:
    """Builds new blocks. `emit` appends to the block being built, with the source location of the op being rewritten.

    `retype` maps the types of block arguments and of the results of ops that are kept."""

    def __init__(self, visitor: Visitor, retype: Callable[[Type], Type] | None = None):
        self.visitor = visitor
        self.retype = retype if retype is not None else lambda t: t
        self.values: dict[Value, Value] = {}
        self.blocks: list[Block] = []
        self.current: Op | None = None

    @property
    def block(self) -> Block:
        return self.blocks[-1]

    def emit(
        self,
        name: str,
        operands: Sequence[Value],
        types: Sequence[Type],
        attributes: dict[str, Any] | None = None,
        regions: list[Region] | None = None,
    ) -> list[Value]:
        """Appends an op. Returns its results."""
        source, start, end = self.place()
        op = Op(name, list(operands), list(types), attributes, regions, source, start, end)
        self.block.ops.append(op)
        return op.results

    def emit1(
        self, name: str, operands: Sequence[Value], type: Type, attributes: dict[str, Any] | None = None
    ) -> Value:
        """Appends an op with one result. Returns that result."""
        return self.emit(name, operands, [type], attributes)[0]

    def place(self) -> tuple[Source, int, int]:
        from shlo_jit.errors import NO_SOURCE

        c = self.current
        return (NO_SOURCE, 0, 0) if c is None else (c.source, c.start, c.end)

    def get(self, value: Value) -> Value:
        return self.values.get(value, value)

    def sweep(self, block: Block, arguments: Sequence[Value] | None = None) -> Block:
        """Returns a new block built from an old one. `arguments` replace the old block's arguments; if None, the new
        block gets arguments of its own."""
        made = [Value(self.retype(a.type), name=a.name) for a in block.arguments] if arguments is None else []
        new = Block(made)
        self.values.update(zip(block.arguments, new.arguments if arguments is None else arguments, strict=True))
        self.blocks.append(new)
        self.run(block.ops)
        self.blocks.pop()
        return new

    def run(self, ops: Sequence[Op]) -> None:
        """Sweeps ops into the block being built."""
        outer = self.current
        for op in ops:
            self.current = op
            operands = [self.get(o) for o in op.operands]
            try:
                found = self.visitor(self, op, operands)
            except NotSymbolic as refusal:
                refusal.asked_by(place_text(op))
                raise
            results = self.keep(op, operands) if found is None else found
            for old, new in zip(op.results, results, strict=True):
                self.values[old] = new
                if not new.name:
                    new.name = old.name
        self.current = outer

    def keep(self, op: Op, operands: list[Value]) -> list[Value]:
        """Appends the op unchanged, except for new operands and swept regions."""
        regions = [Region([self.sweep(b) for b in r.blocks]) for r in op.regions]
        types = [self.retype(r.type) for r in op.results]
        new = Op(op.name, operands, types, op.attributes, regions, op.source, op.start, op.end)
        self.block.ops.append(new)
        return new.results


def rewrite(function: Op, visitor: Visitor, retype: Callable[[Type], Type] | None = None) -> Op:
    """Returns a new function, with the visitor applied to every op in order, including those in regions."""
    rewriter = Rewriter(visitor, retype)
    return rebuilt(function, rewriter.sweep(function.block()))


def rebuilt(function: Op, block: Block) -> Op:
    """Returns the function with another body, and a type that matches it."""
    inputs = tuple(a.type for a in block.arguments)
    results = tuple(v.type for v in block.terminator.operands)
    attributes = {**function.attributes, "function_type": TypeAttr(FunctionType(inputs, results))}
    for name, types in (("arg_attrs", inputs), ("res_attrs", results)):
        if len(attributes.get(name) or types) != len(types):
            del attributes[name]
    old = function.block()
    if len(old.arguments) == len(block.arguments):
        block.locations = old.locations
    return Op(function.name, [], [], attributes, [Region([block])], function.source, function.start, function.end)
