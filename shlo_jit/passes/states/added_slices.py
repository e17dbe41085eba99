"""Add a part of a tensor in place: sums with a tensor of zeros of which only a part is set, as in gradients of loops
that index weights.

Needs: static shapes; bodies on scalars. Guarantees: nothing. The result is the same bit for bit: x + 0 is x unless x is
-0, so the sum must be of integers, or known to have no -0 before (`known_signs.py`).

    s + dynamic_update_slice(zeros, u, i)   ->   dynamic_update_slice(s, dynamic_slice(s, i) + u, i)
    s + pad(u, 0, low, high)                ->   dynamic_update_slice(s, slice(s) + u, low)
    s + scatter(zeros, i, u)                ->   scatter(s, i, u, body = add)     with unique indices
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.ir.core import Block, Op, Region, Value, walk
from shlo_jit.ir.types import I32, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.states.known_signs import NoNegativeZeros
from shlo_jit.passes.states.updates import (
    SCATTER,
    UPDATE,
    Uses,
    adds_updates,
    is_partial,
    is_small_part,
    sets_updates,
    splat_of,
)

ADD, PAD = "stablehlo.add", "stablehlo.pad"


def added_slices(function: Op, _: Context) -> Op:
    """The function with such sums rewritten as updates in place."""
    if not any(_is_part_of_zeros(v.op) for op in walk(function.block()) if op.name == ADD for v in op.operands):
        return function
    uses, signs = Uses(function.block()), NoNegativeZeros(function.block())

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != ADD:
            return None
        for state, part in (op.operands, op.operands[::-1]):
            made = part.op
            if made is None or not _is_part_of_zeros(made) or not uses.only(part, op) or state is part:
                continue
            if _splat_is_negative(made) or state in signs:
                return [_added(rw, rw.get(state), made)]
        return None

    return rewrite(function, visit)


def _is_part_of_zeros(op: Op | None) -> bool:
    """Whether an op sets a small part of a tensor of zeros."""
    if op is None:
        return False
    if op.name == PAD:
        whole = all(n >= 0 for n in (*op.ints("edge_padding_low"), *op.ints("edge_padding_high")))
        plain = whole and not any(op.ints("interior_padding"))
        return plain and is_small_part(op.operands[0], op.result) and _is_zero(op.operands[1])
    if not is_partial(op) or not _is_zero(op.operands[0]):
        return False
    if op.name == UPDATE:
        return True
    is_unique = bool(op.attributes.get("unique_indices", False))
    return is_unique and (adds_updates(op) or sets_updates(op))


def _is_zero(value: Value) -> bool:
    element = splat_of(value)
    return element is not None and bool(np.asarray(element) == 0) and not value.tensor.storage.is_complex


def _splat_is_negative(op: Op) -> bool:
    """Whether the zeros are -0, which change no summand."""
    element = splat_of(op.operands[1] if op.name == PAD else op.operands[0])
    return bool(np.signbit(np.asarray(element).astype(np.float64))) and op.name != SCATTER


def _added(rw: Rewriter, state: Value, made: Op) -> Value:
    """Emits the sum of a state and a part of a tensor of zeros."""
    operands = [rw.get(v) for v in made.operands]
    if made.name == SCATTER:
        return _scatter(rw, made, [state, *operands[1:]])
    if made.name == PAD:
        part = operands[0]
        starts = [mk.constant(rw, tensor((), I32), n) for n in made.ints("edge_padding_low")]
    else:
        _, part, *starts = operands
    old = mk.window(rw, state, starts, mk.shape_of(part))
    return rw.emit1(UPDATE, [state, mk.apply(rw, "add", old, part), *starts], state.type)


def _scatter(rw: Rewriter, made: Op, operands: list[Value]) -> Value:
    """Emits a scatter that adds its updates to a state."""
    scalar = tensor((), made.result.tensor.storage)
    arguments = [Value(scalar), Value(scalar)]
    place = rw.place()
    add = Op(ADD, list(arguments), [scalar], None, None, *place)
    done = Op("stablehlo.return", list(add.results), [], None, None, *place)
    regions = [Region([Block(arguments, [add, done])])]
    return rw.emit(SCATTER, operands, [made.result.type], made.attributes, regions)[0]
