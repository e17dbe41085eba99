"""Change a part of a tensor in place: sums with a tensor of zeros of which only a part is set, as in gradients of loops
that index weights, and products and quotients with a tensor of ones.

Needs: static shapes; bodies on scalars. Guarantees: nothing. The result is the same bit for bit: x + 0 is x unless x is
-0, so the sum must be of integers, or known to have no -0 before (`known_signs.py`). x * 1 and x / 1 are x.

    s + dynamic_update_slice(zeros, u, i)   ->   dynamic_update_slice(s, dynamic_slice(s, i) + u, i)
    s + pad(u, 0, low, high)                ->   dynamic_update_slice(s, slice(s) + u, low)
    s + scatter(zeros, i, u)                ->   scatter(s, i, u, body = add)     with unique indices
    s - 0.1 * dynamic_update_slice(zeros, u, i)   ->   dynamic_update_slice(s, dynamic_slice(s, i) - 0.1 * u, i)
    s / dynamic_update_slice(ones, u, i)          ->   dynamic_update_slice(s, dynamic_slice(s, i) / u, i)

x - 0 is x, also for -0, so steps of gradient descent need nothing to be known of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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

ADD, SUBTRACT, PAD = "stablehlo.add", "stablehlo.subtract", "stablehlo.pad"
NEGATE, MULTIPLY, DIVIDE = "stablehlo.negate", "stablehlo.multiply", "stablehlo.divide"


class _Part(NamedTuple):
    """A tensor of zeros of which a part is set, and the ops that scale it by constants, the first one first."""

    made: Op
    scaling: tuple[Op, ...]

    @property
    def is_negative(self) -> bool:
        """Whether the scaled zeros are -0."""
        negative = _splat_is_negative(self.made)
        for op in self.scaling:
            factor = _factor(op)
            negative ^= factor is None or bool(np.signbit(factor))  # without a factor, it is negated
        return negative


def added_slices(function: Op, _: Context) -> Op:
    """The function with such sums rewritten as updates in place."""
    if not any(_is_part_of(op, element) for op in walk(function.block()) for element in (0, 1)):
        return function
    uses, signs = Uses(function.block()), NoNegativeZeros(function.block())

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name in (MULTIPLY, DIVIDE):
            found = _scaled_part(uses, op)
            if found is None:
                return None
            state, made = found
            return [_changed(rw, op.name.partition(".")[2], rw.get(state), _Part(made, ()))]
        if op.name not in (ADD, SUBTRACT):
            return None
        for state, added in (op.operands, op.operands[::-1]):
            part = _part(uses, added, op)
            if part is None or state is added:
                continue
            if op.name == SUBTRACT and (added is op.operands[0] or part.made.name == SCATTER):
                continue
            changes_no_term = part.is_negative == (op.name == ADD)
            if changes_no_term or state in signs:
                return [_changed(rw, op.name.partition(".")[2], rw.get(state), part)]
        return None

    return rewrite(function, visit)


def _part(uses: Uses, value: Value, reader: Op) -> _Part | None:
    """Returns how a value that only one op reads is computed from a tensor of zeros of which a part is set, if nothing
    else reads what it is computed from; None for other values."""
    scaling: list[Op] = []
    while (op := value.op) is not None and uses.only(value, reader):
        if _is_part_of(op, 0):
            return None if scaling and op.name == SCATTER else _Part(op, tuple(scaling[::-1]))
        if op.name != NEGATE and _factor(op) is None:
            return None
        scaling.append(op)
        value, reader = op.operands[_scaled(op)], op
    return None


def _scaled(op: Op) -> int:
    """Returns which operand of an op is scaled: the one that is not the constant."""
    return int(op.name == MULTIPLY and splat_of(op.operands[0]) is not None)


def _factor(op: Op) -> float | None:
    """Returns the finite constant that an op multiplies by, or divides by if it is not 0; None for other ops. Zeros of
    floats remain zeros then."""
    if op.name not in (MULTIPLY, DIVIDE) or op.result.tensor.storage.kind != "f":
        return None
    element = splat_of(op.operands[1 - _scaled(op)])
    if element is None:
        return None
    factor = float(np.asarray(element).astype(np.float64))
    return None if not np.isfinite(factor) or (op.name == DIVIDE and factor == 0) else factor


def _scaled_part(uses: Uses, op: Op) -> tuple[Value, Op] | None:
    """Returns the state that an op multiplies or divides, and the op that sets a part of the ones, which nothing else
    reads."""
    pairs = (op.operands, op.operands[::-1]) if op.name == MULTIPLY else (op.operands,)
    for state, ones in pairs:
        made = ones.op
        if made is not None and made.name != SCATTER and _is_part_of(made, 1) and uses.only(ones, op):
            return None if state is ones else (state, made)
    return None


def _is_part_of(op: Op | None, element: int) -> bool:
    """Whether an op sets a small part of a tensor of zeros, or of ones."""
    if op is None:
        return False
    if op.name == PAD:
        whole = all(n >= 0 for n in (*op.ints("edge_padding_low"), *op.ints("edge_padding_high")))
        plain = whole and not any(op.ints("interior_padding"))
        return plain and is_small_part(op.operands[0], op.result) and _is_splat(op.operands[1], element)
    if not is_partial(op) or not _is_splat(op.operands[0], element):
        return False
    if op.name == UPDATE:
        return True
    is_unique = bool(op.attributes.get("unique_indices", False))
    return is_unique and (adds_updates(op) or sets_updates(op))


def _is_splat(value: Value, element: int) -> bool:
    """Whether all elements of a value, which are not complex, equal a number."""
    found = splat_of(value)
    return found is not None and bool(np.asarray(found) == element) and not value.tensor.storage.is_complex


def _splat_is_negative(op: Op) -> bool:
    """Whether the zeros are -0, which change no summand."""
    element = splat_of(op.operands[1] if op.name == PAD else op.operands[0])
    return bool(np.signbit(np.asarray(element).astype(np.float64))) and op.name != SCATTER


def _changed(rw: Rewriter, name: str, state: Value, part: _Part) -> Value:
    """Emits the op `name` on a part of a state, whose other elements it leaves as they are."""
    made = part.made
    operands = [rw.get(v) for v in made.operands]
    if made.name == SCATTER:
        return _scatter(rw, made, [state, *operands[1:]])
    if made.name == PAD:
        term = operands[0]
        starts = [mk.constant(rw, tensor((), I32), n) for n in made.ints("edge_padding_low")]
    else:
        _, term, *starts = operands
    for op in part.scaling:
        if op.name == NEGATE:
            term = rw.emit1(NEGATE, [term], term.type)
            continue
        pair = [term, mk.constant(rw, term.tensor, splat_of(op.operands[1 - _scaled(op)]))]
        term = rw.emit1(op.name, pair[::-1] if _scaled(op) else pair, term.type)
    old = mk.window(rw, state, starts, mk.shape_of(term))
    return rw.emit1(UPDATE, [state, mk.apply(rw, name, old, term), *starts], state.type)


def _scatter(rw: Rewriter, made: Op, operands: list[Value]) -> Value:
    """Emits a scatter that adds its updates to a state."""
    scalar = tensor((), made.result.tensor.storage)
    arguments = [Value(scalar), Value(scalar)]
    place = rw.place()
    add = Op(ADD, list(arguments), [scalar], None, None, *place)
    done = Op("stablehlo.return", list(add.results), [], None, None, *place)
    regions = [Region([Block(arguments, [add, done])])]
    return rw.emit(SCATTER, operands, [made.result.type], made.attributes, regions)[0]
