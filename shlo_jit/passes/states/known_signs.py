"""Which floating-point values are known to hold no negative zero: for these, x + 0 is x, bit for bit.

A sum is -0 only if both terms are. So the sums that a loop accumulates hold none if they start at +0.
"""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.passes.states.updates import adds_updates, sets_updates

ROUNDS = 20
"""Maximum rounds in which states of loops are found to hold -0, before all are assumed to. Chosen: a nest of loops
takes one for each level."""
ELEMENTS = 1 << 16
"""Maximum elements of constants that are looked through."""
NEVER = ("stablehlo.abs", "stablehlo.exponential", "stablehlo.iota", "stablehlo.logistic")
FIRST = ("stablehlo.reshape", "stablehlo.transpose", "stablehlo.slice", "stablehlo.broadcast_in_dim",
         "stablehlo.reverse", "stablehlo.dynamic_slice", "stablehlo.gather")  # fmt: skip
"""Ops whose elements are those of the first operand."""
EVERY = ("stablehlo.concatenate", "stablehlo.pad", "stablehlo.maximum", "stablehlo.minimum")


class NoNegativeZeros:
    """The values of a function that hold no -0. States of loops are assumed to hold none until that is refuted."""

    def __init__(self, block: Block) -> None:
        self.known: set[Value] = set()
        self.refuted: set[Value] = set()
        """Arguments of the bodies of loops that may hold -0."""
        for _ in range(ROUNDS):
            self.known, before = set(), len(self.refuted)
            self._block(block)
            if len(self.refuted) == before:
                return
        self.known = set()

    def __contains__(self, value: Value) -> bool:
        return value in self.known

    def _block(self, block: Block) -> None:
        for op in block.ops:
            if op.name == "stablehlo.while":
                self._loop(op)
            elif op.name in ("stablehlo.if", "stablehlo.case"):
                self._branches(op)
            elif len(op.results) == 1 and self._has_no_negative_zero(op):
                self.known.add(op.result)

    def _loop(self, op: Op) -> None:
        body = op.block(1)
        states = body.arguments
        for state, initial in zip(states, op.operands, strict=True):
            if initial not in self.known:
                self.refuted.add(state)
        self.known.update(s for s in states if s not in self.refuted)
        self._block(body)
        for state, new in zip(states, body.terminator.operands, strict=True):
            if new not in self.known:
                self.refuted.add(state)
        self.known.update(r for r, s in zip(op.results, states, strict=True) if s not in self.refuted)

    def _branches(self, op: Op) -> None:
        for region in op.regions:
            self._block(region.block)
        ends = [region.block.terminator.operands for region in op.regions]
        self.known.update(r for i, r in enumerate(op.results) if all(end[i] in self.known for end in ends))

    def _has_no_negative_zero(self, op: Op) -> bool:
        """Whether no element of an op's result is -0, by what is known of its operands."""
        dtype, known = getattr(op.result.type, "storage", None), self.known
        if dtype is None or dtype.is_complex:
            return False
        if dtype.kind in "biu" or op.name in NEVER:
            return True
        if op.name == "stablehlo.constant":
            return _has_none(op)
        if op.name == "stablehlo.add":
            return any(v in known for v in op.operands)
        if op.name in FIRST:
            return op.operands[0] in known
        if op.name in EVERY:
            return all(v in known for v in op.operands)
        if op.name == "stablehlo.select":
            return all(v in known for v in op.operands[1:])
        if op.name == "stablehlo.dynamic_update_slice":
            return all(v in known for v in op.operands[:2])
        if op.name == "stablehlo.scatter":
            return op.operands[0] in known and (adds_updates(op) or (op.operands[2] in known and sets_updates(op)))
        return op.name == "stablehlo.convert" and op.operands[0].tensor.storage.kind in "biu"


def _has_none(op: Op) -> bool:
    dense = op.constant
    array = dense.array.reshape(-1)[:1] if dense.is_splat else dense.array
    if array.size > ELEMENTS:
        return False
    array = array.astype(np.float64)
    return not bool(np.any((array == 0) & np.signbit(array)))
