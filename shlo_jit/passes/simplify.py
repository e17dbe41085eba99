"""Simplify in one forward sweep: fold constants, merge equal ops, apply a table of identities, remove dead ops.

Needs: inlined functions. Guarantees: every block has its own copy of each splat constant and each iota that it uses. No
dead op without effect remains. A tensor without elements is a constant, so index maps and kernels never have to compute
one. Only ops that are exact by their record are folded, so the result has the bits it would have at run time. The
result has at most FOLD_ELEMENTS elements, or any number if the op prepares weights and they do not grow (`weights.py`).

    multiply(%x, 2.0 * 0.5), negate(%x), negate(%x)   ->   %x, negate(%x)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from shlo_jit import tuning
from shlo_jit.ir.attributes import Dense, keeps_packed
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.types import TensorType
from shlo_jit.ops import OPS
from shlo_jit.ops.effects import acting
from shlo_jit.passes.context import Context
from shlo_jit.passes.identities import identities_of
from shlo_jit.passes.pending import PendingRewriter, key_of
from shlo_jit.passes.rewriter import Rewriter, rebuilt
from shlo_jit.passes.weights import is_computable, reducer_of, weight_ops


class _Simplify(PendingRewriter):
    def __init__(self, function: Op) -> None:
        super().__init__(self.visit)
        self.acting = acting(function.block())
        """Ops with an effect."""
        self.weights = weight_ops(function)
        """Ops that prepare weights, and fold whatever their size."""
        self.uses = Counter(c for constants in self.weights.ops.values() for c in constants)
        """Numbers of such ops, for each constant, that have not been folded yet."""

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
        key = key_of(op, operands, body_key(op.block()) if op.regions else ())
        try:
            for scope in reversed(self.scopes if op.name != "stablehlo.iota" else self.scopes[-1:]):
                if key in scope:
                    return scope[key]
        except TypeError:  # an attribute that cannot be hashed
            return self.keep(op, operands)
        results = self.keep(op, operands)
        self.scopes[-1][key] = results
        return results

    # ------------------------------------------------------------------ folding
    def fold(self, op: Op, operands: list[Value]) -> list[Value] | None:
        if op in self.weights.ops:
            return self.prepared(op, operands)
        known = [k for o in operands if (k := self.constants.get(o)) is not None]
        if not known or len(known) < len(operands) or not is_computable(op):
            return None
        t, record = op.result.tensor, OPS[op.name]
        splat = all(k.is_splat for k in known) and t.size > 0
        if splat and record.index_map is not None and len(operands) == 1:
            return [self.splat(t, known[0].array)]
        with np.errstate(all="ignore"):
            if splat and record.has("elementwise") and t.size > 1:
                return [self.splat(t, computed(op, [k.array.reshape(-1)[:1] for k in known]))]
            most = tuning.FOLD_ELEMENTS
            if t.size > most or any(k.type.size > 16 * most for k in known):
                return None
            return [self.stored(t, computed(op, [k.array for k in known]))]

    def prepared(self, op: Op, operands: list[Value]) -> list[Value] | None:
        """Folds an op that prepares weights, with ops before it whose wide results were not folded."""
        arrays = [self.computed(o) for o in operands]
        known = [a for a in arrays if a is not None]
        if len(known) < len(arrays):
            return None  # an identity has replaced an operand
        with np.errstate(all="ignore"):
            found = self.stored(op.result.tensor, computed(op, known))
        for constant in self.weights.ops[op]:
            self.uses[constant] -= 1
            is_last = not self.uses[constant] and constant in self.weights.consumed
            if is_last and keeps_packed(constant.result.tensor):  # others are kept for code for other shapes
                constant.constant.release()
        return [found]

    def computed(self, value: Value) -> np.ndarray | None:
        """Returns the elements of a new value that is computed from constants; None if it is not."""
        arrays: dict[Value, np.ndarray] = {}
        todo = [value]
        while todo:
            current = todo[-1]
            dense, op = self.constants.get(current), current.op
            if dense is not None:
                arrays[current] = dense.array
            elif op is None or not is_computable(op):
                return None
            elif missing := [o for o in op.operands if o not in arrays]:
                todo += missing
                continue
            else:
                with np.errstate(all="ignore"):
                    found = computed(op, [arrays[o] for o in op.operands])
                arrays[current] = np.asarray(found, op.result.tensor.storage.numpy).reshape(op.result.tensor.extents)
            todo.pop()
        return arrays[value]

    def stored(self, t: TensorType, result: np.ndarray) -> Value:
        return self.make(Dense(t, np.asarray(result, t.storage.numpy).reshape(t.extents)))

    def splat(self, t: TensorType, one: np.ndarray) -> Value:
        """Returns a constant with all elements equal to the first of an array."""
        element = np.asarray(one, t.storage.numpy).reshape(-1)[0]
        return self.make(Dense(t, np.broadcast_to(element, t.extents)))


def computed(op: Op, operands: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the result of a computable op: by its reference or, for a reduction of integers, by NumPy. The order of
    the elements does not matter."""
    reducer = reducer_of(op)
    if reducer is None:
        reference = OPS[op.name].reference
        assert reference is not None
        return reference(op, *operands)
    array, initial = operands
    if not array.size:  # NumPy has no maximum of an empty array
        return np.broadcast_to(initial, op.result.tensor.extents)
    return reducer(reducer.reduce(array, tuple(op.ints("dimensions")), dtype=array.dtype), initial)


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
