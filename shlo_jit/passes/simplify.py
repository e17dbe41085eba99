"""Simplify: constants fold, equal ops become one, dead ops go, and a table of identities applies; one forward sweep.

Needs: inlined functions. Guarantees: every block has its own copy of each constant of equal elements that it uses;
no dead op without effect remains; a tensor without elements is a constant, so that index maps and kernels never see
one they would have to compute. Folding computes what is exact by an op's record, with at most FOLD_ELEMENTS elements or
of any size where weights are prepared (`weights.py`), so that the result has the bits it would have at run time.

    multiply(%x, 2.0 * 0.5), negate(%x), negate(%x)   ->   %x, negate(%x)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from shlo_jit import tuning
from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Block, Op, Region, Value
from shlo_jit.ir.types import DType, TensorType
from shlo_jit.ops import OPS
from shlo_jit.ops.effects import acting
from shlo_jit.passes.context import Context
from shlo_jit.passes.identities import identities_of
from shlo_jit.passes.rewriter import Rewriter, rebuilt
from shlo_jit.passes.weights import reducer_of, weight_ops


class _Simplify:
    def __init__(self, function: Op) -> None:
        self.acting = acting(function.block())
        """Ops with an effect."""
        self.constants: dict[Value, Dense] = {}
        """New constant values (of any block) and what they hold."""
        self.scopes: list[dict] = []
        """Per block: what has been computed, by structure."""
        self.empty: dict[TensorType, Value] = {}
        """The constants without elements."""
        self.weights = weight_ops(function)
        """Ops that fold whatever their size."""

    # ------------------------------------------------------------------ the visitor
    def visit(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name == "stablehlo.constant":
            return [self.virtual(op)]
        found = self.fold(rw, op, operands)
        if found is not None:
            return found
        for identity in identities_of(op.name):
            found = identity(self, rw, op, operands)
            if found is not None:
                return found
        operands = [self.settle(rw, o) for o in operands]
        if op in self.acting or (op.regions and op.name != "stablehlo.reduce"):
            return self.keep(rw, op, operands)
        body = body_key(op.block()) if op.regions else ()
        key = (op.name, tuple(operands), tuple(op.attributes.items()), tuple(r.type for r in op.results), body)
        try:
            for scope in reversed(self.scopes):
                if key in scope:
                    return scope[key]
        except TypeError:  # an attribute that cannot be hashed
            return self.keep(rw, op, operands)
        results = self.keep(rw, op, operands)
        self.scopes[-1][key] = results
        return results

    def keep(self, rw: Rewriter, op: Op, operands: list[Value]) -> list[Value]:
        regions = [Region([self.block(rw, b) for b in r.blocks]) for r in op.regions]
        new = Op(op.name, operands, [r.type for r in op.results], op.attributes, regions, op.source, op.start, op.end)
        rw.block.ops.append(new)
        return [self.nothing(r) for r in new.results]

    def block(self, rw: Rewriter, block: Block) -> Block:
        self.scopes.append({})
        new = Block([Value(a.type, name=a.name) for a in block.arguments])
        rw.values.update(zip(block.arguments, map(self.nothing, new.arguments), strict=True))
        rw.blocks.append(new)
        rw.run(block.ops[:-1])
        end = block.terminator
        rw.current = end
        operands = [self.settle(rw, rw.get(o)) for o in end.operands]
        new.ops.append(Op(end.name, operands, [], end.attributes, [], end.source, end.start, end.end))
        rw.blocks.pop()
        self.scopes.pop()
        return new

    # ------------------------------------------------------------------ constants
    def virtual(self, op: Op) -> Value:
        """A constant that stands in no block yet: it is written where it is used."""
        value = Value(op.result.type, None, 0, op.result.name)
        self.constants[value] = op.constant
        return value

    def make(self, dense: Dense) -> Value:
        value = Value(dense.type)
        self.constants[value] = dense
        return value

    def nothing(self, value: Value) -> Value:
        """The value, or a constant for it that has as few elements: none."""
        t = value.type
        if not isinstance(t, TensorType) or not t.is_fixed or 0 not in t.extents:
            return value
        if t not in self.empty:
            self.empty[t] = self.make(Dense(t, np.empty(t.extents, t.storage.numpy)))
        return self.empty[t]

    def settle(self, rw: Rewriter, value: Value) -> Value:
        """The value, or a constant op for it in the right block: of equal elements in this one, others at the top."""
        dense = self.constants.get(value)
        if dense is None or value.op is not None:
            return value
        level = -1 if dense.is_splat else 0
        scope, block = self.scopes[level], rw.blocks[level]
        data = dense.array.reshape(-1)[:1].tobytes() if dense.is_splat else id(dense)
        key = ("constant", dense.type, data)
        found = scope.get(key)
        if found is None:
            source, start, end = rw.place()
            op = Op("stablehlo.constant", [], [dense.type], {"value": dense}, [], source, start, end)
            block.ops.append(op)
            found = scope[key] = op.results
            self.constants[op.result] = dense
        return found[0]

    def dense(self, value: Value) -> Dense | None:
        """What a value holds, if it is constant."""
        return self.constants.get(value)

    # ------------------------------------------------------------------ folding
    def fold(self, rw: Rewriter, op: Op, operands: list[Value]) -> list[Value] | None:
        known = [k for o in operands if (k := self.constants.get(o)) is not None]
        if not known or len(known) < len(operands) or len(op.results) != 1:
            return None
        reducer = reducer_of(op)
        if reducer is not None:
            return self.reduced(op, reducer, *known)
        if op.regions:
            return None
        t, record = op.result.type, OPS[op.name]
        if not isinstance(t, TensorType) or not t.is_static or not isinstance(t.dtype, DType):
            return None
        if not t.is_fixed:
            return None  # there is no array to hold it
        if record.reference is None or not record.is_exact_on(*(k.type.storage for k in known)):
            return None
        splat = all(k.is_splat for k in known) and t.size > 0
        if splat and record.index_map is not None and len(operands) == 1:
            return [self.splat(t, known[0].array)]
        with np.errstate(all="ignore"):
            if splat and record.has("elementwise") and t.size > 1:
                return [self.splat(t, record.reference(op, *(k.array.reshape(-1)[:1] for k in known)))]
            most = tuning.FOLD_ELEMENTS
            if op not in self.weights and (t.size > most or any(k.array.size > 16 * most for k in known)):
                return None
            result = record.reference(op, *(k.array for k in known))
        return [self.make(Dense(t, np.asarray(result, t.storage.numpy).reshape(t.extents)))]

    def reduced(self, op: Op, reducer: np.ufunc, operand: Dense, initial: Dense) -> list[Value] | None:
        """The integers of a constant reduced, however many: what is made of weights so is read by each call."""
        t = op.result.type
        if not isinstance(t, TensorType) or not t.is_fixed:
            return None
        array = operand.array
        if not array.size:  # maxima of nothing are none of NumPy's
            return [self.splat(t, initial.array)]
        found = reducer.reduce(array, tuple(op.ints("dimensions")), dtype=array.dtype)
        with np.errstate(all="ignore"):
            return [self.make(Dense(t, np.asarray(reducer(found, initial.array), array.dtype).reshape(t.extents)))]

    def splat(self, t: TensorType, one: np.ndarray) -> Value:
        """A constant whose elements are all the first of an array."""
        element = np.asarray(one, t.storage.numpy).reshape(-1)[0]
        return self.make(Dense(t, np.broadcast_to(element, t.extents)))


def body_key(block: Block) -> tuple:
    """A block without regions inside as a key: equal for blocks that compute the same from their arguments."""
    numbers: dict[Value, Hashable] = {a: i for i, a in enumerate(block.arguments)}
    key: list[Hashable] = [tuple(a.type for a in block.arguments)]
    for op in block.ops:
        operands = tuple(numbers.get(o, o) for o in op.operands)
        attributes = tuple(op.attributes.items())
        if op.name == "stablehlo.constant" and op.constant.is_splat:
            attributes = (op.result.type, op.constant.array.reshape(-1)[:1].tobytes())
        # A region inside is only equal to itself.
        key.append((op.name, operands, attributes, tuple(r.type for r in op.results), tuple(map(id, op.regions))))
        numbers.update((r, len(numbers) + i) for i, r in enumerate(op.results))
    return tuple(key)


def simplify(function: Op, _: Context) -> Op:
    """The function simplified; run it again for what one sweep opened up."""
    state = _Simplify(function)
    rw = Rewriter(state.visit)
    return eliminate(rebuilt(function, state.block(rw, function.block())))


def eliminate(function: Op) -> Op:
    """Drop ops whose results nobody reads and that have no effect (in place: the sweep made them anew)."""
    used: set[Value] = set()
    with_effect = acting(function.block())

    def block(b: Block) -> None:
        kept = []
        for op in reversed(b.ops):
            needed = op is b.terminator or any(r in used for r in op.results) or op in with_effect
            if not needed:
                continue
            for region in op.regions:
                for inner in region.blocks:
                    block(inner)
            used.update(op.operands)
            kept.append(op)
        b.ops[:] = kept[::-1]

    block(function.block())
    return function
