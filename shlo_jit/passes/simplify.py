"""Simplify in one forward sweep: fold constants, merge equal ops, apply a table of identities, remove dead ops.

Needs: inlined functions. Guarantees: every block has its own copy of each splat constant that it uses. No dead op
without effect remains. A tensor without elements is a constant, so index maps and kernels never have to compute one.
Only ops that are exact by their record are folded, so the result has the bits it would have at run time. The result has
at most FOLD_ELEMENTS elements, or any number if the op prepares weights (`weights.py`).

    multiply(%x, 2.0 * 0.5), negate(%x), negate(%x)   ->   %x, negate(%x)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from shlo_jit import tuning
from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.types import DType, TensorType
from shlo_jit.ops import OPS
from shlo_jit.ops.effects import acting
from shlo_jit.passes.context import Context
from shlo_jit.passes.identities import identities_of
from shlo_jit.passes.pending import PendingRewriter
from shlo_jit.passes.rewriter import Rewriter, rebuilt
from shlo_jit.passes.weights import reducer_of, weight_ops


class _Simplify(PendingRewriter):
    def __init__(self, function: Op) -> None:
        super().__init__(self.visit)
        self.acting = acting(function.block())
        """Ops with an effect."""
        self.weights = weight_ops(function)
        """Ops that fold regardless of their size."""

    def visit(self, _: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name == "stablehlo.constant":
            return [self.make(op.constant, op.result.name)]
        found = self.fold(op, operands)
        if found is not None:
            return found
        for identity in identities_of(op.name):
            found = identity(self, op, operands)
            if found is not None:
                return found
        operands = [self.placed(o) for o in operands]
        if op in self.acting or (op.regions and op.name != "stablehlo.reduce"):
            return self.keep(op, operands)
        body = body_key(op.block()) if op.regions else ()
        key = (op.name, tuple(operands), tuple(op.attributes.items()), tuple(r.type for r in op.results), body)
        try:
            for scope in reversed(self.scopes):
                if key in scope:
                    return scope[key]
        except TypeError:  # an attribute that cannot be hashed
            return self.keep(op, operands)
        results = self.keep(op, operands)
        self.scopes[-1][key] = results
        return results

    # ------------------------------------------------------------------ folding
    def fold(self, op: Op, operands: list[Value]) -> list[Value] | None:
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
            return None  # no array can hold it
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
        """Folds a reduction of constant integers, whatever their number: the result, computed from weights, is read by
        each call."""
        t = op.result.type
        if not isinstance(t, TensorType) or not t.is_fixed:
            return None
        array = operand.array
        if not array.size:  # NumPy has no maximum of an empty array
            return [self.splat(t, initial.array)]
        found = reducer.reduce(array, tuple(op.ints("dimensions")), dtype=array.dtype)
        with np.errstate(all="ignore"):
            return [self.make(Dense(t, np.asarray(reducer(found, initial.array), array.dtype).reshape(t.extents)))]

    def splat(self, t: TensorType, one: np.ndarray) -> Value:
        """Returns a constant with all elements equal to the first of an array."""
        element = np.asarray(one, t.storage.numpy).reshape(-1)[0]
        return self.make(Dense(t, np.broadcast_to(element, t.extents)))


def body_key(block: Block) -> tuple:
    """Returns a key of a block without nested regions: equal keys mean that blocks compute the same from their
    arguments."""
    numbers: dict[Value, Hashable] = {a: i for i, a in enumerate(block.arguments)}
    key: list[Hashable] = [tuple(a.type for a in block.arguments)]
    for op in block.ops:
        operands = tuple(numbers.get(o, o) for o in op.operands)
        attributes = tuple(op.attributes.items())
        if op.name == "stablehlo.constant" and op.constant.is_splat:
            attributes = (op.result.type, op.constant.array.reshape(-1)[:1].tobytes())
        # A nested region is only equal to itself.
        key.append((op.name, operands, attributes, tuple(r.type for r in op.results), tuple(map(id, op.regions))))
        numbers.update((r, len(numbers) + i) for i, r in enumerate(op.results))
    return tuple(key)


def simplify(function: Op, _: Context) -> Op:
    """Returns the simplified function. Another run may find more."""
    state = _Simplify(function)
    return eliminate(rebuilt(function, state.sweep(function.block())))


def eliminate(function: Op) -> Op:
    """Drops ops without effect whose results are never read (in place: the sweep has created these ops)."""
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
