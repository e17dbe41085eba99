"""A rewriter whose constants are pending: they are in no block until an op reads them.

A rule reads the elements of a constant value (`dense`) and makes new constants (`make`) without writing an op for each.
Every op is appended by `emit`, which first places the constants among its operands, so no rule can build an op with an
operand that is in no block.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Block, Op, Region, Value
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.passes.rewriter import Rewriter, Visitor


class PendingRewriter(Rewriter):
    """Builds new blocks; constants are placed when an op reads them, and tensors without elements are constants."""

    def __init__(self, visitor: Visitor, retype: Callable[[Type], Type] | None = None):
        super().__init__(visitor, retype)
        self.constants: dict[Value, Dense] = {}
        """New constant values (of any block) and their elements."""
        self.scopes: list[dict] = []
        """For each open block: the results computed so far, by structure."""
        self.empty: dict[TensorType, Value] = {}
        """The constants without elements."""

    # ------------------------------------------------------------------ ops and blocks
    def emit(
        self,
        name: str,
        operands: Sequence[Value],
        types: Sequence[Type],
        attributes: dict[str, Any] | None = None,
        regions: list[Region] | None = None,
    ) -> list[Value]:
        """Appends an op, after the constants that it reads. Returns its results."""
        results = super().emit(name, [self.placed(o) for o in operands], types, attributes, regions)
        return [self.nothing(r) for r in results]

    def keep(self, op: Op, operands: list[Value]) -> list[Value]:
        """Appends the op unchanged, except for new operands and swept regions."""
        regions = [Region([self.sweep(b) for b in r.blocks]) for r in op.regions]
        return self.emit(op.name, operands, [self.retype(r.type) for r in op.results], op.attributes, regions)

    def sweep(self, block: Block, arguments: Sequence[Value] | None = None) -> Block:
        """Returns a new block built from an old one, with new arguments."""
        assert arguments is None, "arguments of a block that are given are those of `sweep_parts`"
        end = block.terminator
        return self.sweep_parts(block.arguments, block.ops[:-1], end, end.operands)

    def sweep_parts(self, arguments: Sequence[Value], ops: Sequence[Op], end: Op, returned: Sequence[Value]) -> Block:
        """Returns a new block with new arguments, the swept ops, and a terminator like `end` that returns these
        values."""
        self.scopes.append({})
        new = Block([Value(self.retype(a.type), name=a.name) for a in arguments])
        self.values.update(zip(arguments, map(self.nothing, new.arguments), strict=True))
        self.blocks.append(new)
        self.run(ops)
        outer, self.current = self.current, end
        self.emit(end.name, [self.get(v) for v in returned], [], end.attributes)
        self.current = outer
        self.blocks.pop()
        self.scopes.pop()
        return new

    # ------------------------------------------------------------------ constants
    def dense(self, value: Value) -> Dense | None:
        """Returns the elements of a value if it is constant, else None."""
        return self.constants.get(value)

    def make(self, dense: Dense, name: str = "") -> Value:
        """Returns a constant that is in no block yet: `placed` writes it where it is read."""
        value = Value(dense.type, name=name)
        self.constants[value] = dense
        return value

    def nothing(self, value: Value) -> Value:
        """Returns the value, or an empty constant for it if it has no elements."""
        t = value.type
        if not isinstance(t, TensorType) or not t.is_fixed or 0 not in t.extents:
            return value
        if t not in self.empty:
            self.empty[t] = self.make(Dense(t, np.empty(t.extents, t.storage.numpy)))
        return self.empty[t]

    def placed(self, value: Value) -> Value:
        """Returns the value, or a constant op for it: a splat is placed in the current block, other constants in the
        outermost block. An iota of another block is counted again in the current one."""
        dense = self.constants.get(value)
        if dense is None and value.op is not None and value.op.name == "stablehlo.iota":
            return self.own_iota(value, value.op)
        if dense is None or value.op is not None:
            return value
        level = -1 if dense.is_splat else 0
        scope, block = self.scopes[level], self.blocks[level]
        data = dense.array.reshape(-1)[:1].tobytes() if dense.is_splat else id(dense)
        key = ("constant", dense.type, data)
        found = scope.get(key)
        if found is None:
            op = Op("stablehlo.constant", [], [dense.type], {"value": dense}, [], *self.place())
            block.ops.append(op)
            found = scope[key] = op.results
            self.constants[op.result] = dense
        return found[0]

    def own_iota(self, value: Value, made: Op) -> Value:
        """Returns the iota of the current block that is equal to an iota: a register counts it, while an iota outside
        of a loop's body is an array to read, of which nothing is known."""
        key = key_of(made, [])
        found = self.scopes[-1].get(key)
        if found is None:
            op = Op(made.name, [], [value.type], made.attributes, [], *self.place())
            self.block.ops.append(op)
            found = self.scopes[-1][key] = op.results
        return found[0]


def key_of(op: Op, operands: Sequence[Value], body: Hashable = ()) -> tuple:
    """Returns what is equal for two ops that compute the same: by name, operands, attributes, types and body."""
    return (op.name, tuple(operands), tuple(op.attributes.items()), tuple(r.type for r in op.results), body)
